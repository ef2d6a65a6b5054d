/* launch.h - one launch of a run: a fresh process of this program that measures every case once. */
#ifndef PB_LAUNCH_H
#define PB_LAUNCH_H
#include "bench/plan.h"

typedef struct pb_launch {
    const char *dir, *run_id, *machine_id;
    const pb_plan *plan;
    const pb_options *options;
    uint64_t seed;
    int number;
    double started; /* of the whole run, for the time that is left */
} pb_launch;

/* Starts launch `number` and waits for it. A launch that dies leaves what it measured and a row of status
 * failed for the case it was in. EIO: the process cannot be started, or the row not written. */
pb_status pb_launch_run(const pb_launch *l, pb_exit *code);
/* The other side: what `bench run` does when it is such a process. */
pb_exit pb_launch_child(const pb_options *o);
#endif
