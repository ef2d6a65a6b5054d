/* attention.h - grouped-query attention that never stores the S x S scores.
 *
 *     o[b,i,h] = sum_j p_ij v[b,j,h/g]     p_ij = exp(scale q_i.k_j - lse_i)     g = H/K query heads per key head
 *     lse[b,h,i] = log sum_j exp(scale q_i.k_j), natural logarithm
 *
 * Query i attends to the keys first(i) <= j <= i (causal) or first(i) <= j < S (bidirectional). first(i) is
 * start[b,i], or 0 when start is NULL. In a packed row, start keeps each token within its own conversation.
 *
 * There may be more keys than queries: generation keeps the keys and values of earlier tokens in a cache, and with
 * context parallelism a rank has the queries of a part of the row. With N = keys > S, the S queries are those of the
 * last S keys. Query i then attends to the keys up to N-S+i (causal) or below N (bidirectional). start holds numbers of
 * keys. A query without visible keys gives o = 0, lse = -inf and no gradient. Online softmax: Milakov & Gimelshein
 * 2018, arXiv:1805.02867; tiling and the backward pass: Dao et al. 2022, arXiv:2205.14135, algorithms 1 and 4.
 *
 * Backward, with delta_i = sum_d do_i o_i and dp_ij = do_i.v_j:
 *     ds_ij = p_ij (dp_ij - delta_i)    dq_i = scale sum_j ds_ij k_j    dk_j = scale sum_i ds_ij q_i
 *     dv_j = sum_i p_ij do_i;  dk and dv sum over the g query heads of their group.
 * Head h of token (b,s) starts at element (b*S + s)*ld + h*D. lse is f32, all other tensors are `dtype`. */
#ifndef PB_ATTENTION_H
#define PB_ATTENTION_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_attention_fwd_args {
    const void *q;        /* [B,S,H,D], tokens ldq apart */
    const void *k, *v;    /* [B,N,K,D], tokens ldk, ldv apart */
    const int32_t *start; /* [B,S] first visible key (negative: 0); NULL: 0 for all */
    void *o;              /* [B,S,H,D], tokens ldo apart, out */
    float *lse;           /* [B,H,S], out, kept for the backward pass */
    int B, S, H, K, D;    /* H a multiple of K; any D >= 1 */
    int keys;             /* N, at least S; 0: S */
    size_t ldq, ldk, ldv, ldo;
    float scale; /* 1/sqrt(D) in all supported models */
    bool causal;
    pb_dtype dtype;
} pb_attention_fwd_args;

typedef struct pb_attention_bwd_args {
    const void *dO; /* [B,S,H,D], tokens lddo apart */
    const void *q;  /* as in the forward pass */
    const void *k, *v;
    const void *o;
    const float *lse;     /* [B,H,S] */
    const int32_t *start; /* as in the forward pass */
    void *dq;             /* [B,S,H,D], tokens lddq apart, out */
    void *dk, *dv;        /* [B,N,K,D], tokens lddk, lddv apart, out; f32 if `wide`, else `dtype` */
    int B, S, H, K, D;
    int keys; /* N, as in the forward pass */
    size_t lddo, ldq, ldk, ldv, ldo, lddq, lddk, lddv;
    float scale;
    bool causal;
    bool wide; /* dk and dv are not rounded to bf16, so that other queries' parts can be added */
    pb_dtype dtype;
} pb_attention_bwd_args;

/* Number of keys of a row, N; number of keys before the row's first query. */
static inline int pb_attention_keys(const pb_attention_fwd_args *a) { return a->keys ? a->keys : a->S; }
static inline int pb_attention_before(const pb_attention_fwd_args *a) { return pb_attention_keys(a) - a->S; }
static inline int pb_attention_bwd_keys(const pb_attention_bwd_args *a) { return a->keys ? a->keys : a->S; }
static inline pb_dtype pb_attention_dkv_dtype(const pb_attention_bwd_args *a) { return a->wide ? PB_F32 : a->dtype; }

PB_DECLARE_OP(attention, fwd)
PB_DECLARE_OP(attention, bwd)

#ifdef __cplusplus
}
#endif
#endif
