/* plan.h - the cases that a run measures: the suite's grid, changed by the axes and filters of a request. */
#ifndef PB_PLAN_H
#define PB_PLAN_H
#include "bench/rows/rows.h"
#include "bench/suites/grid.h"
#include "bench/suites/own_input.h"
#include "bench/suites/suite.h"

/* A request of the user. Strings are borrowed. A request of zeros asks for the suite's default grid. */
typedef struct pb_plan_request {
    bool full_grid;            /* the suite's full grid in place of its default grid */
    pb_axis_list axes;         /* these values in place of the grid's */
    pb_words filters[2];       /* globs; a case stays if its key matches one of either list, or if both are empty */
    const char *impl, *prefer; /* added to the keys, as axes of the suite or as names of their own; NULL: not given */
    bool no_ceilings;          /* no ceilings but those that a filter names */
    long ranks;                /* ranks of each process, which the keys name; at most 1: no ranks */
    bool counting;             /* instructions are counted: the suite's cases for that, without control cases */
    bool uncontrolled;         /* no control cases: no row has a time */
    const char *only;          /* keys as for pb_plan_keep(); NULL: all */
    pb_input_request input;    /* the user's data; the user's model is a value of the axis model */
} pb_plan_request;

enum { PB_MOST_RANKS = 256 }; /* of --ranks */

typedef struct pb_plan {
    const pb_suite *suite;
    pb_case *cases; /* [n], owned. The first `ceilings` belong to suite ceiling and are measured first, in this order */
    int n, ceilings, room;
    int controls;      /* the last `controls` cases are control cases (controls.h) */
    bool device;       /* true: the cases run on a GPU */
    pb_own_input *own; /* owned: the user's model and data, which the cases read; NULL: none */
} pb_plan;

const pb_suite *pb_suite_find(const char *name); /* NULL: no such suite; the error (EINVAL) has a suggestion */

/* Makes the plan. A case that the suite's check refuses is dropped if another case has the same values on every axis of
 * the request; otherwise the check's error is returned. EINVAL: an axis or value that the suite does not have
 * (with a suggestion), no case left, or more than 20000 cases. The caller frees *out. */
pb_status pb_plan_make(pb_ctx *ctx, const pb_suite *suite, const pb_plan_request *r, pb_plan *out);
/* Removes the controls and the cases whose keys are not among `keys` (each followed by a newline); the ceilings
 * stay. */
void pb_plan_keep(pb_plan *p, const char *keys);
void pb_plan_free(pb_plan *p);

/* Writes the order of the cases in process number `process` to order[plan->n]: the ceilings, then the other cases
 * shuffled. */
void pb_plan_order(const pb_plan *p, uint64_t seed, int process, int *order);
/* Expected seconds that one process spends on the case, estimated by its suite; 1 if the suite has no estimate. */
double pb_plan_expect(const pb_plan *p, const pb_case *c);
#endif
