/* launch.h - one launch of a run: a fresh process of this program that measures every case once. */
#ifndef PB_LAUNCH_H
#define PB_LAUNCH_H
#include "bench/run/plan.h"
#include <stdint.h>

typedef struct pb_launch {
    const char *dir, *run_id, *machine_id;
    const pb_plan *plan;
    const pb_options *options;
    uint64_t seed;
    int number;
    long launches;   /* how many there will be, as far as is known */
    int first;       /* place in the order of the first case that is left to measure */
    double started;  /* of the whole command, for the time left */
    double before;   /* seconds that what was measured before the command should have taken */
    double deadline; /* of the whole command, as pb_clock_seconds counts; 0: none */
    bool refused;    /* set: a process ended by itself before its first case */
} pb_launch;

/* The least silence of a launch that is taken for a hang, and --case-timeout where that is longer. */
static inline double pb_least_silence(const pb_options *o)
{
    const double usual = 120, asked = o->case_timeout >= 0 ? o->case_timeout : usual;
    return asked > 1 ? asked : 1;
}

/* Starts launch `number` and waits for it. A case that hangs gets a row of status timeout, and another process measures
 * the cases after it. A launch that dies leaves what it measured and a row of status failed for the case it was in.
 * Takes the time that was lost to cases that hang out of `started`. *stopped: it ended early, so as to keep the
 * deadline. EIO: the process cannot be started, or the row not written. */
pb_status pb_launch_run(pb_launch *l, pb_exit *code, bool *stopped);
/* The other side: what `bench run` does when it is such a process. */
pb_exit pb_launch_child(const pb_options *o);
#endif
