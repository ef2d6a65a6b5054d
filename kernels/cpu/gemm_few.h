/* gemm_few.h - sums of a product with few rows of A and a B that is stored [N,K], such as a dense layer of the one
 * token that a model writes next. Each element of B is used only M times, so the product is limited by reading B: its
 * rows are read in the order of memory, and nothing of them is packed. */
#ifndef PB_GEMM_FEW_H
#define PB_GEMM_FEW_H
#include "kernels/cpu/gemm_kernel.h"
#include "kernels/cpu/gemm_pack.h"
#include "kernels/cpu/gemm_plan.h"

/* The rows of B that are read at the same time, for M = 1, 2, and 3 or 4. Each is a stream of memory; with one row of
 * A, 3072 rows of 576 elements took 1.75 times as long with 4 streams as with 8, and 1.11 times as long with 8 as with
 * 16 (AVX2, f32 and bf16, 9 pairs). A prefetch 256 elements ahead gained nothing. Each pair of a stream and a row of A
 * needs an accumulator, and AVX2 has 16 vector registers. */
enum { FEW_STREAMS = PB_NR < 16 ? PB_NR : 16, FEW_STREAMS_2 = 8, FEW_STREAMS_4 = 4 };

/* Two vectors of elements, and what they belong to in a group of 2 PB_VLEN consecutive elements: of bf16, `low` has
 * those with an even index and `high` the others, because a 32-bit lane holds one of each, and both are widened by one
 * operation; of other types, `low` has the first PB_VLEN. */
typedef struct pair {
    vf low, high;
} pair;

/* Lanes that hold two bf16 each; aligned as one bf16 is. */
typedef uint32_t two_bf16 __attribute__((vector_size(PB_VLEN * 4), aligned(2), may_alias));

PB_INLINE pair pair_of_bf16(const void *p)
{
    const vu both = (vu) * (const two_bf16 *)p;
    return (pair){(vf)(both << 16), (vf)(both & 0xffff0000u)};
}

/* The n <= 2 PB_VLEN elements of a stored row from column `col` on; others are 0. */
PB_INLINE pair fetch_pair(source s, const pb_mat *m, size_t row, size_t col, int n)
{
    if (s == FROM_BF16) {
        const uint16_t *p = (const uint16_t *)m->p + row * m->ld + col;
        uint16_t some[2 * PB_VLEN] = {0};
        if (n == 2 * PB_VLEN) return pair_of_bf16(p);
        memcpy(some, p, (size_t)n * sizeof *some);
        return pair_of_bf16(some);
    }
    if (n <= PB_VLEN) return (pair){.low = fetch(s, m, row, col, n)};
    return (pair){fetch(s, m, row, col, PB_VLEN), fetch(s, m, row, col + PB_VLEN, n - PB_VLEN)};
}

/* Computes to[i*ld + r] = sum over k of a[i*lda + k] b[row + r][k] for i < m and r < rows <= FEW_STREAMS. Each row of
 * `a` has the order that few_rows_of_a gives it. The order of the additions depends on K alone. */
PB_INLINE void few_sums(source s, const pb_mat *b, const float *a, size_t lda, int m, size_t row, int rows, int K,
                        float *to, size_t ld)
{
    vf sum[FEW_STREAMS][PB_GEMM_FEW] = {0};
    for (int k = 0; k < K; k += 2 * PB_VLEN)
        for (int r = 0; r < rows; r++) {
            const pair w = K - k < 2 * PB_VLEN ? fetch_pair(s, b, row + (size_t)r, (size_t)k, K - k)
                                               : fetch_pair(s, b, row + (size_t)r, (size_t)k, 2 * PB_VLEN);
            for (int i = 0; i < m; i++) {
                const float *x = a + (size_t)i * lda + k;
                sum[r][i] = vf_fma(w.low, vf_load(x, 0, PB_F32), sum[r][i]);
                sum[r][i] = vf_fma(w.high, vf_load(x, PB_VLEN, PB_F32), sum[r][i]);
            }
        }
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < m; i++) to[(size_t)i * ld + (size_t)r] = vf_sum(sum[r][i]);
}

/* The same for any number of rows of B, `streams` of them at a time. */
PB_INLINE void few_streams(source s, const pb_mat *b, const float *a, size_t lda, int m, size_t row, int rows, int K,
                           float *to, size_t ld, int streams)
{
    int r = 0;
    for (; r + streams <= rows; r += streams) few_sums(s, b, a, lda, m, row + (size_t)r, streams, K, to + r, ld);
    for (; r < rows; r++) few_sums(s, b, a, lda, m, row + (size_t)r, 1, K, to + r, ld);
}

/* The same with constants for m. */
PB_INLINE void few_of(source s, const pb_mat *b, const float *a, size_t lda, int m, size_t row, int rows, int K,
                      float *to, size_t ld)
{
    switch (m) {
    case 1: few_streams(s, b, a, lda, 1, row, rows, K, to, ld, FEW_STREAMS); break;
    case 2: few_streams(s, b, a, lda, 2, row, rows, K, to, ld, FEW_STREAMS_2); break;
    case 3: few_streams(s, b, a, lda, 3, row, rows, K, to, ld, FEW_STREAMS_4); break;
    default: few_streams(s, b, a, lda, 4, row, rows, K, to, ld, FEW_STREAMS_4); break;
    }
}

/* Computes the tile to[m][ld] of the products of all m rows of A with n rows of B, from `row` on. */
static void few_tile(const pb_mat *b, const float *a, size_t lda, int m, size_t row, int n, int K, float *to, size_t ld)
{
    switch (source_of(b)) {
    case FROM_F32: few_of(FROM_F32, b, a, lda, m, row, n, K, to, ld); break;
    case FROM_BF16: few_of(FROM_BF16, b, a, lda, m, row, n, K, to, ld); break;
    case FROM_NF4: few_of(FROM_NF4, b, a, lda, m, row, n, K, to, ld); break;
    }
}

/* Converts the rows of A to f32, each padded with zeros to lda floats, a multiple of 2 PB_VLEN. If B is bf16, each
 * group of 2 PB_VLEN elements has those with an even index first, as a `pair` has. */
static void few_rows_of_a(const pb_gemm *g, float *to, size_t lda)
{
    const bool even_first = source_of(&g->b) == FROM_BF16;
    for (int i = 0; i < g->M; i++)
        for (size_t k = 0; k < lda; k++) {
            const size_t group = k / (2 * PB_VLEN) * (2 * PB_VLEN), at = k - group;
            const size_t from = group + (even_first ? at < PB_VLEN ? 2 * at : 2 * (at - PB_VLEN) + 1 : at);
            const size_t e = (size_t)i * g->a.ld + from;
            to[(size_t)i * lda + k] = from < (size_t)g->K ? vf_load_n(g->a.p, e, g->a.dtype, 1)[0] : 0;
        }
}
#endif
