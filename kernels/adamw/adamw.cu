/* adamw.cu - the AdamW step on a GPU in two kernel launches, or three if some moments are in bf16 or 8 bits. The first,
 * of one warp, checks the clip states and the loss, increments the step number, and writes the coefficients that all
 * tensors share to the scratch memory. It is a launch of its own because the state must not change while CTAs of the
 * update still read it. The second updates all tensors with f32 moments.
 *
 * The tensors are divided into chunks. Persistent grid: each CTA takes every n-th chunk. A thread has four independent
 * 16-byte loads in flight. Limited by memory bandwidth: 28 bytes per element, 30 for bf16 weights with f32 masters.
 *
 * The third launch updates the tensors with moments in bf16 or 8 bits, which need more registers and, for the maps,
 * shared memory. A warp takes a block of 256 elements, 8 per lane, and keeps its moments in registers. */
#include <math.h>

#define PB_ADAMW_FN __device__ static inline
#include "kernels/adamw/adamw.h"
#include "kernels/adamw/moments.h"
#include "kernels/cuda/cuda_list.cuh"
#include "kernels/cuda/cuda_pack.cuh"

enum { THREADS = 256, CHUNK = 16 * THREADS };
/* CTAs per SM; with 4 of adamw_update, sm_80 would spill registers. */
enum { BLOCKS = 4, BLOCKS_BEFORE_90 = 3 };
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
enum { RESIDENT = BLOCKS_BEFORE_90 };
#else
enum { RESIDENT = BLOCKS };
#endif

/* The coefficients that adamw_begin writes to the scratch memory for adamw_update. */
struct shared_coefs {
    double lr;
    float rate;    /* lr / (1 - b1^t) */
    float unbias2; /* 1 / sqrt(1 - b2^t) */
    int skip;
    uint32_t key; /* of the random bits, pb_adamw_mix(t) */
};

__global__ static void __launch_bounds__(32) adamw_begin(pb_adamw_step_args a, shared_coefs *c)
{
    bool skip = a.loss && !isfinite(*a.loss);
    for (int i = threadIdx.x; i < a.nclip; i += 32) skip = skip || a.clip[i].skip != 0;
    skip = __any_sync(0xffffffffu, skip);
    if (threadIdx.x != 0) return;
    const bool guarded = a.guard && *a.guard != 0;
    c->skip = skip || guarded;
    if (c->skip) {
        a.state->skipped++;
        if (!skip) a.state->guarded++;
        return;
    }
    const double t = ++a.state->step;
    c->key = pb_adamw_mix((uint32_t)a.state->step);
    c->lr = (double)a.state->lr;
    c->rate = (float)(c->lr / (1 - pow((double)a.beta1, t)));
    c->unbias2 = (float)(1 / sqrt(1 - pow((double)a.beta2, t)));
}

/* The argument of adamw_update. It is passed by value, so that values which are constant for a call are in constant
 * memory and need no registers. */
struct step_call {
    pb_adamw_step_args a;
    float one_b1, one_b2; /* 1 - beta, rounded once */
};

/* The coefficients of the update that are equal for all elements of a tensor. */
struct coefs {
    float scale, keep, rate, unbias2;
};

__device__ static inline void move(float &p, float m, float v, const step_call &s, const coefs &c)
{
    p = p * c.keep - m * c.rate / (sqrtf(v) * c.unbias2 + s.a.eps);
}

__device__ static inline void update(float &p, float g, float &m, float &v, const step_call &s, const coefs &c)
{
    g *= c.scale;
    m = m * s.a.beta1 + g * s.one_b1;
    v = v * s.a.beta2 + g * g * s.one_b2;
    move(p, m, v, s, c);
}

__device__ static inline void round_to(const pb_adamw_entry &e, size_t i, float p)
{
    if (e.dtype == PB_BF16) ((__nv_bfloat16 *)e.w)[i] = pb_from_f32<__nv_bfloat16>(p);
    else ((float *)e.w)[i] = p;
}

