/* attention_call.h - the tensors of a case of suite attention on a device, and calls of its forward or backward
 * pass. */
#ifndef PB_ATTENTION_CALL_H
#define PB_ATTENTION_CALL_H
#include "bench/suites/attention_case.h"
#include "kernels/engine/arena.h"
#include "kernels/engine/op.h"

/* Outputs are filled with this value before a pass, so that elements it does not write are found. No result is near
 * it. */
#define PB_UNWRITTEN 1e30

typedef struct pb_attn_call {
    pb_attn a;
    int32_t *lists;       /* [S,W] key lists on the host, owned; NULL: dense */
    double valid, listed; /* (query, key) pairs; valid: those that are not masked; listed: all slots of the lists */
    pb_arena memory;      /* owns the device memory of the tensors below */
    void *q, *kv;         /* q [S,H,D] and kv [S_kv,D] have variance 1, so that scaled scores have variance 1 */
    float *sink, *lse;    /* [H], [S,H] */
    int32_t *idx;         /* [S,W] copy of `lists`; NULL: dense */
    void *o;              /* [S,H,V] */
    void *dO, *dq, *dkv;  /* shapes of o, q and kv; NULL in a forward case */
    float *dsink;         /* [H] */
    bool wide;            /* dkv is f32 */
} pb_attn_call;

/* Allocates and fills the tensors of a case. Inputs are random; outputs hold PB_UNWRITTEN. In a backward case the
 * forward pass has run with the default implementation, so that o and lse are its results. The caller closes *out. On
 * failure *out is unchanged. */
pb_status pb_attn_open(pb_ctx *ctx, const pb_attn *a, pb_attn_call *out);
void pb_attn_close(pb_attn_call *c);
/* A pb_fn whose self is a pb_attn_call: runs the pass of the case, including all its kernels. Variant deterministic
 * admits only implementations that are deterministic. */
pb_status pb_attn_run(pb_ctx *ctx, void *call);
/* Sets *name to the implementation that pb_attn_run() would use. EUNSUPPORTED: no implementation accepts the case. */
pb_status pb_attn_impl(pb_ctx *ctx, const pb_attn_call *c, const char **name);
/* Bytes that every implementation must move at least. */
double pb_attn_bytes(const pb_attn_call *c);
/* Fills n elements on the device with uniform values in centre - half .. centre + half. */
pb_status pb_attn_fill(pb_ctx *ctx, void *w, size_t n, pb_dtype t, uint64_t stream, double centre, double half);
/* The op of the case's pass; it has the tolerances. */
const pb_op *pb_attn_op(const pb_attn *a);
#endif
