/* syrk_blocks.h - the symmetric product on the CPU, for files that are compiled once for each instruction set. Half of
 * the multiplications of a general product, apart from the blocks on the diagonal. */
#ifndef PB_SYRK_BLOCKS_H
#define PB_SYRK_BLOCKS_H
#include "kernels/cpu/simd.h"
#include "kernels/syrk/syrk_gemm.h"

/* Writes row i of C up to the diagonal: the product in t [M] plus beta A. */
static inline void pb_syrk_row(const pb_syrk_product_args *a, size_t at, int i, const float *t)
{
    const int n = i + 1;
    const vf beta = vf_set(a->beta);
    for (int j = 0; j < n; j += PB_VLEN) {
        const int some = n - j < PB_VLEN ? n - j : PB_VLEN;
        vf x = vf_get(t, (size_t)j, PB_F32, some);
        if (a->add) x += beta * vf_get(a->add, at + (size_t)j, a->c_dtype, some);
        vf_put(a->c, at + (size_t)j, a->c_dtype, x, some);
    }
}

/* Copies the rows first .. end-1 of C to the columns above the diagonal. */
static inline void pb_syrk_mirror(const pb_syrk_product_args *a, size_t at, int first, int end)
{
    const size_t M = (size_t)a->M;
#pragma omp parallel for schedule(static) if ((size_t)end * PB_SYRK_ROWS > 16384)
    for (int j = 0; j < end; j++)
        for (int i = first > j ? first : j + 1; i < end; i++) {
            const size_t from = at + (size_t)i * M + (size_t)j, to = at + (size_t)j * M + (size_t)i;
            if (a->c_dtype == PB_F32) ((float *)a->c)[to] = ((const float *)a->c)[from];
            else ((uint16_t *)a->c)[to] = ((const uint16_t *)a->c)[from];
        }
}

/* Computes the products; `scratch` has pb_syrk_workspace(a) bytes. */
static inline void pb_syrk_blocks(const pb_syrk_product_args *a, void *scratch)
{
    float *t = scratch;
    for (int b = 0; b < a->n; b++) {
        const size_t at = (size_t)b * (size_t)a->M * (size_t)a->M;
        for (int first = 0; first < a->M; first += PB_SYRK_ROWS) {
            const int end = pb_syrk_end(a, first);
            pb_gemm g = pb_syrk_gemm(a, b, first, t);
            g.workspace = (unsigned char *)scratch + pb_syrk_block_bytes(a);
            pb_gemm_run(&g);
#pragma omp parallel for schedule(static) if ((size_t)end * PB_SYRK_ROWS > 16384)
            for (int i = first; i < end; i++)
                pb_syrk_row(a, at + (size_t)i * (size_t)a->M, i, t + (size_t)(i - first) * (size_t)a->M);
            pb_syrk_mirror(a, at, first, end);
        }
    }
}
#endif
