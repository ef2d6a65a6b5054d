/* indexer.cuh - declarations of the indexer's CUDA passes, each in its own file, and helpers that they share.
 * indexer.cu lists the implementations. */
#ifndef PB_INDEXER_CUH
#define PB_INDEXER_CUH
#define PB_INDEXER_FN __host__ __device__ static inline
#define PB_E4M3_FN    __host__ __device__ static inline
#include "kernels/cuda/copy_async.cuh"
#include "kernels/indexer/e4m3.h"
#include "kernels/indexer/indexer.h"
#include "kernels/indexer/visible.h"

typedef __nv_bfloat16 bf16;
static constexpr int INDEXER_THREADS = 256, INDEXER_WARPS = INDEXER_THREADS / 32;

/* A range of queries, first .. first+n-1 of every batch row, and their scores [B,n,G]. fill: true: groups that are not
 * visible get -inf; false: their scores are not written. */
struct indexer_span {
    const int32_t *start;
    float *score;
    int first, n, ratio;
    bool fill;
};

/* True for bf16 or codes of bf16, D <= 128 and a multiple of 8, H <= 128, and q and k
 * aligned to 16 bytes (codes: 8). */
bool pb_indexer_mma_takes(const pb_indexer *x);
pb_status pb_indexer_scores_mma(pb_ctx *ctx, const pb_indexer *x, const indexer_span *span);
pb_status pb_indexer_at_mma(pb_ctx *ctx, const pb_indexer_at_args *a);
bool pb_indexer_bwd_mma_takes(const pb_indexer_bwd_args *a);
/* sums: f32 [B,parts,G,D], cleared by the caller. ordered: one CTA owns each of the `parts` partial sums and adds to it
 * in a fixed order. Otherwise parts is 1 and CTAs add with atomics. */
pb_status pb_indexer_bwd_mma(pb_ctx *ctx, const pb_indexer_bwd_args *a, float *sums, int parts, bool ordered);

/* True for D <= 256, with f32, bf16 or codes and any alignment. The SIMT passes are deterministic. */
bool pb_indexer_simt_takes(const pb_indexer *x);
bool pb_indexer_bwd_simt_takes(const pb_indexer_bwd_args *a); /* D up to 248 on a GPU with PB_GPU_LEAST_SHARED */
pb_status pb_indexer_scores_simt(pb_ctx *ctx, const pb_indexer *x, const indexer_span *span);
pb_status pb_indexer_at_simt(pb_ctx *ctx, const pb_indexer_at_args *a);
pb_status pb_indexer_bwd_simt(pb_ctx *ctx, const pb_indexer_bwd_args *a, float *sums, int parts);

/* Returns the number of partial sums of dk per batch row in the ordered passes, one CTA each: at most 128, and at most
 * 256 MiB in total. The number depends on the shape only, so that results are deterministic. */
static inline int pb_indexer_cuda_parts(const pb_indexer *x)
{
    const size_t part = (size_t)x->B * x->G * x->D * sizeof(float), fit = part ? ((size_t)256 << 20) / part : 1;
    const int most = x->S < 128 ? x->S : 128;
    return fit < 1 ? 1 : fit < (size_t)most ? (int)fit : most;
}

/* clear_sums sets the partial sums to zero before a pass; round_sums adds the parts in order into dk afterwards. */
pb_status pb_indexer_clear_sums(pb_ctx *ctx, float *sums, size_t n);
pb_status pb_indexer_round_sums(pb_ctx *ctx, const pb_indexer_bwd_args *a, const float *sums, int parts);

/* Returns max(u, 0); a NaN is returned unchanged. */
__device__ static inline float relu(float u)
{
    float r;
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(r) : "f"(u));
    return r;
}

/* Merges slots of a tile that hold the same group: the first such slot gets the sum of their ds, in slot order, and the
 * others are masked. Then no two slots of the tile add to the same row of dk. Thread j < n handles slot j. group and ds
 * are in shared memory; all threads of the CTA must call it. */
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

/* Launches a kernel with `bytes` of dynamic shared memory. */
template <class K, class... A>
static inline pb_status indexer_launch(pb_ctx *ctx, const char *what, K *kernel, size_t blocks, size_t bytes, A... args)
{
    if (blocks == 0) return PB_OK;
    PB_TRY(pb_cuda_allow_shared(kernel, bytes));
    kernel<<<(unsigned)blocks, INDEXER_THREADS, bytes, pb_cuda_stream(ctx)>>>(args...);
    return pb_cuda_launched(ctx, what);
}
#endif
