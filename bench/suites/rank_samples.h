/* rank_samples.h - times the data parallel step of several ranks, or a part of it (pb_rank_steps.part), eager or as
 * graphs; samples with and without the collectives alternate. */
#ifndef PB_RANK_SAMPLES_H
#define PB_RANK_SAMPLES_H
#include "bench/measure/measure.h"
#include "bench/suites/rank_steps.h"

/* PB_RANK_SAMPLES: the most samples of a case. PB_RANK_SPANS: times of a step that are measured: its phases, and
 * PB_RANK_STEP, the whole. */
enum { PB_RANK_SAMPLES = 40, PB_RANK_SPANS = PB_NPHASES + 1, PB_RANK_STEP = PB_NPHASES };

/* Times that the ranks measure together, the same numbers on every rank. */
typedef struct pb_rank_samples {
    int n;
    bool phases; /* the phases are measured: the whole step is timed, is eager and has one micro-batch */
    double span[PB_RANK_SPANS][PB_RANK_SAMPLES]; /* of the slowest rank */
    double without[PB_RANK_SAMPLES];             /* step without collectives, of the slowest rank; one rank: unused */
    double spread[PB_RANK_SAMPLES];              /* slowest rank / median of the ranks */
    double record_seconds;                       /* of the graph, on this rank; 0: eager */
    double peak; /* bytes that this rank has held at most in its step. Not in the step without collectives */
} pb_rank_samples;

/* The options by which the suites measure a step. */
pb_measure_opts pb_rank_measure_opts(const pb_ctx *ctx, const pb_case *c, const pb_suite_env *env);
/* Takes pairs of samples: the step, and the same step without its collectives, which of the two is first alternating.
 * In mode graph each of the two is a graph of its own: a graph keeps the collectives that it recorded. One rank takes
 * no pairs. Collective over the ranks; *out is zeroed by the caller. EUNSUPPORTED: the step cannot be recorded. */
pb_status pb_rank_samples_take(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env, pb_rank_steps *steps,
                               pb_rank_samples *out);
#endif
