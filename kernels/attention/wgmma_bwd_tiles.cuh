/* wgmma_bwd_tiles.cuh - for the wgmma backward kernels of attention: the step from weights to dS^T in registers, and
 * storing accumulators as f32. */
#ifndef PB_ATTENTION_WGMMA_BWD_TILES_CUH
#define PB_ATTENTION_WGMMA_BWD_TILES_CUH
#include "kernels/attention/wgmma_bwd_ends.cuh"

namespace
{
/* Computes dS^T = P^T (dP^T - delta) as operand `ds`. Also packs P^T as operand `p`, unless PACKED: then `p` is packed
 * already. Works on 16 queries at a time so that the registers of s and dp are freed early. Calls add(r, x) for each
 * element x of dS^T in row r (0: row g, 1: row g+8 of the accumulator). */
template <int D, bool PACKED, class F>
__device__ inline void differentiate(uint32_t (&p)[QUERIES<D> / 16][4], uint32_t (&ds)[QUERIES<D> / 16][4],
                                     const float (&s)[QUERIES<D> / 8][4], const float (&dp)[QUERIES<D> / 8][4],
                                     const query_stats<D> &st, F add)
{
    const unsigned lane = threadIdx.x % 32, col = lane % 4 * 2; /* of the accumulator tile */
#pragma unroll
    for (int k = 0; k < QUERIES<D> / 16; k++) {
        float x[2][4], y[2][4];
        uint32_t w[1][4];
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const float2 delta = *reinterpret_cast<const float2 *>(&st.delta[(2 * k + n) * 8 + col]);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                x[n][e] = s[2 * k + n][e];
                y[n][e] = x[n][e] * (dp[2 * k + n][e] - (e & 1 ? delta.y : delta.x));
                add(e >> 1, y[n][e]);
            }
        }
        if (!PACKED) {
            as_operand<2>(w, x);
#pragma unroll
            for (int e = 0; e < 4; e++) p[k][e] = w[0][e];
        }
        as_operand<2>(w, y);
#pragma unroll
        for (int e = 0; e < 4; e++) ds[k][e] = w[0][e];
    }
}

/* Stores NT accumulator tiles of a warpgroup as f32 in accumulator order: the float4 that its thread t holds of column
 * tile n is at float4 index n * 128 + t. */
template <int NT> __device__ inline void store_sums(float *to, const float (&c)[NT][4])
{
#pragma unroll
    for (int n = 0; n < NT; n++)
        reinterpret_cast<float4 *>(to)[n * 128 + threadIdx.x % 128] = make_float4(c[n][0], c[n][1], c[n][2], c[n][3]);
}
} // namespace
#endif
