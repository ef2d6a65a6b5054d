/* train_check.c - checks the gradients of a case and emits the row of the check; resets the memory counters before
 * timing, and emits peak memory afterwards. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/measure/measure.h"
#include "bench/suites/train_case.h"
#include "kernels/engine/clock.h"
#include "kernels/engine/op.h"

enum { LONG_CHECK = 20, NOTE_TEXT = 160 }; /* seconds: a longer check is made once in a run, not in each process */

/* Sets *out to case number i of those with the gradient of *c: those with another mode or clip, and, for a control case,
 * the case of which it is a copy. False: no such case exists. */
static bool twin_of(const pb_case *c, int i, pb_case *out)
{
    static const char *const modes[] = {"eager", "graph"};
    static const char *const clips[] = {
#define X(id, word, what) word,
        PB_CLIP_MAP(X)
#undef X
    };
    if (i >= 2 * PB_NCLIPS) return false;
    *out = *c;
    if (pb_case_set(out, "mode", modes[i % 2]) != PB_OK || pb_case_set(out, "clip", clips[i / 2]) != PB_OK)
        return false;
    pb_case_drop(out, PB_CONTROL_AXIS);
    pb_case_finish(out);
    return true;
}

/* Finds the gradient_error of a case with the same gradient that an earlier process of the run took long to measure, or
 * else one that this process measured; `note` says which. The processes of a run compute the same gradient from the same
 * data. A case never takes the error of its copies, which are control cases. */
static bool known(const pb_emitter *emitter, const pb_case *c, double *error, char note[NOTE_TEXT])
{
    pb_case twin;
    int process;
    double seconds;
    for (int i = 0; twin_of(c, i, &twin); i++)
        if (pb_checked_earlier(emitter, twin.key, error, &process, &seconds)) {
            snprintf(note, NOTE_TEXT, "measured in process %d of this run, where the check took %.0f s", process,
                     seconds);
            return true;
        }
    snprintf(note, NOTE_TEXT, "measured in this process in a case with the same gradient");
    for (int i = 0; twin_of(c, i, &twin); i++)
        if (pb_emitted_value(emitter, twin.key, "gradient_error", error)) return true;
    return false;
}

static pb_status forward_and_loss(pb_ctx *ctx, pb_trainer *t)
{
    PB_TRY(pb_phase_forward(ctx, t));
    return pb_phase_loss(ctx, t);
}

pb_status pb_train_case_gradient(pb_ctx *ctx, const pb_case *c, pb_trainer *t, pb_emitter *emitter, pb_check *out)
{
    const bool device = ctx->id != PB_CPU;
    const double bound = pb_gradient_bound(pb_trainer_config(t)->model.dtype);
    double error = (double)NAN;
    char note[NOTE_TEXT];
    *out = (pb_check){PB_ROW_OK, ""};
    /* An error that is known is reused: suite_backward.c checks that a graph has the eager gradients, and clipping only
     * scales them. */
    if (known(emitter, c, &error, note)) {
        PB_TRY(forward_and_loss(ctx, t));
        return pb_emit(emitter, c, "gradient_error", error, 0, PB_ROW_OK, note);
    }
    const double began = pb_clock_seconds();
    const pb_status s = pb_gradient_error(c, t, &error);
    const double seconds = pb_clock_seconds() - began;
    if (device && s == PB_ENOMEM) {
        snprintf(note, sizeof note, "not checked, for lack of memory: %.120s", pb_error());
        PB_TRY(forward_and_loss(ctx, t));
        return pb_emit(emitter, c, "gradient_error", (double)NAN, 0, PB_ROW_UNSUPPORTED, note);
    }
    PB_TRY(s);
    if (!(error <= bound)) {
        out->status = PB_ROW_WRONG;
        snprintf(out->note, sizeof out->note, "the relative error of the gradient is %g, more than %g", error, bound);
    }
    if (seconds >= LONG_CHECK) PB_TRY(pb_emit(emitter, c, "gradient_check_time", seconds, 0, PB_ROW_OK, ""));
    return pb_emit(emitter, c, "gradient_error", error, 0, out->status, out->note);
}

pb_status pb_train_case_fresh(pb_ctx *ctx, pb_trainer *t)
{
    PB_TRY(pb_sync(ctx)); /* work in flight may still use the scratch memory */
    pb_ctx_release_scratch(ctx);
    pb_held_reset(ctx);
    /* Reserves the scratch memory in one block, as pb_train_case_open and `train` do. If it grew op by op, the smaller
     * blocks before the last would count towards the peak, which no training run has. */
    PB_TRY(pb_trainer_reserve(t, pb_trainer_config(t)->S));
    if (ctx->id == PB_CPU) return PB_OK;
    /* runs all three phases once, so that phases that are not timed count towards the peak */
    return pb_train_micro(ctx, t);
}

pb_status pb_train_case_memory(pb_ctx *ctx, const pb_case *c, pb_emitter *emitter)
{
    size_t used;
    if (ctx->id == PB_CPU) return PB_OK;
    PB_TRY(pb_emit(emitter, c, "peak_memory", (double)ctx->held_peak, 0, PB_ROW_OK, ""));
    if (pb_device_used(ctx, &used) != PB_OK) return PB_OK;
    return pb_emit(emitter, c, "device_memory", (double)used, 0, PB_ROW_OK, "");
}
