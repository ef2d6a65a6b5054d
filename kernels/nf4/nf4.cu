/* nf4.cu - NF4 quantisation and dequantisation on the GPU. Both are memory-bound.
 *
 * To quantise, a thread owns 8 neighbouring elements, and every quantisation block belongs to one warp. To dequantise,
 * a thread owns four vectors of 16 output bytes and loads all their codes before its first store. On sm_90a a warp
 * collects its 2048 output bytes in shared memory and writes them with one TMA bulk copy.
 *
 * An element's code is found with a table of 32 cells of width 1/16 over [-1,1). Each cell contains at most one
 * threshold, so one look-up and one comparison replace fifteen comparisons. The 16 levels are in shared memory, one per
 * bank, so look-ups have no bank conflicts.
 *
 * Results equal the reference bit for bit, with one exception: the sum for `offset` adds its doubles in another order,
 * so its f32 differs when the sum is within 1e-16 of a rounding boundary. */
#include <math.h>

#include "kernels/cuda/cuda_pack.cuh"
#include "kernels/cuda/nf4_decode.cuh"
#include "kernels/cuda/wgmma.cuh"
#include "kernels/nf4/nf4.h"

namespace
{
/* When quantising, a thread processes EACH elements at a time and a warp PASS. CELLS: cells of the look-up table.
 * STEPS: vectors per lane when dequantising. */
enum { THREADS = 256, WARPS = THREADS / 32, EACH = 8, PASS = 32 * EACH, CELLS = 32, STEPS = 4 };

/* ---- quantise to NF4 -------------------------------------------------------------------------------------------- */

struct cell {
    float threshold; /* the threshold inside the cell; INFINITY: the cell has no threshold */
    int base;        /* number of thresholds below the cell */
};
struct cells {
    cell at[CELLS];
};

/* Builds the look-up table. Thresholds are at least 0.02 cell widths away from a cell border, so rounding in the
 * computation of the cell index cannot choose a wrong cell. */
cells make_cells()
{
    cells c;
    for (int i = 0; i < CELLS; i++) c.at[i] = {INFINITY, 0};
    for (int i = 0; i < 15; i++) {
        const float threshold = (pb_nf4_level[i] + pb_nf4_level[i + 1]) / 2;
        const int in = (int)floorf((threshold + 1) * 16);
        c.at[in].threshold = threshold;
        for (int k = in + 1; k < CELLS; k++) c.at[k].base++;
    }
    return c;
}

/* Returns the code of x. NaN is looked up in cell 0 and fails the comparison, so its code is 0. Infinities are looked
 * up in the first or last cell. */
__device__ unsigned code_of(const cell *table, float x)
{
    const int at = min(max(__float2int_rd(fmaf(x, 16, 16)), 0), CELLS - 1);
    const cell c = table[at];
    return (unsigned)(c.base + (x > c.threshold));
}

/* Loads elements e .. e+EACH-1 of w; elements from n on read as 0. vectors: w is aligned for 16-byte loads. */
template <class T> __device__ void load_each(const T *w, size_t e, size_t n, bool vectors, float (&v)[EACH])
{
    if (vectors && e + EACH <= n) {
#pragma unroll
        for (int i = 0; i < EACH; i += pb_lanes<T>) {
            float part[pb_lanes<T>];
            pb_load_vec<T, pb_lanes<T>>(w + e + i, part);
#pragma unroll
            for (int j = 0; j < pb_lanes<T>; j++) v[i + j] = part[j];
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) v[i] = e + i < n ? pb_to_f32(w[e + i]) : 0.0f;
}

/* Stores the codes of v * inverse for elements e .. e+EACH-1 that are below n. words: q is 4-byte aligned. */
__device__ void store_codes(const cell *table, const float (&v)[EACH], float inverse, size_t e, size_t n, bool words,
                            uint8_t *q)
{
    uint32_t packed = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        packed |= code_of(table, __fmul_rn(v[i], inverse)) << (8 * (i / 2) + (i % 2 ? 0 : 4));
    if (e >= n) return;
    if (words && e + EACH <= n) {
        *reinterpret_cast<uint32_t *>(q + e / 2) = packed;
        return;
    }
    for (size_t i = 0; i < EACH / 2 && e + 2 * i < n; i++) q[e / 2 + i] = (uint8_t)(packed >> (8 * i));
}

__device__ double warp_sum(double x)
{
    for (int d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

/* Sums x over the CTA's warps into sums[blockIdx.x]. Warps are added in a fixed order, so the sum is deterministic. */
__device__ void store_sum(double x, double *sums)
{
    __shared__ double room[WARPS];
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x) return;
    double all = 0;
    for (int w = 0; w < WARPS; w++) all += room[w];
    sums[blockIdx.x] = all;
}

/* Quantises w. A warp owns PASS elements or one quantisation block, whichever is larger. A block larger than PASS takes
 * several passes and is read twice. sums: NULL, or [gridDim.x] for each CTA's sum of absmax. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    quantize(const T *w, uint8_t *q, float *absmax, size_t n, int block, bool vectors, double *sums, const cells c)
{
    __shared__ cell table[CELLS];
    const int passes = block > PASS ? block / PASS : 1, lanes = block / EACH < 32 ? block / EACH : 32;
    const int lane = (int)threadIdx.x % 32;
    const size_t first = ((size_t)blockIdx.x * WARPS + threadIdx.x / 32) * PASS * passes + (size_t)lane * EACH;
    float v[EACH], most = 0;
    if (threadIdx.x < CELLS) table[threadIdx.x] = c.at[threadIdx.x];
    __syncthreads();
    for (int p = 0; p < passes; p++) {
        load_each(w, first + (size_t)p * PASS, n, vectors, v);
#pragma unroll
        for (int i = 0; i < EACH; i++) most = fmaxf(most, fabsf(v[i])); /* fmaxf ignores NaN */
    }
    for (int d = lanes / 2; d > 0; d >>= 1) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, d));
    const bool leads = lane % lanes == 0 && first < n;
    const float inverse = __fdiv_rn(1, most);
    if (leads) absmax[first / (size_t)block] = most;
    for (int p = 0; p < passes; p++) {
        if (passes > 1) load_each(w, first + (size_t)p * PASS, n, vectors, v);
        store_codes(table, v, inverse, first + (size_t)p * PASS, n, vectors, q);
    }
    if (sums) store_sum(leads ? (double)most : 0, sums);
}

