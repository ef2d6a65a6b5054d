/* clip.cu - gradient clipping on a GPU. sqsum, reduce and scale take one kernel launch each; multi takes two, or three
 * if it scales.
 *
 * The unit of work is a slot, one partial sum (clip.h). One CTA sums a slot in a fixed order; one CTA adds all slots in
 * double precision. Limited by memory bandwidth: 4 bytes per element for the norm, and 8 more if the scale is not 1. */
#include <math.h>

#include "kernels/clip/clip.h"
#include "kernels/cuda/cuda_list.cuh"
#include "kernels/cuda/cuda_pack.cuh"

enum { THREADS = 256, LOADS = 8, REDUCERS = 1024 };

/* slots_of and run_of compute pb_clip_slots and pb_clip_run (clip.h) in device code. */
__device__ static inline int slots_of(size_t n)
{
    const size_t s = (n + 1023) / 1024;
    return (int)(s < 256 ? s : 256);
}
__device__ static inline size_t run_of(size_t n, int slots)
{
    /* If there are fewer than 256 slots, n fits 32 bits. A 64-bit division is slow. */
    const size_t run = slots == 256 ? (n + 255) / 256 : ((uint32_t)n + slots - 1) / slots;
    return (run + 63) / 64 * 64;
}

struct range {
    size_t first, end;
};
__device__ static inline range slot_range(size_t n, size_t slot, size_t given = 0)
{
    if (n == 0) return {0, 0};
    const size_t run = given ? given : run_of(n, slots_of(n)), first = slot * run < n ? slot * run : n;
    return {first, n - first < run ? n : first + run};
}

/* ---- sqsum: sums of squares, one per slot ----------------------------------------------------------------------- */

/* 16 bytes of elements: four of f32, eight of bf16. */
template <class T> struct pack_of {
    using type = float4;
};
template <> struct pack_of<__nv_bfloat16> {
    using type = uint4;
};

__device__ static inline float square(float4 v) { return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w; }
__device__ static inline float square(uint4 v)
{
    float x[8];
    pb_unpack(v, x);
    return ((x[0] * x[0] + x[1] * x[1]) + (x[2] * x[2] + x[3] * x[3])) +
           ((x[4] * x[4] + x[5] * x[5]) + (x[6] * x[6] + x[7] * x[7]));
}

/* Returns the sum of squares of x[first..end) to every thread of the CTA. first is a multiple of 64. */
template <class T> __device__ static float sum_range(const T *x, range r, float *room)
{
    using pack = typename pack_of<T>::type;
    constexpr int EACH = 16 / sizeof(T);
    const pack *q = (const pack *)(x + r.first);
    const size_t n = (uintptr_t)x % 16 == 0 ? (r.end - r.first) / EACH : 0;
    float sum[LOADS] = {};
    size_t i = threadIdx.x;
    for (; i + (LOADS - 1) * THREADS < n; i += LOADS * THREADS) {
        pack v[LOADS];
#pragma unroll
        for (int u = 0; u < LOADS; u++) v[u] = q[i + u * THREADS];
#pragma unroll
        for (int u = 0; u < LOADS; u++) sum[u] += square(v[u]);
    }
    for (; i < n; i += THREADS) sum[0] += square(q[i]);
    for (i = r.first + EACH * n + threadIdx.x; i < r.end; i += THREADS) {
        const float v = pb_to_f32(x[i]);
        sum[0] += v * v;
    }
#pragma unroll
    for (int d = 1; d < LOADS; d *= 2)
#pragma unroll
        for (int u = 0; u < LOADS; u += 2 * d) sum[u] += sum[u + d];
    return pb_block_sum<THREADS>(sum[0], room);
}

__global__ static void __launch_bounds__(THREADS) clip_sums(pb_clip_sqsum_args a)
{
    __shared__ float room[THREADS / 32];
    const float sum = sum_range(a.x, slot_range(a.n, blockIdx.x, a.run), room);
    if (threadIdx.x == 0) a.partial[blockIdx.x] = sum;
}

