/* rank_steps.h - data parallel steps in suite throughput: several ranks, or several micro-batches in a step; and their
 * optimizer phase in suite optimizer.
 *
 * A case runs in this order. While rank 0 is alone, the other ranks wait without using a processor.
 *   1. Rank 0 alone: checks the gradient, trains two steps on all micro-batches of the ranks, and measures its step.
 *   2. All ranks train the same two steps together. Loss and gradient norms of both must be those of rank 0 alone, or
 *      the case is wrong and has no time. The second step shows that the ranks have updated their weights alike.
 *   3. All ranks measure their step, alternating with and without its collectives. A step without collectives computes
 *      wrong values, so nothing but its time is used, and no losses are read afterwards.
 * If a `part` of the step is given, 1 and 3 time this part alone, repeated on the gradients of the last training step.
 * The time of an optimizer does not depend on the values of the gradients, unless the step is skipped; a case with a
 * skipped step is wrong and has no time. */
#ifndef PB_RANK_STEPS_H
#define PB_RANK_STEPS_H
#include "bench/suites/suite_env.h"
#include "trainer/step/trainer.h"

/* The steps of a case on this rank. */
typedef struct pb_rank_steps {
    const pb_case *c;
    pb_trainer *t;
    int ranks;         /* that train together */
    int group, groups; /* of those that train on different micro-batches: a rank, or ranks that share rows (axis cp) */
    int parts;         /* micro-batches of this rank in a step */
    pb_fn part;        /* what is timed, a function of the trainer; NULL: the whole step */
} pb_rank_steps;

/* Runs one step on the batch that is loaded, which each of the micro-batches uses. A pb_fn; self is pb_rank_steps. */
pb_status pb_rank_step(pb_ctx *ctx, void *self);
/* Runs what is timed: the step, or the part of it. A pb_fn; self is pb_rank_steps. */
pb_status pb_rank_timed(pb_ctx *ctx, void *self);

/* Figures that the check compares: loss and norms of the clip groups of the first steps. */
enum { PB_RANK_CHECK_STEPS = 2 };
typedef struct pb_rank_results {
    double loss[PB_RANK_CHECK_STEPS];
    float *norm; /* [PB_RANK_CHECK_STEPS][groups], allocated */
    int groups;
} pb_rank_results;

/* Trains the first steps of a global batch of `all` micro-batches, of which this rank has its part (docs/ranks.md). The
 * caller frees out->norm. */
pb_status pb_rank_results_get(pb_ctx *ctx, const pb_rank_steps *s, int all, pb_heartbeat *heartbeat,
                              pb_rank_results *out);
/* The largest difference of two results, each divided by its bound: above 1, or NaN, the ranks are wrong. note[n] names
 * it. */
double pb_rank_difference(const pb_train_config *cfg, const pb_rank_results *one, const pb_rank_results *ranks,
                          char *note, size_t n);

/* True if a case needs pb_rank_steps_run: there are several ranks or micro-batches. */
bool pb_rank_steps_needed(const pb_case *c, const pb_suite_env *env);
/* True if a key that this process has emitted for a suite names several ranks. */
bool pb_rank_steps_of(const pb_emitter *emitter, const char *suite);
/* Refuses what a case of several ranks cannot have. EINVAL. */
pb_status pb_rank_steps_check(const pb_case *c);
/* Measures a case and emits its rows, as pb_suite.run does. part: the function to time, a part of the optimizer phase
 * (pb_rank_steps); NULL: the whole step. */
pb_status pb_rank_steps_run(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env, pb_fn part);
#endif
