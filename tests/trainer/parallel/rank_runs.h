/* rank_runs.h - trains a small model over several ranks, and on one rank alone with the same micro-batches; shared by
 * the tests of data parallel training, which compare the bits. */
#ifndef PB_RANK_RUNS_H
#define PB_RANK_RUNS_H
#include "kernels/adamw/moments.h"
#include "ranks/world.h"
#include "tests/trainer/step/trainer_fixture.h"
#include "trainer/step/graphs.h"
#include "trainer/step/shards.h"

enum { STEPS = 3, RANKS_MOST = 8, PARTS_MOST = 2 };

typedef struct group {
    pb_ctx ctx;
    pb_world *world;
    pb_comm *comm;
    int rank, ranks;
} group;

typedef struct plan {
    const char *model;
    pb_tuning tuning;
    pb_clip_variant clip;
    pb_dtype dtype;
    int parts; /* micro-batches per rank */
    bool graph;
    pb_reduce reduce;
    pb_shard shard;
    int layers; /* 0: all of the model */
    int loss_chunk;
    pb_recompute recompute; /* of the ranks that train together; one rank alone keeps all activations */
    /* bad_step 0: none. In this step the gradients of this rank are not finite, because of its loss scale; without
     * clipping, its loss is not finite. */
    int bad_rank, bad_step;
    pb_optimizer optimizer;
    pb_normuon_config normuon; /* of the ranks; one rank alone has no guard */
    pb_adamw_format moments;
    int rank; /* LoRA rank; 0: 16 */
    bool nf4_double;
    unsigned targets; /* LoRA targets, with frozen norms; 0: all targets, and norms are trained */
} plan;

/* The results of a run. */
typedef struct result {
    float *all; /* [n] weights, and both moments of all ranks */
    size_t n;
    double loss[STEPS];
    pb_adamw_state state;
    float norm;
} result;

/* Fills one micro-batch from its number. The last rank's rows have fewer loss tokens, those of number 1 none. */
static inline void fill(int number, int V, int32_t *ids, int32_t *targets, float *mask)
{
    for (int i = 0; i < T; i++) {
        const uint64_t at = (uint64_t)(number * T + i);
        ids[i] = (int32_t)(pb_uniform(1, at) * V);
        targets[i] = (int32_t)(pb_uniform(2, at) * V);
        mask[i] = number % 8 != 1 && pb_uniform(3, at) < 0.7 - 0.05 * (number % 5);
    }
}

/* Sets micro-batch `number` of a step of `all` micro-batches. bad: the loss is infinite. */
static inline void set_batch(pb_trainer *t, int step, int number, int all, bool bad)
{
    const int V = pb_trainer_model(t)->g.V;
    int32_t ids[T], targets[T];
    float mask[T];
    double count = 0;
    for (int i = 0; i < all; i++) {
        fill(step * all + i, V, ids, targets, mask);
        for (int k = 0; k < T; k++) count += (double)mask[k];
    }
    fill(step * all + number, V, ids, targets, mask);
    if (bad) count = 1e-300;
    CHECK_OK(pb_trainer_set_batch(t, &(pb_batch){.ids = ids, .targets = targets, .mask = mask, .count = count}));
}

static inline pb_train_config config_of(const plan *p)
{
    pb_train_config c = config(p->model, p->tuning);
    c.model.dtype = p->dtype;
    c.model.layers = p->layers;
    c.model.moments = p->moments;
    c.model.nf4_double = p->nf4_double;
    c.clip = p->clip;
    c.max_norm = 0.1f;
    c.reduce = p->reduce;
    c.shard = p->shard;
    c.bucket_bytes = 30000; /* several buckets */
    c.ordered = p->reduce == PB_REDUCE_F32;
    c.optimizer = p->optimizer;
    if (p->optimizer == PB_OPTIMIZER_NORMUON) c.normuon = p->normuon;
    if (p->rank) c.model.rank = p->rank;
    if (p->targets) c.model.targets = p->targets, c.model.fixed_norms = true;
    return c;
}

