/* rank_check.c - checks that ranks which train together get the losses and gradient norms of one rank that trains on
 * the same micro-batches. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/suites/rank_steps.h"
#include "bench/suites/train_case.h"

pb_status pb_rank_step(pb_ctx *ctx, void *self)
{
    const pb_rank_steps *s = self;
    for (int k = 0; k < s->parts; k++) {
        pb_trainer_accumulate(s->t, k > 0);
        pb_trainer_reduce(s->t, k + 1 == s->parts);
        PB_TRY(pb_train_micro(ctx, s->t));
    }
    return pb_train_finish(ctx, s->t);
}

/* Trains one step; *loss is that of the global batch. */
static pb_status train(pb_ctx *ctx, const pb_rank_steps *s, int step, int all, pb_heartbeat *heartbeat, double *loss)
{
    bool stop;
    double *part = calloc((size_t)s->ranks, sizeof *part);
    pb_status st = part ? PB_OK : pb_fail(PB_ENOMEM, "no memory for the losses of %d ranks", s->ranks);
    *loss = 0;
    for (int k = 0; st == PB_OK && k < s->parts; k++) {
        const int mine = k * s->groups + s->group;
        st = pb_train_case_micro_batch(s->c, s->t, (size_t)step * (size_t)all, (size_t)all, (size_t)mine);
        pb_trainer_accumulate(s->t, k > 0);
        pb_trainer_reduce(s->t, k + 1 == s->parts);
        if (st == PB_OK) st = pb_train_micro(ctx, s->t);
        if (st == PB_OK) st = pb_trainer_losses(s->t, part, &stop);
        for (int r = 0; st == PB_OK && r < s->ranks; r++) *loss += part[r];
        pb_heartbeat_send_if_due(heartbeat);
    }
    free(part);
    return st == PB_OK ? pb_train_finish(ctx, s->t) : st;
}

pb_status pb_rank_results_get(pb_ctx *ctx, const pb_rank_steps *s, int all, pb_heartbeat *heartbeat,
                              pb_rank_results *out)
{
    const int groups = pb_trainer_clip_groups(s->t);
    pb_clip_state *clip = calloc((size_t)groups + 1, sizeof *clip);
    *out = (pb_rank_results){.groups = groups};
    out->norm = calloc((size_t)groups * PB_RANK_CHECK_STEPS + 1, sizeof *out->norm);
    pb_status st = clip && out->norm ? PB_OK : pb_fail(PB_ENOMEM, "no memory for %d gradient norms", groups);
    for (int i = 0; st == PB_OK && i < PB_RANK_CHECK_STEPS; i++) {
        st = train(ctx, s, i, all, heartbeat, &out->loss[i]);
        if (st == PB_OK) st = pb_trainer_clip_states(s->t, clip);
        for (int g = 0; st == PB_OK && g < groups; g++) out->norm[i * groups + g] = clip[g].norm;
    }
    free(clip);
    return st;
}

/* The allowed relative differences of the step's loss and of its gradient norms. In f32 the first step has those that
 * docs/ranks.md derives; those of the second step also differ by AdamW's division by the gradient's size, which makes
 * rounding errors of small gradients larger. bf16 in the model or between the ranks has a rounding error of 2^-9 per
 * operation, which in a norm of many elements averages out. */
static void bounds(const pb_train_config *cfg, int step, double *loss, double *norm)
{
    const bool exact = cfg->model.dtype == PB_F32 && cfg->reduce == PB_REDUCE_F32;
    *loss = step ? (exact ? 1e-5 : 1e-3) : cfg->model.dtype == PB_F32 ? 1e-6 : 1e-5;
    *norm = step ? (exact ? 1e-3 : 2e-2) : exact ? 1e-5 : 1e-2;
}

/* Keeps in *worst the largest relative difference in units of its bound; NaN is larger than all others. */
static void compare(double one, double ranks, double bound, const char *what, int step, double *worst, char *note,
                    size_t n)
{
    const double off = fabs(ranks - one) / (bound * fabs(one)), d = one == 0 && ranks == 0 ? 0 : off;
    if (d <= *worst || isnan(*worst)) return;
    *worst = d;
    snprintf(note, n, "step %d, %s: %.9g of all ranks, %.9g of one rank; allowed is a relative difference of %g",
             step + 1, what, ranks, one, bound);
}

double pb_rank_difference(const pb_train_config *cfg, const pb_rank_results *one, const pb_rank_results *ranks,
                          char *note, size_t n)
{
    double worst = -1, loss, norm;
    *note = 0;
    if (one->groups != ranks->groups || !one->groups) return (double)NAN;
    for (int i = 0; i < PB_RANK_CHECK_STEPS; i++) {
        bounds(cfg, i, &loss, &norm);
        compare(one->loss[i], ranks->loss[i], loss, "loss", i, &worst, note, n);
        for (int g = 0; g < one->groups; g++)
            compare((double)one->norm[i * one->groups + g], (double)ranks->norm[i * one->groups + g], norm,
                    "gradient norm", i, &worst, note, n);
    }
    return worst;
}
