/* bench.h - the plain structs that travel from one stage of `bench` to the next:
 *
 *   cli -> plan -> suite -> case -> harness -> sample -> results -> compare -> report
 *
 * Everything right of `results` works on CSV files alone. */
#ifndef PB_BENCH_H
#define PB_BENCH_H
#include "bench/turns.h"
#include "os/interrupt.h"
#include "kernels/core/op.h"

#define PB_BENCH_VERSION "1" /* raise it when what a metric means changes */

/* Exit codes, in words in `bench --help`. When several apply: 125 > 2 > 4 > 1 > 3. */
typedef enum pb_exit {
    PB_EXIT_OK = 0,
    PB_EXIT_REGRESSION = 1,
    PB_EXIT_USAGE = 2,        /* what the user typed, or a file of theirs */
    PB_EXIT_INCONCLUSIVE = 3, /* only with --strict */
    PB_EXIT_INCOMPARABLE = 4, /* or a case that failed, hung or is missing */
    PB_EXIT_NO_MEMORY = 124,  /* of a launch, to `bench`, which goes on and ends with 125: a case lacked memory */
    PB_EXIT_HARNESS = 125     /* the harness or the machine; what git bisect skips */
} pb_exit;
pb_exit pb_worse_exit(pb_exit a, pb_exit b);

/* ---- keys and cases (case.c) ------------------------------------------------------------------ */

enum { PB_CASE_AXES = 20, PB_AXIS_TEXT = 64, PB_KEY_TEXT = 512 };

typedef struct pb_axis {
    char name[PB_AXIS_TEXT], value[PB_AXIS_TEXT];
} pb_axis;

/* One point of a suite's grid: every axis of the suite with one value, sorted by name. */
typedef struct pb_case {
    char suite[PB_AXIS_TEXT], name[PB_AXIS_TEXT]; /* "backward", "step" */
    int n;
    pb_axis axes[PB_CASE_AXES];
    char key[PB_KEY_TEXT]; /* suite/name?axis=value&... */
} pb_case;

/* The value of an axis, or NULL. */
const char *pb_case_get(const pb_case *c, const char *axis);
/* Whether the axis is there and has this value. */
bool pb_case_is(const pb_case *c, const char *axis, const char *value);
/* The value as an integer. EINVAL: absent, or not a whole number. */
pb_status pb_case_int(const pb_case *c, const char *axis, long *out);
/* Sets an axis and keeps the order; pb_case_finish then writes the key. */
pb_status pb_case_set(pb_case *c, const char *axis, const char *value);
void pb_case_finish(pb_case *c);
/* The inverse: splits a key. EINVAL when it is none. */
pb_status pb_case_parse(const char *key, pb_case *out);

/* ---- results (results.c writes, read.c reads) --------------------------------------------------- */

#define PB_COL_str const char *
#define PB_COL_i64 long long
#define PB_COL_f64 double
typedef struct pb_row {
#define COL(type, name, doc) PB_COL_##type name;
#include "bench/columns.def"
#undef COL
} pb_row;

/* ---- measuring (harness.c) --------------------------------------------------------------------- */

enum { PB_MAX_SAMPLES = 1024 };
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
/* A wait behind a call that makes it longer by a share of its own. */
typedef struct pb_slowdown {
    double share; /* 0: none */
    double usual; /* seconds of such a call, for a device, which is still at it. On a CPU each call's own are known */
    double least; /* seconds by which a wait takes longer than asked, with its marks: it is asked to be shorter by it */
} pb_slowdown;
/* For suites that set marks of their own: waits behind the call that began at mark `from`, and sets mark `end`, where
 * the call ends without the wait. share 0: does nothing. */
pb_status pb_slow_down(pb_ctx *ctx, const pb_slowdown *s, int from, int end);
/* On a device, whose shortest wait, a kernel, takes longer than a longer one does besides its time: usual and least out
 * of calls that were slowed down as `slow` says so far: seconds[n], and own[n], without the wait, which is overwritten.
 * So many rounds of it, beginning with no `usual`, get there. */
enum { PB_SLOWDOWN_ROUNDS = 4 };
void pb_slowdown_find(const double *seconds, double *own, int n, pb_slowdown *slow);
/* The median of seconds[i]/own[i] - 1, n >= 1. */
double pb_slowed(const double *seconds, const double *own, int n);
/* The median of n >= 1 values; the array is sorted. The mean of the middle two when n is even. */
double pb_median(double *v, int n);
double pb_median_of(const double *v, int n); /* the same, of at most PB_MAX_SAMPLES that stay as they are */

/* ---- suites ------------------------------------------------------------------------------------ */

/* Where a suite puts what it measured. Every call writes at once (one row, one write). */
typedef struct pb_sink pb_sink;
/* unit and better follow from the metric by bench/metrics.def. */
pb_status pb_emit(pb_sink *s, const pb_case *c, const char *metric, double value, int samples, const char *status,
                  const char *note);
/* The median of the timing as `metric`, and its samples into samples.csv. Samples that still got faster add to the note
 * (trend.h). */
pb_status pb_emit_timing(pb_sink *s, const pb_case *c, const char *metric, const pb_timing *t, const char *note);

/* The value this launch emitted for a key and metric with status ok. */
bool pb_sink_value(const pb_sink *s, const char *key, const char *metric, double *value);
/* Walks the keys of cases this launch has measured: i = 0, 1, ...; NULL behind the last. */
const char *pb_sink_key(const pb_sink *s, int i);

typedef struct pb_suite {
    const char *name, *what;
    /* "batch=1 clip=fused ...": every axis with its default. With enumerate: with what is chosen by default,
     * values or patterns, "!" for all but: "dtype=* impl=!ref". */
    const char *axes;
    /* Default cases: lines such as "tuning=lora batch=1,4", NULL-ended. A word without "=" names the case
     * ("copy"; else it is "step"). */
    const char *const *grid;
    const char *const *full_grid; /* with --grid full; NULL: as grid */
    /* The same on a GPU, where other models and sizes are worth a look; NULL: as on the CPU. */
    const char *const *device_grid, *const *device_full_grid;
    /* Optional: EINVAL with one line for a value that no run can take, before anything is measured. */
    pb_status (*check)(const pb_case *c);
    /* Cases that a grid of strings cannot say (kernels: one an op, shape, dtype and implementation); NULL:
     * the grids above. Calls add(user, case) for each. */
    pb_status (*enumerate)(pb_ctx *ctx, bool full, pb_status (*add)(void *user, const pb_case *c), void *user);
    double (*expect)(const pb_case *c);        /* seconds one launch of the case will take, for --dry-run */
    double (*device_expect)(const pb_case *c); /* the same on a GPU */
    /* Measures one case and emits its rows. A case that cannot run emits a row with status unsupported
     * and returns PB_OK; a failure of the harness returns an error. */
    pb_status (*run)(pb_ctx *ctx, const pb_case *c, pb_sink *sink);
    /* Optional: after the last case of a launch, rows that follow from its other rows (contracts). */
    pb_status (*conclude)(pb_ctx *ctx, pb_sink *sink);
} pb_suite;

#define SUITE(name, what) extern const pb_suite pb_suite_##name;
#include "bench/suites.def"
#undef SUITE
extern const pb_suite *const pb_suites[]; /* in the order of suites.def, NULL-ended */
#endif
