/* syrk_cuda.h - the symmetric product on a GPU, for the CUDA launchers of other ops: enqueues without checking
 * arguments, and needs no scratch memory. */
#ifndef PB_SYRK_CUDA_H
#define PB_SYRK_CUDA_H
#include "kernels/syrk/syrk.h"
#ifdef __cplusplus
extern "C" {
#endif

/* The fastest implementation that takes the arguments. */
pb_status pb_syrk_cuda(pb_ctx *ctx, const pb_syrk_product_args *a);
/* With FMA instructions only: takes all arguments, on every GPU. */
pb_status pb_syrk_cuda_simt(pb_ctx *ctx, const pb_syrk_product_args *a);

/* syrk_wgmma.cu. takes: bf16 X with rows of a multiple of 8 elements, aligned to 16 bytes; K >= 1. Any C. */
bool pb_syrk_wgmma_takes(const void *args);
pb_status pb_syrk_wgmma(pb_ctx *ctx, const void *args);

#ifdef __cplusplus
}
#endif
#endif