static inline void run(pb_ctx *ctx, pb_graphs *g, pb_trainer *t, pb_fn fn)
{
    if (g) CHECK_OK(pb_graphs_run(g, ctx, t, fn));
    else CHECK_OK(fn(ctx, t));
}

/* Overwrites the buffers of sharded weights, so that what a micro-batch does not gather is not a number. */
static inline void poison_weights(pb_trainer *t)
{
    for (int i = 0; t->weights.on && i < t->weights.units.n; i++)
        memset(t->weights.at[i], 0xff, t->weights.units.unit[i].size);
}

/* Makes one step. rank, ranks: which micro-batches this trainer runs of the step's `all`. */
static inline double step(group *w, pb_graphs *g, pb_trainer *t, const plan *p, int at, int rank, int ranks, int all)
{
    double loss = 0, part[RANKS_MOST];
    bool stop;
    for (int k = 0; k * ranks < all; k++) {
        const bool bad = p->bad_step && at == p->bad_step && (k * ranks + rank) % w->ranks == p->bad_rank;
        set_batch(t, at, k * ranks + rank, all, bad && p->clip == PB_CLIP_NONE);
        CHECK_OK(pb_trainer_set_loss_scale(t, bad && p->clip != PB_CLIP_NONE ? 3e38f : 1));
        pb_trainer_accumulate(t, k > 0);
        pb_trainer_reduce(t, (k + 1) * ranks == all);
        poison_weights(t);
        run(&w->ctx, g, t, all == ranks ? pb_train_step : pb_train_micro);
        CHECK_OK(pb_trainer_losses(t, part, &stop));
        assert_false(stop);
        for (int i = 0; i < ranks; i++) loss += part[i];
    }
    if (all != ranks) run(&w->ctx, g, t, pb_train_finish);
    return loss;
}

/* Combines the vectors [n] of all ranks by bitwise OR: a rank has 0 where another rank keeps the value. Not by a sum of
 * floats, because an element may hold two bf16 numbers or four 8-bit codes. */
static inline void merge_ranks(group *w, float *vector, size_t n)
{
    uint32_t *all = malloc(n * (size_t)w->ranks * sizeof *all), *out = calloc(n, sizeof *out);
    assert_true(all && out);
    CHECK_OK(pb_world_gather(w->world, "state", vector, n * sizeof *vector, all));
    for (size_t i = 0; i < n * (size_t)w->ranks; i++) out[i % n] |= all[i];
    memcpy(vector, out, n * sizeof *vector);
    free(out);
    free(all);
}

/* Copies n moments of a shard to their place in `to`, the moments of the whole tensor of `all` elements. first: the
 * index of the first one in it. */
static inline void copy_moments(pb_adamw_format f, float *to, size_t all, size_t first, void *from, size_t n)
{
    const size_t e = f == PB_ADAMW_F32 ? 4 : f == PB_ADAMW_BF16 ? 2 : 1;
    memcpy((char *)to + first * e, from, n * e);
    if (f != PB_ADAMW_8BIT) return;
    const size_t blocks = (n + PB_ADAMW_BLOCK - 1) / PB_ADAMW_BLOCK;
    memcpy(pb_adamw_absmax(to, all) + first / PB_ADAMW_BLOCK, pb_adamw_absmax(from, n), blocks * sizeof(float));
}

