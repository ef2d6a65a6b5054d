/* indexer.cuh - the CUDA passes of the indexer, each in its own file, and what they share; indexer.cu lists them. */
#ifndef PB_INDEXER_CUH
#define PB_INDEXER_CUH
#define PB_INDEXER_FN __host__ __device__ static inline
#define PB_E4M3_FN    __host__ __device__ static inline
#include "kernels/core/copy_async.cuh"
#include "kernels/indexer/e4m3.h"
#include "kernels/indexer/indexer.h"
#include "kernels/indexer/visible.h"

typedef __nv_bfloat16 bf16;
static constexpr int INDEXER_THREADS = 256, INDEXER_WARPS = INDEXER_THREADS / 32;

/* Queries first .. first+n-1 of every batch row, score [B,n,G]. `fill`: invisible groups get -inf; else they keep what
 * stands there. */
struct indexer_span {
    const int32_t *start;
    float *score;
    int first, n, ratio;
    bool fill;
};

/* bf16, or codes of it, D <= 128 and a multiple of 8, rows that 16-byte (codes: 8-byte) copies fit; H <= 128 to go
 * back. */
bool pb_indexer_mma_takes(const pb_indexer *x);
pb_status pb_indexer_scores_mma(pb_ctx *ctx, const pb_indexer *x, const indexer_span *span);
pb_status pb_indexer_at_mma(pb_ctx *ctx, const pb_indexer_at_args *a);
bool pb_indexer_bwd_mma_takes(const pb_indexer_bwd_args *a);
/* sums: f32 [B,parts,G,D]. Without `ordered` parts is 1 and atomics add; else a block owns a part. */
pb_status pb_indexer_bwd_mma(pb_ctx *ctx, const pb_indexer_bwd_args *a, float *sums, int parts, bool ordered);

/* f32, bf16 or codes, D <= 256, any alignment; every sum in one order. */
bool pb_indexer_simt_takes(const pb_indexer *x);
pb_status pb_indexer_scores_simt(pb_ctx *ctx, const pb_indexer *x, const indexer_span *span);
pb_status pb_indexer_at_simt(pb_ctx *ctx, const pb_indexer_at_args *a);
pb_status pb_indexer_bwd_simt(pb_ctx *ctx, const pb_indexer_bwd_args *a, float *sums, int parts);

/* Parts of a batch row's dk that the ordered passes sum, a block each: 128 where 256 MiB hold them, always the same. */
static inline int pb_indexer_cuda_parts(const pb_indexer *x)
{
    const size_t part = (size_t)x->B * x->G * x->D * sizeof(float), fit = part ? ((size_t)256 << 20) / part : 1;
    const int most = x->S < 128 ? x->S : 128;
    return fit < 1 ? 1 : fit < (size_t)most ? (int)fit : most;
}

/* Before a pass that adds to sums, and after it: dk = the parts added in order, rounded. */
pb_status pb_indexer_clear_sums(pb_ctx *ctx, float *sums, size_t n);
pb_status pb_indexer_round_sums(pb_ctx *ctx, const pb_indexer_bwd_args *a, const float *sums, int parts);

/* max(u, 0); a NaN stays one. */
__device__ static inline float positive(float u)
{
    float r;
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(r) : "f"(u));
    return r;
}

/* Among n slots of a tile, thread j < n: its slot counts for all that name the same group, added in the order of the
 * slots, and those count no more: so that no two slots of a tile add to one row. group and ds are of shared memory;
 * every thread of the block takes part. */
__device__ static inline void merge_slots(int *group, float *ds, int n)
{
    const int j = threadIdx.x, g = j < n ? group[j] : -1;
    float sum = g >= 0 ? ds[j] : 0;
    bool again = false;
    for (int i = 0; g >= 0 && i < n; i++) {
        if (group[i] != g) continue;
        again |= i < j;
        if (i > j) sum += ds[i];
    }
    __syncthreads();
    if (j < n) ds[j] = again ? 0 : sum, group[j] = again ? -1 : g;
    __syncthreads();
}

/* Launches with `bytes` of dynamic shared memory, which more than 48 KB must ask for. */
template <class K, class... A>
static inline pb_status indexer_launch(pb_ctx *ctx, const char *what, K *kernel, size_t blocks, size_t bytes, A... args)
{
    if (blocks == 0) return PB_OK;
    PB_CUDA_TRY(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    kernel<<<(unsigned)blocks, INDEXER_THREADS, bytes, pb_cuda_stream(ctx)>>>(args...);
    return pb_cuda_launched(ctx, what);
}
#endif
