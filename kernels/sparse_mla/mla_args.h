/* mla_args.h - the arguments of sparse_mla and dense_mla. A query attends to the rows of kv that its list names
 * (sparse_mla.h) or to a range of them (dense_mla.h). Fields marked `sparse` must be 0 for dense_mla, fields marked
 * `dense` for sparse_mla. */
#ifndef PB_MLA_ARGS_H
#define PB_MLA_ARGS_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_mla_fwd_args {
    const void *q;      /* [B,S,H,D] dtype */
    const void *kv;     /* [B,S_kv,D] dtype */
    const int32_t *idx; /* sparse: [B,S,W]; a slot with a value outside [0,S_kv) is masked */
    const float *sink;  /* [H] finite, or -inf for no sink */
    void *o;            /* [B,S,H,V] dtype, out */
    float *lse;         /* [B,S,H], out, kept for the backward pass */
    int B, S, S_kv, H, D, V;
    int W;       /* sparse: slots per list */
    int window;  /* dense: a query attends to at most this many keys; 0: no limit */
    bool causal; /* dense */
    float scale; /* 1/sqrt(D) in all supported models */
    pb_dtype dtype;
} pb_mla_fwd_args;

typedef struct pb_mla_bwd_args {
    const void *dO;     /* [B,S,H,V] dtype */
    const void *q, *kv; /* as in the forward pass */
    const int32_t *idx;
    const float *sink;
    const void *o;
    const float *lse;
    void *dq;     /* [B,S,H,D] dtype, out */
    void *dkv;    /* [B,S_kv,D], out; f32 if `wide`, else dtype */
    float *dsink; /* [H], out */
    int B, S, S_kv, H, D, V;
    int W;
    int window;
    bool causal;
    bool wide; /* dkv is not rounded to bf16, so that the parts of other queries can be added */
    float scale;
    pb_dtype dtype;
} pb_mla_bwd_args;

#ifdef __cplusplus
}
#endif
#endif