__device__ static inline float grad_at(const pb_adamw_entry &e, size_t i)
{
    return e.grad_dtype == PB_BF16 ? pb_adamw_widen(((const uint16_t *)e.grad)[i]) : ((const float *)e.grad)[i];
}

/* Loads four gradients from element i on; i is a multiple of 4. */
__device__ static inline void load_grads(const float *grad, size_t i, float (&g)[4])
{
    const float4 x = *(const float4 *)(grad + i);
    g[0] = x.x, g[1] = x.y, g[2] = x.z, g[3] = x.w;
}
__device__ static inline void load_grads(const uint16_t *grad, size_t i, float (&g)[4])
{
    const uint2 x = *(const uint2 *)(grad + i);
    g[0] = __uint_as_float(x.x << 16), g[1] = __uint_as_float(x.x & 0xffff0000u);
    g[2] = __uint_as_float(x.y << 16), g[3] = __uint_as_float(x.y & 0xffff0000u);
}

__device__ static inline void update_one(const pb_adamw_entry &e, float *p, size_t i, const step_call &s,
                                         const coefs &c)
{
    update(p[i], grad_at(e, i), ((float *)e.m)[i], ((float *)e.v)[i], s, c);
    if (e.master) round_to(e, i, p[i]);
}

/* Updates four elements, from i (a multiple of 4) on. All arrays of the tensor are aligned to 16 bytes. G: type of the
 * gradients, float or uint16_t (bf16). */
template <class G>
__device__ static inline void update_quad(const pb_adamw_entry &e, float *p, size_t i, const step_call &s,
                                          const coefs &c)
{
    float4 *const m4 = (float4 *)((float *)e.m + i), *const v4 = (float4 *)((float *)e.v + i);
    float4 x = *(float4 *)(p + i), m = *m4, v = *v4;
    float g[4];
    load_grads((const G *)e.grad, i, g);
    update(x.x, g[0], m.x, v.x, s, c), update(x.y, g[1], m.y, v.y, s, c);
    update(x.z, g[2], m.z, v.z, s, c), update(x.w, g[3], m.w, v.w, s, c);
    *(float4 *)(p + i) = x, *m4 = m, *v4 = v;
    if (!e.master) return;
    if (e.dtype == PB_F32) *(float4 *)((float *)e.w + i) = x;
    else *(uint2 *)((__nv_bfloat16 *)e.w + i) = make_uint2(pb_pack_pair(x.x, x.y), pb_pack_pair(x.z, x.w));
}

/* Returns the gradient scale s of adamw.h. With a clip state it is the state's scale, or 1 if the gradients were scaled
 * in place before. Without a clip state it is 1 / loss scale. */
__device__ static inline float scale_of(const pb_adamw_step_args &a, const pb_adamw_entry &e)
{
    if (e.clip < 0) return a.loss_scale ? 1 / a.loss_scale[0] : 1;
    return a.scale_gradients ? a.clip[e.clip].scale : 1;
}

/* The chunks of a tensor in the launch for f32 moments, or in that for the other formats. */
__device__ static inline uint32_t chunks_of(const pb_adamw_entry &e, bool narrow)
{
    return (e.format != PB_ADAMW_F32) == narrow ? (uint32_t)((e.n + CHUNK - 1) / CHUNK) : 0;
}

__device__ static inline coefs coefs_of(const step_call &s, const pb_adamw_entry &e, const shared_coefs *shared)
{
    return {scale_of(s.a, e), (float)(1 - shared->lr * (double)e.decay), shared->rate, shared->unbias2};
}

