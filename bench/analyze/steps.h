/* steps.h - which ranges of a trace are its steps. Private to bench/analyze. */
#ifndef PB_STEPS_H
#define PB_STEPS_H
#include "bench/analyze/intervals.h"
#include "bench/analyze/trace_read.h"

/* The kind of the ranges that count as steps (breakdown.h), and the training thread, which has them; tid -1: none. */
typedef struct pb_step_ranges {
    pb_range_kind kind;
    int tid;
} pb_step_ranges;

pb_step_ranges pb_steps_find(const pb_trace *t);
/* The steps, united; out->at has room for t->n. */
void pb_steps_list(const pb_trace *t, pb_intervals *out);
#endif