__global__ static void __launch_bounds__(THREADS) clip_list_sums(pb_clip_multi_args a)
{
    __shared__ float room[THREADS / 32];
    pb_list_cursor cursor = {};
    for (uint32_t s = blockIdx.x; s < (uint32_t)a.slots; s += gridDim.x) {
        uint32_t slot;
        const int i = pb_list_find(&cursor, a.n, s, &slot, [&](int k) { return slots_of(a.list[k].n); });
        if (i < 0) return;
        const pb_clip_entry e = a.list[i];
        const range r = slot_range(e.n, slot);
        const float sum = e.dtype == PB_BF16 ? sum_range((const __nv_bfloat16 *)e.x, r, room)
                                             : sum_range((const float *)e.x, r, room);
        if (threadIdx.x == 0) a.partial[s] = sum;
    }
}

/* ---- reduce: the norm and the scale from the sums --------------------------------------------------------------- */

__device__ static inline double warp_sum(double x)
{
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

__global__ static void __launch_bounds__(REDUCERS)
    clip_state(const float *partial, int slots, const float *loss_scale, float max_norm, pb_clip_state *state)
{
    __shared__ double room[REDUCERS / 32];
    double sum = 0;
#pragma unroll 8
    for (int s = threadIdx.x; s < slots; s += REDUCERS) sum += (double)partial[s];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    const double carried = loss_scale ? (double)*loss_scale : 1, max = (double)max_norm;
    const double norm = sqrt(warp_sum(room[threadIdx.x])) / carried;
    const bool finite = isfinite((float)norm);
    if (threadIdx.x == 0)
        *state = {finite ? (float)((norm > max ? max / norm : 1) / carried) : 1.0f, (float)norm, finite ? 0.0f : 1.0f,
                  0.0f};
}

static pb_status reduce(pb_ctx *ctx, const float *partial, int slots, const float *loss_scale, float max_norm,
                        pb_clip_state *state)
{
    clip_state<<<1, REDUCERS, 0, pb_cuda_stream(ctx)>>>(partial, slots, loss_scale, max_norm, state);
    return pb_cuda_launched(ctx, "clip_state");
}

/* ---- scale: multiplying the gradients --------------------------------------------------------------------------- */

__device__ static inline float4 times(float4 v, float k) { return make_float4(v.x * k, v.y * k, v.z * k, v.w * k); }
__device__ static inline uint4 times(uint4 v, float k)
{
    float x[8];
    pb_unpack(v, x);
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] *= k;
    return pb_pack(x);
}

/* One CTA multiplies x[first..end) by scale; first is a multiple of 64. */
template <class T> __device__ static void scale_range(T *x, range r, float scale)
{
    using pack = typename pack_of<T>::type;
    constexpr int EACH = 16 / sizeof(T);
    pack *q = (pack *)(x + r.first);
    const size_t n = (uintptr_t)x % 16 == 0 ? (r.end - r.first) / EACH : 0;
    size_t i = threadIdx.x;
    for (; i + (LOADS - 1) * THREADS < n; i += LOADS * THREADS) {
        pack v[LOADS];
#pragma unroll
        for (int u = 0; u < LOADS; u++) v[u] = q[i + u * THREADS];
#pragma unroll
        for (int u = 0; u < LOADS; u++) q[i + u * THREADS] = times(v[u], scale);
    }
    for (; i < n; i += THREADS) q[i] = times(q[i], scale);
    for (i = r.first + EACH * n + threadIdx.x; i < r.end; i += THREADS) x[i] = pb_from_f32<T>(pb_to_f32(x[i]) * scale);
}

/* The number of elements that a CTA scales in one iteration of the unrolled loop of scale_range. */
enum { SCALE_RUN = 4 * LOADS * THREADS };

