/* gemm_kernel.h - the inner kernels: a tile of C, up to PB_MR rows by PB_NV vectors, stays in registers during the loop
 * over k. Each k takes PB_NV loads of B, one broadcast per row of A, and rows*PB_NV multiply-adds. The multiply-adds
 * are the limit. There is one kernel per number of rows, so that no row is padded. */
#ifndef PB_GEMM_KERNEL_H
#define PB_GEMM_KERNEL_H
#include "kernels/cpu/simd.h"

/* PB_MR is the largest number of rows whose accumulators fit the registers, next to PB_NV vectors of B and one of A. A
 * panel of A is never wider than a vector, so that packing stores whole vectors. */
#if defined(__AVX512F__)
#define PB_MR_MAP(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
enum { PB_MR = 14 };
#elif defined(__AVX__)
#define PB_MR_MAP(X) X(1) X(2) X(3) X(4) X(5) X(6)
enum { PB_MR = 6 };
#else
#define PB_MR_MAP(X) X(1) X(2) X(3) X(4)
enum { PB_MR = 4 };
#endif
enum { PB_NV = 2, PB_NR = PB_NV * PB_VLEN };

/* Computes tile[r][c] = sum over k of a[k*lda + r] * b[k*ldb + c]; rows of the tile are nv*PB_VLEN apart. */
typedef void (*gemm_kernel)(int kc, const float *a, size_t lda, const float *b, size_t ldb, float *tile);

PB_INLINE void kernel_body(int mr, int nv, int kc, const float *a, size_t lda, const float *b, size_t ldb, float *tile)
{
    vf c[PB_MR][PB_NV];
#pragma GCC unroll 16
    for (int r = 0; r < mr; r++)
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) c[r][v] = (vf){0};
    for (int k = 0; k < kc; k++, a += lda, b += ldb) {
        vf row[PB_NV];
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) row[v] = vf_load(b, (size_t)v * PB_VLEN, PB_F32);
#pragma GCC unroll 16
        for (int r = 0; r < mr; r++) {
            const float x = a[r];
#pragma GCC unroll 2
            for (int v = 0; v < nv; v++) c[r][v] += x * row[v];
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < mr; r++)
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) vf_store(tile, (size_t)(r * nv + v) * PB_VLEN, PB_F32, c[r][v]);
}

#define X(mr)                                                                                                          \
    static void kernel_##mr##_1(int kc, const float *a, size_t lda, const float *b, size_t ldb, float *tile)           \
    {                                                                                                                  \
        kernel_body(mr, 1, kc, a, lda, b, ldb, tile);                                                                  \
    }                                                                                                                  \
    static void kernel_##mr##_2(int kc, const float *a, size_t lda, const float *b, size_t ldb, float *tile)           \
    {                                                                                                                  \
        kernel_body(mr, 2, kc, a, lda, b, ldb, tile);                                                                  \
    }
PB_MR_MAP(X)
#undef X

/* index: [rows - 1][vectors - 1] */
static const gemm_kernel gemm_kernels[PB_MR][PB_NV] = {
#define X(mr) {kernel_##mr##_1, kernel_##mr##_2},
    PB_MR_MAP(X)
#undef X
};
#endif
