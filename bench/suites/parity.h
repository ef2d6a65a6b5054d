/* parity.h - the case `parity` of suite backward: the forward pass and the loss of a model, on its own weights and text,
 * compared with another implementation. It is not timed; its rows are the requirements PARITY-LOSS, PARITY-LOGITS,
 * PARITY-FUSED and PARITY-NORM-ROWS.
 *
 * The other side is a trainer of the same case on the CPU: with the implementations that the CPU prefers, or, if the
 * case itself runs on the CPU, with the reference implementations, which add in double precision. Three losses tell
 * an error of the forward pass from one of the loss:
 *
 *     other     the other side's loss of its own logits
 *     mixed     the other side's loss of the logits of this side
 *     own       this side's loss of its own logits
 *
 * PARITY-LOSS bounds |mixed - other|, PARITY-FUSED |own - mixed|, PARITY-LOGITS the relative L2 error of all logits, and
 * PARITY-NORM-ROWS the largest relative L2 error of one row of an output of residual addition and RMSNorm in one op
 * (kernels/addnorm), where each layer has equal inputs on both sides (trainer/step/divergence.h): a kernel that leaves
 * out a row has an error of about 1 there. Bounds: those with which the seed of this project found a wrong rope
 * pairing, biases left out and rows never written. */
#ifndef PB_PARITY_H
#define PB_PARITY_H
#include "bench/measure/measure.h"

/* True if the case is named `parity`. */
bool pb_parity_is(const pb_case *c);
/* Checks a case `parity`. EINVAL: its loss is computed in chunks, its activations are not all kept, or it is not the one
 * of mode=eager and clip=fused, from which the others do not differ. */
pb_status pb_parity_check(const pb_case *c);
/* Estimated seconds. */
double pb_parity_seconds(const pb_case *c, bool device);
/* Emits the four rows. ENOMEM: the second trainer does not fit into memory. */
pb_status pb_parity(pb_ctx *ctx, const pb_case *c, pb_emitter *emitter);
#endif
