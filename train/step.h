/* step.h - one training step of one or more micro-batches, run eagerly or with graphs. */
#ifndef PB_STEP_H
#define PB_STEP_H
#include "train/job.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/step/graphs.h"
#include "trainer/step/matrix_fault.h"

typedef struct pb_step_result {
    int S;             /* tokens per row */
    double loss;       /* mean over the step's loss tokens */
    double index_loss; /* weighted loss of the indexers; NaN: they are not trained */
    double norm;       /* largest gradient norm of a clip group, before clipping */
    /* tokens: number of positions in the step's rows, of all ranks; seconds: until the host has the loss, from the
     * step's start */
    double tokens, seconds;
    double recording;     /* part of `seconds` spent on capturing graphs */
    double conversations; /* number of conversations in the step's rows; a row of a stream is one */
    /* Counts of this step. kernel_launches: kernels and graph replays that the host enqueued (on a CPU: ops);
     * host_syncs: points at which the CPU waited for the GPU. */
    double kernel_launches, host_syncs;
    bool stop;             /* true: a rank was interrupted before the step */
    bool skipped;          /* true: weights and moments were not changed */
    bool guarded;          /* true: skipped by the NaN guard alone */
    char why[192];         /* what was not finite in a skipped step; else empty */
    pb_matrix_fault fault; /* with `guarded`: the matrix at fault */
} pb_step_result;

/* True if this rank was interrupted, or j->stop is set. */
bool pb_job_stops(const pb_job *j);
/* Allocates scratch memory for every row length that can occur. */
pb_status pb_job_reserve(pb_job *j);
/* Draws the next rows and makes one training step with learning rate lr. g NULL: run eagerly. */
pb_status pb_job_step(pb_job *j, pb_graphs *g, double lr, pb_step_result *out);
/* Adds a step to the progress of the run, and moves its data position to where the next step begins to read. */
void pb_job_count(const pb_job *j, const pb_step_result *x, pb_progress *p);
#endif
