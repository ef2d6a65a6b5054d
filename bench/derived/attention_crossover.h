/* attention_crossover.h - finds the length from which sparse attention is faster than dense attention, using the rows
 * of one process. */
#ifndef PB_ATTENTION_CROSSOVER_H
#define PB_ATTENTION_CROSSOVER_H
#include "bench/measure/measure.h"

/* Sets *dense to the dense case that a sparse case is compared with: on the same tensors, every query attends to all
 * tokens up to its own. False: `c` is not a case of suite attention with variant=sparse or dynmask. For a case with
 * masked slots, no run measures that dense case. */
bool pb_attn_twin(const pb_case *c, pb_case *dense);
/* Returns the case of the other pass, with all other axes equal: bwd for fwd, fwd for bwd. */
pb_case pb_attn_other_pass(const pb_case *c);
/* Sets *out to the case that the crossover of a set of lengths is reported under: crossover/attention with the axes of
 * `c` except seq, variant and masked, plus pass=PASS. `pass`: fwd, bwd or both. */
pb_status pb_attn_family(const pb_case *c, const char *pass, pb_case *out);
/* Emits the metric sparse_from, in tokens, for each set of sparse cases that differ only in seq and have dense
 * counterparts: for the forward pass, the backward pass and the sum of both. Between two measured lengths it
 * interpolates linearly over log(seq) (pb_crossover in graph_gain.h). */
pb_status pb_attn_crossovers(pb_emitter *emitter);
#endif
