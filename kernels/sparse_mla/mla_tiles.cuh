/* mla_tiles.cuh - shared by the mma.sync passes of MLA: tiles in shared memory and products of them.
 *
 * A CTA of eight warps works on 16 G heads of one token (the rows of a tile, in G groups of 16) and on 32 rows of kv.
 * Warp w belongs to group w % G and computes share w / G of the columns. Rows of tiles are padded by 16 bytes, so that
 * eight rows of one column are in different banks. For the fragments see cuda/mma.cuh. */
#ifndef PB_MLA_TILES_CUH
#define PB_MLA_TILES_CUH
#include "kernels/cuda/mma.cuh"
#include "kernels/sparse_mla/mla_impls.cuh"

typedef __nv_bfloat16 bf16;
static constexpr int MLA_THREADS = 256, MLA_KEYS = 32;
static constexpr int MLA_P_LD = MLA_KEYS + 8; /* row length of a tile of weights [heads][keys] */
static constexpr float MLA_LOG2E = 1.4426950408889634f, MLA_LN2 = 0.6931471805599453f;
template <int DP> constexpr int mla_ld = DP + 8;

/* The heads h .. h + n - 1 of token (b,i) that a CTA computes. */
struct mla_cta_work {
    int b, i, h, n;
    size_t head; /* index of the first in lse */
};
template <int G> __device__ static inline mla_cta_work mla_heads_of(const pb_mla &p, size_t token, int block)
{
    const int h = block * 16 * G;
    return {(int)(token / p.S), (int)(token % p.S), h, min(16 * G, p.H - h), token * p.H + h};
}

/* Starts to copy n of ROWS rows, each `columns` elements without gaps, to a tile of DP columns. The rest of the tile is
 * set to 0. */
template <int DP, int ROWS>
__device__ static inline void mla_load_rows(bf16 *tile, const bf16 *from, int n, int columns)
{
    constexpr int CHUNKS = DP / 8;
    for (int e = threadIdx.x; e < ROWS * CHUNKS; e += MLA_THREADS) {
        const int r = e / CHUNKS, c = e % CHUNKS * 8;
        const bool there = r < n && c < columns;
        copy_async(tile + r * mla_ld<DP> + c, there ? from + (size_t)r * columns + c : from, there);
    }
}

/* Starts to copy the rows of kv of slots w0 .. w0+31 to a tile. Masked slots become zeros, and row[k] is the row of
 * slot k, or -1 if it is masked. */
template <int DP>
__device__ static inline void mla_load_slots(bf16 *tile, int *row, const pb_mla &p, const pb_mla_keys &keys, int b,
                                             int w0)
{
    constexpr int CHUNKS = DP / 8;
    const bf16 *kv = (const bf16 *)p.kv + (size_t)b * p.S_kv * p.D;
    for (int e = threadIdx.x; e < MLA_KEYS * CHUNKS; e += MLA_THREADS) {
        const int k = e / CHUNKS, c = e % CHUNKS * 8, r = w0 + k < keys.n ? pb_mla_row(&p, &keys, w0 + k) : -1;
        const bool there = r >= 0 && c < p.D;
        copy_async(tile + k * mla_ld<DP> + c, there ? kv + (size_t)r * p.D + c : kv, there);
        if (c == 0) row[k] = r;
    }
}

/* Computes c = A B^T over DEPTH columns. A: 16 rows at `a`; B: 8 rows at `b`. */
template <int DEPTH>
__device__ static inline void mla_dot(float (&c)[4], const bf16 *a, int lda, const bf16 *b, int ldb)
{
    const int lane = pb_mma_lane();
    c[0] = c[1] = c[2] = c[3] = 0;
#pragma unroll 4
    for (int k = 0; k < DEPTH; k += 32) {
        uint32_t x[4], y[4], z[4];
        pb_load_a(x, a + k, lda);
        pb_load_a(z, a + k + 16, lda);
        pb_ldmatrix(y, b + lane % 8 * ldb + k + lane / 8 * 8);
        pb_mma(c, x, y[0], y[1]);
        pb_mma(c, z, y[2], y[3]);
    }
}

/* Computes out (16 rows, NT tiles of 8 columns) += the 16 rows of weights at `w` times the MLA_KEYS rows at `z`. */
template <int NT>
__device__ static inline void mla_add_weighted(float (&out)[NT][4], const bf16 *w, const bf16 *z, int ldz)
{
    static_assert(NT % 2 == 0, "columns come 16 at a time");
#pragma unroll
    for (int k = 0; k < MLA_KEYS; k += 16) {
        uint32_t a[4], y[4];
        pb_load_a(a, w + k, MLA_P_LD);
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            pb_load_b2(y, z + k * ldz + n * 8, ldz);
            pb_mma(out[n], a, y[0], y[1]);
            pb_mma(out[n + 1], a, y[2], y[3]);
        }
    }
}

/* Stores rows r and r+8 of NT tiles, times f0 and f8, to rows of `columns` elements without gaps; rows from n on are
 * skipped. */
template <int NT>
__device__ static inline void mla_store(const float (&c)[NT][4], float f0, float f8, bf16 *to, int r, int n, int col,
                                        int columns)
{
#pragma unroll
    for (int t = 0; t < NT; t++) {
        const int d = col + t * 8 + pb_mma_lane() % 4 * 2;
        if (d >= columns) continue;
        uint32_t *const x = reinterpret_cast<uint32_t *>(to + (size_t)r * columns + d);
        uint32_t *const y = reinterpret_cast<uint32_t *>(to + (size_t)(r + 8) * columns + d);
        if (r < n) *x = pack_bf16(f0 * c[t][0], f0 * c[t][1]);
        if (r + 8 < n) *y = pack_bf16(f8 * c[t][2], f8 * c[t][3]);
    }
}

/* Returns true if p is aligned for 16-byte accesses. */
static inline bool mla_aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

/* Launches a kernel with `bytes` of dynamic shared memory. */
template <class K, class... A>
static inline pb_status mla_launch(pb_ctx *ctx, const char *what, K *kernel, size_t blocks, size_t bytes, A... args)
{
    PB_TRY(pb_cuda_allow_shared(kernel, bytes));
    kernel<<<(unsigned)blocks, MLA_THREADS, bytes, pb_cuda_stream(ctx)>>>(args...);
    return pb_cuda_launched(ctx, what);
}
#endif
