/* step.h - one training step of several micro-batches, eager or replayed from recordings. */
#ifndef PB_STEP_H
#define PB_STEP_H
#include "trainer/program/job.h"

typedef struct pb_stepper {
    pb_graph *whole, *first, *more, *finish; /* whole: of a step with one micro-batch */
    bool warm;                               /* an eager step has sized the scratch memory */
} pb_stepper;

typedef struct pb_step_result {
    double loss;            /* mean over the step's masked tokens */
    double norm;            /* the largest of the groups that are clipped apart; before clipping */
    double tokens, seconds; /* all tokens of the step; with everything up to the host knowing the loss */
    double conversations;   /* in its rows */
    double launches, waits; /* of the step, by the context's counters */
    bool skipped;           /* weights and moments are as before */
    char why[96];           /* what was not finite, when skipped or when only the loss is not */
} pb_step_result;

/* Draws the next rows and takes the step with learning rate lr. */
pb_status pb_job_step(pb_job *j, pb_stepper *s, double lr, pb_step_result *out);
void pb_stepper_free(pb_job *j, pb_stepper *s);
#endif
