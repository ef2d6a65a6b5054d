/* dynmask_attention.h - dynamic-mask attention: grouped-query attention over the key lists of dynmask_keys, with a bias
 * for each key.
 *
 *     s_ij = scale q_i.k_j + bias[b,h/g,j]        g = H/K query heads per kv head; the bias stays in the score
 *     o_i = sum_j p_ij v_j                        p_ij = exp(s_ij - lse_i), over the keys that query i attends to
 *     lse_i = log sum_j exp(s_ij)                 natural logarithm
 *
 * Query i has position i + S_kv - S, so that the last query is at the last key (bottom-right causal mask). It attends
 * to key j = list[l] if and only if j <= position < until[l] (dynmask_keys.h) and bias_j is not -inf. Entries of a list
 * outside 0 .. S_kv-1, such as -1, are unused slots, which may be anywhere. The keys of a list ascend; if a list named
 * a key twice, a part of its gradients would be lost. Keys, values and biases that no query attends to are never used:
 * they may be NaN. NaN in a key, value, query or do reaches only the queries and keys that attend to each other, but
 * there it may reach every column.
 *
 * A query without keys gives o = 0, lse = -inf, and contributes exactly 0 to every gradient, whatever do is. Backward,
 * with delta_i = sum_d do_i o_i and dp_ij = do_i.v_j:
 *
 *     ds_ij = p_ij (dp_ij - delta_i)              dq_i = scale sum_j ds_ij k_j      dk_j = scale sum_i ds_ij q_i
 *     dv_j = sum_i p_ij do_i                      dbias_j = sum_i ds_ij, without the factor scale
 *
 * dk, dv and dbias sum over the g query heads of their group, in f32 or better, in an order that depends neither on the
 * number of threads nor on atomics: the result is deterministic. Every element of the outputs is written; those of keys
 * that no query attends to are 0. Sources: Shi et al., "Trainable Dynamic Mask Sparse Attention", arXiv:2508.02124; the
 * backward pass as in attention.h. There, the kernels read a mask of S x S elements; a list replaces it, because the
 * selection does not depend on the query but through causality.
 *
 * Head h of token (b,s) begins at element (b*S + s)*ld + h*D (S_kv for k and v). bias, dbias and lse are f32, all other
 * floating-point tensors are `dtype`, except dk and dv with `wide`. EINVAL: B, S, S_kv, D, L or keep below 1; K < 1 or
 * H not a positive multiple of K; a stride below the width of a token; a scale that is not finite; a NULL tensor. */
#ifndef PB_DYNMASK_ATTENTION_H
#define PB_DYNMASK_ATTENTION_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_dynmask_attention_fwd_args {
    const void *q;               /* [B,S,H,D], tokens ldq apart */
    const void *k, *v;           /* [B,S_kv,K,D], tokens ldk, ldv apart */
    const float *bias;           /* [B,K,S_kv] */
    const int32_t *list, *until; /* [B,K,L] of dynmask_keys */
    void *o;                     /* [B,S,H,D], tokens ldo apart, out */
    float *lse;                  /* [B,H,S], out, kept for the backward pass */
    int B, S, S_kv, H, K, D, L;  /* any D; implementations for a GPU may need 32 <= D <= 256 */
    int keep; /* most keys that a query attends to: for the cost, and the order of the sums of dk and dv */
    size_t ldq, ldk, ldv, ldo;
    float scale; /* 1/sqrt(D) in all supported models */
    pb_dtype dtype;
} pb_dynmask_attention_fwd_args;

typedef struct pb_dynmask_attention_bwd_args {
    const void *dO; /* [B,S,H,D], tokens lddo apart */
    const void *q;  /* as in the forward pass */
    const void *k, *v;
    const float *bias;
    const int32_t *list, *until;
    const void *o;
    const float *lse;
    void *dq;      /* [B,S,H,D], tokens lddq apart, out */
    void *dk, *dv; /* [B,S_kv,K,D], tokens lddk, lddv apart, out; f32 if `wide`, else `dtype` */
    float *dbias;  /* [B,K,S_kv], out */
    int B, S, S_kv, H, K, D, L;
    int keep;
    size_t lddo, ldq, ldk, ldv, ldo, lddq, lddk, lddv;
    float scale;
    bool wide; /* dk and dv are not rounded to bf16, so that other queries' parts can be added */
    pb_dtype dtype;
} pb_dynmask_attention_bwd_args;
/* The type of dk and dv. */
static inline pb_dtype pb_dynmask_dkv_dtype(const pb_dynmask_attention_bwd_args *a)
{
    return a->wide ? PB_F32 : a->dtype;
}

PB_DECLARE_OP(dynmask_attention, fwd)
PB_DECLARE_OP(dynmask_attention, bwd)

#ifdef __cplusplus
}
#endif
#endif
