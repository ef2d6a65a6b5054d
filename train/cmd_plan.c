/* cmd_plan.c - `train plan`: prints the steps and the memory of a run. The memory is determined with the plan backend,
 * which runs a step without computing. */
#include <stdio.h>

#include "train/step.h"
#include "trainer/checkpoint/state.h"

static void print_model(const pb_job *j)
{
    const pb_model *m = pb_trainer_model(j->trainer);
    const pb_geometry *g = &m->g;
    size_t all = 0;
    for (int i = 0; i < m->n; i++) all += pb_param_n(&m->params[i]);
    printf("model       %s: %d layers, width %d, %d/%d heads of %d, MLP %d, vocabulary %d\n", j->o->model, g->L, g->D,
           g->H, g->K, g->d, g->I, g->V);
    printf("tuning      %s, %s: %zu of %zu parameters are trained", j->o->tuning, j->o->dtype, m->trained, all);
    if (m->cfg.tuning != PB_FULL) printf("; rank %d, alpha %g on %s", m->cfg.rank, (double)m->cfg.alpha, j->o->targets);
    printf("\n");
}

static void print_steps(const pb_job *j)
{
    const pb_schedule *s = &j->schedule;
    const double all = (double)j->micro_batches * j->groups * j->cfg.B, rows = (double)pb_dataset_rows(j->data);
    printf("steps       %ld of %d x %d rows of %d tokens", s->steps, j->micro_batches, j->cfg.B, j->cfg.S);
    if (j->context) printf(" on each of %d groups of %d ranks that share rows", j->groups, j->ranks / j->groups);
    else if (j->ranks > 1) printf(" on each of %d ranks", j->ranks);
    printf("; %.2f epochs of the data\n", (double)s->steps * all / rows);
    printf("learning    rate %g after %ld steps of warm-up, %s", s->lr, s->warmup, j->o->schedule);
    if (s->kind == PB_SCHEDULE_COSINE) printf(" to %g", s->min);
    printf("; gradients clipped (%s) to norm %g\n", j->o->clip, (double)j->cfg.max_norm);
    const pb_matrix_counts n = pb_trainer_matrices(j->trainer);
    if (j->cfg.optimizer == PB_OPTIMIZER_NORMUON)
        printf("optimizer   normuon (%s): %d matrices in %d blocks of %d shapes, learning rate %g; adamw: %zu other "
               "parameters\n",
               j->o->newton_schulz, n.tensors, n.blocks, n.shapes, j->matrix_lr,
               pb_trainer_model(j->trainer)->trained - n.elements);
    const pb_flops f = pb_trainer_flops(j->trainer);
    printf("work        %.3g floating-point operations and %.0f tokens per step\n",
           (f.forward + f.backward) * j->micro_batches * j->ranks, all * j->cfg.S);
}

static pb_status print_memory(pb_job *j)
{
    const pb_memory m = pb_trainer_memory(j->trainer);
    double peak;
    PB_TRY(pb_job_reserve(j));
    PB_TRY(pb_job_memory(j, &peak));
    printf("memory      weights %.1f MB, gradients %.1f, moments %.1f, activations %.1f, scratch %.1f\n",
           1e-6 * (double)m.weights, 1e-6 * (double)m.grads, 1e-6 * (double)m.moments, 1e-6 * (double)m.activations,
           1e-6 * (double)j->ctx.scratch_bytes);
    if (j->o->save_async) {
        const double copy = (double)pb_state_copy_bytes(j->trainer);
        printf("checkpoint  --save-async copies the state to %.1f MB of host memory\n", 1e-6 * copy);
        if (j->device == PB_CPU) peak += copy;
    }
    printf("peak        %.1f MB on %s%s\n", 1e-6 * peak, j->o->device, j->ranks > 1 ? ", of rank 0" : "");
    return PB_OK;
}

pb_status pb_train_plan(const pb_train_options *o)
{
    pb_job j = {0};
    pb_status s = pb_job_configure(o, &j);
    if (s == PB_OK) s = pb_job_open(&j, true);
    if (s == PB_OK) {
        print_model(&j);
        print_steps(&j);
        s = print_memory(&j);
    }
    pb_job_close(&j);
    return s;
}