/* One CTA computes offset, the mean of all absmax, from the CTA sums of quantize(). */
__global__ void __launch_bounds__(THREADS) mean_absmax(const double *sums, unsigned n, double blocks, float *offset)
{
    __shared__ double all[1];
    double x = 0;
    for (unsigned i = threadIdx.x; i < n; i += THREADS) x += sums[i];
    store_sum(x, all);
    if (threadIdx.x == 0) *offset = (float)(all[0] / blocks);
}

/* Returns the 8-bit code of x by the binary search of bitsandbytes' dQuantize, so that ties give the same code. */
__device__ int dynamic_code(const float *code, float x)
{
    int pivot = 127, upper = 255, lower = 0;
    for (int i = 64; i > 0; i >>= 1) {
        if (x > code[pivot]) lower = pivot, pivot += i;
        else upper = pivot, pivot -= i;
    }
    const float value = code[pivot];
    if (x > value) return x > __fmul_rn(__fadd_rn(code[upper], value), 0.5f) ? upper : pivot;
    return x < __fmul_rn(__fadd_rn(code[lower], value), 0.5f) ? lower : pivot;
}

/* Quantises the scales to 8 bits: a CTA owns one group of 256 scales, a thread one scale. */
__global__ void __launch_bounds__(256) quantize_scales(const float *absmax, size_t blocks, const float *map,
                                                       const float *offset, uint8_t *q, float *absmax2)
{
    __shared__ float code[256], room[8];
    const size_t k = (size_t)blockIdx.x * 256 + threadIdx.x;
    const float x = k < blocks ? __fsub_rn(absmax[k], *offset) : 0, warp = pb_warp_max(fabsf(x));
    float most = 0;
    code[threadIdx.x] = map[threadIdx.x];
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = warp;
    __syncthreads();
    for (int i = 0; i < 8; i++) most = fmaxf(most, room[i]);
    if (threadIdx.x == 0) absmax2[blockIdx.x] = most;
    if (k < blocks) q[k] = (uint8_t)dynamic_code(code, __fmul_rn(x, __fdiv_rn(1, most)));
}

