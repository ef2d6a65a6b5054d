/* suite.h - what a suite is: its axes, its grids of cases, and the function that measures one case. */
#ifndef PB_SUITE_H
#define PB_SUITE_H
#include "bench/measure/emit.h"

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
#include "bench/suites/suites.def"
#undef SUITE
extern const pb_suite *const pb_suites[]; /* in the order of suites.def, NULL-ended */
#endif
