/* scripted.h - a device and a host whose clocks are a script, for tests of the measurer.
 *
 * A test that links scripted.c has the scripted host clock in place of pb_clock_seconds. No time passes but what the
 * script and the costs below say; keep them multiples of SCRIPTED_UNIT, and every sum is exact. */
#ifndef PB_TESTS_SCRIPTED_H
#define PB_TESTS_SCRIPTED_H
#include "bench/measure/measure.h"
#include "kernels/core/op.h"

#define SCRIPTED_UNIT 0x1p-20 /* seconds */

/* What can be counted, and made to fail. */
typedef enum scripted_step {
    STEP_WORK,
    STEP_BEFORE,
    STEP_FLUSH,
    STEP_SYNC,
    STEP_MARK,
    STEP_BETWEEN,
    STEP_RECORD,
    STEP_REPLAY,
    STEP_FREE,
    NSTEPS
} scripted_step;

enum { SCRIPTED_SLOTS = 64, SCRIPTED_LAUNCHES = 3, SCRIPTED_WAITS = 1, SCRIPTED_NODES = 7 };

typedef struct scripted {
    const double *script; /* seconds that the work's call i takes, the warm-up calls first; a replay takes half */
    bool async;           /* the host runs ahead of the device, as of a GPU; else the work is the host's, as on a CPU */
    bool gpu;             /* the context says that it is of a GPU */
    double enqueue;       /* seconds of the host for a call of the work or a replay, before the device may begin */
    double marking;       /* for a mark; on a CPU a mark reads the clock at its end */
    double recording;     /* for a recording */
    double waiting;       /* for a delay besides its seconds */
    double shortest;      /* that a delay takes at least */
    double delayed;       /* what the delays took that the measurer asked for */
    double host, device;  /* the clocks: now, and when all that was enqueued will have ended */
    double at[SCRIPTED_SLOTS];
    int calls, count[NSTEPS]; /* calls: entries of the script used */
    int stop_at;              /* stop() is called at the end of this call, counted from 1; 0: never */
    void (*stop)(void);
    scripted_step fail_step; /* its call fail_at, counted from 1, fails; 0: none does */
    int fail_at;
    bool cannot_record;
} scripted;

enum { SCRIPTED_FLUSH = 100, SCRIPTED_BEFORE = 1000 }; /* seconds that must not be in any sample */

/* pb_measure of scripted work; o->before becomes scripted preparation where it is `scripted_before`. */
pb_status scripted_measure(scripted *s, const pb_measure_opts *o, pb_timing *out);
pb_status scripted_before(pb_ctx *ctx, void *self);
#endif