unsigned quantize_grid(const pb_nf4_quantize_args *a)
{
    const size_t each = (size_t)WARPS * (a->block > PASS ? (size_t)a->block : (size_t)PASS);
    return (unsigned)((a->n + each - 1) / each);
}

size_t quantize_workspace(const void *args)
{
    const pb_nf4_quantize_args *a = static_cast<const pb_nf4_quantize_args *>(args);
    return a->absmax_q ? quantize_grid(a) * sizeof(double) : 0;
}

template <class T> pb_status launch_quantize(pb_ctx *ctx, const pb_nf4_quantize_args *a, double *sums)
{
    const T *w = static_cast<const T *>(a->w);
    const bool vectors = (uintptr_t)w % 16 == 0 && (uintptr_t)a->q % 4 == 0;
    quantize<T><<<quantize_grid(a), THREADS, 0, pb_cuda_stream(ctx)>>>(w, a->q, a->absmax, a->n, a->block, vectors,
                                                                       sums, make_cells());
    return pb_cuda_launched(ctx, "nf4_quantize");
}

pb_status run_quantize(pb_ctx *ctx, const void *args)
{
    const pb_nf4_quantize_args *a = static_cast<const pb_nf4_quantize_args *>(args);
    const size_t blocks = (a->n + (size_t)a->block - 1) / (size_t)a->block;
    double *sums = a->absmax_q ? static_cast<double *>(ctx->scratch) : NULL;
    if (!a->n) return PB_OK;
    PB_TRY(PB_CUDA_BY_DTYPE(a->dtype, launch_quantize, ctx, a, sums));
    if (!sums) return PB_OK;
    mean_absmax<<<1, THREADS, 0, pb_cuda_stream(ctx)>>>(sums, quantize_grid(a), (double)blocks, a->offset);
    PB_TRY(pb_cuda_launched(ctx, "nf4_quantize mean_absmax"));
    quantize_scales<<<(unsigned)((blocks + 255) / 256), 256, 0, pb_cuda_stream(ctx)>>>(
        a->absmax, blocks, a->code, a->offset, a->absmax_q, a->absmax2);
    return pb_cuda_launched(ctx, "nf4_quantize scales");
}

/* ---- dequantise from NF4 ---------------------------------------------------------------------------------------- */

/* Loads the E 4-bit codes of elements e .. e+E-1 in memory order. __ldcs is a streaming load: codes are read once. */
template <int E> __device__ uint32_t load_codes(const uint8_t *q, size_t e)
{
    if (E == 8) return __ldcs(reinterpret_cast<const unsigned *>(q + e / 2));
    return __ldcs(reinterpret_cast<const unsigned short *>(q + e / 2));
}

template <class T> __device__ void store_values(const float *level, uint32_t codes, float scale, T *w)
{
    float v[pb_lanes<T>];
#pragma unroll
    for (int i = 0; i < pb_lanes<T>; i++) v[i] = __fmul_rn(level[codes >> (8 * (i / 2) + (i % 2 ? 0 : 4)) & 15], scale);
    pb_store16(w, pb_pack(v));
}

/* Writes a warp's values from shared memory to `to` with one bulk copy; both are 16-byte aligned. The fence makes
 * the lanes' writes visible to the copy. Lane 0 waits until the copy has read `room`, because shared memory is
 * released when the CTA exits. */
