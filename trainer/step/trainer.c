/* trainer.c - allocates a trainer's memory and sets its inputs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "os/where.h"
#include "profiles/ranges.h"
#include "trainer/step/activations.h"
#include "trainer/step/gradients.h"
#include "trainer/step/matrices.h"
#include "trainer/step/shards.h"
#include "trainer/step/weights.h"

const pb_fn pb_phases[PB_NPHASES] = {
#define PHASE(name, what) pb_phase_##name,
#include "trainer/step/phases.def"
#undef PHASE
};
const char *const pb_phase_names[PB_NPHASES] = {
#define PHASE(name, what) #name,
#include "trainer/step/phases.def"
#undef PHASE
};

const pb_block *pb_block_of(const pb_geometry *g)
{
    static const pb_block *const of[PB_NFAMILIES] = {
#define FAMILY(id, block, what) &pb_block_##block,
#include "trainer/model/families.def"
    };
    return of[g->family];
}

pb_train_config pb_train_defaults(const pb_geometry *g)
{
    return (pb_train_config){
        .model = {.geometry = g,
                  .tuning = PB_LORA,
                  .dtype = PB_F32,
                  .rank = 16,
                  .alpha = 32,
                  .targets = 1u << PB_TARGET_Q | 1u << PB_TARGET_V,
                  .nf4_block = 64,
                  .seed = 42},
        .B = 1,
        .S = 128,
        .clip = PB_CLIP_FUSED,
        .max_norm = 1,
        .lr = 1e-4f,
        .beta1 = 0.9f,
        .beta2 = 0.999f,
        .eps = 1e-8f,
        .weight_decay = 0.01f,
        .normuon = {.variant = PB_NS_POLAR_EXPRESS, .steps = 5, .rate = 1, .mu = 0.95f, .beta2 = 0.95f},
        .loss_scale = 1,
    };
}

pb_status pb_run_phase(pb_ctx *ctx, pb_trainer *t, int i)
{
    pb_range_push(PB_RANGE_phase, pb_phase_names[i], PB_RANGE_NO_VALUE);
    const pb_status s = pb_phases[i](ctx, t);
    pb_range_pop();
    return s;
}

enum { FORWARD_BEGINS = PB_MARK_SLOTS - 2, FORWARD_ENDS }; /* bench uses slots from 0 on */

pb_status pb_trainer_forward_time(pb_trainer *t, double *seconds)
{
    return t->ctx->be->between(t->ctx, FORWARD_BEGINS, FORWARD_ENDS, seconds);
}

static pb_status run_phase(pb_ctx *ctx, pb_trainer *t, int i)
{
    const bool timed = t->cfg.time_forward && i == PB_PHASE_forward;
    if (timed) PB_TRY(ctx->be->mark(ctx, FORWARD_BEGINS));
    PB_TRY(pb_run_phase(ctx, t, i));
    return timed ? ctx->be->mark(ctx, FORWARD_ENDS) : PB_OK;
}

/* Runs the phases `first` to `last`, inside a range called `name`. */
static pb_status phases(pb_ctx *ctx, void *self, const char *name, int first, int last)
{
    pb_status s = PB_OK;
    pb_range_push(PB_RANGE_micro, name, PB_RANGE_NO_VALUE);
    for (int i = first; s == PB_OK && i <= last; i++) {
        pb_where_phase(pb_phase_names[i]);
        s = run_phase(ctx, self, i);
    }
    if (s == PB_OK) pb_where_phase(NULL); /* after a failure the phase stays, for the monitor's message */
    pb_range_pop();
    return s;
}

pb_status pb_train_step(pb_ctx *ctx, void *self) { return phases(ctx, self, "step", 0, PB_NPHASES - 1); }

pb_status pb_train_micro(pb_ctx *ctx, void *self)
{
    return phases(ctx, self, "micro", PB_PHASE_forward, PB_PHASE_backward);
}

