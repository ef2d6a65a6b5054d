/* timing.h - times a function: warm-up calls, then samples until there are enough, and their median. */
#ifndef PB_TIMING_H
#define PB_TIMING_H
#include "launch/heartbeat.h"
#include "bench/measure/contention.h"
#include "bench/measure/hooks.h"
#include "bench/measure/instructions.h"
#include "bench/measure/lockstep.h"
#include "bench/stats/stats.h"
#include "kernels/engine/op.h"

enum { PB_MAX_SAMPLES = PB_MEDIAN_MOST };
typedef struct pb_measure_opts {
    int warmup; /* calls before the first sample; >= 1, because the first call may initialise lazily */
    int min_samples, max_samples; /* 1 <= min_samples <= max_samples <= PB_MAX_SAMPLES */
    double min_time; /* seconds: samples are taken until they add up to min_time, within the two bounds above.
                        The last sample is more often a long one, so the median is too high by about (sd/mean)^2/n:
                        1.5 % for 69 exponentially distributed times, 0.01 % for 5 with a spread of 2 %. A fixed
                        number of samples (min_samples = max_samples) has no such bias */
    bool graph;      /* capture fn as a graph once, and time its replays */
    bool flush;      /* evict the last-level cache before each sample */
    bool queued;     /* enqueue up to 16 samples without a host sync between them. If `flush` or `before` keeps the
                        device busy meanwhile, the samples do not include the time in which the host enqueues fn */
    pb_fn before;    /* called with before_self before every sample and warm-up call, not timed; with `queued` it must
                        only enqueue. NULL: none */
    void *before_self;
    pb_instruction_counter *counter; /* counts the instructions of every sample's call; max_samples must then be
                                        PB_COUNTED_CALLS, and the times mean nothing. NULL: none are counted */
    /* Counts the events of a metric group in PB_REPLAYS calls after the warm-up, in place of taking samples; not of a
     * graph. NULL: none are counted */
    struct pb_group_counter *group;
    /* Ranks that take each sample together: a barrier before it, and its times are those of the slowest rank. Samples
     * are then never queued one after the other. NULL: one rank */
    pb_lockstep *lockstep;
    pb_heartbeat *heartbeat;   /* gets a heartbeat after samples and warm-up calls; NULL: no heartbeats */
    pb_call_hook *call_hook;   /* adds work to every timed call (pb_slowdown_hook); NULL: none */
    pb_round_hook *round_hook; /* divides the samples into rounds (pb_time_slice_hook); NULL: a batch is a round */
    /* Samples during which other work took CPU time are taken again; if there is no end of that, the parent gets the
     * message PB_SAYS_DISTURBED. Without effect with a round hook or lockstep. NULL: all samples are kept */
    pb_contention *contention;
} pb_measure_opts;

/* The usual options: a warm-up call, then samples until there are 5 that add up to 0.2 s; at most PB_MAX_SAMPLES. */
#define PB_MEASURE_USUAL .warmup = 1, .min_samples = 5, .max_samples = PB_MAX_SAMPLES, .min_time = 0.2

typedef struct pb_timing {
    int n;
    double seconds[PB_MAX_SAMPLES]; /* times of the samples in order, by the device's clock */
    double median;                  /* median of seconds[]; NaN: no samples */
    double host[PB_MAX_SAMPLES];    /* seconds until fn returned to the host, by the host's clock */
    double host_median;
    double record_seconds;                        /* time to capture and instantiate the graph; 0 without a graph */
    size_t nodes;                                 /* nodes of the graph; 0 without a graph */
    double kernel_launches, host_syncs, searches; /* kernel launches, host syncs and searched algorithms per call */
    uint64_t allocations;                         /* calls of pb_alloc in one call: the most of all samples */
    pb_tally names; /* kernel launches by name, of the last warm-up call; a graph replays the same kernels */
    double instructions[PB_COUNTED_CALLS]; /* with a counter: of each call */
    bool counted;                          /* the calls were counted, not timed */
    const struct pb_group_counter *group;  /* has the counts of the calls; NULL: no events were counted */
    double own[PB_MAX_SAMPLES];            /* with a call hook: seconds[] without the work that it added */
    double slowed; /* with a call hook: the work that it added, as a fraction of own[]; else 0 */
} pb_timing;

/* Times fn(ctx, self). If pb_interrupted() becomes true, it stops early and returns the samples it has.
 * EINVAL: invalid options; EUNSUPPORTED: opts->graph is set and fn cannot be captured; EDEVICE: a clock measured a time
 * that is not above 0.
 * A sample includes at most one event record besides fn and the work of a call hook: on a CPU that is one reading of
 * the clock; on a GPU that still has queued work it adds no time. */
pb_status pb_measure(pb_ctx *ctx, pb_fn fn, void *self, const pb_measure_opts *opts, pb_timing *out);
#endif
