/* dense_mla.h - sparse_mla without lists: every query sees one range of the rows of kv. The comparator of sparse_mla,
 * on the same tensors and with the same formulas, gradients, sink and edge cases (kernels/sparse_mla/sparse_mla.h).
 *
 * Query i stands at row S_kv - S + i of kv: the last query at the last row. It sees the rows j with
 *     j <= S_kv - S + i (causal), or all;      of these only the last `window` where window > 0.
 * With S > S_kv the first causal queries see nothing. EINVAL: as sparse_mla, and window < 0. */
#ifndef PB_DENSE_MLA_H
#define PB_DENSE_MLA_H
#include "kernels/core/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_dense_mla_fwd_args {
    const void *q;     /* [B,S,H,D] dtype */
    const void *kv;    /* [B,S_kv,D] dtype */
    const float *sink; /* [H] finite or -inf */
    void *o;           /* [B,S,H,V] dtype, out */
    float *lse;        /* [B,S,H], out, kept for the backward pass */
    int B, S, S_kv, H, D, V;
    int window; /* keys that a query sees at most; 0: no limit */
    bool causal;
    float scale;
    pb_dtype dtype;
} pb_dense_mla_fwd_args;

typedef struct pb_dense_mla_bwd_args {
    const void *dO;     /* [B,S,H,V] dtype */
    const void *q, *kv; /* as in the forward pass */
    const float *sink;
    const void *o;
    const float *lse;
    void *dq;     /* [B,S,H,D] dtype, out */
    void *dkv;    /* [B,S_kv,D] dtype, out */
    float *dsink; /* [H], out */
    int B, S, S_kv, H, D, V;
    int window;
    bool causal;
    float scale;
    pb_dtype dtype;
} pb_dense_mla_bwd_args;

PB_DECLARE_OP(dense_mla, fwd)
PB_DECLARE_OP(dense_mla, bwd)

#ifdef __cplusplus
}
#endif
#endif
