/* grouped_linear.cu - grouped linear layers on the GPU, all groups in one launch: cuBLASLt's strided batches, or the
 * CUDA-core kernel of cuda/cuda_gemm.cu. */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/cuda_blas.h"
#include "kernels/grouped_linear/grouped_gemm.h"

namespace
{
typedef pb_status (*product)(pb_ctx *ctx, const pb_gemm *g, const pb_gemm_batch *batch);

template <product RUN> pb_status fwd(pb_ctx *ctx, const void *args)
{
    pb_gemm_batch batch;
    const pb_gemm g = pb_grouped_fwd_gemm(static_cast<const pb_grouped_linear_fwd_args *>(args), &batch);
    return RUN(ctx, &g, &batch);
}

template <product RUN> pb_status dx(pb_ctx *ctx, const void *args)
{
    pb_gemm_batch batch;
    const pb_gemm g = pb_grouped_dx_gemm(static_cast<const pb_grouped_linear_dx_args *>(args), &batch);
    return RUN(ctx, &g, &batch);
}

template <product RUN> pb_status dw(pb_ctx *ctx, const void *args)
{
    pb_gemm_batch batch;
    const pb_gemm g = pb_grouped_dw_gemm(static_cast<const pb_grouped_linear_dw_args *>(args), &batch);
    return RUN(ctx, &g, &batch);
}
} // namespace

extern "C" {
const pb_impl pb_grouped_linear_fwd_cuda[] = {
    {.name = "cublaslt", .run = fwd<pb_cuda_gemm_batch>}, {.name = "simt", .run = fwd<pb_cuda_gemm_simt_batch>}, {0}};
const pb_impl pb_grouped_linear_dx_cuda[] = {
    {.name = "cublaslt", .run = dx<pb_cuda_gemm_batch>}, {.name = "simt", .run = dx<pb_cuda_gemm_simt_batch>}, {0}};
const pb_impl pb_grouped_linear_dw_cuda[] = {
    {.name = "cublaslt", .run = dw<pb_cuda_gemm_batch>}, {.name = "simt", .run = dw<pb_cuda_gemm_simt_batch>}, {0}};
}
