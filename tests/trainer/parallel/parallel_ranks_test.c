/* parallel_ranks_test.c - tests data parallel training over several ranks: weights, moments, losses and norms equal,
 * bit for bit, those of one rank that runs the same micro-batches; steps are skipped together; reduction in bf16.
 *
 * Every rank trains with the others and then alone, with a communicator and without, and compares. */
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
static void fill(int number, int V, int32_t *ids, int32_t *targets, float *mask)
{
    for (int i = 0; i < T; i++) {
        const uint64_t at = (uint64_t)(number * T + i);
        ids[i] = (int32_t)(pb_uniform(1, at) * V);
        targets[i] = (int32_t)(pb_uniform(2, at) * V);
        mask[i] = number % 8 != 1 && pb_uniform(3, at) < 0.7 - 0.05 * (number % 5);
    }
}

/* Sets micro-batch `number` of a step of `all` micro-batches. bad: the loss is infinite. */
static void set_batch(pb_trainer *t, int step, int number, int all, bool bad)
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

static pb_train_config config_of(const plan *p)
{
    pb_train_config c = config(p->model, p->tuning);
    c.model.dtype = p->dtype;
    c.model.layers = p->layers;
    c.clip = p->clip;
    c.max_norm = 0.1f;
    c.reduce = p->reduce;
    c.shard = p->shard;
    c.bucket_bytes = 30000; /* several buckets */
    c.ordered = p->reduce == PB_REDUCE_F32;
    return c;
}

static void run(pb_ctx *ctx, pb_graphs *g, pb_trainer *t, pb_fn fn)
{
    if (g) CHECK_OK(pb_graphs_run(g, ctx, t, fn));
    else CHECK_OK(fn(ctx, t));
}

/* Overwrites the buffers of sharded weights, so that what a micro-batch does not gather is not a number. */
static void poison_weights(pb_trainer *t)
{
    for (int i = 0; t->weights.on && i < t->weights.units.n; i++)
        memset(t->weights.at[i], 0xff, t->weights.units.unit[i].size);
}

/* Makes one step. rank, ranks: which micro-batches this trainer runs of the step's `all`. */
static double step(group *w, pb_graphs *g, pb_trainer *t, const plan *p, int at, int rank, int ranks, int all)
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

/* Adds the vectors [n] of all ranks, each of whose elements is 0 on all ranks but one. */
static void add_ranks(group *w, float *vector, size_t n)
{
    float *all = malloc(n * (size_t)w->ranks * sizeof *all);
    assert_non_null(all);
    CHECK_OK(pb_world_gather(w->world, "moments", vector, n * sizeof *vector, all));
    memset(vector, 0, n * sizeof *vector);
    for (size_t i = 0; i < n * (size_t)w->ranks; i++) vector[i % n] += all[i];
    free(all);
}

/* Merges the vectors [n] of all ranks, each of whose elements is 0 on the ranks that do not keep it: their bits, because
 * an element may be half a number. */
static void merge_ranks(group *w, float *vector, size_t n)
{
    uint32_t *all = malloc(n * (size_t)w->ranks * sizeof *all), *out = calloc(n, sizeof *out);
    assert_true(all && out);
    CHECK_OK(pb_world_gather(w->world, "weights", vector, n * sizeof *vector, all));
    for (size_t i = 0; i < n * (size_t)w->ranks; i++) out[i % n] |= all[i];
    memcpy(vector, out, n * sizeof *vector);
    free(out);
    free(all);
}

