/* gqa_call.h - the tensors of a case of suite attention with grouped-query attention, variant dynmask or dense_gqa, and
 * calls of its pass.
 *
 * One sequence, PB_GQA_GROUP query heads for each kv head. dynmask: the biases of the keys are given, and each kv head
 * has its own; the forward pass consists of dynmask_keys_build and dynmask_attention_fwd. The backward pass uses the
 * lists of the forward pass. dense_gqa: causal attention (op attention) over the same q, k and v, without biases. */
#ifndef PB_GQA_CALL_H
#define PB_GQA_CALL_H
#include "bench/suites/attention_case.h"
#include "kernels/engine/arena.h"
#include "kernels/engine/op.h"

typedef struct pb_gqa_call {
    pb_attn a;
    int K, L;              /* kv heads; slots of a list, 0: dense */
    double valid, listed;  /* (query, key) pairs per query head: that attend, and all slots for every query */
    pb_arena memory;       /* owns the device memory of the tensors below */
    void *q, *k, *v;       /* [S,H,D], [S,K,D] */
    float *bias, *lse;     /* [K,S] (dense: NULL), [H,S] */
    int32_t *list, *until; /* [K,L]; dense: NULL */
    void *o;               /* [S,H,D] */
    void *dO, *dq;         /* [S,H,D]; NULL in a forward case */
    void *dk, *dv;         /* [S,K,D] */
    float *dbias;          /* [K,S]; dense: NULL */
} pb_gqa_call;

/* Allocates and fills the tensors of a case; inputs are random. In a backward case the forward pass has run with the
 * default implementation. The caller closes *out. On failure *out is unchanged. */
pb_status pb_gqa_open(pb_ctx *ctx, const pb_attn *a, pb_gqa_call *out);
void pb_gqa_close(pb_gqa_call *c);
/* A pb_fn whose self is a pb_gqa_call: runs the pass of the case; the forward pass of dynmask selects the keys
 * first. */
pb_status pb_gqa_run(pb_ctx *ctx, void *call);
/* A pb_fn whose self is a pb_gqa_call of variant dynmask: only selects the keys. */
pb_status pb_gqa_select(pb_ctx *ctx, void *call);
/* Sets *name to the implementation of attention that pb_gqa_run() would use. EUNSUPPORTED: none accepts the case. */
pb_status pb_gqa_impl(pb_ctx *ctx, const pb_gqa_call *c, const char **name);
/* Bytes that every implementation of the pass must move at least, without the selection. */
double pb_gqa_bytes(const pb_gqa_call *c);
/* The op of attention of the case's pass; it has the tolerances. */
const pb_op *pb_gqa_op(const pb_attn *a);
#endif
