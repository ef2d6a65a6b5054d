/* step.c - one training step: draws its rows, shortens them, runs the micro-batches, and collects the results. */
#include "train/step.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/engine/clock.h"
#include "os/interrupt.h"
#include "os/where.h"

bool pb_job_stops(const pb_job *j) { return j->stop || pb_interrupted(); }

/* True at a conversation's first token. Padding also has start == own index; it is told apart by mask 0
 * and by having no successor. */
static bool begins_conversation(const pb_rows *r, size_t i, size_t in_row, size_t S)
{
    if (r->start[i] != (int32_t)in_row) return false;
    return r->mask[i] > 0 || (in_row + 1 < S && r->start[i + 1] == (int32_t)in_row);
}

/* The length and the counts of the rows that were drawn for a step. */
typedef struct step_rows {
    int S;
    double count, conversations; /* count: loss tokens */
} step_rows;

/* Draws all rows of the step, those of the other ranks too, before the first micro-batch runs: each micro-batch's loss
 * is divided by the loss tokens of the whole step, and all have one row length. */
static step_rows draw_rows(pb_job *j)
{
    const pb_rows *r = &j->rows;
    const size_t rows = (size_t)j->micro_batches * (size_t)j->groups * (size_t)j->cfg.B;
    pb_dataset_next(j->data, (int)rows, r);
    step_rows d = {.S = pb_rows_length(r, rows, j->cfg.S, j->bucket)};
    const size_t S = (size_t)d.S;
    pb_rows_shorten(r, rows, j->cfg.S, d.S);
    for (size_t i = 0; i < rows * S; i++) {
        d.count += (double)r->mask[i];
        d.conversations += begins_conversation(r, i, i % S, S);
    }
    return d;
}

static pb_status set_micro(pb_job *j, int i, const step_rows *d)
{
    const pb_batch batch = pb_job_batch(j, i, d->S, d->count);
    pb_trainer_accumulate(j->trainer, i > 0);
    pb_trainer_reduce(j->trainer, i == j->micro_batches - 1);
    return pb_trainer_set_batch(j->trainer, &batch);
}

static pb_status run(pb_job *j, pb_graphs *g, pb_fn fn)
{
    return g ? pb_graphs_run(g, &j->ctx, j->trainer, fn) : fn(&j->ctx, j->trainer);
}

/* Adds the losses of a micro-batch of every rank, in the order of the ranks. */
static pb_status add_losses(pb_job *j, pb_step_result *r)
{
    double own;
    bool stop;
    PB_TRY(pb_trainer_losses(j->trainer, j->losses, &stop));
    for (int i = 0; i < j->ranks; i++) r->loss += j->losses[i];
    r->stop = r->stop || stop;
    if (!(j->cfg.model.index_loss > 0)) return PB_OK;
    PB_TRY(pb_trainer_index_loss(j->trainer, &own));
    PB_TRY(pb_world_gather(j->o->world, "the loss of the indexers", &own, sizeof own, j->losses));
    for (int i = 0; i < j->ranks; i++) r->index_loss += j->losses[i];
    return PB_OK;
}

/* Runs the micro-batches and sums their losses over all ranks. Each loss is already divided by the loss tokens of the
 * whole step, so the sum is the step's mean loss. */
static pb_status run_micro_batches(pb_job *j, pb_graphs *g, const step_rows *d, pb_step_result *r)
{
    r->loss = 0;
    r->index_loss = j->cfg.model.index_loss > 0 ? 0 : (double)NAN;
    if (j->micro_batches == 1) {
        PB_TRY(set_micro(j, 0, d));
        PB_TRY(run(j, g, pb_train_step));
        PB_TRY(add_losses(j, r));
        if (j->after_micro) j->after_micro(j->after_micro_self, 0);
        return PB_OK;
    }
    for (int i = 0; i < j->micro_batches; i++) {
        PB_TRY(set_micro(j, i, d));
        PB_TRY(run(j, g, pb_train_micro));
        PB_TRY(add_losses(j, r));
        if (j->after_micro) j->after_micro(j->after_micro_self, i);
    }
    return run(j, g, pb_train_finish);
}

/* Writes into r->why that the norm of a clip group is not finite. layer: the layer of the group; -1: the group of the
 * parameters outside the layers. */