__global__ static void __launch_bounds__(THREADS, RESIDENT) adamw_update(step_call s, const shared_coefs *shared)
{
    pb_list_cursor cursor = {};
    if (shared->skip) return;
    for (uint32_t chunk = blockIdx.x;; chunk += gridDim.x) {
        uint32_t within;
        const int i =
            pb_list_find(&cursor, s.a.n, chunk, &within, [&](int k) { return chunks_of(s.a.list[k], false); });
        if (i < 0) return;
        const pb_adamw_entry e = s.a.list[i];
        const coefs c = coefs_of(s, e, shared);
        float *p = e.master ? e.master : (float *)e.w;
        const size_t first = (size_t)within * CHUNK;
        const uint32_t n = (uint32_t)(e.n - first < CHUNK ? e.n - first : CHUNK);
        const uintptr_t all = (uintptr_t)p | (uintptr_t)e.grad | (uintptr_t)e.m | (uintptr_t)e.v | (uintptr_t)e.w;
        const uint32_t quads = all % 16 == 0 ? n / 4 : 0;
        if (e.grad_dtype == PB_BF16) {
#pragma unroll 1
            for (uint32_t k = threadIdx.x; k < quads; k += THREADS) update_quad<uint16_t>(e, p, first + 4 * k, s, c);
        } else {
            for (uint32_t k = threadIdx.x; k < quads; k += THREADS) update_quad<float>(e, p, first + 4 * k, s, c);
        }
        for (uint32_t k = 4 * quads + threadIdx.x; k < n; k += THREADS) update_one(e, p, first + k, s, c);
    }
}

/* ---- moments in bf16 and 8 bits ---------------------------------------------------------------------------- */

enum { EACH = PB_ADAMW_BLOCK / 32 }; /* elements of a block per lane: lane, lane + 32, ... */

/* The moments of a lane's elements. */
struct lane_moments {
    float m[EACH], v[EACH];
};

/* Reads the moments of the n elements from i on; elements beyond are 0. */
__device__ static inline void load_moments(const pb_adamw_entry &e, const float *maps, size_t i, int n, lane_moments &x)
{
    const int lane = threadIdx.x % 32;
    const bool codes = e.format == PB_ADAMW_8BIT;
    const float m_max = codes ? pb_adamw_absmax(e.m, e.n)[i / PB_ADAMW_BLOCK] : 0;
    const float v_max = codes ? pb_adamw_absmax(e.v, e.n)[i / PB_ADAMW_BLOCK] : 0;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const size_t at = i + 32 * k + lane;
        x.m[k] = x.v[k] = 0;
        if (32 * k + lane >= n) continue;
        if (codes) {
            x.m[k] = __fmul_rn(maps[((const uint8_t *)e.m)[at]], m_max);
            x.v[k] = __fmul_rn(maps[256 + ((const uint8_t *)e.v)[at]], v_max);
        } else {
            x.m[k] = pb_adamw_widen(((const uint16_t *)e.m)[at]);
            x.v[k] = pb_adamw_widen(((const uint16_t *)e.v)[at]);
        }
    }
}

/* Computes the moments after the step, and updates the weights. */
__device__ static inline void move_lane(const pb_adamw_entry &e, size_t i, int n, const step_call &s, const coefs &c,
                                        lane_moments &x)
{
    const int lane = threadIdx.x % 32;
    float *p = e.master ? e.master : (float *)e.w;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const size_t at = i + 32 * k + lane;
        if (32 * k + lane >= n) continue;
        const float g = __fmul_rn(c.scale, grad_at(e, at));
        x.m[k] = pb_adamw_next_m(x.m[k], g, s.a.beta1, s.one_b1);
        x.v[k] = pb_adamw_next_v(x.v[k], g, s.a.beta2, s.one_b2);
        float y = p[at];
        move(y, x.m[k], x.v[k], s, c);
        p[at] = y;
        if (e.master) round_to(e, at, y);
    }
}

__device__ static inline void store_bf16(const pb_adamw_entry &e, uint32_t key, size_t i, int n, const lane_moments &x)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const size_t at = i + 32 * k + lane;
        if (32 * k + lane >= n) continue;
        const uint32_t random = pb_adamw_random(key, e.first + (uint32_t)at);
        ((uint16_t *)e.m)[at] = pb_adamw_round(x.m[k], random);
        ((uint16_t *)e.v)[at] = pb_adamw_round(x.v[k], random >> 16);
    }
}

