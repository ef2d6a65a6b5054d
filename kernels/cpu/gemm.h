/* gemm.h - C = alpha A B (+ C) (+ bias) on the CPU, for operands in f32, bf16 or NF4.
 *
 * The ops linear, lora, nf4_linear and attention use it. It is one blocked loop (Goto & van de Geijn 2008, "Anatomy
 * of High-Performance Matrix Multiplication"). Its packing step converts operands to f32 panels, so bf16 and NF4
 * weights are never expanded in memory. Sums are f32; a bf16 C is rounded once. The order of summation does not
 * depend on the number of threads.
 *
 * All matrices are row-major; ld is the distance in elements between stored rows. Sizes may be 0;
 * K = 0 gives C = (C) + (bias).
 *     A  [M,K]  (trans: stored [K,M])
 *     B  [K,N]  (trans: stored [N,K])
 *     C  [M,N] */
#ifndef PB_GEMM_H
#define PB_GEMM_H
#include "kernels/cpu/cpu.h"

/* The scales of weights in NF4 (4-bit NormalFloat); kernels/nf4/nf4.h defines the layout. Of a product's operands only
 * B may be NF4. It is stored row-major as [N,K] (trans) or [K,N], with ld == cols, so element (row,col) is number
 * row*cols + col. */
typedef struct pb_nf4_scales {
    const float *absmax;     /* [ceil(n/block)] f32; NULL with double quantisation */
    const uint8_t *absmax_q; /* [ceil(n/block)] codes, with double quantisation */
    const float *code;       /* [256] the dynamic map of bitsandbytes, with double quantisation */
    const float *absmax2;    /* [ceil(nblocks/256)], with double quantisation */
    const float *offset;     /* [1] mean absmax, with double quantisation */
    int block;               /* elements per absmax: 32..4096, a power of two */
} pb_nf4_scales;

typedef struct pb_mat {
    const void *p; /* f32 or bf16 elements; packed NF4 codes when nf4 is set */
    size_t ld;
    pb_dtype dtype; /* PB_F32 or PB_BF16; ignored when nf4 is set */
    bool trans;
    const pb_nf4_scales *nf4; /* NULL: a dense matrix */
} pb_mat;

typedef struct pb_gemm {
    int M, N, K;
    pb_mat a, b;
    void *c; /* [M,N], rows ldc elements apart */
    size_t ldc;
    pb_dtype c_dtype;
    float alpha;
    bool accumulate;   /* C += instead of C = */
    const float *bias; /* [N] or NULL */
    bool serial;       /* use the calling thread only (inside a parallel region) */
    void *workspace;   /* pb_gemm_workspace(g) bytes, aligned to 64 */
} pb_gemm;

/* A batch of n products of equal shape. a, b and c are the distances in elements from one matrix to the next. */
typedef struct pb_gemm_batch {
    int n;
    size_t a, b, c;
} pb_gemm_batch;

/* Returns the bytes of workspace that a product needs, for every instruction set and up to
 * omp_get_max_threads() threads. */
size_t pb_gemm_workspace(const pb_gemm *g);

#define PB_GEMM_PROTO(isa, has, ...) void pb_gemm_run_##isa(const pb_gemm *g);
PB_ISA_MAP(PB_GEMM_PROTO, )
/* In a family_fast.c, pb_gemm_run is the product compiled for the instruction set of that file. */
#define pb_gemm_run PB_FAST(pb_gemm_run)
/* Runs the product compiled for the best instruction set of this machine; for all other files. */
void pb_gemm_best(const pb_gemm *g);
#endif
