/* no_blas.c - a cuBLASLt that has an algorithm for nothing, so that every product falls to this project's own kernel.
 * Preloaded (LD_PRELOAD) where the vendor's kernels cannot be looked at: compute-sanitizer's racecheck does not survive
 * them ("failed to handle a hardware exception"), not even when they are excluded by name. */
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