__device__ void store_output(void *to, const void *room, uint32_t bytes)
{
#ifdef PB_SM90_CODE
    fence_async_shared();
    __syncwarp();
    if (threadIdx.x % 32) return;
    bulk_store(to, room, bytes);
    bulk_read_wait();
#endif
}

/* Kernel dequantize: a warp owns SHARE neighbouring elements: STEPS vectors per lane, with stride 32. Each lane loads
 * its codes and one scale before the CTA's barrier for the level table. One scale per lane is enough: a block has at
 * least 32 elements, so a share has at most 32 blocks. The scales are then exchanged by shuffles. BULK (sm_90a): a
 * whole share is written by one bulk copy. An incomplete or unaligned share is written element by element. */
template <class T, bool BULK>
__global__ void __launch_bounds__(THREADS)
    dequantize(const __grid_constant__ pb_nf4_view v, T *w, size_t n, bool vectors)
{
    constexpr int E = pb_lanes<T>, SHARE = STEPS * 32 * E;
    static_assert(SHARE <= 32 * 32, "one scale per lane is enough: a block has at least 32 elements");
    __shared__ float level[16];
    __shared__ alignas(16) T room[BULK ? WARPS : 1][SHARE];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const size_t first = ((size_t)blockIdx.x * WARPS + warp) * SHARE;
    const bool whole = vectors && first + SHARE <= n;
    uint32_t codes[STEPS] = {};
    float scale = 0;
    if (whole) {
        const size_t j = (first >> v.shift) + (lane << v.shift < SHARE ? lane : 0);
#pragma unroll
        for (int s = 0; s < STEPS; s++) codes[s] = load_codes<E>(v.q, first + (size_t)(s * 32 + lane) * E);
        scale = pb_nf4_scale_at(v.s, j);
    }
    if (threadIdx.x < 16) level[threadIdx.x] = v.level[threadIdx.x];
    __syncthreads();
    if (!whole) {
        for (size_t e = first + lane; e < first + SHARE && e < n; e += 32)
            w[e] = pb_from_f32<T>(pb_nf4_value_at(v, level, e));
        return;
    }
    T *to = (BULK ? room[warp] : w + first) + lane * E;
    to = static_cast<T *>(__builtin_assume_aligned(to, 16)); /* otherwise a 16-byte store may be split in four */
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        const float mine = __shfl_sync(0xffffffffu, scale, (s * 32 + lane) * E >> v.shift);
        store_values<T>(level, codes[s], mine, to + s * 32 * E);
    }
    if (BULK) store_output(w + first, room[warp], sizeof room[0]);
}

template <class T, bool BULK> pb_status launch_dequantize(pb_ctx *ctx, const pb_nf4_dequantize_args *a)
{
    const size_t each = (size_t)STEPS * THREADS * pb_lanes<T>;
    const bool vectors = (uintptr_t)a->w % 16 == 0 && (uintptr_t)a->q % 4 == 0;
    if (!a->n) return PB_OK;
    dequantize<T, BULK><<<(unsigned)((a->n + each - 1) / each), THREADS, 0, pb_cuda_stream(ctx)>>>(
        pb_nf4_view_of(a->q, &a->scales), static_cast<T *>(a->w), a->n, vectors);
    return pb_cuda_launched(ctx, "nf4_dequantize");
}

template <bool BULK> pb_status run_dequantize(pb_ctx *ctx, const void *args)
{
    const pb_nf4_dequantize_args *a = static_cast<const pb_nf4_dequantize_args *>(args);
    if (a->dtype == PB_F32) return launch_dequantize<float, BULK>(ctx, a);
    return launch_dequantize<__nv_bfloat16, BULK>(ctx, a);
}
} // namespace

extern "C" {
const pb_impl pb_nf4_quantize_cuda[] = {{.name = "warp", .run = run_quantize, .workspace = quantize_workspace}, {0}};
const pb_impl pb_nf4_dequantize_cuda[] = {{.name = "bulk", .run = run_dequantize<true>, .available = pb_cuda_has_sm90},
                                          {.name = "table", .run = run_dequantize<false>},
                                          {0}};
}
