/* no_blas.c - a cuBLASLt that finds no algorithm for any product, so that all products run this project's own
 * kernel. Preloaded (LD_PRELOAD) for compute-sanitizer's racecheck, which fails on the vendor's kernels ("failed to
 * handle a hardware exception") even when they are excluded by name. */
#include <cublasLt.h>

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t found[], int *n)
{
    (void)handle, (void)desc, (void)a, (void)b, (void)c, (void)d, (void)preference, (void)wanted, (void)found;
    *n = 0;
    return CUBLAS_STATUS_NOT_SUPPORTED;
}
