/* scripted.h - a simulated device and host clock for tests of the measurement loop: each call takes the time that the
 * test's script gives.
 *
 * In a test that links scripted.c, pb_clock_seconds returns the simulated host clock. Time passes only by the script
 * and by the costs below. All of them must be multiples of SCRIPTED_UNIT, so that every sum of times is exact in
 * binary. */
#ifndef PB_TESTS_SCRIPTED_H
#define PB_TESTS_SCRIPTED_H
#include "bench/measure/timing.h"
#include "kernels/engine/op.h"

#define SCRIPTED_UNIT 0x1p-20 /* seconds */

/* The kinds of calls that the scripted device counts, and that a test can make fail. */
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

enum { SCRIPTED_SLOTS = 64, SCRIPTED_LAUNCHES = 3, SCRIPTED_WAITS = 1, SCRIPTED_SEARCHES = 2, SCRIPTED_NODES = 7 };

typedef struct scripted {
    const double *script; /* seconds of the i-th call of the work, warm-up calls first; a replay takes half of that */
    bool async;           /* the host runs ahead of the device, as with a GPU; false: the host works itself (CPU) */
    bool gpu;             /* the context reports a GPU */
    double enqueue;       /* host seconds to enqueue a call or a replay, before the device may begin it */
    double marking;       /* host seconds that an event record takes; on a CPU it reads the clock at their end */
    double recording;     /* seconds to record a graph */
    double waiting;       /* seconds that an injected delay takes in addition to its length */
    double shortest;      /* shortest time that an injected delay can take, seconds */
    double delayed;       /* out: total length of the delays that were asked for, seconds */
    double host, device;  /* seconds; host: the time now; device: when all enqueued work will have ended */
    double at[SCRIPTED_SLOTS];
    int calls, count[NSTEPS]; /* calls: entries of the script used so far; count: calls of each step */
    int stop_at;              /* stop() is called at the end of this call, counted from 1; 0: never */
    void (*stop)(void);
    scripted_step fail_step; /* call number fail_at (from 1) of this step fails; fail_at 0: no call fails */
    int fail_at;
    bool cannot_record;
} scripted;

enum { SCRIPTED_FLUSH = 100, SCRIPTED_BEFORE = 1000 }; /* seconds, never in a sample */

/* Runs pb_measure on the scripted work. o->before may be `scripted_before`, which takes SCRIPTED_BEFORE seconds. */
pb_status scripted_measure(scripted *s, const pb_measure_opts *o, pb_timing *out);
pb_status scripted_before(pb_ctx *ctx, void *self);
#endif
