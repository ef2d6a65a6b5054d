/* step.c - micro-batches, recordings, and what the host learns from a step. */
#include "trainer/program/step.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/core/clock.h"

/* A conversation's first place sees only itself; so does a place behind the last one, but that counts nothing and no
 * place looks back to it. */
static bool begins(const pb_rows *r, size_t i, size_t in_row, size_t S)
{
    if (r->start[i] != (int32_t)in_row) return false;
    return r->mask[i] > 0 || (in_row + 1 < S && r->start[i + 1] == (int32_t)in_row);
}

/* All rows of the step are drawn first: every micro-batch divides by the tokens of all. */
static double draw(pb_job *j, double *conversations)
{
    const size_t n = (size_t)j->micro * (size_t)j->cfg.B * (size_t)j->cfg.S;
    double count = 0;
    pb_dataset_next(j->data, j->micro * j->cfg.B, &j->rows);
    const size_t S = (size_t)j->cfg.S;
    for (size_t i = 0; i < n; i++) {
        count += (double)j->rows.mask[i];
        *conversations += begins(&j->rows, i, i % S, S);
    }
    return count;
}

static pb_status set_micro(pb_job *j, int i, double count)
{
    const size_t at = (size_t)i * (size_t)j->cfg.B * (size_t)j->cfg.S;
    const pb_rows *r = &j->rows;
    pb_trainer_accumulate(j->trainer, i > 0);
    return pb_trainer_set_batch(
        j->trainer, &(pb_batch){r->ids + at, r->targets + at, r->mask + at, count, r->start + at, r->pos + at});
}

/* Replays *graph, recording it first; eager while `graph` is NULL. */
static pb_status run_or_replay(pb_job *j, pb_fn fn, pb_graph **graph)
{
    if (!graph) return fn(&j->ctx, j->trainer);
    if (!*graph) PB_TRY(pb_record(&j->ctx, fn, j->trainer, graph));
    return pb_replay(&j->ctx, *graph);
}

/* The sum of the micro-batches' losses, each divided by the step's count. */
static pb_status micro_batches(pb_job *j, pb_stepper *s, double count, double *loss)
{
    const bool graph = j->graph && s->warm;
    double part;
    *loss = 0;
    if (j->micro == 1) {
        PB_TRY(set_micro(j, 0, count));
        PB_TRY(run_or_replay(j, pb_train_step, graph ? &s->whole : NULL));
        return pb_trainer_loss(j->trainer, loss);
    }
    for (int i = 0; i < j->micro; i++) {
        PB_TRY(set_micro(j, i, count));
        PB_TRY(run_or_replay(j, pb_train_micro, !graph ? NULL : i ? &s->more : &s->first));
        PB_TRY(pb_trainer_loss(j->trainer, &part));
        *loss += part;
    }
    return run_or_replay(j, pb_train_finish, graph ? &s->finish : NULL);
}

/* The largest norm, and the first group whose norm is not finite. */
static pb_status norms(pb_job *j, pb_step_result *r)
{
    const int n = pb_trainer_clip_groups(j->trainer);
    pb_clip_state *s = malloc((size_t)n * sizeof *s);
    if (!s) return pb_fail(PB_ENOMEM, "no memory for the clip states");
    const pb_status status = pb_trainer_clip_states(j->trainer, s);
    for (int i = 0; status == PB_OK && i < n; i++) {
        if (!((double)s[i].norm <= r->norm)) r->norm = (double)s[i].norm;
        if (isfinite(s[i].norm) || *r->why) continue;
        if (n == 1) snprintf(r->why, sizeof r->why, "the gradient's norm is not finite");
        else snprintf(r->why, sizeof r->why, "the norm of layer %d's gradient is not finite", i);
    }
    free(s);
    return status;
}

pb_status pb_job_step(pb_job *j, pb_stepper *s, double lr, pb_step_result *out)
{
    const pb_counts before = j->ctx.counts;
    const double start = pb_clock_seconds();
    pb_step_result r = {.tokens = (double)j->micro * j->cfg.B * j->cfg.S};
    pb_adamw_state was, is;
    PB_TRY(pb_trainer_state(j->trainer, &was));
    PB_TRY(pb_trainer_set_lr(j->trainer, (float)lr));
    PB_TRY(micro_batches(j, s, draw(j, &r.conversations), &r.loss));
    PB_TRY(pb_trainer_state(j->trainer, &is));
    PB_TRY(norms(j, &r));
    r.seconds = pb_clock_seconds() - start;
    s->warm = true;
    r.skipped = is.skipped != was.skipped;
    if (!isfinite(r.loss)) snprintf(r.why, sizeof r.why, "the loss is not finite");
    r.launches = (double)(j->ctx.counts.launches - before.launches);
    r.waits = (double)(j->ctx.counts.waits - before.waits);
    *out = r;
    return PB_OK;
}

void pb_stepper_free(pb_job *j, pb_stepper *s)
{
    pb_graph *const all[] = {s->whole, s->first, s->more, s->finish};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) pb_graph_free(&j->ctx, all[i]);
    *s = (pb_stepper){0};
}
