/* rank_samples.h - times work that several ranks do together, such as a training step, eager or as graphs; samples with
 * and without its collectives alternate. */
#ifndef PB_RANK_SAMPLES_H
#define PB_RANK_SAMPLES_H
#include "bench/measure/measure.h"
#include "bench/suites/suite_env.h"
#include "trainer/step/trainer.h"

/* Work that the ranks do together. Every rank has one of these. */
typedef struct pb_rank_work {
    pb_fn run;
    void *self;
    int ranks;
    pb_comm *comms[2]; /* whose collectives are left out in every other sample; NULL: none */
    /* A training step whose phases, run one by one, do the same as run(self): each of them is timed too, unless the
     * work is a graph. NULL: the work has no phases. */
    pb_trainer *phases;
    bool always_communicates; /* takes no samples without collectives */
} pb_rank_work;

/* PB_RANK_SAMPLES: the most samples of a case. PB_RANK_SPANS: times of a step that are measured: its phases, and
 * PB_RANK_STEP, the whole. */
enum { PB_RANK_SAMPLES = 40, PB_RANK_SPANS = PB_NPHASES + 1, PB_RANK_STEP = PB_NPHASES };

/* Times that the ranks measure together, the same numbers on every rank. */
typedef struct pb_rank_samples {
    int n;
    bool phases;                                 /* the phases are timed */
    double span[PB_RANK_SPANS][PB_RANK_SAMPLES]; /* of the slowest rank */
    double without[PB_RANK_SAMPLES];             /* step without collectives, of the slowest rank; one rank: unused */
    double spread[PB_RANK_SAMPLES];              /* slowest rank / median of the ranks */
    double others[PB_RANK_SAMPLES];              /* step of the slowest rank other than rank 0; one rank: 0 */
    double record_seconds;                       /* of the graph, on this rank; 0: eager */
    double peak; /* bytes that this rank has held at most in its step. Not in the step without collectives */
} pb_rank_samples;

/* Takes pairs of samples: the work, and the same work without its collectives, which of the two is first alternating.
 * With o->graph each of the two is a graph of its own: a graph keeps the collectives that it recorded. One rank, and
 * work that always communicates, take no pairs: `without` is unused. At most PB_RANK_SAMPLES are taken. Collective over
 * the ranks; *out is zeroed by the caller. EUNSUPPORTED: the work cannot be recorded. */
pb_status pb_rank_samples_take(pb_ctx *ctx, const pb_measure_opts *o, const pb_suite_env *env, const pb_rank_work *work,
                               pb_rank_samples *out);
/* Emits `metric` from n samples, such as those of a span; and the time that the work spent in its collectives. */
pb_status pb_rank_samples_emit(pb_emitter *emitter, const pb_case *c, const char *metric, const double *seconds, int n,
                               const char *note);
pb_status pb_rank_samples_emit_exposed(pb_emitter *emitter, const pb_case *c, const pb_rank_samples *x);
#endif
