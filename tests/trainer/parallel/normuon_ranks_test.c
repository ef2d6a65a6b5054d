/* normuon_ranks_test.c - tests NorMuon and its NaN guard over several ranks: weights, momenta and second moments equal,
 * bit for bit, those of one rank, whatever is sharded; a NaN on one rank skips the step on all. */
#include "tests/trainer/parallel/rank_runs.h"
#include "trainer/parallel/matrix_cuts.h"
#include "trainer/step/matrices.h"

static pb_normuon_config settings(void)
{
    const pb_geometry *g;
    CHECK_OK(pb_geometry_find("tiny", &g));
    pb_normuon_config n = pb_train_defaults(g).normuon;
    n.rate = 10;
    n.guard = true;
    return n;
}

static plan normuon(const char *model, pb_tuning tuning, pb_shard shard)
{
    return (plan){.model = model,
                  .tuning = tuning,
                  .clip = PB_CLIP_MULTI,
                  .parts = 1,
                  .shard = shard,
                  .optimizer = PB_OPTIMIZER_NORMUON,
                  .normuon = settings()};
}

/* ---- the step --------------------------------------------------------------------------------------------------- */

static void ranks_give_the_bits_of_one_rank(void **state)
{
    static const char *const models[PB_NTUNINGS] = {"tiny", "tiny-qwen3", "tiny"};
    for (int shard = 0; shard < PB_NSHARDS; shard++)
        for (int tuning = 0; tuning < PB_NTUNINGS; tuning++) {
            plan p = normuon(models[tuning], (pb_tuning)tuning, (pb_shard)shard);
            p.dtype = (shard + tuning) % 2 ? PB_BF16 : PB_F32;
            p.graph = tuning != PB_FULL || shard % 2;
            p.clip = p.graph ? PB_CLIP_MULTI : PB_CLIP_FUSED;
            p.parts = 1 + (tuning == PB_FULL && shard % 2);
            p.normuon.variant = (pb_ns_variant)((shard + tuning) % PB_NNS);
            p.normuon.nesterov = shard % 2;
            p.normuon.momentum = (pb_guard_momentum)(tuning % 2);
            check_same(*state, &p);
        }
}

/* Blocks of heads; models of every family; one layer, so that shapes have one block. */
static void blocks_of_every_kind_give_the_same_bits(void **state)
{
    static const struct {
        const char *model;
        int layers;
        bool per_head;
    } cases[] = {{"tiny", 2, true}, {"tiny-llama", 1, false}, {"v4-tiny", 3, true}};
    for (int shard = 0; shard < PB_NSHARDS; shard++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            if (i == 2 && shard % 2 == 0) continue;
            plan p = normuon(cases[i].model, PB_FULL, (pb_shard)shard);
            p.layers = cases[i].layers;
            p.normuon.per_head = cases[i].per_head;
            p.normuon.cautious = true;
            p.graph = i > 0;
            check_same(*state, &p);
        }
}

/* Nothing sharded: the ranks divide the blocks of a shape, and the costs of a rank exceed the mean by a block at
 * most. */
static void replicated_blocks_are_divided_by_cost(void **state)
{
    static const char *const models[] = {"tiny", "v4-tiny"};
    group *w = *state;
    for (int i = 0; i < 2; i++) {
        const plan p = normuon(models[i], PB_FULL, PB_SHARD_NONE);
        pb_train_config c = config_of(&p);
        uint64_t load[RANKS_MOST] = {0}, all = 0, largest = 0;
        c.comm = w->comm;
        pb_trainer *t = open_trainer(&w->ctx, &c);
        const pb_matrices *x = &t->matrices;
        for (int s = 0; s < x->shapes; s++) {
            const size_t one = (size_t)x->shape[s].rows * (size_t)x->shape[s].cols;
            const uint64_t cost = pb_matrix_cost((size_t)x->shape[s].rows, (size_t)x->shape[s].cols);
            size_t given = 0;
            for (int r = 0; r < w->ranks; r++) {
                const size_t n = x->counts[s * w->ranks + r] / one;
                load[r] += n * cost;
                given += n;
            }
            assert_int_equal(given, x->shape[s].n > 1 ? x->shape[s].n : 0);
            all += given * cost;
            if (given && cost > largest) largest = cost;
        }
        for (int r = 0; r < w->ranks; r++) assert_true(load[r] <= all / (uint64_t)w->ranks + largest);
        pb_trainer_close(t);
    }
}

static plan few_matrices(pb_shard shard)
{
    plan p = normuon("tiny-llama", PB_LORA, shard);
    p.layers = 1;
    p.targets = 1u << PB_TARGET_Q;
    return p;
}