__global__ static void __launch_bounds__(THREADS) clip_scale(pb_clip_scale_args a)
{
    const float scale = a.state->scale;
    if (scale == 1) return;
    for (size_t first = (size_t)blockIdx.x * SCALE_RUN; first < a.n; first += (size_t)gridDim.x * SCALE_RUN)
        scale_range(a.x, {first, a.n - first < SCALE_RUN ? a.n : first + SCALE_RUN}, scale);
}

__global__ static void __launch_bounds__(THREADS) clip_list_scale(pb_clip_multi_args a)
{
    const float scale = a.state->scale;
    pb_list_cursor cursor = {};
    if (scale == 1) return;
    for (uint32_t s = blockIdx.x; s < (uint32_t)a.slots; s += gridDim.x) {
        uint32_t slot;
        const int i = pb_list_find(&cursor, a.n, s, &slot, [&](int k) { return slots_of(a.list[k].n); });
        if (i < 0) return;
        const pb_clip_entry e = a.list[i];
        const range r = slot_range(e.n, slot);
        if (e.dtype == PB_BF16) scale_range((__nv_bfloat16 *)e.x, r, scale);
        else scale_range((float *)e.x, r, scale);
    }
}

/* ---- host functions that launch the kernels --------------------------------------------------------------------- */

/* Returns the number of CTAs of a persistent grid: four per SM, at most `work`. */
static unsigned persistent_grid(const pb_ctx *ctx, size_t work)
{
    const size_t most = 4 * (size_t)pb_cuda_device_of(ctx)->sms;
    return (unsigned)(work < most ? work : most);
}

static pb_status run_sqsum(pb_ctx *ctx, const void *args)
{
    const pb_clip_sqsum_args *a = (const pb_clip_sqsum_args *)args;
    clip_sums<<<(unsigned)pb_clip_sqsum_slots(a), THREADS, 0, pb_cuda_stream(ctx)>>>(*a);
    return pb_cuda_launched(ctx, "clip_sums");
}

static pb_status run_reduce(pb_ctx *ctx, const void *args)
{
    const pb_clip_reduce_args *a = (const pb_clip_reduce_args *)args;
    return reduce(ctx, a->partial, a->slots, a->loss_scale, a->max_norm, a->state);
}

static pb_status run_scale(pb_ctx *ctx, const void *args)
{
    const pb_clip_scale_args *a = (const pb_clip_scale_args *)args;
    if (a->n == 0) return PB_OK;
    clip_scale<<<persistent_grid(ctx, pb_ceil_div(a->n, SCALE_RUN)), THREADS, 0, pb_cuda_stream(ctx)>>>(*a);
    return pb_cuda_launched(ctx, "clip_scale");
}

static pb_status run_multi(pb_ctx *ctx, const void *args)
{
    const pb_clip_multi_args *a = (const pb_clip_multi_args *)args;
    const unsigned blocks = persistent_grid(ctx, a->slots);
    if (blocks) {
        clip_list_sums<<<blocks, THREADS, 0, pb_cuda_stream(ctx)>>>(*a);
        PB_TRY(pb_cuda_launched(ctx, "clip_list_sums"));
    }
    PB_TRY(reduce(ctx, a->partial, a->slots, a->loss_scale, a->max_norm, a->state));
    if (!blocks || !a->apply) return PB_OK;
    clip_list_scale<<<blocks, THREADS, 0, pb_cuda_stream(ctx)>>>(*a);
    return pb_cuda_launched(ctx, "clip_list_scale");
}

extern "C" const pb_impl pb_clip_sqsum_cuda[] = {{.name = "slots", .run = run_sqsum}, {0}};
extern "C" const pb_impl pb_clip_reduce_cuda[] = {{.name = "block", .run = run_reduce}, {0}};
extern "C" const pb_impl pb_clip_scale_cuda[] = {{.name = "runs", .run = run_scale}, {0}};
extern "C" const pb_impl pb_clip_multi_cuda[] = {{.name = "slots", .run = run_multi}, {0}};
