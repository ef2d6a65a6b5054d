/* attention_ranks.h - measures a case of suite attention whose row several ranks share (attention_shared.h).
 *
 * 1. Rank 0 alone, while the others wait, measures the pass over the whole row.
 * 2. All ranks run the divided pass once. Rank 0 checks the outputs of all of them, as those of one rank are checked. A
 *    case with a wrong result has no time.
 * 3. All ranks measure the divided pass, alternating with and without its collectives. */
#ifndef PB_ATTENTION_RANKS_H
#define PB_ATTENTION_RANKS_H
#include "bench/suites/attention_check.h"
#include "bench/suites/suite_env.h"

/* A case, and how to measure it. */
typedef struct pb_attn_ranks {
    const pb_case *c;
    const pb_attn *a;
    const pb_suite_env *env;
    pb_measure_opts opts; /* how to measure the pass */
    /* Emits the rows about the error of the outputs. *right: they are within their limits. */
    pb_status (*emit_error)(const pb_case *c, const pb_attn_error *e, pb_emitter *emitter, bool *right);
} pb_attn_ranks;

/* Measures the case and emits its rows, as pb_suite.run does; every rank calls it. */
pb_status pb_attn_ranks_run(pb_ctx *ctx, const pb_attn_ranks *r);
#endif
