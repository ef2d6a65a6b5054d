/* attention_call.h - the tensors of a case of the suite attention on a device, and its two passes through the op table.
 */
#ifndef PB_ATTENTION_CALL_H
#define PB_ATTENTION_CALL_H
#include "bench/suites/attention_case.h"
#include "kernels/core/arena.h"
#include "kernels/core/op.h"

/* What an output holds before a pass has written it: no result comes near it. */
#define PB_UNWRITTEN 1e30

typedef struct pb_attn_call {
    pb_attn a;
    int32_t *lists;       /* [S,W] on the host; owned; NULL: dense */
    double valid, listed; /* pairs */
    pb_arena memory;      /* of what follows, in device memory */
    void *q, *kv;         /* [S,H,D], [S_kv,D]; of variance 1, so that scores are */
    float *sink, *lse;    /* [H], [S,H] */
    int32_t *idx;         /* [S,W]; NULL: dense */
    void *o;              /* [S,H,V] */
    void *dO, *dq, *dkv;  /* as o, q, kv; NULL in a forward case */
    float *dsink;         /* [H] */
} pb_attn_call;

/* Draws inputs; a backward case has run its forward pass, by the best implementation there is, and only its outputs are
 * unwritten. On failure *out holds nothing. */
pb_status pb_attn_open(pb_ctx *ctx, const pb_attn *a, pb_attn_call *out);
void pb_attn_close(pb_attn_call *c);
/* A pb_fn on a pb_attn_call: the pass of the case, whole as a step pays for it, by the implementation that the arm
 * allows: of deterministic only one that gives the same bits in every run. */
pb_status pb_attn_run(pb_ctx *ctx, void *call);
/* The name of that implementation. EUNSUPPORTED: there is none. */
pb_status pb_attn_impl(pb_ctx *ctx, const pb_attn_call *c, const char **name);
/* Bytes that any implementation must move. */
double pb_attn_bytes(const pb_attn_call *c);
/* The op of the case: its tolerances. */
const pb_op *pb_attn_op(const pb_attn *a);
#endif
