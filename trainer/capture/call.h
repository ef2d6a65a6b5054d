/* call.h - a call of an op with tensors of its own, made from a shape by the op's bind (kernels/engine/bind.h). It is
 * what a capture records and a replay runs, so every op of kernels/ops.def can be captured. */
#ifndef PB_CALL_H
#define PB_CALL_H
#include "kernels/engine/op.h"

typedef struct pb_call {
    const pb_op *op;
    pb_dims dim;
    void *args;
    pb_binder b;
} pb_call;

/* Binds a call on ctx. The inputs are seeded, always with the same seed; pb_bound_set replaces them. On failure *out
 * needs no pb_call_unbind. ENOMEM, and the errors of the op's bind. */
pb_status pb_call_bind(pb_ctx *ctx, const pb_op *op, const int *dim, pb_dtype dtype, pb_call *out);
void pb_call_unbind(pb_call *c); /* {0} is allowed */

/* Checks that every axis of a shape is within its limits. Lower limit: the smallest value in the op's own shapes. Upper
 * limit: the larger of `most` and the largest value there; for a choice (a lower-case axis that is at most 8 in all of
 * them) the latter alone. EINVAL: an axis is not. */
pb_status pb_call_check_shape(const pb_op *op, const int *dim, size_t most);
/* Parses a shape such as "B1.S256.D576" (pb_dims_text). EINVAL: it does not have the op's axes. */
pb_status pb_call_parse_shape(const pb_op *op, const char *text, int *dim);

/* The numbers of a call (pb_op.numbers) as text, such as "beta1=0.9 eps=1e-08"; "" if it has none. Reading the text
 * gives the same bits. EINVAL: a number is missing, unknown or malformed, or the op refuses it. */
enum { PB_NUMBERS_TEXT = 256 };
void pb_call_numbers_text(const pb_call *c, char out[PB_NUMBERS_TEXT]);
pb_status pb_call_set_numbers(pb_call *c, const char *text);
#endif
