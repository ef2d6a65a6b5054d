/* kv_qat.cu - FP8 quantise-dequantise on the GPU. Memory-bound.
 *
 * Kernel `lanes`: a group of neighbouring lanes, a power of two of them, holds one block, 16 bytes per lane, and
 * reduces amax by shuffles. The lanes after a row's last block copy the other R elements. Each thread has two vectors
 * in flight. Kernel `warps` takes every block size and alignment: one warp per block, element by element. FP8 rounding
 * uses f32 arithmetic instead of conversion instructions, so that every GPU gives the same bits. */
#include <math.h>

#define PB_E4M3_FN __host__ __device__ static inline
#include "kernels/cuda/cuda_pack.cuh"
#include "kernels/indexer/e4m3.h"
#include "kernels/kv_qat/kv_qat.h"

namespace
{
/* EACH: number of 16-byte vectors per thread of kernel `lanes`. */
enum { THREADS = 256, EACH = 2 };

struct scales {
    float s, inverse; /* inverse: 1/s, used for power-of-two scales only, where it is exact */
};

/* Returns the scale of a block from the bits of its largest |x|; NaN if the block has an element that is not finite. */
template <pb_qat_scale KIND> __device__ scales scales_of(uint32_t amax)
{
    if (amax >= 0x7f800000u) return {NAN, NAN};
    const float s = pb_e4m3_scale(__uint_as_float(amax), KIND == PB_QAT_F32);
    return {s, __uint_as_float((254u << 23) - __float_as_uint(s))};
}

/* Returns e4m3(clamp(x / s)) * s. Adding and subtracting `big`, whose ulp is the E4M3 step at |v|, rounds |v| to that
 * step. */
template <pb_qat_scale KIND> __device__ float through_fp8(float x, scales k)
{
    const float v = KIND == PB_QAT_F32 ? __fdiv_rn(x, k.s) : __fmul_rn(x, k.inverse);
    const float c = fminf(fabsf(v), 448.0f);
    const uint32_t bits = __float_as_uint(c) & 0x7f800000u, least = 121u << 23;
    const float big = __uint_as_float((bits > least ? bits : least) + (20u << 23));
    const float q = __fsub_rn(__fadd_rn(c, big), big);
    return __fmul_rn(copysignf(q, x), k.s);
}

__device__ uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }
__device__ uint32_t magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }

/* In kernel `lanes` a row takes `width` lanes, a multiple of the group size. Lanes 0 .. quantised-1 quantise; lanes
 * quantised .. used-1 copy; the others are idle. */
template <class T, pb_qat_scale KIND>
__global__ void __launch_bounds__(THREADS) lanes(pb_kv_qat_fwd_args a, int width, int quantised, int used, int group)
{
    constexpr int L = pb_lanes<T>;
    uint4 raw[EACH];
    size_t to[EACH];
    int v[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const size_t e = ((size_t)blockIdx.x * EACH + i) * THREADS + threadIdx.x;
        const size_t row = e >> 32 ? e / width : (uint32_t)e / (uint32_t)width; /* 32-bit division is faster */
        v[i] = row < (size_t)a.T ? (int)(e - row * width) : used;
        to[i] = row * a.ldy + (size_t)v[i] * L;
        raw[i] = v[i] < used ? pb_load16((const T *)a.x + row * a.ldx + (size_t)v[i] * L) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        float x[L];
        uint32_t most = 0;
        pb_unpack(raw[i], x);
#pragma unroll
        for (int u = 0; u < L; u++) most = larger(most, magnitude(x[u]));
        for (int d = group / 2; d > 0; d >>= 1) most = larger(most, __shfl_xor_sync(0xffffffffu, most, d));
        const scales k = scales_of<KIND>(most);
#pragma unroll
        for (int u = 0; u < L; u++) x[u] = through_fp8<KIND>(x[u], k);
        if (v[i] < used) pb_store16((T *)a.y + to[i], v[i] < quantised ? pb_pack(x) : raw[i]);
    }
}

/* In kernel `warps` one warp processes one piece of a row: a block, or, after the last block, the R elements to
 * copy. */
template <class T, pb_qat_scale KIND> __global__ void __launch_bounds__(THREADS) warps(pb_kv_qat_fwd_args a, int pieces)
{
    const size_t w = (size_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32, row = w / pieces;
    const int p = (int)(w - row * pieces), lane = threadIdx.x % 32, blocks = (a.D - a.R) / a.block;
    if (row >= (size_t)a.T) return;
    const T *x = (const T *)a.x + row * a.ldx + (size_t)p * a.block;
    T *y = (T *)a.y + row * a.ldy + (size_t)p * a.block;
    uint32_t most = 0;
    if (p == blocks) {
        for (int i = lane; i < a.R; i += 32) y[i] = x[i];
        return;
    }
    for (int i = lane; i < a.block; i += 32) most = larger(most, magnitude(pb_to_f32(x[i])));
    for (int d = 16; d > 0; d >>= 1) most = larger(most, __shfl_xor_sync(0xffffffffu, most, d));
    const scales k = scales_of<KIND>(most);
    for (int i = lane; i < a.block; i += 32) y[i] = pb_from_f32<T>(through_fp8<KIND>(pb_to_f32(x[i]), k));
}

/* Returns the lanes per block for kernel `lanes`: a power of two up to 32. 0: kernel `warps` must be used. */
template <class T> int group_of(const pb_kv_qat_fwd_args *a)
{
    const int n = a->block / pb_lanes<T>;
    const bool fit = pb_vectors_fit<T>(a->x, (size_t)a->D, a->ldx) && pb_vectors_fit<T>(a->y, (size_t)a->D, a->ldy);
    return fit && a->block % pb_lanes<T> == 0 && n <= 32 && (n & (n - 1)) == 0 ? n : 0;
}

template <class T, pb_qat_scale KIND> pb_status launch(pb_ctx *ctx, const pb_kv_qat_fwd_args *a)
{
    const int group = group_of<T>(a), pieces = (a->D - a->R) / a->block + (a->R > 0);
    if (a->T == 0) return PB_OK;
    if (group) {
        const int used = a->D / pb_lanes<T>, width = (int)pb_ceil_div(used, group) * group;
        const unsigned blocks = (unsigned)pb_ceil_div((size_t)a->T * width, THREADS * EACH);
        lanes<T, KIND>
            <<<blocks, THREADS, 0, pb_cuda_stream(ctx)>>>(*a, width, (a->D - a->R) / pb_lanes<T>, used, group);
        return pb_cuda_launched(ctx, "kv_qat lanes");
    }
    const unsigned blocks = (unsigned)pb_ceil_div((size_t)a->T * pieces, THREADS / 32);
    warps<T, KIND><<<blocks, THREADS, 0, pb_cuda_stream(ctx)>>>(*a, pieces);
    return pb_cuda_launched(ctx, "kv_qat warps");
}

template <class T> pb_status by_scale(pb_ctx *ctx, const pb_kv_qat_fwd_args *a)
{
    return a->scale == PB_QAT_F32 ? launch<T, PB_QAT_F32>(ctx, a) : launch<T, PB_QAT_UE8M0>(ctx, a);
}

pb_status fwd(pb_ctx *ctx, const void *args)
{
    const pb_kv_qat_fwd_args *a = static_cast<const pb_kv_qat_fwd_args *>(args);
    return PB_CUDA_BY_DTYPE(a->dtype, by_scale, ctx, a);
}
} // namespace

extern "C" const pb_impl pb_kv_qat_fwd_cuda[] = {{.name = "rows", .run = fwd}, {0}};
