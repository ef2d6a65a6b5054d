/* results.c - reads the results of a step from the device, and describes a trainer: its clip groups, memory and
 * FLOPs. */
#include <stdlib.h>
#include <string.h>

#include "trainer/step/loss.h"

pb_status pb_trainer_loss(pb_trainer *t, double *mean)
{
    float loss;
    PB_TRY(pb_download(t->ctx, &loss, &t->report->loss, sizeof loss));
    *mean = (double)loss;
    return PB_OK;
}

pb_status pb_trainer_losses(pb_trainer *t, double *loss, bool *stop)
{
    const int ranks = pb_comm_size(t->cfg.comm);
    pb_report *r = malloc((size_t)ranks * sizeof *r);
    const pb_status s = r ? pb_download(t->ctx, r, t->reports, (size_t)ranks * sizeof *r)
                          : pb_fail(PB_ENOMEM, "no memory for the losses of %d ranks", ranks);
    *stop = false;
    for (int i = 0; s == PB_OK && i < ranks; i++) {
        loss[i] = (double)r[i].loss;
        *stop = *stop || r[i].stop != 0;
    }
    free(r);
    return s;
}

pb_status pb_trainer_index_loss(pb_trainer *t, double *loss)
{
    *loss = 0;
    return t->cfg.model.index_loss > 0 ? t->block->own_loss(t, loss) : PB_OK;
}

pb_status pb_trainer_next_logits(pb_trainer *t, float *logits)
{
    const size_t V = (size_t)t->model.g.V;
    if (t->cfg.B != 1) return pb_fail(PB_EINVAL, "the next token of %d rows: need batch 1", t->cfg.B);
    PB_TRY(pb_head_forward(t->ctx, t, t->T - 1, 1));
    PB_TRY(pb_download(t->ctx, logits, t->logits, V * pb_dtype_size(t->model.cfg.dtype)));
    /* Widened in place, from the last element on, so that none is overwritten before it is read. */
    for (size_t i = V; t->model.cfg.dtype != PB_F32 && i-- > 0;) {
        const float x = (float)pb_load(logits, i, t->model.cfg.dtype);
        memcpy(logits + i, &x, sizeof x);
    }
    return PB_OK;
}

pb_status pb_trainer_nll(pb_trainer *t, float *nll)
{
    return pb_download(t->ctx, nll, t->nll, (size_t)t->T * sizeof *nll);
}

int pb_trainer_row(const pb_trainer *t) { return pb_row_most(t); }

static double scores_of(const void *t, int token) { return ((const pb_trainer *)t)->block->scores(t, token); }

double pb_trainer_imbalance(const pb_trainer *t)
{
    pb_context c = t->context;
    double most = 0;
    for (c.rank = 0; c.rank < c.ranks; c.rank++) {
        const double load = pb_context_load(&c, pb_row_most(t), scores_of, t);
        most = load > most ? load : most;
    }
    return most;
}

size_t pb_trainer_tokens(const pb_trainer *t) { return (size_t)t->T; }

size_t pb_trainer_token(const pb_trainer *t, size_t i)
{
    const size_t S = (size_t)t->S;
    return i / S * (size_t)t->row + (size_t)pb_context_token(&t->context, t->row, (int)(i % S));
}

pb_status pb_trainer_state(pb_trainer *t, pb_adamw_state *out)
{
    return pb_download(t->ctx, out, t->state, sizeof *out);
}

int pb_trainer_clip_groups(const pb_trainer *t)
{
    return t->cfg.clip == PB_CLIP_NONE ? 0 : t->cfg.clip == PB_CLIP_MULTI ? 1 : t->ngroups;
}

int pb_trainer_clip_layer(const pb_trainer *t, int group)
{
    return t->cfg.clip == PB_CLIP_MULTI ? -1 : t->groups[group].layer;
}

pb_status pb_trainer_clip_states(pb_trainer *t, pb_clip_state *out)
{
    return pb_download(t->ctx, out, t->clip, (size_t)pb_trainer_clip_groups(t) * sizeof *out);
}

const pb_train_config *pb_trainer_config(const pb_trainer *t) { return &t->cfg; }
pb_model *pb_trainer_model(pb_trainer *t) { return &t->model; }
const void *pb_trainer_logits(const pb_trainer *t) { return t->cfg.loss_chunk ? NULL : t->logits; }

pb_matrix_counts pb_trainer_matrices(const pb_trainer *t) { return t->matrices.whole; }

pb_memory pb_trainer_memory(const pb_trainer *t)
{
    return (pb_memory){t->model.weights.size + t->model.masters.size + t->weights.arena.size + t->weights.masters.size,
                       t->model.grads.size + t->gradients.arena.size,
                       t->model.moments.size + t->shards.arena.size + t->matrices.arena.size, t->acts.size};
}

/* True if the backward pass computes the product with a layer's matrix or adapter again (see
 * trainer/step/recompute.h). */
static bool computed_again(const pb_trainer *t, const pb_param *p)
{
    const pb_model *m = &t->model;
    if (p->layer < 0 || m->cfg.frozen) return false;
    bool mlp = p == pb_layer_param(m, p->layer, PB_P_gate_up);
    for (int i = PB_TARGET_GATE; i < PB_NTARGETS; i++) {
        const int at = p->layer * PB_NTARGETS + i;
        mlp |= p == m->lora_a[at] || p == m->lora_b[at];
    }
    if (mlp) return pb_shares_mlp(t);
    if (p == pb_layer_param(m, p->layer, PB_P_down)) return false;
    if (p == pb_layer_param(m, p->layer, PB_P_o) || p == pb_layer_param(m, p->layer, PB_P_o_b))
        return pb_shares_attention(t) && pb_shares_mlp(t);
    return pb_shares_attention(t);
}

pb_flops pb_trainer_flops(const pb_trainer *t)
{
    const pb_model *m = &t->model;
    const double T = (double)t->cfg.B * t->cfg.S;
    pb_flops f = t->block->flops(t);
    double again = pb_shares_attention(t) && !m->cfg.frozen && !pb_keeps_attended(t) ? f.forward : 0;
    for (int i = 0; i < m->n; i++) {
        const pb_param *p = &m->params[i];
        /* an untied embedding is a lookup without FLOPs; a tied one is also the head's matrix, which is counted */
        const bool lookup = i == 0 && !m->g.tied;
        if (p->kind == PB_KIND_GAIN || p->kind == PB_KIND_BIAS || lookup) continue;
        const double product = 2 * T * (double)pb_param_n(p);
        f.forward += product;
        f.backward += product * (p->trained ? 2 : 1);
        again += computed_again(t, p) ? product : 0;
    }
    f.backward += again;
    f.again += again;
    return f;
}
