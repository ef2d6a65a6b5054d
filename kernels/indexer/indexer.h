/* indexer.h - the lightning indexer: scores groups of tokens, lists the top K groups for each query, and computes the
 * gradient of the scores (DeepSeek-V3.2, equations 1 and 2; DeepSeek-V4).
 *
 * Row g of k represents the tokens g ratio .. g ratio + ratio - 1, as in mla_index. The score of group g for query t,
 * in f32 or wider:
 *
 *     u[b,t,h,g] = q[b,t,h] . k[b,g]        s[b,t,g] = sum_h w[b,t,h] max(u[b,t,h,g], 0)
 *
 * t is the index of a query in the tensors, and query t is token offset + t of the row (offset is 0 unless ranks share
 * the row). A group is visible to query t if all its tokens are in start[b,t] .. offset + t. start[b,t] is the index in
 * the row of the first token of the query's conversation (negative or NULL: 0). G counts the groups of the whole row.
 * The caller has applied all transforms to q and k (RoPE, Hadamard) and all factors to w (H^-1/2 D^-1/2 in the models).
 * q and k are of type `dtype`. If q_scale and k_scale are set, they are e4m3 codes from indexer_quantize instead: an
 * element is code * scale, codes are multiplied exactly, and sums are f32.
 *
 * quantize: rows of x [N,D], D <= 128, to codes and one scale per row. It is computed in f32, with the same bits in
 * every implementation, equal to pb_kv_qat_fwd with block D:
 *     amax = max(max |x|, 1e-4)   t = amax * (1/448)   scale = 2^ceil(log2 t), or t with f32_scale
 *     code = e4m3(x / scale), to nearest even and saturated at 448 (OFP8 1.0, 2023)
 * A row with an element that is not finite gets scale NaN and codes 0x7f. With a power-of-two scale, code * scale is
 * exact in bf16, so the backward pass can use the output of pb_kv_qat_fwd.
 *
 * scores: for queries first .. first+n-1 of every batch row. score[b,i,g] = s[b,first+i,g] where g is visible, else
 * -inf.
 *
 * pick: for every query the min(K, visible) visible groups with the largest s in ascending order, then -1. Ties and NaN
 * follow topk.h (the lower group wins a tie). The result is the `pick` of mla_index. On a GPU the workspace holds the
 * scores of a run of queries at a time: at most 32 MiB, or one query of every batch row (4 B G bytes) if that is more.
 * On a CPU it holds the scores of 16 queries per thread: at most 256 MiB, or one thread's (about 68 G bytes) if that is
 * more.
 *
 * at: s at given groups. score[b,t,j] = s[b,t,pick[b,t,j]], or 0 where pick is outside [0,G). It does not check whether
 * a listed group is visible.
 *
 * bwd: the gradient of `at`, given ds. Slots outside [0,G) contribute nothing. A group that is listed twice counts
 * twice.
 *     du_hj = ds_j w_h [u_hj > 0]       dw_h = sum_j ds_j max(u_hj, 0)
 *     dq_h = sum_j du_hj k[pick_j]      dk[g] = sum over b's queries, heads and slots with pick_j = g of du_hj q_h
 * dk is summed in f32 and rounded once, or not at all (`wide`). On a GPU, `mma` sums dk with atomics and is not
 * deterministic. The other implementations use a fixed order, with partial sums of at most 256 MiB in total (or one
 * partial sum if that is larger). `pick` has no gradient: the indexer is trained through indexer_kl only.
 *
 * GPU implementations take D <= 256; those on tensor cores take bf16 and codes of bf16, D <= 128 and a multiple of 8, H
 * <= 128. EINVAL: B, S, H, D or ratio < 1; G, K or offset < 0; first and n outside of S; only one scale given; scales
 * with D > 128, or in `at` or `bwd`; a tensor is NULL. */
#ifndef PB_INDEXER_H
#define PB_INDEXER_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

/* The inputs of every pass. */
typedef struct pb_indexer {
    const void *q;        /* [B,S,H,D] dtype, or codes (u8) */
    const void *k;        /* [B,G,D] dtype, or codes (u8) */
    const float *w;       /* [B,S,H] */
    const float *q_scale; /* [B,S,H] scales of the codes in q; NULL: q and k hold values of type dtype */
    const float *k_scale; /* [B,G] scales of the codes in k; NULL if and only if q_scale is */
    int B, S, G, H, D;
    int offset;     /* token of the row that query 0 is; 0 unless the row is shared */
    pb_dtype dtype; /* type of q and k, or of the values that were quantised */
} pb_indexer;

typedef struct pb_indexer_quantize_args {
    const void *x; /* [N,D] dtype */
    uint8_t *code; /* [N,D], out */
    float *scale;  /* [N], out */
    int N, D;
    bool f32_scale; /* true: scale = t; false: a power of two (UE8M0) */
    pb_dtype dtype;
} pb_indexer_quantize_args;

typedef struct pb_indexer_scores_args {
    pb_indexer x;
    const int32_t *start; /* [B,S]; NULL: 0 everywhere */
    float *score;         /* [B,n,G], out */
    int first, n, ratio;
} pb_indexer_scores_args;

typedef struct pb_indexer_pick_args {
    pb_indexer x;
    const int32_t *start; /* [B,S]; NULL: 0 everywhere */
    int32_t *pick;        /* [B,S,K], out */
    int K, ratio;
} pb_indexer_pick_args;

typedef struct pb_indexer_at_args {
    pb_indexer x;
    const int32_t *pick; /* [B,S,K]; a value outside [0,G) masks the slot */
    float *score;        /* [B,S,K], out */
    int K;
} pb_indexer_at_args;

typedef struct pb_indexer_bwd_args {
    pb_indexer x;
    const int32_t *pick; /* [B,S,K]; a value outside [0,G) masks the slot */
    const float *dscore; /* [B,S,K] */
    void *dq;            /* [B,S,H,D] dtype, out */
    void *dk;            /* [B,G,D], out; f32 if `wide`, else dtype */
    float *dw;           /* [B,S,H], out */
    int K;
    bool wide; /* dk is not rounded to bf16, so that the parts of other queries can be added */
} pb_indexer_bwd_args;
static inline pb_dtype pb_indexer_dk_dtype(const pb_indexer_bwd_args *a) { return a->wide ? PB_F32 : a->x.dtype; }

PB_DECLARE_OP(indexer, quantize)
PB_DECLARE_OP(indexer, scores)
PB_DECLARE_OP(indexer, pick)
PB_DECLARE_OP(indexer, at)
PB_DECLARE_OP(indexer, bwd)

#ifdef __cplusplus
}
#endif
#endif
