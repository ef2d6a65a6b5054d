/* smoke.h - the smoke ladder: short runs of a configuration, the next longer one only if the one before passed its
 * checks.
 *
 * A rung of n steps runs the first n steps of the configuration, as `train run` would: the same rows, learning rates
 * and implementations. After half of them it saves a checkpoint. A second job resumes from it and runs the other half.
 * The checks, in the order in which they are made:
 *
 *   skipped   no step was skipped
 *   finite    the loss and the gradient's norm of every step
 *   loss      the mean loss of the second half of the steps is at most `rise` times that of the first half: the rows of
 *             steps differ, so that single losses may rise
 *   resumed   weights, moments and counters after resuming have the bits that were saved
 *   end       and those after the last step have the bits of the job that was not interrupted; only checked where every
 *             implementation gives the same bits in every run (on a CPU with one rank, or with --deterministic) */
#ifndef PB_SMOKE_H
#define PB_SMOKE_H
#include <stdbool.h>
#include <stddef.h>

enum { PB_SMOKE_STEPS = 20 };

/* The rungs. Each entry: X(steps, rise). */
#define PB_SMOKE_MAP(X) X(2, 1.5) X(PB_SMOKE_STEPS, 1.1)

typedef struct pb_smoke_rung {
    int steps;
    double rise;
    double loss[PB_SMOKE_STEPS], norm[PB_SMOKE_STEPS]; /* [steps] of the job that was not interrupted */
    int skipped;                                       /* number of the first skipped step, from 1; 0: none */
    char why[96];                                      /* why it was skipped */
    bool resumed, end;                                 /* whether the bits were equal */
    bool compares_end;                                 /* whether `end` is checked */
} pb_smoke_rung;

/* True if a rung passed; else writes a line that says which check failed. */
bool pb_smoke_passed(const pb_smoke_rung *r, char *why, size_t n);
#endif
