/* syrk_gemm.h - divides the triangle of a symmetric product into blocks of rows, each a pb_gemm. */
#ifndef PB_SYRK_GEMM_H
#define PB_SYRK_GEMM_H
#include "kernels/cpu/gemm.h"
#include "kernels/syrk/syrk.h"

enum { PB_SYRK_ROWS = 96 }; /* rows of a block: small next to M, so that little is computed above the diagonal */

static inline int pb_syrk_end(const pb_syrk_product_args *a, int first)
{
    return a->M - first < PB_SYRK_ROWS ? a->M : first + PB_SYRK_ROWS;
}

/* Describes rows first .. end-1 and columns 0 .. end-1 of matrix b's product, written to c with rows M apart. */
static inline pb_gemm pb_syrk_gemm(const pb_syrk_product_args *a, int b, int first, float *c)
{
    const int end = pb_syrk_end(a, first);
    const size_t M = (size_t)a->M, K = (size_t)a->K, e = pb_dtype_size(a->dtype), ld = a->trans ? M : K;
    const unsigned char *x = (const unsigned char *)a->x + (size_t)b * M * K * e;
    const unsigned char *rows = x + (size_t)first * (a->trans ? 1 : K) * e;
    return (pb_gemm){.M = end - first,
                     .N = end,
                     .K = a->K,
                     .a = {.p = rows, .ld = ld, .dtype = a->dtype, .trans = a->trans},
                     .b = {.p = x, .ld = ld, .dtype = a->dtype, .trans = !a->trans},
                     .c = c,
                     .ldc = M,
                     .c_dtype = PB_F32,
                     .alpha = a->alpha};
}

static inline size_t pb_syrk_block_bytes(const pb_syrk_product_args *a)
{
    return ((size_t)PB_SYRK_ROWS * (size_t)a->M * sizeof(float) + 63) / 64 * 64;
}

/* Scratch memory for one block, and the products' own after it. */
static inline size_t pb_syrk_workspace(const pb_syrk_product_args *a)
{
    size_t most = 0;
    for (int first = 0; first < a->M; first += PB_SYRK_ROWS) {
        const pb_gemm g = pb_syrk_gemm(a, 0, first, NULL);
        const size_t need = pb_gemm_workspace(&g);
        if (need > most) most = need;
    }
    return pb_syrk_block_bytes(a) + most;
}
#endif
