/* fragments.cuh - for the tensor-core kernels of attention: computes which keys a query attends to, and the online
 * softmax of scores in accumulator fragments (layout: cuda/mma.cuh). */
#ifndef PB_ATTENTION_FRAGMENTS_CUH
#define PB_ATTENTION_FRAGMENTS_CUH
#include "kernels/attention/attention.h"
#include "kernels/cuda/copy_async.cuh"
#include "kernels/cuda/mma.cuh"

typedef __nv_bfloat16 bf16;
static constexpr float LOG2E = 1.4426950408889634f;

/* The queries and keys of a batch row: S queries, those of the last S of N keys. */
struct row_shape {
    int S, N;
    bool causal;
};

/* The kernels get arguments with keys > 0 (with_keys). */
template <class A> __device__ static inline row_shape shape_of(const A &a) { return {a.S, a.keys, a.causal}; }
/* The same; with MORE = false the compiler knows that N = S. */
template <bool MORE, class A> __device__ static inline row_shape shape_in(const A &a)
{
    return {a.S, MORE ? a.keys : a.S, a.causal};
}
template <class A> static inline A with_keys(A a)
{
    if (!a.keys) a.keys = a.S;
    return a;
}

/* Query i of a batch row attends to the keys [from, to). */
struct keys {
    int from, to;
};
__device__ static inline keys keys_of(const int32_t *start, int i, const row_shape &r)
{
    if (i >= r.S) return {r.N, 0};
    return {start ? max(start[i], 0) : 0, r.causal ? r.N - r.S + i + 1 : r.N};
}

/* Keys of M queries from i0 on: [lo, hi) are attended to by at least one of them, [solid_lo, solid_hi) by all. hi <=
 * lo: no query has a visible key. All 32 lanes must call keys_of_tile and receive the same result. SOLID = false:
 * solid_lo and solid_hi are left out, for warps that have few registers. */
struct key_range {
    int lo, hi, solid_lo, solid_hi;
};
template <int M, bool SOLID = true>
__device__ static inline key_range keys_of_tile(const int32_t *start, int i0, const row_shape &s)
{
    const int place = s.N - s.S + i0; /* the key of query i0 */
    if (!start) return {0, s.causal ? min(place + M, s.N) : s.N, 0, s.causal ? place + 1 : s.N};
    key_range r = {s.N, 0, 0, s.N};
#pragma unroll 1 /* producers have few registers */
    for (int i = i0 + threadIdx.x % 32; i < i0 + M; i += 32) {
        const keys k = keys_of(start, i, s);
        if (k.from < k.to) r.lo = min(r.lo, k.from), r.hi = max(r.hi, k.to);
        if (SOLID && i < s.S) r.solid_lo = max(r.solid_lo, k.from), r.solid_hi = min(r.solid_hi, k.to);
    }
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) {
        r.lo = min(r.lo, __shfl_xor_sync(0xffffffffu, r.lo, d));
        r.hi = max(r.hi, __shfl_xor_sync(0xffffffffu, r.hi, d));
        if (!SOLID) continue;
        r.solid_lo = max(r.solid_lo, __shfl_xor_sync(0xffffffffu, r.solid_lo, d));
        r.solid_hi = min(r.solid_hi, __shfl_xor_sync(0xffffffffu, r.solid_hi, d));
    }
    return r;
}

/* State of the online softmax for rows g and g+8 (g = lane/4). top: running maximum of the unscaled scores; sum: sum of
 * the weights that this lane has computed. */
struct softmax_rows {
    float top[2], sum[2];
};
/* Processes one tile. `s` holds unscaled scores, -inf where masked, and receives the weights. sl = scale * log2(e) > 0.
 * `keep` receives the factor by which the caller must rescale its earlier outputs. */
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
        const float base = top == -INFINITY ? 0 : top * sl; /* no visible key yet: weights are 0, not NaN */
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
/* Finishes row r: returns the factor for the outputs (0 for a query without visible keys) and sets its lse. */
__device__ static inline float softmax_end(const softmax_rows &st, int r, float scale, float &lse)
{
    float sum = st.sum[r];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    lse = sum == 0 ? -INFINITY : st.top[r] * scale + logf(sum);
    return sum == 0 ? 0 : 1 / sum;
}
#endif