/* Two matrices: a third rank owns nothing. */
static void a_rank_may_own_nothing(void **state)
{
    group *w = *state;
    for (int shard = 0; shard < PB_NSHARDS; shard++) {
        const plan p = few_matrices((pb_shard)shard);
        pb_train_config c = config_of(&p);
        c.comm = w->comm;
        pb_trainer *t = open_trainer(&w->ctx, &c);
        assert_int_equal(pb_trainer_matrices(t).blocks, 2);
        if (shard != PB_SHARD_NONE) {
            int owners[RANKS_MOST], blocks = 0;
            CHECK_OK(pb_world_gather(w->world, "blocks", &t->matrices.blocks, sizeof *owners, owners));
            for (int r = 0; r < w->ranks; r++) blocks += owners[r];
            assert_int_equal(blocks, 2);
            if (w->ranks > 2) assert_int_equal(owners[w->ranks - 1], 0);
        }
        pb_trainer_close(t);
        check_same(w, &p);
    }
}

/* ---- the NaN guard ---------------------------------------------------------------------------------------------- */

/* Writes NaN into all momenta that this rank has, or with `name` into those of the tensor of this name only. */
static void poison(pb_trainer *t, const char *name)
{
    const pb_model *m = &t->model;
    const pb_slices *s = &t->gradients.slices;
    for (int i = 0; i < (t->shards.on ? s->n : m->ordered); i++) {
        const pb_param *p = t->shards.on ? s->piece[i].p : m->order[i];
        float *at = t->shards.on ? pb_shards_m(t, &s->piece[i]) : p->m;
        if (!p->by_rows || (name && strcmp(p->name, name) != 0)) continue;
        for (size_t k = 0; k < (t->shards.on ? s->piece[i].n : pb_param_n(p)); k++) at[k] = NAN;
    }
}

/* Writes the momenta of this rank to a copy, or reads them from it. */
static void keep(pb_trainer *t, float *copy, bool read)
{
    const pb_model *m = &t->model;
    const pb_slices *s = &t->gradients.slices;
    for (int i = 0; t->shards.on && i < s->n; i++) {
        float *const x = pb_shards_m(t, &s->piece[i]), *const y = copy + s->piece[i].own;
        memcpy(read ? x : y, read ? y : x, s->piece[i].n * sizeof *x);
    }
    for (int i = 0; !t->shards.on && i < m->ordered; i++) {
        float *const x = m->order[i]->m, *const y = copy + m->order[i]->at;
        memcpy(read ? x : y, read ? y : x, pb_param_n(m->order[i]) * sizeof *x);
    }
}

/* Says for each rank whether it orthogonalises a block: one that it owns, one of its part of a shape, or the only one
 * of a shape. */
static void find_parts(group *w, const pb_trainer *t, bool part[RANKS_MOST])
{
    const pb_matrices *x = &t->matrices;
    bool any = t->shards.on && x->blocks > 0;
    for (int s = 0; !t->shards.on && s < x->shapes; s++)
        any = any || x->shape[s].n == 1 || x->counts[s * w->ranks + w->rank] > 0;
    CHECK_OK(pb_world_gather(w->world, "parts", &any, sizeof any, part));
}

/* Checks what a skipped step leaves as it was: weights and second moments. */
static void check_unchanged(const float *before, const float *after, size_t n)
{
    const size_t V = n / 3;
    assert_memory_equal(before, after, V * sizeof *after);
    assert_memory_equal(before + 2 * V, after + 2 * V, V * sizeof *after);
}

/* Trains a step, then one in which the momenta of rank `bad` alone are NaN, then one without a fault; or without a bad
 * step if bad is below 0. Checks that every rank skips the second, and counts it once; a rank that orthogonalises
 * nothing has momenta that no rank reads, and none skips. *skips: whether the step was skipped. Returns the state at
 * the end. */
static float *with_a_bad_step(group *w, const plan *p, const char *name, int bad, size_t *n, bool *skips)
{
    pb_train_config c = config_of(p);
    pb_graphs g = {0};
    pb_adamw_state s;
    bool part[RANKS_MOST];
    c.comm = w->comm;
    pb_trainer *t = open_trainer(&w->ctx, &c);
    float *copy = calloc(t->model.vector, sizeof *copy);
    assert_non_null(copy);
    CHECK_OK(pb_trainer_shard(t));
    find_parts(w, t, part);
    *skips = bad >= 0 && part[bad];
    for (int i = 0; i < 3; i++) {
        if (i == 1 && bad < 0) continue;
        float *before = everything(w, t, n);
        keep(t, copy, false);
        if (i == 1 && w->rank == bad) poison(t, name);
        (void)step(w, p->graph ? &g : NULL, t, p, i ? 1 : 0, w->rank, w->ranks, w->ranks);
        CHECK_OK(pb_trainer_state(t, &s));
        assert_int_equal(s.guarded, i > 0 && *skips);
        assert_int_equal(s.skipped, s.guarded);
        float *after = everything(w, t, n);
        if (i == 1 && *skips) check_unchanged(before, after, *n);
        if (i == 1 && w->rank == bad) keep(t, copy, true); /* the fault was transient */
        free(before);
        free(after);
    }
    float *end = everything(w, t, n);
    pb_graphs_free(&g, &w->ctx);
    pb_trainer_close(t);
    free(copy);
    return end;
}

/* With `restore` a skipped step leaves no trace: the bits are those of a run without it. */
static void check_guard(group *w, const plan *p, const char *name, int bad)
{
    size_t n;
    bool skips, none;
    float *end = with_a_bad_step(w, p, name, bad, &n, &skips);
    if (p->normuon.momentum == PB_GUARD_RESTORE && skips)
        assert_same(end, with_a_bad_step(w, p, NULL, -1, &n, &none), n);
    else free(end);
}

