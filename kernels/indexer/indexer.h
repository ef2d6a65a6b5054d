/* indexer.h - the lightning indexer: which groups of tokens each query attends to, and its gradient (DeepSeek-V3.2,
 * V4).
 *
 * Row g of k stands for the tokens g ratio .. g ratio + ratio - 1, as in mla_index. In f32 or wider:
 *
 *     u[b,t,h,g] = q[b,t,h] . k[b,g]        s[b,t,g] = sum_h w[b,t,h] max(u[b,t,h,g], 0)
 *
 * A group is visible to query t when all its tokens lie in first .. t, with first = start[b,t], the first token of the
 * sample of t (below 0 or NULL: 0). q and k come with all their transforms applied (RoPE, Hadamard), w with its factors
 * (H^-1/2 D^-1/2 in the models). They are of `dtype`, or, where q_scale and k_scale are set, e4m3 codes of
 * indexer_quantize: an element is code * scale then, codes are multiplied exactly, and sums are f32.
 *
 * quantize: rows of x [N,D], D <= 128, a block each, to codes and scales. In f32, the same bits everywhere and those of
 *     pb_kv_qat_fwd with block D:
 *         amax = max(max |x|, 1e-4)   t = amax * (1/448)   scale = 2^ceil(log2 t), or t when f32_scale
 *         code = e4m3(x / scale), to nearest even and saturated at 448 (OFP8 1.0, 2023)
 *     A row with an element that is not finite gets NaN for its scale and codes of 0x7f. A scale that is a power of two
 *     loses nothing when code * scale is written as bf16, so that the backward pass may run on pb_kv_qat_fwd's output.
 * scores: queries first .. first+n-1 of every batch row. score[b,i,g] = s[b,first+i,g] where g is visible, else -inf.
 * pick: for every query the min(K, visible) visible groups with the largest s, ascending, then -1: topk.h's rule for
 *     ties (lower group) and NaN. It is mla_index's `pick`. Scores stand in the workspace a run of queries at a time:
 *     at most 32 MiB, or one query of every batch row (4 B G bytes) where that is more; never S G.
 * at: s at given groups. score[b,t,j] = s[b,t,pick[b,t,j]]; 0 where pick is outside [0,G), and nothing is read there.
 *     Whether a picked group is visible is not asked.
 * bwd: of `at`, given ds. Slots outside [0,G) give nothing; a group named twice counts twice.
 *         du_hj = ds_j w_h [u_hj > 0]       dw_h = sum_j ds_j max(u_hj, 0)
 *         dq_h = sum_j du_hj k[pick_j]      dk[g] = sum over b's queries, heads and slots with pick_j = g of du_hj q_h
 *     dk is summed in f32 and rounded once. On a GPU `mma` sums it by atomics and declares that it varies; the others
 *     take a fixed order, in parts of at most 256 MiB together, or one part where that is more. No gradient reaches the
 *     indexer through `pick`: it is trained by indexer_kl, or not at all.
 *
 * A GPU takes D up to 256; its tensor cores bf16 and codes of it, D up to 128 and a multiple of 8, H up to 128.
 * DeepSeek-AI 2025, DeepSeek-V3.2, equations 1 and 2. EINVAL: B, S, H, D, ratio below 1, G or K below 0, first and n
 * outside of S, one scale without the other, scales with D > 128 or in `at`/`bwd`, a NULL tensor. */
#ifndef PB_INDEXER_H
#define PB_INDEXER_H
#include "kernels/core/op.h"
#ifdef __cplusplus
extern "C" {
#endif

/* What every pass reads. */
typedef struct pb_indexer {
    const void *q;        /* [B,S,H,D] dtype, or codes (u8) */
    const void *k;        /* [B,G,D] dtype, or codes */
    const float *w;       /* [B,S,H] */
    const float *q_scale; /* [B,S,H] of codes; NULL: q and k are dtype */
    const float *k_scale; /* [B,G], alike */
    int B, S, G, H, D;
    pb_dtype dtype; /* of q and k, or of what their codes were made of */
} pb_indexer;

typedef struct pb_indexer_quantize_args {
    const void *x; /* [N,D] dtype */
    uint8_t *code; /* [N,D], out */
    float *scale;  /* [N], out */
    int N, D;
    bool f32_scale; /* else a power of two (UE8M0's grid) */
    pb_dtype dtype;
} pb_indexer_quantize_args;

typedef struct pb_indexer_scores_args {
    pb_indexer x;
    const int32_t *start; /* [B,S] or NULL */
    float *score;         /* [B,n,G], out */
    int first, n, ratio;
} pb_indexer_scores_args;

typedef struct pb_indexer_pick_args {
    pb_indexer x;
    const int32_t *start; /* [B,S] or NULL */
    int32_t *pick;        /* [B,S,K], out */
    int K, ratio;
} pb_indexer_pick_args;

typedef struct pb_indexer_at_args {
    pb_indexer x;
    const int32_t *pick; /* [B,S,K]; any value */
    float *score;        /* [B,S,K], out */
    int K;
} pb_indexer_at_args;

typedef struct pb_indexer_bwd_args {
    pb_indexer x;
    const int32_t *pick; /* [B,S,K]; any value */
    const float *dscore; /* [B,S,K] */
    void *dq;            /* [B,S,H,D] dtype, out */
    void *dk;            /* [B,G,D] dtype, out */
    float *dw;           /* [B,S,H], out */
    int K;
} pb_indexer_bwd_args;

PB_DECLARE_OP(indexer, quantize)
PB_DECLARE_OP(indexer, scores)
PB_DECLARE_OP(indexer, pick)
PB_DECLARE_OP(indexer, at)
PB_DECLARE_OP(indexer, bwd)

#ifdef __cplusplus
}
#endif
#endif