pb_status pb_train_finish(pb_ctx *ctx, void *self)
{
    return phases(ctx, self, "finish", PB_PHASE_clip, PB_PHASE_optimizer);
}

pb_status pb_backward_and_clip(pb_ctx *ctx, void *self)
{
    PB_TRY(pb_run_phase(ctx, self, PB_PHASE_backward));
    return pb_run_phase(ctx, self, PB_PHASE_clip);
}

/* ---- clip groups -------------------------------------------------------------------------------- */

/* Lists the trained tensors by clip group: one group per layer, then the parameters outside the layers. */
static pb_status group(pb_trainer *t)
{
    const pb_model *m = &t->model;
    t->trained = calloc((size_t)m->n, sizeof(pb_param *));
    t->groups = calloc((size_t)m->g.L + 1, sizeof *t->groups);
    if (!t->trained || !t->groups) return pb_fail(PB_ENOMEM, "no memory for the list of gradients");
    for (int layer = 0; layer <= m->g.L; layer++) {
        pb_clip_group *c = &t->groups[t->ngroups];
        c->first = t->ntrained;
        c->layer = layer < m->g.L ? layer : -1;
        for (int i = 0; i < m->n; i++) {
            pb_param *p = &m->params[i];
            if (!p->trained || p->layer != c->layer) continue;
            t->trained[t->ntrained++] = p;
            c->slots += pb_clip_slots(pb_param_n(p));
        }
        c->n = t->ntrained - c->first;
        t->slots += c->slots;
        t->ngroups += c->n > 0;
    }
    return PB_OK;
}

static void place_partials(pb_trainer *t)
{
    float *at = t->partial;
    for (int i = 0; i < t->ngroups; i++) {
        t->groups[i].partial = at;
        at += t->groups[i].slots;
    }
}

pb_status pb_upload_rotations(pb_trainer *t, float *cosines, float *sines, int dim, double theta,
                              const pb_rope_scaling *scaling)
{
    const int P = pb_row_most(t);
    const size_t n = (size_t)P * (dim / 2);
    if (t->ctx->planning) return PB_OK;
    float *host = malloc(2 * n * sizeof *host);
    if (!host) return pb_fail(PB_ENOMEM, "no memory for the rotation tables");
    pb_rope_table_scaled(host, host + n, P, dim, theta, scaling);
    pb_status s = pb_upload(t->ctx, cosines, host, n * sizeof *host);
    if (s == PB_OK) s = pb_upload(t->ctx, sines, host + n, n * sizeof *host);
    free(host);
    return s;
}

/* ---- checking, opening and closing a trainer ------------------------------------------------------ */

pb_context pb_train_context(const pb_train_config *c, int ranks, int rank)
{
    const pb_geometry *g = c->model.geometry;
    const bool zigzag = c->slicing == PB_SLICING_ZIGZAG || (c->slicing == PB_SLICING_AUTO && !g->v4);
    if (ranks == 1) return (pb_context){.ranks = 1};
    return (pb_context){.ranks = ranks, .rank = rank, .align = pb_sample_align(g), .zigzag = zigzag};
}

pb_status pb_train_check_slicing(const pb_train_config *c)
{
    const pb_geometry *g = c->model.geometry;
    return g->v4 && c->slicing == PB_SLICING_ZIGZAG
               ? pb_fail(PB_EINVAL, "ranks that share rows of %s need contiguous slices: --slices contiguous", g->name)
               : PB_OK;
}

static pb_context context_of(const pb_train_config *c)
{
    return pb_train_context(c, pb_comm_size(c->context), pb_comm_rank(c->context));
}

