/* mla_impls.cuh - the CUDA passes of both MLA families, each in its own file; sparse_mla.cu and dense_mla.cu list them.
 */
#ifndef PB_MLA_IMPLS_CUH
#define PB_MLA_IMPLS_CUH
#define PB_MLA_FN __host__ __device__ static inline
#include "kernels/core/cuda.cuh"
#include "kernels/sparse_mla/mla.h"

/* f32 or bf16, D up to 1024, any alignment; every sum in one fixed order. */
bool pb_mla_simt_takes(const pb_mla *p);
pb_status pb_mla_fwd_simt(pb_ctx *ctx, const pb_mla *p);
pb_status pb_mla_bwd_simt(pb_ctx *ctx, const pb_mla *p);
size_t pb_mla_bwd_simt_workspace(const pb_mla *p);

/* bf16, D and V multiples of 8, D up to 576 and V up to 512, everything 16-byte aligned. dkv by atomics in f32, or
 * `ordered`: by blocks that own rows of kv and pass over the queries in order, so that two runs give the same bits. */
bool pb_mla_mma_takes(const pb_mla *p);
pb_status pb_mla_fwd_mma(pb_ctx *ctx, const pb_mla *p);
pb_status pb_mla_bwd_mma(pb_ctx *ctx, const pb_mla *p);
pb_status pb_mla_bwd_mma_ordered(pb_ctx *ctx, const pb_mla *p);
size_t pb_mla_bwd_mma_workspace(const pb_mla *p);

/* The same with D 512 or 576, V 512 and scale > 0, on sm_90; in one fixed order. */
bool pb_mla_wgmma_takes(const pb_mla *p);
pb_status pb_mla_fwd_wgmma(pb_ctx *ctx, const pb_mla *p);
/* The same of any scale. dkv by reductions in f32. */
bool pb_mla_bwd_wgmma_takes(const pb_mla *p);
pb_status pb_mla_bwd_wgmma(pb_ctx *ctx, const pb_mla *p);
size_t pb_mla_bwd_wgmma_workspace(const pb_mla *p);

static inline size_t pb_mla_heads(const pb_mla *p) { return (size_t)p->B * p->S * p->H; }
static inline size_t pb_mla_deltas(const pb_mla *p) { return (pb_mla_heads(p) + 1) / 2 * 2; } /* doubles come next */

/* Enqueues delta[b,i,h] = sum_d do_d o_d, and dsink: the sum over tokens of -delta e^(sink - lse), which are kept
 * behind delta in double, because most of that sum cancels. delta: 8-byte aligned, with pb_mla_dsink_room bytes. */
pb_status pb_mla_dsink_cuda(pb_ctx *ctx, const pb_mla *p, float *delta);
static inline size_t pb_mla_dsink_room(const pb_mla *p)
{
    return pb_mla_deltas(p) * sizeof(float) + pb_mla_heads(p) * sizeof(double);
}
#endif
