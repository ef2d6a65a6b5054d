/* hooks.h - two ways to extend a measurement (timing.h): work that is added to every timed call, and another division
 * of the samples into rounds.
 *
 * A hook is the first member of the struct that implements it: pb_slowdown (slowdown.h) adds work, pb_time_slices
 * (time_slice.h) divides into rounds. The implementation owns the hook; the measurement only calls it. */
#ifndef PB_HOOKS_H
#define PB_HOOKS_H
#include "kernels/engine/op.h"

struct pb_measure_opts;
struct pb_timing;

/* Work that is added to every timed call, inside its sample. */
typedef struct pb_call_hook pb_call_hook;
struct pb_call_hook {
    /* Called once, after the warm-up and before the first sample; may use the device's events. Sets *trials: the number
     * of batches of trial samples to take first. */
    pb_status (*begin)(pb_call_hook *h, pb_ctx *ctx, int *trials);
    /* Records event `end`, where the call that began at event `from` ends by itself, and enqueues the work. */
    pb_status (*after_call)(const pb_call_hook *h, pb_ctx *ctx, int from, int end);
    /* Called after each batch of trial samples: seconds[n] with the work, own[n] without it. May overwrite own[]. */
    void (*after_trial)(pb_call_hook *h, const double *seconds, double *own, int n);
    /* The work that was added to n >= 1 samples, as a fraction of the calls' own times; it becomes pb_timing.slowed. */
    double (*added)(const double *seconds, const double *own, int n);
};

/* The division of the samples into rounds. Without this hook, every batch of samples is a round. */
typedef struct pb_round_hook pb_round_hook;
struct pb_round_hook {
    /* Begins a round; t holds the samples taken so far. Sets *most: the calls of this round are timed until t has *most
     * samples, and the round's remaining calls are not timed. Returns true if an untimed call must precede the first
     * timed one. */
    bool (*begin)(pb_round_hook *h, const struct pb_measure_opts *o, const struct pb_timing *t, int *most);
    /* Returns true if the round ends now. It is called after every batch of samples and after every untimed call. */
    bool (*over)(const pb_round_hook *h);
    /* Ends the round. Returns its seconds, which count towards min_time. */
    double (*end)(pb_round_hook *h);
};
#endif