pb_status pb_train_check(const pb_train_config *c)
{
    const pb_geometry *g = c->model.geometry;
    if (c->B < 1) return pb_fail(PB_EINVAL, "batch %d: need at least 1", c->B);
    if (c->S < 1 || c->S > g->max_pos)
        return pb_fail(PB_EINVAL, "seq %d: need 1 to %d for %s", c->S, g->max_pos, g->name);
    const pb_context context = context_of(c);
    if (c->context) PB_TRY(pb_train_check_slicing(c));
    PB_TRY(pb_check_row(&context, c->S));
    if (c->context && !c->comm) return pb_fail(PB_EINVAL, "context parallelism needs the ranks that add gradients");
    if ((size_t)c->B * (size_t)(c->S / context.ranks) > 1u << 22)
        return pb_fail(PB_EINVAL, "batch %d, seq %d: need at most 4 M tokens per micro-batch", c->B, c->S);
    if (c->loss_chunk < 0) return pb_fail(PB_EINVAL, "loss chunk %d: need 0 or a number of tokens", c->loss_chunk);
    if (c->mlp_chunk < 0) return pb_fail(PB_EINVAL, "MLP chunk %d: need 0 or a number of tokens", c->mlp_chunk);
    if (c->mlp_chunk && !c->model.frozen &&
        (c->recompute == PB_RECOMPUTE_NONE || c->recompute == PB_RECOMPUTE_NORMS ||
         c->recompute == PB_RECOMPUTE_ATTENTION))
        return pb_fail(PB_EINVAL, "MLP chunk %d: the MLP's activations must be computed again (mlp, products or layer)",
                       c->mlp_chunk);
    if (!(c->max_norm > 0)) return pb_fail(PB_EINVAL, "max norm %g: need a number above 0", (double)c->max_norm);
    if (!(c->beta1 >= 0 && c->beta1 < 1 && c->beta2 >= 0 && c->beta2 < 1 && c->eps > 0))
        return pb_fail(PB_EINVAL, "adamw: beta1 %g, beta2 %g, eps %g: need betas from 0 to below 1 and a positive eps",
                       (double)c->beta1, (double)c->beta2, (double)c->eps);
    if (c->model.moments != PB_ADAMW_F32 && c->optimizer != PB_OPTIMIZER_ADAMW)
        return pb_fail(PB_EINVAL, "moments in bf16 or 8 bits need the optimizer adamw");
    if (c->cached && (!c->model.frozen || c->B != 1 || c->packed || c->context))
        return pb_fail(PB_EINVAL, "a KV cache needs a frozen model, batch 1, and whole rows that are not packed");
    PB_TRY(pb_matrices_check(c));
    PB_TRY(pb_model_check(&c->model));
    if (c->recompute == PB_RECOMPUTE_PRODUCTS && !pb_block_of(g)->carve_attended)
        return pb_fail(PB_EINVAL, "%s: what attention computes is not kept apart: recompute layer or attention",
                       g->name);
    return pb_block_of(g)->check(c);
}

static pb_status upload_maps(pb_trainer *t)
{
    float maps[2][256];
    pb_adamw_maps(maps);
    return pb_upload(t->ctx, t->adamw_maps, maps, sizeof maps);
}

static pb_status set_up(pb_trainer *t)
{
    PB_TRY(group(t));
    PB_TRY(pb_gradients_open(t));
    PB_TRY(pb_shards_open(t));
    PB_TRY(pb_matrices_open(t));
    PB_TRY(pb_weights_open(t));
    if (t->weights.on) PB_TRY(pb_model_fill(&t->model));
    const size_t L = (size_t)t->model.g.L;
    t->layers = calloc(L, sizeof *t->layers);
    t->block_state = calloc(1, t->block->state_bytes);
    t->block_layers = calloc(L, t->block->layer_bytes);
    if (!t->layers || !t->block_state || !t->block_layers) return pb_fail(PB_ENOMEM, "no memory for the layers");
    pb_arena_begin(&t->acts, t->ctx);
    pb_activations_carve(t);
    PB_TRY(pb_arena_commit(&t->acts));
    pb_activations_carve(t);
    place_partials(t);
    PB_TRY(t->block->tables(t));
    PB_TRY(pb_clip_write_lists(t));
    if (t->adamw_maps) PB_TRY(upload_maps(t));
    PB_TRY(pb_trainer_set_loss_scale(t, t->cfg.loss_scale));
    return pb_trainer_set_lr(t, t->cfg.lr);
}

