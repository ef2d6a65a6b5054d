/* step_ratios.c - judges the requirements on the ratio of two whole training steps. */
#include "bench/suites/step_ratios.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/derived/derived.h"

/* The steps whose axis `among` is `only`: the time with axis=over is divided by the time with axis=under. */
typedef struct ratio {
    const char *id, *among, *only, *axis, *over, *under, *missing;
} ratio;

static const ratio ratios[] = {
    {"V4-STEP", "model", "v4-flash-layer", "attention", "dense", "sparse",
     "this run has not measured its step with both dense and sparse attention"},
    {"NAN-GUARD", "optimizer", "normuon", "guard", "on", "off",
     "this run has not measured a step of NorMuon both with and without the guard"},
};

/* Looks up the time and the model FLOP/s of a case. False: the case has no time. Missing FLOP/s are 0. */
static bool step_of(const pb_emitter *emitter, const char *key, double *seconds, double *flops)
{
    if (!pb_emitted_value(emitter, key, "step_time", seconds)) return false;
    if (!pb_emitted_value(emitter, key, "model_flops", flops)) *flops = 0;
    return true;
}

/* True if `key` is a step with axis=under and its counterpart with axis=over was measured too. Index 0 of the results
 * is `over`, index 1 `under`. */
static bool pair_of(const pb_emitter *emitter, const ratio *r, const char *key, pb_case *c, double seconds[2],
                    double flops[2])
{
    pb_case other;
    if (pb_case_parse(key, c) != PB_OK || strcmp(c->suite, "throughput") != 0) return false;
    if (!pb_case_is(c, r->among, r->only) || !pb_case_is(c, r->axis, r->under)) return false;
    other = *c;
    if (pb_case_set(&other, r->axis, r->over) != PB_OK) return false;
    pb_case_finish(&other);
    return step_of(emitter, other.key, &seconds[0], &flops[0]) && step_of(emitter, key, &seconds[1], &flops[1]);
}

static pb_status conclude(pb_emitter *emitter, const ratio *r)
{
    bool any = false;
    const char *key;
    for (int i = 0; (key = pb_emitted_key(emitter, i)) != NULL; i++) {
        double t[2], f[2];
        char how[160];
        pb_case c;
        if (!pair_of(emitter, r, key, &c, t, f)) continue;
        any = true;
        snprintf(how, sizeof how, "%s %.4g ms, %.4g TFLOP/s; %s %.4g ms, %.4g TFLOP/s", r->over, 1e3 * t[0],
                 1e-12 * f[0], r->under, 1e3 * t[1], 1e-12 * f[1]);
        PB_TRY(pb_requirement_emit(emitter, r->id, c.axes, c.n, t[0] / t[1], true, how));
    }
    return any ? PB_OK : pb_requirement_emit(emitter, r->id, NULL, 0, (double)NAN, false, r->missing);
}

pb_status pb_step_ratios_conclude(pb_emitter *emitter)
{
    for (size_t i = 0; i < sizeof ratios / sizeof *ratios; i++) PB_TRY(conclude(emitter, &ratios[i]));
    return PB_OK;
}