static void name_group(int layer, pb_step_result *r)
{
    if (layer < 0)
        snprintf(r->why, sizeof r->why, "the norm of the gradient of the parameters outside the layers is not finite");
    else snprintf(r->why, sizeof r->why, "the norm of layer %d's gradient is not finite", layer);
}

/* Sets r->norm to the largest gradient norm of the clip groups. If a norm is not finite, writes into r->why which group
 * is the first with such a norm. */
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
        else name_group(pb_trainer_clip_layer(j->trainer, i), r);
    }
    free(s);
    return status;
}

/* Finds the matrix that made the NaN guard skip the step, and writes it into r->why. With several ranks its update may
 * be finite on this one. */
static pb_status name_matrix(pb_job *j, pb_step_result *r)
{
    pb_matrix_fault *f = &r->fault;
    char more[32] = "";
    PB_TRY(pb_matrix_fault_find(j->trainer, f));
    if (f->others) snprintf(more, sizeof more, "; %d more matrices", f->others);
    if (f->name)
        snprintf(r->why, sizeof r->why,
                 "an orthogonalised update is not finite (NaN guard): %s, first at row %zu, column %zu%s", f->name,
                 f->row, f->col, more);
    else snprintf(r->why, sizeof r->why, "an orthogonalised update is not finite (NaN guard) on another rank");
    return PB_OK;
}

/* Tells the monitor how long the device took for the forward phase. The times of the host do not show a slow device: a
 * GPU works after the host has enqueued a phase, and a replayed graph is one phase. */
static pb_status report_forward(pb_job *j, const pb_graphs *g)
{
    double seconds;
    if (!j->cfg.time_forward || (j->ctx.id == PB_CPU && !g)) return PB_OK;
    PB_TRY(pb_trainer_forward_time(j->trainer, &seconds));
    pb_where_took("forward on the device", seconds);
    return PB_OK;
}

pb_status pb_job_step(pb_job *j, pb_graphs *g, double lr, pb_step_result *out)
{
    const pb_counts before = j->ctx.counts;
    const double start = pb_clock_seconds(), recording = g ? g->seconds : 0;
    pb_step_result r = {0};
    pb_adamw_state was, is;
    PB_TRY(pb_trainer_state(j->trainer, &was));
    PB_TRY(pb_trainer_set_lr(j->trainer, (float)lr));
    if (j->comm) PB_TRY(pb_trainer_set_stop(j->trainer, pb_job_stops(j)));
    const step_rows d = draw_rows(j);
    PB_TRY(run_micro_batches(j, g, &d, &r));
    PB_TRY(pb_trainer_state(j->trainer, &is));
    PB_TRY(norms(j, &r));
    PB_TRY(report_forward(j, g));
    PB_TRY(pb_comm_status(j->comm)); /* NCCL ends an aborted collective without an error of the stream */
    PB_TRY(pb_comm_status(j->context));
    r.seconds = pb_clock_seconds() - start;
    r.recording = g ? g->seconds - recording : 0;
    r.S = d.S;
    r.tokens = (double)j->micro_batches * j->groups * j->cfg.B * d.S;
    r.conversations = d.conversations;
    r.skipped = is.skipped != was.skipped;
    r.guarded = is.guarded != was.guarded;
    if (!r.skipped) *r.why = 0;
    else if (!r.guarded && (!isfinite(r.loss) || !*r.why)) snprintf(r.why, sizeof r.why, "the loss is not finite");
    r.kernel_launches = (double)(j->ctx.counts.kernel_launches - before.kernel_launches);
    r.host_syncs = (double)(j->ctx.counts.host_syncs - before.host_syncs);
    if (r.guarded) PB_TRY(name_matrix(j, &r));
    *out = r;
    return PB_OK;
}

pb_status pb_job_reserve(pb_job *j)
{
    PB_TRY(pb_trainer_reserve(j->trainer, j->cfg.S));
    for (int S = (j->cfg.S - 1) / j->bucket * j->bucket; S > 0; S -= j->bucket)
        PB_TRY(pb_trainer_reserve(j->trainer, S));
    return PB_OK;
}

void pb_job_count(const pb_job *j, const pb_step_result *x, pb_progress *p)
{
    p->iteration++;
    p->data = pb_dataset_position(j->data);
    p->tokens += (uint64_t)x->tokens;
    p->samples += (uint64_t)x->conversations;
    p->skipped += x->skipped;
    p->skipped_in_row = x->skipped ? p->skipped_in_row + 1 : 0;
}