/* Nothing is sharded, and each rank orthogonalises some of the blocks of a shape. */
static void guard_with_several_replicated_matrices(void **state)
{
    group *w = *state;
    for (int bad = 0; bad < w->ranks; bad++) {
        plan p = normuon("v4-tiny", PB_FULL, PB_SHARD_NONE);
        p.layers = 2;
        p.graph = bad % 2;
        p.normuon.momentum = (pb_guard_momentum)(bad % 2);
        check_guard(w, &p, NULL, bad);
    }
}

/* A shape of one block, which every rank orthogonalises: the other ranks see no NaN. */
static void guard_with_one_replicated_matrix(void **state)
{
    group *w = *state;
    for (int bad = 0; bad < w->ranks; bad++) {
        plan p = normuon("tiny-llama", PB_FULL, PB_SHARD_NONE);
        p.layers = 1;
        p.graph = bad % 2;
        check_guard(w, &p, "layers.0.down", bad);
    }
}

/* Each block is on its owner alone: whole matrices, several of one shape, and the heads of q, k and v. */
static void guard_with_sharded_matrices(void **state)
{
    group *w = *state;
    for (int shard = PB_SHARD_OPTIMIZER; shard < PB_NSHARDS; shard++)
        for (int bad = 0; bad < w->ranks; bad++) {
            plan p = normuon("tiny", PB_FULL, (pb_shard)shard);
            p.normuon.per_head = (shard + bad) % 2;
            p.normuon.momentum = (pb_guard_momentum)(shard % 2);
            p.dtype = shard == PB_SHARD_GRADIENTS ? PB_BF16 : PB_F32;
            p.graph = bad % 2;
            check_guard(w, &p, NULL, bad);
        }
}

/* With more than two ranks, one owns nothing, and still takes part. */
static void guard_with_a_rank_that_owns_nothing(void **state)
{
    group *w = *state;
    for (int shard = PB_SHARD_OPTIMIZER; shard < PB_NSHARDS; shard++)
        for (int bad = 0; bad < w->ranks; bad++) {
            plan p = few_matrices((pb_shard)shard);
            p.graph = bad % 2;
            check_guard(w, &p, NULL, bad);
        }
}

/* Without the guard a NaN on one rank reaches the weights. */
static void guard_off_lets_nan_propagate(void **state)
{
    group *w = *state;
    for (int shard = 0; shard < PB_NSHARDS; shard++) {
        plan p = normuon("tiny", PB_FULL, (pb_shard)shard);
        pb_train_config c = config_of(&p);
        size_t n, wild = 0;
        c.comm = w->comm;
        c.normuon.guard = false;
        pb_trainer *t = open_trainer(&w->ctx, &c);
        CHECK_OK(pb_trainer_shard(t));
        if (w->rank == 0) poison(t, NULL);
        (void)step(w, NULL, t, &p, 0, w->rank, w->ranks, w->ranks);
        float *all = everything(w, t, &n);
        for (size_t i = 0; i < n / 3; i++) wild += !isfinite(all[i]);
        assert_true(wild > 0);
        free(all);
        pb_trainer_close(t);
    }
}

/* On every path the guard adds one check and one collective, and no host sync; a rank that owns nothing, too. */
static void the_guard_is_one_collective(void **state)
{
    group *w = *state;
    for (int shard = 0; shard < PB_NSHARDS; shard++) {
        uint64_t launches[2];
        for (int guard = 0; guard < 2; guard++) {
            const plan p = few_matrices((pb_shard)shard);
            pb_train_config c = config_of(&p);
            c.comm = w->comm;
            c.normuon.guard = guard;
            pb_trainer *t = open_trainer(&w->ctx, &c);
            CHECK_OK(pb_trainer_shard(t));
            (void)step(w, NULL, t, &p, 0, w->rank, w->ranks, w->ranks);
            const pb_counts before = w->ctx.counts;
            CHECK_OK(pb_phase_optimizer(&w->ctx, t));
            assert_int_equal(w->ctx.counts.host_syncs, before.host_syncs);
            launches[guard] = w->ctx.counts.kernel_launches - before.kernel_launches;
            pb_trainer_close(t);
        }
        assert_int_equal(launches[1] - launches[0], 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_give_the_bits_of_one_rank),
        cmocka_unit_test(blocks_of_every_kind_give_the_same_bits),
        cmocka_unit_test(replicated_blocks_are_divided_by_cost),
        cmocka_unit_test(a_rank_may_own_nothing),
        cmocka_unit_test(guard_off_lets_nan_propagate),
        cmocka_unit_test(guard_with_several_replicated_matrices),
        cmocka_unit_test(guard_with_one_replicated_matrix),
        cmocka_unit_test(guard_with_sharded_matrices),
        cmocka_unit_test(guard_with_a_rank_that_owns_nothing),
        cmocka_unit_test(the_guard_is_one_collective),
    };
    return cmocka_run_group_tests(tests, open_group, close_group);
}
