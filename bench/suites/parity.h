/* parity.h - the case `parity` of suite backward: compares the forward pass and the loss of a model, on its own weights
 * and text, with those of an oracle. It is not timed, and only the full grids have it: the reference implementations
 * are slow. Its rows are the requirements PARITY-LOSS, PARITY-LOGITS,
 * PARITY-FUSED and PARITY-NORM-ROWS.
 *
 * The oracle is a trainer of the same case on the CPU. If the case itself runs on the CPU, the oracle has the reference
 * implementations, which accumulate in double precision. Three losses tell an error of the forward pass from one of the
 * cross-entropy:
 *
 *     oracle    the oracle's cross-entropy on the oracle's logits
 *     mixed     the oracle's cross-entropy on the tested logits
 *     tested    the tested cross-entropy on the tested logits
 *
 * PARITY-LOSS bounds |mixed - oracle|, and PARITY-FUSED |tested - mixed|. PARITY-LOGITS bounds the relative L2 error of
 * all logits. PARITY-NORM-ROWS bounds the largest relative L2 error of one row after residual addition and RMSNorm in
 * one op (kernels/addnorm), where each layer has equal inputs on both sides (trainer/step/divergence.h): there a kernel
 * that leaves out a row has an error of about 1.
 *
 * Source of the first three bounds: FALSIFY-CUDA-NF4-TRAIN-LOSS-PARITY-001 of the contract
 * cuda-nf4-train-loss-parity-v1, which exposed a wrong RoPE pairing and missing biases in an NF4 trainer.
 * PARITY-NORM-ROWS stands for cuda-fused-residual-rmsnorm-v1, which exposed rows that a kernel never wrote; its bound
 * is this project's. */
#ifndef PB_PARITY_H
#define PB_PARITY_H
#include "bench/measure/measure.h"

/* True if the case is named `parity`. */
bool pb_parity_is(const pb_case *c);
enum { PB_PARITY_TOKENS = 32 }; /* the most tokens of a case */

/* Checks a case `parity`. EINVAL: it has more tokens; the loss is computed in chunks; activations are recomputed; there
 * are several micro-batches; or another mode than eager or clip than fused, with which the rows would be the same. */
pb_status pb_parity_check(const pb_case *c);
/* Estimated seconds. */
double pb_parity_seconds(const pb_case *c, bool device);
/* Emits the four rows. ENOMEM: the oracle does not fit into memory. */
pb_status pb_parity(pb_ctx *ctx, const pb_case *c, pb_emitter *emitter);
#endif
