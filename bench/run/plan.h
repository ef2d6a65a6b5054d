/* plan.h - which cases a run measures: the suite's grid, with the axes and filters of the command line. */
#ifndef PB_PLAN_H
#define PB_PLAN_H
#include "bench/options/options.h"
#include "bench/suites/suite.h"

typedef struct pb_plan {
    const pb_suite *suite;
    pb_case *cases; /* [n]; the first `ceilings` belong to suite ceiling and run first, in order */
    int n, ceilings, room;
    bool device; /* for a GPU */
} pb_plan;

const pb_suite *pb_suite_find(const char *name); /* EINVAL (NULL) with a hint: there is none */

/* A case that the suite's check refuses falls out where another one has the same values on every axis of the command
 * line. EINVAL with a hint: an axis or value that the suite does not have, no case left, more than 20000 cases; or the
 * check's line. */
pb_status pb_plan_make(pb_ctx *ctx, const pb_suite *suite, const pb_options *o, pb_plan *out);
void pb_plan_free(pb_plan *p);

/* Writes the order of launch number `launch` to order[plan->n]: the ceilings, then the rest shuffled. */
void pb_plan_order(const pb_plan *p, uint64_t seed, int launch, int *order);
/* Seconds that one launch of a case should take, by its suite; a guess of 1 where it does not say. */
double pb_plan_expect(const pb_plan *p, const pb_case *c);

/* Every combination of a line such as "copy tuning=lora batch=1,4", passed to add; what the line does not
 * say is taken from `axes`, a line alike. */
typedef pb_status (*pb_case_add)(void *user, const pb_case *c);
pb_status pb_grid_expand(const char *suite, const char *axes, const char *line, pb_case_add add, void *user);
#endif
