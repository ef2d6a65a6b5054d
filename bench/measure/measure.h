/* measure.h - times one piece of work: warm-up calls, then samples until there are enough, and their median. */
#ifndef PB_MEASURE_H
#define PB_MEASURE_H
#include "bench/measure/time_slice.h"
#include "bench/stats/median.h"
#include "kernels/core/op.h"

enum { PB_MAX_SAMPLES = PB_MEDIAN_MOST };
typedef struct pb_measure_opts {
    int warmup; /* calls before the first sample; >= 1, for lazy set-up */
    int min_samples, max_samples;
    double min_time; /* seconds of samples to collect, within those bounds. The sample that crosses it is likelier a
                        long one, so the median comes out high by about (sd/mean)^2/n: 1.5 % for 69 exponential times,
                        0.01 % for 5 that spread by 2 %. A fixed number, min_samples = max_samples, has no such bias */
    bool graph;      /* record fn once and time its replays */
    bool flush;      /* evict the cache before each sample */
    bool queued;     /* enqueue samples behind each other without a wait between: with `flush` or `before` to keep the
                        device busy meanwhile, the time that the host takes to enqueue fn is not in them */
    double slowdown; /* 0.02: every timed call is made 2 % longer by a busy wait of that share of its own duration, in
                        the marks: to try a comparison on a slowdown that is known */
    pb_fn before;    /* untimed, before every sample; NULL: none. Its self is `before_self`. With queued, it only
                        enqueues */
    void *before_self;
    pb_pulse *pulse; /* told after every sample and warm-up call; NULL: nobody */
    pb_turns *turns; /* taken with another launch: min_time then is that of the turns, with calls in them that are not
                        timed where samples would be more than max_samples; NULL: none are */
} pb_measure_opts;

typedef struct pb_timing {
    int n;
    double seconds[PB_MAX_SAMPLES]; /* in order of measurement, by the device's clock */
    double median;
    double host[PB_MAX_SAMPLES]; /* seconds until fn came back, by the host's clock */
    double host_median;
    double record_seconds;      /* time of recording (and instantiating) the graph; 0 without */
    size_t nodes;               /* calls inside the graph; 0 without */
    double launches, waits;     /* of one call, by the context's counters */
    double own[PB_MAX_SAMPLES]; /* with opts->slowdown: seconds[] without the wait */
    double slowed;              /* achieved of it: the median of seconds/own - 1; 0 without */
} pb_timing;

/* Times fn(ctx, self). EUNSUPPORTED with the reason when opts->graph and it cannot be recorded; EDEVICE when a clock
 * gives a time that is not above 0. Stops early, with what it has, after pb_interrupted() turns true. A
 * sample holds one mark besides fn at most: on a CPU a reading of the clock, on a device behind the host nothing. */
pb_status pb_measure(pb_ctx *ctx, pb_fn fn, void *self, const pb_measure_opts *opts, pb_timing *out);
#endif