/* Bytes of gradients that are added over the ranks, per FLOP of the backward pass: with full tuning, each weight of a
 * product has one gradient and four FLOPs per token. With adapters there are few gradients. */
static double sum_per_flop(const pb_train_config *c)
{
    const double tokens = (double)c->B * c->S / (c->context ? pb_comm_size(c->context) : 1);
    return c->model.tuning == PB_FULL ? (c->reduce == PB_REDUCE_BF16 ? 2 : 4) / (4 * tokens) : 0;
}

pb_status pb_trainer_open(pb_ctx *ctx, const pb_train_config *cfg, pb_trainer **out)
{
    PB_TRY(pb_train_check(cfg));
    pb_trainer *t = calloc(1, sizeof *t);
    if (!t) return pb_fail(PB_ENOMEM, "no memory for a trainer");
    t->ctx = ctx;
    t->cfg = *cfg;
    t->reduce = true;
    t->block = pb_block_of(cfg->model.geometry);
    t->cfg.model.sharded = cfg->comm && cfg->shard != PB_SHARD_NONE;
    t->cfg.model.no_weights = cfg->comm && cfg->shard >= PB_SHARD_PARAMETERS;
    t->cfg.model.row_moments = cfg->optimizer == PB_OPTIMIZER_NORMUON;
    t->cfg.model.no_grads = cfg->comm && cfg->shard >= PB_SHARD_GRADIENTS;
    const bool windows = cfg->shard == PB_SHARD_NONE && !cfg->ordered && !ctx->deterministic;
    t->cfg.model.grads_source = windows ? pb_comm_window_memory(cfg->comm, sum_per_flop(cfg)) : NULL;
    t->context = context_of(cfg);
    t->cfg.S = cfg->S / t->context.ranks;
    pb_set_shape(t, cfg->S);
    pb_status s = pb_model_open(ctx, &t->cfg.model, &t->model);
    if (s == PB_OK) s = set_up(t);
    if (s != PB_OK) pb_trainer_close(t);
    else *out = t;
    return s;
}

void pb_trainer_close(pb_trainer *t)
{
    if (!t) return;
    if (t->acts.ctx) pb_arena_free(&t->acts);
    pb_gradients_close(t);
    pb_shards_close(t);
    pb_matrices_close(t);
    pb_weights_close(t);
    pb_model_close(&t->model);
    free(t->layers);
    free(t->block_state);
    free(t->block_layers);
    free(t->trained);
    free(t->groups);
    free(t);
}

void pb_trainer_accumulate(pb_trainer *t, bool on) { t->accumulate = on; }
void pb_trainer_evaluates(pb_trainer *t, bool on) { t->evaluates = on; }
void pb_trainer_reduce(pb_trainer *t, bool on) { t->reduce = on; }

pb_status pb_trainer_set_stop(pb_trainer *t, bool on)
{
    const float stop = on;
    return pb_upload_staged(t->ctx, &t->report->stop, &stop, sizeof stop);
}

/* Runs all phases on the plan backend: ops are checked, implementations are selected and scratch memory is allocated,
 * but nothing is computed. */
/* The phases get no profiler ranges here, because this is not a step. */
static pb_status plan_phases(pb_ctx *ctx, void *self)
{
    for (int i = 0; i < PB_NPHASES; i++) PB_TRY(pb_phases[i](ctx, self));
    return PB_OK;
}

pb_status pb_trainer_reserve(pb_trainer *t, int S)
{
    const int before = t->row, most = pb_row_most(t);
    if (S < 1 || S > most) return pb_fail(PB_EINVAL, "rows of %d tokens: need 1 to %d tokens", S, most);
    PB_TRY(pb_check_row(&t->context, S));
    pb_set_shape(t, S);
    const pb_status s = pb_ctx_reserve_once(t->ctx, plan_phases, t);
    pb_set_shape(t, before);
    return s;
}
