/* attention_crossover.h - from how many tokens on sparse attention takes less time than dense, from a launch's own
 * rows. */
#ifndef PB_ATTENTION_CROSSOVER_H
#define PB_ATTENTION_CROSSOVER_H
#include "bench/measure/emit.h"

/* The dense case that a sparse one is compared with: every row up to the query's own, on the same tensors. False: the
 * case is not of the arm sparse. One whose slots are masked on purpose has a twin that no run measures. */
bool pb_attn_twin(const pb_case *c, pb_case *dense);
/* The same case of the other pass: bwd of fwd, fwd of bwd. */
pb_case pb_attn_other_pass(const pb_case *c);
/* crossover/attention with what cases of all lengths have in common, and pass=fwd, bwd or both. */
pb_status pb_attn_family(const pb_case *c, const char *pass, pb_case *out);
/* Emits a row crossover/attention, metric sparse_from, for every set of sparse cases that differ in seq alone and have
 * a dense twin: forward, backward, and both together. Between lengths by a straight line over log(seq) (graph_gain.h).
 */
pb_status pb_attn_crossovers(pb_sink *sink);
#endif
