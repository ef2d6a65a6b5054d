/* indexer_kl.cu - the indexer's loss and its gradient on the GPU, one CTA per query. Deterministic. Memory-bound. */
#include "kernels/cuda/cuda.cuh"
#include "kernels/indexer_kl/indexer_kl.h"

namespace
{
constexpr int THREADS = 128;

/* The inputs of one query, and sums over its listed slots. All threads of the CTA have the same values. */
struct query {
    const float *score, *mass;
    const int32_t *pick;
    int K;
    /* top: the largest score. sum: of e^(score - top); log_sum: its logarithm. total: sum of mass. counts: false if the
     * loss is 0 because no group is listed or total is 0. */
    float top, sum, log_sum, total;
    bool counts;
    __device__ float log_p(int j) const { return score[j] - top - log_sum; }
    __device__ float target(int j) const { return mass[j] / total; }
};

__device__ inline float block_max(float x, float *room)
{
    x = pb_warp_max(x);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++) x = fmaxf(x, room[i]);
    __syncthreads();
    return x;
}

__device__ inline query query_of(const float *score, const float *mass, const int32_t *pick, int K, float *room)
{
    const size_t at = (size_t)blockIdx.x * K;
    query q = {score + at, mass + at, pick + at, K};
    float top = -INFINITY, total = 0, sum = 0;
    bool any = false;
    for (int j = threadIdx.x; j < K; j += THREADS) {
        if (q.pick[j] < 0) continue;
        any = true;
        top = fmaxf(top, q.score[j]); /* fmaxf drops a NaN; the sum still becomes NaN */
        total += q.mass[j];
    }
    q.top = block_max(top, room);
    q.total = pb_block_sum<THREADS>(total, room);
    q.counts = __syncthreads_or(any) && q.total != 0;
    for (int j = threadIdx.x; j < K; j += THREADS)
        if (q.pick[j] >= 0) sum += expf(q.score[j] - q.top);
    q.sum = pb_block_sum<THREADS>(sum, room);
    q.log_sum = logf(q.sum);
    return q;
}
/* Returns max(x, -100); a NaN is returned unchanged. */
__device__ inline float clipped(float x) { return x < -100 ? -100 : x; }

__global__ __launch_bounds__(THREADS) void fwd_kernel(const pb_indexer_kl_fwd_args a, double *part)
{
    __shared__ float room[THREADS / 32];
    const query q = query_of(a.score, a.mass, a.pick, a.K, room);
    float sum = 0;
    for (int j = threadIdx.x; q.counts && j < a.K; j += THREADS) {
        if (q.pick[j] < 0) continue;
        const float y = q.target(j);
        if (!(y == 0)) sum += y * (clipped(logf(y)) - clipped(q.log_p(j)));
    }
    sum = pb_block_sum<THREADS>(sum, room);
    if (threadIdx.x == 0) part[blockIdx.x] = (double)sum;
}

/* Adds the losses of the queries in a fixed order, with a single CTA. */
__global__ __launch_bounds__(THREADS) void sum_kernel(const double *part, int R, float *loss)
{
    __shared__ double room[THREADS];
    double sum = 0;
    for (int r = threadIdx.x; r < R; r += THREADS) sum += part[r];
    room[threadIdx.x] = sum;
    for (int n = THREADS / 2; n > 0; n /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < n) room[threadIdx.x] += room[threadIdx.x + n];
    }
    if (threadIdx.x == 0) *loss = (float)room[0];
}

__global__ __launch_bounds__(THREADS) void bwd_kernel(const pb_indexer_kl_bwd_args a)
{
    __shared__ float room[THREADS / 32];
    const query q = query_of(a.score, a.mass, a.pick, a.K, room);
    const float scale = a.scale ? *a.scale : 1;
    float *to = a.dscore + (size_t)blockIdx.x * a.K, all = 0;
    for (int j = threadIdx.x; j < a.K; j += THREADS)
        if (q.pick[j] >= 0 && !(q.log_p(j) < -100)) all += q.target(j);
    all = pb_block_sum<THREADS>(all, room) / q.sum;
    for (int j = threadIdx.x; j < a.K; j += THREADS) {
        float ds = 0;
        if (q.counts && q.pick[j] >= 0)
            ds = scale * (expf(q.score[j] - q.top) * all - (q.log_p(j) < -100 ? 0 : q.target(j)));
        to[j] = ds; /* dscore may be score: slot j is read by this thread only, and not after this store */
    }
}

size_t fwd_workspace(const void *args) { return ((const pb_indexer_kl_fwd_args *)args)->R * sizeof(double); }

pb_status fwd(pb_ctx *ctx, const void *args)
{
    const pb_indexer_kl_fwd_args a = *(const pb_indexer_kl_fwd_args *)args;
    double *part = (double *)ctx->scratch;
    if (a.R > 0) {
        fwd_kernel<<<(unsigned)a.R, THREADS, 0, pb_cuda_stream(ctx)>>>(a, part);
        PB_TRY(pb_cuda_launched(ctx, "indexer_kl_fwd"));
    }
    sum_kernel<<<1, THREADS, 0, pb_cuda_stream(ctx)>>>(part, a.R, a.loss);
    return pb_cuda_launched(ctx, "indexer_kl_fwd, sum");
}

pb_status bwd(pb_ctx *ctx, const void *args)
{
    const pb_indexer_kl_bwd_args a = *(const pb_indexer_kl_bwd_args *)args;
    if (a.R == 0) return PB_OK;
    bwd_kernel<<<(unsigned)a.R, THREADS, 0, pb_cuda_stream(ctx)>>>(a);
    return pb_cuda_launched(ctx, "indexer_kl_bwd");
}
} // namespace

extern "C" {
extern const pb_impl pb_indexer_kl_fwd_cuda[] = {{.name = "block", .run = fwd, .workspace = fwd_workspace}, {0}};
extern const pb_impl pb_indexer_kl_bwd_cuda[] = {{.name = "block", .run = bwd}, {0}};
}