/* Weights as f32 numbers or bit patterns of bf16, then the moments m and v, each as a vector in pb_model.order. */
static float *everything(group *w, pb_trainer *t, size_t *n)
{
    const pb_model *m = &t->model;
    const size_t V = m->vector;
    float *all = calloc(3 * V, sizeof *all);
    assert_non_null(all);
    for (int i = 0; i < m->ordered; i++) {
        const pb_param *p = m->order[i];
        const size_t bytes = pb_param_n(p) * sizeof *all;
        if (!t->weights.on || pb_in_no_unit(m, p)) memcpy(all + p->at, p->w, pb_param_n(p) * pb_dtype_size(p->dtype));
        if (t->shards.on) continue;
        memcpy(all + V + p->at, p->m, bytes);
        memcpy(all + 2 * V + p->at, p->v, bytes);
    }
    for (int i = 0; t->shards.on && i < t->gradients.slices.n; i++) {
        const pb_piece *x = &t->gradients.slices.piece[i];
        const size_t e = pb_dtype_size(x->p->dtype);
        memcpy((char *)(all + x->p->at) + x->first * e, pb_shards_w(t, x), x->n * e);
        memcpy(all + V + x->p->at + x->first, t->shards.m + x->own, x->n * sizeof *all);
        memcpy(all + 2 * V + x->p->at + x->first, t->shards.v + x->own, x->n * sizeof *all);
    }
    if (t->shards.on) add_ranks(w, all + V, 2 * V);
    if (t->weights.on) merge_ranks(w, all, V);
    *n = 3 * V;
    return all;
}

