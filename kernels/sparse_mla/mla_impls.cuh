/* mla_impls.cuh - declares the CUDA implementations that sparse_mla and dense_mla share. Each has its own source files;
 * sparse_mla.cu and dense_mla.cu list them. */
#ifndef PB_MLA_IMPLS_CUH
#define PB_MLA_IMPLS_CUH
#define PB_MLA_FN __host__ __device__ static inline
#include "kernels/cuda/cuda.cuh"
#include "kernels/sparse_mla/mla.h"

/* The implementation simt takes f32 or bf16, D up to 1024, any alignment. It is deterministic. */
bool pb_mla_simt_takes(const pb_mla *p);
pb_status pb_mla_fwd_simt(pb_ctx *ctx, const pb_mla *p);
pb_status pb_mla_bwd_simt(pb_ctx *ctx, const pb_mla *p);
size_t pb_mla_bwd_simt_workspace(const pb_mla *p);

/* The implementation mma takes bf16, D and V multiples of 8, D up to 576, V up to 512 and 16-byte aligned tensors. Its
 * backward pass adds dkv by f32 atomics. The variant `ordered` is deterministic: each CTA owns some rows of kv and
 * loops over the queries in order. */
bool pb_mla_mma_takes(const pb_mla *p);
pb_status pb_mla_fwd_mma(pb_ctx *ctx, const pb_mla *p);
pb_status pb_mla_bwd_mma(pb_ctx *ctx, const pb_mla *p);
pb_status pb_mla_bwd_mma_ordered(pb_ctx *ctx, const pb_mla *p);
size_t pb_mla_bwd_mma_workspace(const pb_mla *p);
size_t pb_mla_bwd_mma_shared(const pb_mla *p); /* bytes of shared memory that a CTA of the backward pass needs */

/* The implementation wgmma takes what mma takes, but only D 512 or 576, V 512 and scale > 0, and only runs on sm_90.
 * Its forward pass is deterministic. */
bool pb_mla_wgmma_takes(const pb_mla *p);
pb_status pb_mla_fwd_wgmma(pb_ctx *ctx, const pb_mla *p);
/* The backward pass of wgmma takes any scale. It adds dkv by f32 reductions in any order. */
bool pb_mla_bwd_wgmma_takes(const pb_mla *p);
pb_status pb_mla_bwd_wgmma(pb_ctx *ctx, const pb_mla *p);
size_t pb_mla_bwd_wgmma_workspace(const pb_mla *p);

static inline size_t pb_mla_heads(const pb_mla *p) { return (size_t)p->B * p->S * p->H; }
static inline size_t pb_mla_deltas(const pb_mla *p) { return (pb_mla_heads(p) + 1) / 2 * 2; } /* even: doubles follow */

/* Enqueues kernels that compute delta[b,i,h] = sum_d do_d o_d, and dsink, the sum over tokens of -delta e^(sink - lse).
 * The terms of dsink are stored as double after delta, because most of their sum cancels. delta: 8-byte aligned, with
 * pb_mla_dsink_room bytes. */
pb_status pb_mla_dsink_cuda(pb_ctx *ctx, const pb_mla *p, float *delta);
static inline size_t pb_mla_dsink_room(const pb_mla *p)
{
    return pb_mla_deltas(p) * sizeof(float) + pb_mla_heads(p) * sizeof(double);
}
#endif
