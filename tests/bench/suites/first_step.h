/* first_step.h - the first step of the program train, for tests of bench: headers of both programs have types of one
 * name, so they cannot be included together. */
#ifndef PB_FIRST_STEP_H
#define PB_FIRST_STEP_H
#include "os/status.h"

typedef struct first_step {
    int S, T; /* tokens of a row, and of the batch */
    double loss;
    void *array[5]; /* [T] ids, targets, mask, start, pos; the last two NULL unless rows are packed. Allocated */
} first_step;

/* Runs `train run` with these options for one step on the CPU. */
pb_status first_step_of_train(int argc, char **argv, first_step *out);
void first_step_free(first_step *s);
#endif