/* Trains STEPS steps of p->parts * w->ranks micro-batches: together with the other ranks, or alone. */
static result train(group *w, const plan *p, bool together)
{
    pb_train_config c = config_of(p);
    const int all = p->parts * w->ranks, ranks = together ? w->ranks : 1;
    pb_graphs g = {0};
    pb_clip_state clip[8];
    c.comm = together ? w->comm : NULL;
    c.loss_chunk = p->loss_chunk;
    c.recompute = together ? p->recompute : PB_RECOMPUTE_NONE;
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
static void check_same(group *w, const plan *p)
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

static void ranks_equal_one_rank_that_accumulates(void **state)
{
    static const char *const models[PB_NTUNINGS] = {"tiny", "tiny-qwen3", "tiny"};
    for (int tuning = 0; tuning < PB_NTUNINGS; tuning++)
        for (int parts = 1; parts <= PARTS_MOST; parts++)
            for (int graph = 0; graph < 2; graph++)
                check_same(*state, &(plan){.model = models[tuning],
                                           .tuning = (pb_tuning)tuning,
                                           .clip = PB_CLIP_MULTI,
                                           .parts = parts,
                                           .graph = graph});
}

static void sharded_state_equals_one_rank(void **state)
{
    static const char *const models[PB_NTUNINGS] = {"tiny", "tiny-qwen3", "tiny"};
    for (int shard = PB_SHARD_NONE + 1; shard < PB_NSHARDS; shard++)
        for (int tuning = 0; tuning < PB_NTUNINGS; tuning++)
            for (int graph = 0; graph < 2; graph++)
                check_same(*state, &(plan){.model = models[tuning],
                                           .tuning = (pb_tuning)tuning,
                                           .clip = graph ? PB_CLIP_MULTI : PB_CLIP_FUSED,
                                           .dtype = tuning == PB_QLORA ? PB_BF16 : PB_F32,
                                           .parts = 1 + (graph && tuning != PB_LORA),
                                           .graph = graph,
                                           .shard = (pb_shard)shard});
}

/* Models of one, two and more layers, whose weights take turns in two buffers; tied and untied, of every family. All but
 * every fourth compute activations again, with the weights that the backward pass gathers. */
static void sharded_weights_equal_one_rank(void **state)
{
    static const struct {
        const char *model;
        int layers;
        pb_tuning tuning;
    } cases[] = {{"tiny-llama", 1, PB_FULL}, {"tiny-llama", 3, PB_QLORA}, {"tiny-llama", 3, PB_LORA},
                 {"v4-tiny", 3, PB_FULL},    {"tiny", 1, PB_FULL},        {"tiny-llama", 3, PB_FULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_same(*state, &(plan){.model = cases[i].model,
                                   .layers = cases[i].layers,
                                   .tuning = cases[i].tuning,
                                   .clip = PB_CLIP_MULTI,
                                   .dtype = i % 2 ? PB_BF16 : PB_F32,
                                   .parts = 1,
                                   .graph = i > 0,
                                   .recompute = (pb_recompute)((i + 3) % PB_NRECOMPUTES),
                                   .loss_chunk = i % 3 ? 9 : 0,
                                   .shard = PB_SHARD_PARAMETERS});
}

static void every_clip_variant_gives_the_same_bits(void **state)
{
    for (int clip = PB_CLIP_SYNC; clip < PB_NCLIPS; clip++)
        check_same(*state,
                   &(plan){.model = "tiny-llama", .tuning = PB_LORA, .clip = (pb_clip_variant)clip, .parts = 1});
}

static void bf16_models_give_the_same_bits(void **state)
{
    for (int shard = 0; shard < PB_NSHARDS; shard++)
        check_same(*state, &(plan){.model = "tiny",
                                   .tuning = PB_FULL,
                                   .clip = PB_CLIP_MULTI,
                                   .dtype = PB_BF16,
                                   .parts = 2 - shard % 2,
                                   .graph = true,
                                   .shard = (pb_shard)shard});
}

static void v4_models_give_the_same_bits(void **state)
{
    check_same(*state, &(plan){.model = "v4-tiny", .tuning = PB_FULL, .clip = PB_CLIP_FUSED, .parts = 1});
}

/* One batch of all rows: the same sums in another order. */
static void one_large_batch_is_near(void **state)
{
    group *w = *state;
    const plan p = {.model = "tiny", .tuning = PB_FULL, .clip = PB_CLIP_MULTI, .parts = 1};
    pb_train_config c = config_of(&p);
    const size_t all = (size_t)w->ranks * T;
    int32_t *ids = malloc(all * sizeof *ids), *targets = malloc(all * sizeof *targets);
    float *mask = malloc(all * sizeof *mask);
    pb_clip_state one, many;
    double loss[RANKS_MOST], sum = 0, alone;
    bool stop;
    assert_true(ids && targets && mask);
    c.comm = w->comm;
    pb_trainer *t = open_trainer(&w->ctx, &c);
    set_batch(t, 0, w->rank, w->ranks, false);
    CHECK_OK(pb_train_step(&w->ctx, t));
    CHECK_OK(pb_trainer_losses(t, loss, &stop));
    CHECK_OK(pb_trainer_clip_states(t, &many));
    for (int i = 0; i < w->ranks; i++) sum += loss[i];
    pb_trainer_close(t);
    c.comm = NULL;
    c.B *= w->ranks;
    t = open_trainer(&w->ctx, &c);
    for (int i = 0; i < w->ranks; i++) fill(i, t->model.g.V, ids + i * T, targets + i * T, mask + i * T);
    CHECK_OK(pb_trainer_set_batch(t, &(pb_batch){.ids = ids, .targets = targets, .mask = mask}));
    CHECK_OK(pb_train_step(&w->ctx, t));
    CHECK_OK(pb_trainer_loss(t, &alone));
    CHECK_OK(pb_trainer_clip_states(t, &one));
    CHECK_NEAR(sum, alone, 1e-6 * alone);
    CHECK_NEAR(many.norm, one.norm, 1e-5 * (double)one.norm);
    pb_trainer_close(t);
    free(targets);
    free(ids);
    free(mask);
}

/* A gradient, or a loss, that is infinite on one rank makes all ranks skip the step: none of them changes its
 * weights. */
static void a_step_is_skipped_by_all_ranks(void **state)
{
    group *w = *state;
    for (int graph = 0; graph < 4 * PB_NSHARDS; graph++) {
        const plan p = {.model = "tiny",
                        .tuning = PB_FULL,
                        .clip = graph % 4 < 2 ? PB_CLIP_MULTI : PB_CLIP_NONE,
                        .parts = 1,
                        .graph = graph % 2,
                        .shard = (pb_shard)(graph / 4),
                        .bad_rank = w->ranks - 1,
                        .bad_step = 1};
        result r = train(w, &p, true);
        float *mine = r.all, *all = calloc(r.n * (size_t)w->ranks, sizeof *all);
        assert_int_equal(r.state.skipped, 1);
        assert_int_equal(r.state.step, STEPS - 1);
        assert_non_null(all);
        CHECK_OK(pb_world_gather(w->world, "weights", mine, r.n * sizeof *mine, all));
        for (int i = 0; i < w->ranks; i++) assert_memory_equal(all + (size_t)i * r.n, mine, r.n * sizeof *mine);
        free(all);
        free(mine);
    }
}

/* Gradients rounded to bf16 once per rank differ from the sums in f32 by a rounding each: 2^-8 of the sum of the ranks'
 * absolute values. Weights move by about lr per step whatever the gradient's size, so losses are compared. */
static void reduction_in_bf16_stays_near_f32(void **state)
{
    plan p = {.model = "tiny", .tuning = PB_FULL, .clip = PB_CLIP_MULTI, .parts = 2, .reduce = PB_REDUCE_F32};
    result a = train(*state, &p, true), b[PB_NSHARDS];
    p.reduce = PB_REDUCE_BF16;
    for (int shard = 0; shard < PB_NSHARDS; shard++) {
        p.shard = (pb_shard)shard;
        b[shard] = train(*state, &p, true);
        for (int i = 0; i < STEPS; i++) CHECK_NEAR(b[shard].loss[i], a.loss[i], 2e-3);
        CHECK_NEAR(b[shard].norm, a.norm, 0.004 * (double)a.norm + 1e-12);
        assert_true(memcmp(a.all, b[shard].all, a.n * sizeof *a.all) != 0);
        /* with sharded gradients each micro-batch is rounded, else their sum */
        if (shard < PB_SHARD_GRADIENTS) assert_memory_equal(b[0].all, b[shard].all, a.n * sizeof *a.all);
    }
    assert_memory_equal(b[PB_SHARD_GRADIENTS].all, b[PB_SHARD_PARAMETERS].all, a.n * sizeof *a.all);
    for (int shard = 0; shard < PB_NSHARDS; shard++) free(b[shard].all);
    free(a.all);
}

/* Rank 1 was asked to stop; every rank reads it with the losses. */
static void all_ranks_see_that_one_was_interrupted(void **state)
{
    group *w = *state;
    const plan p = {.model = "tiny", .tuning = PB_LORA, .clip = PB_CLIP_MULTI, .parts = 1};
    pb_train_config c = config_of(&p);
    double loss[RANKS_MOST];
    bool stop = false;
    c.comm = w->comm;
    pb_trainer *t = open_trainer(&w->ctx, &c);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(pb_trainer_set_stop(t, i == 1 && w->rank == 1));
        set_batch(t, 0, w->rank, w->ranks, false);
        CHECK_OK(pb_train_step(&w->ctx, t));
        CHECK_OK(pb_trainer_losses(t, loss, &stop));
        assert_int_equal(stop, i == 1);
    }
    pb_trainer_close(t);
}

static void bad_settings_are_refused(void **state)
{
    group *w = *state;
    pb_train_config c = config("tiny", PB_LORA);
    pb_trainer *t;
    c.ordered = true;
    c.reduce = PB_REDUCE_BF16;
    CHECK_FAILS(pb_trainer_open(&w->ctx, &c, &t), PB_EINVAL, "f32");
    c.reduce = PB_REDUCE_F32;
    c.comm = w->comm;
    c.shard = PB_SHARD_OPTIMIZER;
    c.clip = PB_CLIP_SYNC;
    CHECK_FAILS(pb_trainer_open(&w->ctx, &c, &t), PB_EINVAL, "--clip sync");
}

static int open_group(void **state)
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

static int close_group(void **state)
{
    group *w = *state;
    pb_comm_close(w->comm);
    pb_ctx_close(&w->ctx);
    pb_world_close(w->world);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sharded_state_equals_one_rank),
        cmocka_unit_test(sharded_weights_equal_one_rank),
        cmocka_unit_test(ranks_equal_one_rank_that_accumulates),
        cmocka_unit_test(every_clip_variant_gives_the_same_bits),
        cmocka_unit_test(one_large_batch_is_near),
        cmocka_unit_test(bf16_models_give_the_same_bits),
        cmocka_unit_test(v4_models_give_the_same_bits),
        cmocka_unit_test(a_step_is_skipped_by_all_ranks),
        cmocka_unit_test(reduction_in_bf16_stays_near_f32),
        cmocka_unit_test(all_ranks_see_that_one_was_interrupted),
        cmocka_unit_test(bad_settings_are_refused),
    };
    return cmocka_run_group_tests(tests, open_group, close_group);
}
