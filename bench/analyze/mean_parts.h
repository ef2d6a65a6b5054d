/* mean_parts.h - the phases or ops of a profiled job: means over its traces. Private to bench/analyze. */
#ifndef PB_MEAN_PARTS_H
#define PB_MEAN_PARTS_H
#include "bench/analyze/analyze_job.h"

/* The least, middle and largest of the traces' times per step, in seconds, and the rank that has the largest. */
typedef struct pb_spread {
    double least, middle, most;
    int rank;
} pb_spread;

/* A phase or an op over all traces that have steps. The figures are means of the traces' means per step; a trace that
 * lacks the part counts as 0. */
typedef struct pb_mean_part {
    const char *name; /* borrowed from a trace */
    double calls, seconds;
    double gpu_calls, gpu;  /* kernels and copies; their seconds */
    pb_spread own, gpu_own; /* of the ranges and of the GPU, without communication */
    double flops, bytes;    /* least work of the calls of an op */
} pb_mean_part;

/* Lists the ops or phases of all traces: phases in the order in which they first appear, ops by their cost, the largest
 * first, those of a GPU before others. The caller frees *out, also after an error. ENOMEM. */
pb_status pb_mean_parts_list(const pb_analyzed *j, bool ops, pb_mean_part **out, size_t *n);
/* Seconds per step: on a GPU those of the part's kernels and copies, otherwise those of its ranges. */
double pb_mean_cost(const pb_mean_part *m);
/* The mean length of a step in seconds, over all steps of all traces; NAN: no trace has a step. */
double pb_mean_step(const pb_analyzed *j);
#endif
