/* step.h - one training step of several micro-batches, eager or replayed from recordings. */
#ifndef PB_STEP_H
#define PB_STEP_H
#include "trainer/graphs.h"
#include "trainer/program/job.h"

typedef struct pb_step_result {
    int S;                  /* tokens of each of its rows */
    double loss;            /* mean over the step's masked tokens */
    double index_loss;      /* the indexers' own, with its weight; NaN without one */
    double norm;            /* the largest of the groups that are clipped apart; before clipping */
    double tokens, seconds; /* all tokens of the step; with everything up to the host knowing the loss */
    double recording;       /* of seconds, for graphs */
    double conversations;   /* in its rows */
    double launches, waits; /* of the step, by the context's counters */
    bool skipped;           /* weights and moments are as before */
    char why[96];           /* what was not finite, when skipped; else empty */
} pb_step_result;

/* Makes the scratch memory for rows of every length there may be. */
pb_status pb_job_reserve(pb_job *j);
/* Draws the next rows and takes the step with learning rate lr; g NULL: eagerly. */
pb_status pb_job_step(pb_job *j, pb_graphs *g, double lr, pb_step_result *out);
#endif
