/* samples.h - the sampled hardware counters of a trace, divided among the parts of its steps. Private to bench/analyze.
 *
 * A sample has the mean of a metric over the time from its begin to its end, of the whole GPU. Its end is the begin of
 * the next sample if that is less than 1.5 intervals away, else (a sample was lost, or none follows) its begin plus the
 * interval.
 *
 * A part of the steps is a set of moments inside steps (breakdown.h):
 *
 *     a phase     a kernel or copy of this phase runs; where work of two phases runs at once, both have the moment
 *     no phase    work of which the phase is not known runs
 *     idle        the GPU does nothing
 *     step        all
 *
 * With w_i, the seconds that sample i and the part have in common, and v_i, the value of a metric in sample i:
 *
 *     sampled     sum of w_i over all samples, seconds
 *     mean        sum of w_i v_i / sum of w_i, over the samples that have a value of the metric; in its unit
 *
 * Of a ratio, such as the share of sectors that L2 finds, each sample counts by its time, not by its sectors.
 *
 * The limit of this: a sample does not say when in its interval the counted work was done. One that spans two parts is
 * divided between them by the time in each, so parts shorter than a few samples are blurred: their means are partly
 * those of their neighbours. Idle time between kernels consists of gaps that are much shorter than a sample;
 * its means say what the GPU did around the gaps. */
#ifndef PB_SAMPLES_H
#define PB_SAMPLES_H
#include "bench/analyze/trace_read.h"

typedef struct pb_sampled_part {
    const char *name; /* of a phase: borrowed from the trace */
    double seconds;   /* of the part, sampled or not */
    long pieces;      /* that it consists of; pauses shorter than an interval of sampling divide nothing */
    double sampled;
    double weighted[PB_GROUP_METRICS], weight[PB_GROUP_METRICS]; /* of each metric: sum of w_i v_i, sum of w_i */
} pb_sampled_part;

enum { PB_SAMPLED_STEP, PB_SAMPLED_IDLE, PB_SAMPLED_NO_PHASE, PB_SAMPLED_PHASES };

/* Sums over the steps of a trace: part[PB_SAMPLED_STEP] and so on; the phases that have work on the GPU begin with
 * part[PB_SAMPLED_PHASES]. */
typedef struct pb_sampled {
    pb_sampled_part *part; /* [n] */
    size_t n;
} pb_sampled;

/* The time is that of sorting work, plus one pass over work and samples for each phase. ENOMEM. Free with
 * pb_sampled_free(), also after an error. */
pb_status pb_samples_divide(const pb_trace *t, pb_sampled *out);
void pb_sampled_free(pb_sampled *s);
#endif