/* Weights and the moments m and v in their formats, each as a vector in pb_model.order. */
static inline float *everything(group *w, pb_trainer *t, size_t *n)
{
    const pb_model *m = &t->model;
    const size_t V = m->vector;
    float *all = calloc(3 * V, sizeof *all);
    assert_non_null(all);
    for (int i = 0; i < m->ordered; i++) {
        const pb_param *p = m->order[i];
        if (!t->weights.on || pb_in_no_unit(m, p)) memcpy(all + p->at, p->w, pb_param_n(p) * pb_dtype_size(p->dtype));
        if (t->shards.on) continue;
        memcpy(all + V + p->at, p->m, pb_param_m_bytes(p));
        memcpy(all + 2 * V + p->at, p->v, pb_param_v_bytes(p));
    }
    for (int i = 0; t->shards.on && i < t->gradients.slices.n; i++) {
        const pb_piece *x = &t->gradients.slices.piece[i];
        const size_t e = pb_dtype_size(x->p->dtype);
        memcpy((char *)(all + x->p->at) + x->first * e, pb_shards_w(t, x), x->n * e);
        const size_t second = x->p->by_rows ? x->first / x->p->cols : x->first, of = pb_param_n(x->p);
        copy_moments(x->p->moments, all + V + x->p->at, of, x->first, pb_shards_m(t, x), x->n);
        copy_moments(x->p->moments, all + 2 * V + x->p->at, of, second, pb_shards_v(t, x), pb_piece_seconds(x));
    }
    if (t->shards.on) merge_ranks(w, all + V, 2 * V);
    if (t->weights.on) merge_ranks(w, all, V);
    *n = 3 * V;
    return all;
}

/* Trains STEPS steps of p->parts * w->ranks micro-batches: together with the other ranks, or alone. */
static inline result train(group *w, const plan *p, bool together)
{
    pb_train_config c = config_of(p);
    const int all = p->parts * w->ranks, ranks = together ? w->ranks : 1;
    pb_graphs g = {0};
    pb_clip_state clip[8];
    c.comm = together ? w->comm : NULL;
    c.loss_chunk = p->loss_chunk;
    c.recompute = together ? p->recompute : PB_RECOMPUTE_NONE;
    c.normuon.guard = together && c.normuon.guard;
    c.micro_batches = all / ranks;
    pb_trainer *t = open_trainer(&w->ctx, &c);
    CHECK_OK(pb_trainer_shard(t));
    assert_true(t->shards.on == (together && p->shard != PB_SHARD_NONE));
    result r = {0};
    for (int i = 0; i < STEPS; i++)
        r.loss[i] = step(w, p->graph ? &g : NULL, t, p, i, together ? w->rank : 0, ranks, all);
    if (p->graph) assert_true(g.replayed > 0);
    CHECK_OK(pb_trainer_state(t, &r.state));
    assert_true(pb_trainer_clip_groups(t) <= 8);
    CHECK_OK(pb_trainer_clip_states(t, clip));
    r.norm = p->clip == PB_CLIP_NONE ? 0 : clip[0].norm;
    r.all = everything(w, t, &r.n);
    pb_graphs_free(&g, &w->ctx);
    pb_trainer_close(t);
    return r;
}

/* Checks that training together gives the bits of training alone. */
static inline void check_same(group *w, const plan *p)
{
    result a = train(w, p, true), b = train(w, p, false);
    assert_int_equal(a.n, b.n);
    for (int i = 0; i < STEPS; i++)
        if (!(a.loss[i] == b.loss[i])) fail_msg("step %d: loss %.17g together, %.17g alone", i, a.loss[i], b.loss[i]);
    assert_memory_equal(&a.norm, &b.norm, sizeof a.norm);
    assert_memory_equal(&a.state, &b.state, sizeof a.state);
    assert_int_equal(a.state.step, STEPS);
    assert_same(a.all, b.all, a.n);
}

static inline int open_group(void **state)
{
    static group w;
    CHECK_OK(pb_world_open(&(pb_world_options){.mpi = true}, &w.world));
    CHECK_OK(pb_ctx_open(&w.ctx, PB_CPU, 0));
    w.ctx.deterministic = true;
    w.rank = pb_world_rank(w.world);
    w.ranks = pb_world_size(w.world);
    assert_true(w.ranks <= RANKS_MOST);
    CHECK_OK(pb_comm_open(w.world, &w.ctx, "dp", 0, w.rank, &w.comm));
    *state = &w;
    return 0;
}

static inline int close_group(void **state)
{
    group *w = *state;
    pb_comm_close(w->comm);
    pb_ctx_close(&w->ctx);
    pb_world_close(w->world);
    return 0;
}
#endif
