/* suite.h - a suite: its axes, its grids of cases, and the function that measures one case. */
#ifndef PB_SUITE_H
#define PB_SUITE_H
#include "bench/suites/suite_env.h"

typedef struct pb_suite {
    const char *name, *what;
    /* True if `bench run --ranks N` measures it: every rank makes the same calls of pb_lockstep_*, as pb_measure() does
     * with the options of pb_env_measure_opts(). Its keys then have ranks=N. */
    bool ranks;
    /* True if its cases can read the user's model and data (pb_case.own): it has an axis model, and opens trainers with
     * pb_train_case_open(). */
    bool own_input;
    /* True if each case is measured in an operating-system process of its own, because what a case changes in its
     * process is not undone afterwards. The processes of one process number take the cases in their shuffled order, one
     * after the other; a last one concludes, with the rows of all of them. No ceilings are measured. */
    bool alone;
    /* True if nothing is timed. No ceilings are measured, and other work on the CPUs does not matter. */
    bool untimed;
    /* Optional: false for a case that measures no time, which therefore cannot be a control case (controls.h). NULL:
     * every case measures one. */
    bool (*timed)(const pb_case *c);
    /* True if `bench run --counters` measures it: its cases are eager calls, and it emits the metrics with
     * pb_emit_group() where pb_timing.group is set. */
    bool counted;
    /* All axes with their defaults, such as "batch=1 clip=fused". With `enumerate`, the values selected by default: a
     * value, a pattern, or "!value" for all others, such as "dtype=* impl=!ref". */
    const char *axes;
    /* Optional: values that the keys omit, such as "shard=none", of axes without a default. Only values with which a
     * case is the same as without the axis. */
    const char *omitted;
    /* Default cases: lines such as "tuning=lora batch=1,4", terminated by NULL. A word without "=" names the case, such
     * as "copy"; without one the case is named "step". */
    const char *const *grid;
    const char *const *full_grid; /* cases of --grid full; NULL: those of `grid` */
    /* Grids for a GPU, which needs other models and sizes; NULL: as on the CPU. */
    const char *const *device_grid, *const *device_full_grid;
    /* Default cases of several ranks, and those on GPUs; NULL: the cases of one rank. */
    const char *const *ranks_grid, *const *device_ranks_grid;
    /* Optional: rejects impossible combinations of values before anything is measured. EINVAL with a one-line
     * message. */
    pb_status (*check)(const pb_case *c);
    /* Instead of the grids, for cases that grid lines cannot express: calls add(user, case) for each case. Suite
     * kernels uses it: one case per op, shape, dtype and implementation. NULL: the grids above. */
    pb_status (*enumerate)(pb_ctx *ctx, bool full, pb_status (*add)(void *user, const pb_case *c), void *user);
    double (*expect)(const pb_case *c);        /* estimated seconds of one case in one process, on a CPU */
    double (*device_expect)(const pb_case *c); /* estimated seconds on a GPU; NULL: no estimate */
    /* Measures one case and emits its rows. If it returns an error, the caller emits a row for the case: status
     * unsupported for EUNSUPPORTED, failed for every other error. */
    pb_status (*run)(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env);
    /* Optional: runs after the last case of a process and emits rows derived from the process's other rows, such as
     * requirements. */
    pb_status (*conclude)(pb_ctx *ctx, pb_emitter *emitter);
    /* The suite in a run that counts instructions (suite_env.h): smaller cases, because an emulated processor takes
     * tens to hundreds of times as long, and no conclusions, which follow from times. NULL: its instructions are not
     * counted. */
    const struct pb_suite *counting;
} pb_suite;

#define SUITE(name) extern const pb_suite pb_suite_##name;
#include "bench/suites/suites.def"
#undef SUITE
extern const pb_suite *const pb_suites[]; /* in the order of suites.def, terminated by NULL */
#endif
