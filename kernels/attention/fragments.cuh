/* fragments.cuh - what the tensor-core kernels of attention share: which keys a query sees, and the way of an
 * accumulator from its fragments (core/mma.cuh) to operands and to memory. */
#ifndef PB_ATTENTION_FRAGMENTS_CUH
#define PB_ATTENTION_FRAGMENTS_CUH
#include "kernels/attention/attention.h"
#include "kernels/core/copy_async.cuh"
#include "kernels/core/mma.cuh"

typedef __nv_bfloat16 bf16;
static constexpr float LOG2E = 1.4426950408889634f;

/* Query i of a batch row sees the keys [from, to). */
struct keys {
    int from, to;
};
__device__ static inline keys keys_of(const int32_t *start, int i, int S, bool causal)
{
    if (i >= S) return {S, 0};
    return {start ? max(start[i], 0) : 0, causal ? i + 1 : S};
}

/* The keys [lo, hi) that any of N queries from i0 on sees; all of them see the keys [solid_lo, solid_hi). hi <= lo:
 * none sees any. Every lane of the warp takes part and gets the same. */
struct key_range {
    int lo, hi, solid_lo, solid_hi;
};
template <int N> __device__ static inline key_range keys_of_tile(const int32_t *start, int i0, int S, bool causal)
{
    if (!start) return {0, causal ? min(i0 + N, S) : S, 0, causal ? i0 + 1 : S};
    key_range r = {S, 0, 0, S};
#pragma unroll 1 /* producers have few registers */
    for (int i = i0 + threadIdx.x % 32; i < i0 + N; i += 32) {
        const keys k = keys_of(start, i, S, causal);
        if (k.from < k.to) r.lo = min(r.lo, k.from), r.hi = max(r.hi, k.to);
        if (i < S) r.solid_lo = max(r.solid_lo, k.from), r.solid_hi = min(r.solid_hi, k.to);
    }
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) {
        r.lo = min(r.lo, __shfl_xor_sync(0xffffffffu, r.lo, d));
        r.hi = max(r.hi, __shfl_xor_sync(0xffffffffu, r.hi, d));
        r.solid_lo = max(r.solid_lo, __shfl_xor_sync(0xffffffffu, r.solid_lo, d));
        r.solid_hi = min(r.solid_hi, __shfl_xor_sync(0xffffffffu, r.solid_hi, d));
    }
    return r;
}

/* C tiles as A tiles. */
template <int NT> __device__ static inline void as_operand(uint32_t (&a)[NT / 2][4], const float (&c)[NT][4])
{
#pragma unroll
    for (int k = 0; k < NT / 2; k++) {
        a[k][0] = pack_bf16(c[2 * k][0], c[2 * k][1]);
        a[k][1] = pack_bf16(c[2 * k][2], c[2 * k][3]);
        a[k][2] = pack_bf16(c[2 * k + 1][0], c[2 * k + 1][1]);
        a[k][3] = pack_bf16(c[2 * k + 1][2], c[2 * k + 1][3]);
    }
}

/* x[i] of lane j of a quad becomes x[j] of lane i. */
__device__ static inline void transpose_quad(uint32_t (&x)[4])
{
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t got = __shfl_xor_sync(0xffffffffu, high ? x[i] : x[i + 2], 2);
        if (high) x[i] = got;
        else x[i + 2] = got;
    }
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? x[i] : x[i + 1], 1);
        if (odd) x[i] = got;
        else x[i + 1] = got;
    }
}

/* Stores the rows g and g+8 of NT tiles, times f0 and f8, at row0 and row8; a NULL row is left out, and so are the
 * columns from D (a multiple of 8) on. */
template <int NT>
__device__ static inline void store_rows(const float (&c)[NT][4], float f0, float f8, bf16 *row0, bf16 *row8, int D)
{
    static_assert(NT % 4 == 0, "a quad stores four tiles at a time");
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < NT; n += 4) {
        uint32_t a[4], b[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            a[i] = pack_bf16(f0 * c[n + i][0], f0 * c[n + i][1]);
            b[i] = pack_bf16(f8 * c[n + i][2], f8 * c[n + i][3]);
        }
        transpose_quad(a), transpose_quad(b);
        const int col = (n + t) * 8;
        if (row0 && col < D) *reinterpret_cast<uint4 *>(row0 + col) = make_uint4(a[0], a[1], a[2], a[3]);
        if (row8 && col < D) *reinterpret_cast<uint4 *>(row8 + col) = make_uint4(b[0], b[1], b[2], b[3]);
    }
}

/* One tile of online softmax on rows g and g+8. `s` are raw scores, -inf where masked; they become weights. sl =
 * scale * log2(e) > 0. top and sum are the state; the old outputs and sums count `keep` from now on. */
struct softmax_rows {
    float top[2], sum[2];
};
template <int NT>
__device__ static inline void softmax_tile(float (&s)[NT][4], softmax_rows &st, float sl, float (&keep)[2])
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = st.top[r];
#pragma unroll
        for (int n = 0; n < NT; n++) top = fmaxf(top, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        const float base = top == -INFINITY ? 0 : top * sl; /* nothing seen yet: every weight is 0, not NaN */
        keep[r] = pb_exp2_fast(st.top[r] * sl - base);
        float sum = 0;
#pragma unroll
        for (int n = 0; n < NT; n++) {
            s[n][2 * r] = pb_exp2_fast(s[n][2 * r] * sl - base);
            s[n][2 * r + 1] = pb_exp2_fast(s[n][2 * r + 1] * sl - base);
            sum += s[n][2 * r] + s[n][2 * r + 1];
        }
        st.top[r] = top;
        st.sum[r] = st.sum[r] * keep[r] + sum;
    }
}
/* Ends it: what outputs are multiplied by, and the row's lse. */
__device__ static inline float softmax_end(const softmax_rows &st, int r, float scale, float &lse)
{
    float sum = st.sum[r];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    lse = sum == 0 ? -INFINITY : st.top[r] * scale + logf(sum);
    return sum == 0 ? 0 : 1 / sum;
}
#endif
