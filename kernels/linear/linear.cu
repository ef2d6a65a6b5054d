/* linear.cu - a dense layer on the GPU: cuBLASLt, the CUDA-core kernel of cuda/cuda_gemm.cu, and the reduction for
 * dbias.
 *
 * dbias: the rows of dy are divided into runs of consecutive rows. A CTA of 32 x 8 threads sums one run over 32 vectors
 * of columns: each thread adds every eighth row, then the eight partial sums are added in order. With more than one
 * run, a second kernel adds the sums of the runs in order. Memory-bound: it reads dy once. */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/cuda_blas.h"
#include "kernels/linear/linear_gemm.h"

namespace
{
/* A CTA sums a run of at most RUN rows of dy. A run has more rows if MAX_RUNS limits the number of runs. */
enum { LANES = 32, ROWS = 8, RUN = 64, MAX_RUNS = 64 };

int runs_of(int T) { return T <= RUN ? 1 : T / RUN < MAX_RUNS ? (T + RUN - 1) / RUN : MAX_RUNS; }

/* Computes out[run][n], the sum of dy[.][n] over the rows of a run. With a single run, out is dbias itself. */
template <class T, int V>
__global__ void __launch_bounds__(LANES *ROWS) column_sums(const T *dy, int rows, int N, float *out, bool accumulate)
{
    __shared__ float sums[ROWS][LANES * V];
    const int col = ((int)blockIdx.x * LANES + (int)threadIdx.x) * V;
    const int from = (int)((size_t)rows * blockIdx.y / gridDim.y),
              to = (int)((size_t)rows * (blockIdx.y + 1) / gridDim.y);
    float sum[V] = {};
    for (int t = from + (int)threadIdx.y; col < N && t < to; t += ROWS) {
        float x[V];
        pb_load_vec<T, V>(dy + (size_t)t * N + col, x);
#pragma unroll
        for (int i = 0; i < V; i++) sum[i] += x[i];
    }
#pragma unroll
    for (int i = 0; i < V; i++) sums[threadIdx.y][i * LANES + threadIdx.x] = sum[i];
    __syncthreads();
    if (threadIdx.y || col >= N) return;
#pragma unroll
    for (int i = 0; i < V; i++) {
        float *to_sum = out + (size_t)blockIdx.y * N + col + i, all = 0;
        for (int r = 0; r < ROWS; r++) all += sums[r][i * LANES + threadIdx.x];
        *to_sum = accumulate ? *to_sum + all : all;
    }
}

__global__ void add_runs(const float *runs, int n, int N, float *dbias, bool accumulate)
{
    const int col = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    float sum = 0;
    if (col >= N) return;
    for (int r = 0; r < n; r++) sum += runs[(size_t)r * N + col];
    dbias[col] = accumulate ? dbias[col] + sum : sum;
}

template <class T> pb_status dbias(pb_ctx *ctx, const pb_linear_dw_args *a, float *room)
{
    const int runs = runs_of(a->T), V = pb_vectors_fit<T>(a->dy, (size_t)a->N, (size_t)a->N) ? pb_lanes<T> : 1;
    const dim3 block(LANES, ROWS), grid((unsigned)((a->N + LANES * V - 1) / (LANES * V)), (unsigned)runs);
    const T *dy = static_cast<const T *>(a->dy);
    float *out = runs > 1 ? room : a->dbias;
    const bool onto = runs == 1 && a->accumulate;
    if (V > 1) column_sums<T, pb_lanes<T>><<<grid, block, 0, pb_cuda_stream(ctx)>>>(dy, a->T, a->N, out, onto);
    else column_sums<T, 1><<<grid, block, 0, pb_cuda_stream(ctx)>>>(dy, a->T, a->N, out, onto);
    PB_TRY(pb_cuda_launched(ctx, "linear_dw column_sums"));
    if (runs == 1) return PB_OK;
    add_runs<<<(unsigned)(a->N + 127) / 128, 128, 0, pb_cuda_stream(ctx)>>>(room, runs, a->N, a->dbias, a->accumulate);
    return pb_cuda_launched(ctx, "linear_dw add_runs");
}

/* ---- host functions that launch the kernels --------------------------------------------------------------------- */

pb_status fwd_cublaslt(pb_ctx *ctx, const void *args)
{
    const pb_gemm g = pb_linear_fwd_gemm(static_cast<const pb_linear_fwd_args *>(args));
    return pb_cuda_gemm(ctx, &g, ctx->scratch);
}

size_t fwd_workspace(const void *args)
{
    const pb_gemm g = pb_linear_fwd_gemm(static_cast<const pb_linear_fwd_args *>(args));
    return pb_cuda_bias_room(&g);
}

pb_status fwd_simt(pb_ctx *ctx, const void *args)
{
    const pb_gemm g = pb_linear_fwd_gemm(static_cast<const pb_linear_fwd_args *>(args));
    return pb_cuda_gemm_simt(ctx, &g);
}

pb_status dx_cublaslt(pb_ctx *ctx, const void *args)
{
    const pb_gemm g = pb_linear_dx_gemm(static_cast<const pb_linear_dx_args *>(args));
    return pb_cuda_gemm(ctx, &g, NULL);
}

pb_status dx_simt(pb_ctx *ctx, const void *args)
{
    const pb_gemm g = pb_linear_dx_gemm(static_cast<const pb_linear_dx_args *>(args));
    return pb_cuda_gemm_simt(ctx, &g);
}

pb_status finish_dw(pb_ctx *ctx, const pb_linear_dw_args *a)
{
    return a->dbias ? PB_CUDA_BY_DTYPE(a->dtype, dbias, ctx, a, static_cast<float *>(ctx->scratch)) : PB_OK;
}

size_t dw_workspace(const void *args)
{
    const pb_linear_dw_args *a = static_cast<const pb_linear_dw_args *>(args);
    return a->dbias && runs_of(a->T) > 1 ? (size_t)runs_of(a->T) * (size_t)a->N * sizeof(float) : 0;
}

pb_status dw_cublaslt(pb_ctx *ctx, const void *args)
{
    const pb_linear_dw_args *a = static_cast<const pb_linear_dw_args *>(args);
    const pb_gemm g = pb_linear_dw_gemm(a);
    PB_TRY(pb_cuda_gemm(ctx, &g, NULL));
    return finish_dw(ctx, a);
}

pb_status dw_simt(pb_ctx *ctx, const void *args)
{
    const pb_linear_dw_args *a = static_cast<const pb_linear_dw_args *>(args);
    const pb_gemm g = pb_linear_dw_gemm(a);
    PB_TRY(pb_cuda_gemm_simt(ctx, &g));
    return finish_dw(ctx, a);
}
} // namespace

extern "C" {
const pb_impl pb_linear_fwd_cuda[] = {
    {.name = "cublaslt", .run = fwd_cublaslt, .workspace = fwd_workspace}, {.name = "simt", .run = fwd_simt}, {0}};
const pb_impl pb_linear_dx_cuda[] = {{.name = "cublaslt", .run = dx_cublaslt}, {.name = "simt", .run = dx_simt}, {0}};
const pb_impl pb_linear_dw_cuda[] = {{.name = "cublaslt", .run = dw_cublaslt, .workspace = dw_workspace},
                                     {.name = "simt", .run = dw_simt, .workspace = dw_workspace},
                                     {0}};
}