/* Returns the largest magnitude of the block. */
__device__ static inline float largest(const float (&x)[EACH])
{
    float max = 0;
#pragma unroll
    for (int k = 0; k < EACH; k++) max = fmaxf(max, fabsf(x[k]));
    for (int d = 16; d; d /= 2) max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, d));
    return max;
}

__device__ static inline void store_8bit(const pb_adamw_entry &e, const float *maps, size_t i, int n,
                                         const lane_moments &x)
{
    const int lane = threadIdx.x % 32;
    const float m_max = largest(x.m), v_max = largest(x.v);
    if (lane == 0) {
        pb_adamw_absmax(e.m, e.n)[i / PB_ADAMW_BLOCK] = m_max;
        pb_adamw_absmax(e.v, e.n)[i / PB_ADAMW_BLOCK] = v_max;
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const size_t at = i + 32 * k + lane;
        if (32 * k + lane >= n) continue;
        ((uint8_t *)e.m)[at] = pb_adamw_code_m(maps, x.m[k], m_max);
        ((uint8_t *)e.v)[at] = pb_adamw_code_v(maps + 256, x.v[k], v_max);
    }
}

__global__ static void __launch_bounds__(THREADS, 1) adamw_update_narrow(step_call s, const shared_coefs *shared)
{
    __shared__ float maps[512];
    pb_list_cursor cursor = {};
    if (shared->skip) return;
    for (int k = threadIdx.x; s.a.maps && k < 512; k += THREADS) maps[k] = s.a.maps[k];
    __syncthreads();
    for (uint32_t chunk = blockIdx.x;; chunk += gridDim.x) {
        uint32_t within;
        const int t = pb_list_find(&cursor, s.a.n, chunk, &within, [&](int k) { return chunks_of(s.a.list[k], true); });
        if (t < 0) return;
        const pb_adamw_entry e = s.a.list[t];
        const coefs c = coefs_of(s, e, shared);
        const size_t first = (size_t)within * CHUNK, end = e.n - first < CHUNK ? e.n : first + CHUNK;
        for (size_t i = first + threadIdx.x / 32 * PB_ADAMW_BLOCK; i < end; i += THREADS / 32 * PB_ADAMW_BLOCK) {
            const int n = end - i < PB_ADAMW_BLOCK ? (int)(end - i) : PB_ADAMW_BLOCK;
            lane_moments x;
            load_moments(e, maps, i, n, x);
            move_lane(e, i, n, s, c, x);
            if (e.format == PB_ADAMW_BF16) store_bf16(e, shared->key, i, n, x);
            else store_8bit(e, maps, i, n, x);
        }
    }
}

static pb_status run_step(pb_ctx *ctx, const void *args)
{
    const pb_adamw_step_args *a = (const pb_adamw_step_args *)args;
    const step_call s = {*a, (float)(1 - (double)a->beta1), (float)(1 - (double)a->beta2)};
    shared_coefs *shared = (shared_coefs *)ctx->scratch;
    adamw_begin<<<1, 32, 0, pb_cuda_stream(ctx)>>>(*a, shared);
    PB_TRY(pb_cuda_launched(ctx, "adamw_begin"));
    if (a->n == 0) return PB_OK;
    const pb_cuda_device *d = pb_cuda_device_of(ctx);
    const unsigned ctas = (unsigned)d->sms * (d->cc < 90 ? BLOCKS_BEFORE_90 : BLOCKS);
    adamw_update<<<ctas, THREADS, 0, pb_cuda_stream(ctx)>>>(s, shared);
    PB_TRY(pb_cuda_launched(ctx, "adamw_update"));
    if (!a->narrow) return PB_OK;
    adamw_update_narrow<<<BLOCKS *(unsigned)pb_cuda_device_of(ctx)->sms, THREADS, 0, pb_cuda_stream(ctx)>>>(s, shared);
    return pb_cuda_launched(ctx, "adamw_update_narrow");
}

static size_t step_workspace(const void *) { return sizeof(shared_coefs); }

extern "C" const pb_impl pb_adamw_step_cuda[] = {
    {.name = "chunks", .run = run_step, .workspace = step_workspace},
    {0},
};
