/* step_times.h - how long the steps of a rank take while ranks record, and otherwise. A rank that is not profiled waits
 * in its collectives for those that are: the difference of its step times is what that costs it. Private to trace. */
#ifndef PB_TRACE_STEP_TIMES_H
#define PB_TRACE_STEP_TIMES_H
#include <jansson.h>

/* X(kind of step, what it is) */
#define PB_STEP_KINDS(X)                                                                                               \
    X(off, "no rank records")                                                                                          \
    X(recorded, "the profiled ranks record, or warm up")                                                               \
    X(after, "the first step after a window, in which the profiled ranks have closed it")

typedef enum pb_step_kind {
#define X(kind, what) PB_STEP_##kind,
    PB_STEP_KINDS(X)
#undef X
        PB_STEP_NKINDS
} pb_step_kind;

enum { PB_STEP_TIMES = 512 }; /* the last steps of each kind that are kept */
typedef struct pb_step_times {
    double begun;
    pb_step_kind kind;
    long n[PB_STEP_NKINDS]; /* steps, those included that are not kept */
    double seconds[PB_STEP_NKINDS][PB_STEP_TIMES];
} pb_step_times;

void pb_step_times_begin(pb_step_times *t, pb_step_kind kind);
void pb_step_times_end(pb_step_times *t);
/* {"off": {"steps": N, "median_s": S, "q1_s": S, "q3_s": S}, ...}; q1_s and q3_s: the quartiles. A kind without steps is
 * left out. NULL: no memory. Sorts the times. */
json_t *pb_step_times_json(pb_step_times *t);
#endif
