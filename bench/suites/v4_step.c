/* v4_step.c - judges requirement V4-STEP: compares the times of training steps with dense and with sparse attention. */
#include "bench/suites/v4_step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/derived/derived.h"

/* Looks up the time and the model FLOP/s of a case. False: the case has no time. Missing FLOP/s are 0. */
static bool step_of(const pb_emitter *emitter, const char *key, double *seconds, double *flops)
{
    if (!pb_emitted_value(emitter, key, "step_time", seconds)) return false;
    if (!pb_emitted_value(emitter, key, "model_flops", flops)) *flops = 0;
    return true;
}

/* True if `key` is a training step of v4-flash-layer with sparse attention and its counterpart with dense attention was
 * measured too. Index 0 of the results is dense, index 1 sparse. */
static bool pair_of(const pb_emitter *emitter, const char *key, pb_case *c, double seconds[2], double flops[2])
{
    pb_case dense;
    if (pb_case_parse(key, c) != PB_OK || strcmp(c->suite, "throughput") != 0) return false;
    if (!pb_case_is(c, "model", "v4-flash-layer") || !pb_case_is(c, "attention", "sparse")) return false;
    dense = *c;
    if (pb_case_set(&dense, "attention", "dense") != PB_OK) return false;
    pb_case_finish(&dense);
    return step_of(emitter, dense.key, &seconds[0], &flops[0]) && step_of(emitter, key, &seconds[1], &flops[1]);
}

pb_status pb_v4_step_conclude(pb_emitter *emitter)
{
    bool any = false;
    const char *key;
    for (int i = 0; (key = pb_emitted_key(emitter, i)) != NULL; i++) {
        double t[2], f[2];
        char how[160];
        pb_case c;
        if (!pair_of(emitter, key, &c, t, f)) continue;
        any = true;
        snprintf(how, sizeof how, "dense %.4g ms, %.4g TFLOP/s; sparse %.4g ms, %.4g TFLOP/s", 1e3 * t[0], 1e-12 * f[0],
                 1e3 * t[1], 1e-12 * f[1]);
        PB_TRY(pb_requirement_emit(emitter, "V4-STEP", c.axes, c.n, t[0] / t[1], true, how));
    }
    if (any) return PB_OK;
    return pb_requirement_emit(emitter, "V4-STEP", NULL, 0, (double)NAN, false,
                               "this run has not measured its step with both dense and sparse attention");
}
