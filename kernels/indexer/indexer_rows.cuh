/* indexer_rows.cuh - products of 32 rows of k, in the registers of a warp, with all heads of a token
 * in shared memory (mma.sync).
 *
 * The rows of k are the A operand: they are loaded once for many tokens, and the sum over heads is mostly within a
 * thread's own registers. The heads of a token are the B operand, 16 at a time. Codes are converted to bf16 when they
 * are loaded, which is exact; their scales are applied to w and to the result. */
#ifndef PB_INDEXER_ROWS_CUH
#define PB_INDEXER_ROWS_CUH
#include "kernels/cuda/mma.cuh"
#include "kernels/indexer/indexer.cuh"

template <int DP> constexpr int rows_ld = DP + 8; /* padding: the eight rows read by ldmatrix are in different banks */
__host__ __device__ static constexpr int padded_heads(int H) { return (H + 15) / 16 * 16; }
/* Returns the bytes of shared memory for the heads and weights of one token. */
template <int DP> static constexpr size_t heads_bytes(int H)
{
    return (size_t)padded_heads(H) * (rows_ld<DP> * sizeof(bf16) + sizeof(float));
}

__device__ static inline uint32_t decode_pair(uint32_t codes)
{
    return pack_bf16(pb_e4m3_decode((uint8_t)codes), pb_e4m3_decode((uint8_t)(codes >> 8)));
}

/* Starts the copy of a token's heads to q [Hp][rows_ld] and of its weights to w [Hp], with zeros beyond H and D. bf16
 * is copied with cp.async: the caller commits and waits. Codes are decoded and stored at once. */
template <int DP, bool CODES>
__device__ static inline void load_heads(bf16 *q, float *w, const pb_indexer &x, size_t token)
{
    constexpr int CHUNKS = DP / 8;
    const int Hp = padded_heads(x.H);
    const size_t at = token * x.H;
#pragma unroll 2
    for (int e = threadIdx.x; e < Hp * CHUNKS; e += INDEXER_THREADS) {
        const int h = e / CHUNKS, c = e % CHUNKS * 8;
        const bool there = h < x.H && c < x.D;
        bf16 *to = q + h * rows_ld<DP> + c;
        if (CODES) {
            uint2 raw = make_uint2(0, 0);
            if (there) raw = *(const uint2 *)((const uint8_t *)x.q + (at + h) * x.D + c);
            *(uint4 *)to =
                make_uint4(decode_pair(raw.x), decode_pair(raw.x >> 16), decode_pair(raw.y), decode_pair(raw.y >> 16));
        } else {
            const bf16 *from = (const bf16 *)x.q;
            copy_async(to, there ? from + (at + h) * x.D + c : from, there);
        }
    }
    for (int h = threadIdx.x; h < Hp; h += INDEXER_THREADS)
        w[h] = h < x.H ? x.w[at + h] * (CODES ? x.q_scale[at + h] : 1.0f) : 0;
}

/* 32 rows of k as A fragments (cuda/mma.cuh): a[m] holds rows 16m .. 16m+15. */
template <int DP> struct warp_rows {
    uint32_t a[2][DP / 16][4];
};

/* Loads the rows of k. row[m][half] is the row of k for row 16m + 8 half + lane/4 of the warp's 32; negative: zeros. */
template <int DP, bool CODES>
__device__ static inline void load_warp_rows(warp_rows<DP> &r, const pb_indexer &x, const int64_t (&row)[2][2])
{
    const int col = pb_mma_lane() % 4 * 2;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const int m = e / 2, half = e % 2, columns = row[m][half] < 0 ? 0 : x.D;
        const size_t at = columns ? (size_t)row[m][half] * x.D + col : 0;
        const uint8_t *codes = (const uint8_t *)x.k + at;
        const bf16 *values = (const bf16 *)x.k + at;
#pragma unroll
        for (int k = 0; k < DP / 8; k++) {
            uint32_t pair = 0;
            if (k * 8 < columns) /* D is a multiple of 8 */
                pair = CODES ? decode_pair(*(const uint16_t *)(codes + k * 8)) : *(const uint32_t *)(values + k * 8);
            r.a[m][k / 2][k % 2 * 2 + half] = pair;
        }
    }
}
/* Returns the row (of the warp's 32) whose score score_rows() returns in this lane. */
__device__ static inline int lane_row(void) { return pb_mma_lane() % 4 * 8 + pb_mma_lane() / 4; }

/* Returns sum_h w_h max(q_h . row, 0) for row lane_row() of the warp. */
template <int DP>
__device__ static inline float score_rows(const warp_rows<DP> &r, const bf16 *q, const float *w, int Hp)
{
    const int lane = pb_mma_lane(), in_quad = lane % 4;
    float part[4] = {};
#pragma unroll 1
    for (int h = 0; h < Hp; h += 16) {
        float c[2][2][4] = {};
#pragma unroll
        for (int k = 0; k < DP; k += 32) {
            uint32_t y[4], z[4];
            pb_ldmatrix(y, q + (h + lane % 8) * rows_ld<DP> + k + lane / 8 * 8);
            pb_ldmatrix(z, q + (h + 8 + lane % 8) * rows_ld<DP> + k + lane / 8 * 8);
#pragma unroll
            for (int m = 0; m < 2; m++) {
                pb_mma(c[m][0], r.a[m][k / 16], y[0], y[1]);
                pb_mma(c[m][1], r.a[m][k / 16], z[0], z[1]);
                pb_mma(c[m][0], r.a[m][k / 16 + 1], y[2], y[3]);
                pb_mma(c[m][1], r.a[m][k / 16 + 1], z[2], z[3]);
            }
        }
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const float2 v = *(const float2 *)(w + h + n * 8 + in_quad * 2);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                part[i] = fmaf(relu(c[i / 2][n][i % 2 * 2]), v.x, part[i]);
                part[i] = fmaf(relu(c[i / 2][n][i % 2 * 2 + 1]), v.y, part[i]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        part[i] += __shfl_xor_sync(0xffffffffu, part[i], 1);
        part[i] += __shfl_xor_sync(0xffffffffu, part[i], 2);
    }
    return in_quad == 0 ? part[0] : in_quad == 1 ? part[1] : in_quad == 2 ? part[2] : part[3];
}
#endif
