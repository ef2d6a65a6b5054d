/* parallel_ranks_test.c - tests data parallel training over several ranks: weights, moments, losses and norms equal,
 * bit for bit, those of one rank that runs the same micro-batches; steps are skipped together; reduction in bf16.
 *
 * Every rank trains with the others and then alone, with a communicator and without, and compares. */
#include "tests/trainer/parallel/rank_runs.h"

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

/* bf16 moments, whose rounding depends on the index of the element, and 8-bit moments, whose blocks no slice splits. */
static void narrow_moments_equal_one_rank(void **state)
{
    for (int format = PB_ADAMW_F32 + 1; format < PB_NADAMW_FORMATS; format++)
        for (int shard = 0; shard < PB_NSHARDS; shard++)
            check_same(*state, &(plan){.model = "tiny-llama",
                                       .tuning = shard == PB_SHARD_GRADIENTS ? PB_FULL : PB_LORA,
                                       .clip = PB_CLIP_MULTI,
                                       .dtype = shard % 2 ? PB_BF16 : PB_F32,
                                       .parts = 1,
                                       .graph = shard > 0,
                                       .rank = 18, /* 18 * 256 elements have partial sums of 960 */
                                       .moments = (pb_adamw_format)format,
                                       .shard = (pb_shard)shard});
}

/* Models of one, two and more layers, whose weights take turns in two buffers; tied and untied, of every family. All
 * but every fourth compute activations again, with the weights that the backward pass gathers. */
static void sharded_weights_equal_one_rank(void **state)
{
    static const struct {
        const char *model;
        int layers;
        pb_tuning tuning;
    } cases[] = {{"tiny-llama", 1, PB_FULL},  {"tiny-llama", 3, PB_QLORA}, {"tiny-llama", 3, PB_LORA},
                 {"v4-tiny", 3, PB_FULL},     {"tiny", 1, PB_FULL},        {"tiny-llama", 3, PB_FULL},
                 {"tiny-llama", 2, PB_QLORA}, {"doge-tiny", 2, PB_FULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_same(*state, &(plan){.model = cases[i].model,
                                   .nf4_double = cases[i].tuning == PB_QLORA && i % 2,
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
static void check_bf16(void **state, const char *model, pb_dtype dtype, int parts)
{
    const bool tied = strcmp(model, "tiny") == 0;
    plan p = {.model = model, .tuning = PB_FULL, .clip = PB_CLIP_MULTI, .dtype = dtype, .parts = parts};
    result a = train(*state, &p, true), b[PB_NSHARDS];
    p.reduce = PB_REDUCE_BF16;
    for (int shard = 0; shard < PB_NSHARDS; shard++) {
        p.shard = (pb_shard)shard;
        b[shard] = train(*state, &p, true);
        for (int i = 0; i < STEPS; i++) CHECK_NEAR(b[shard].loss[i], a.loss[i], 2e-3);
        CHECK_NEAR(b[shard].norm, a.norm, 0.004 * (double)a.norm + 1e-12);
        assert_true(memcmp(a.all, b[shard].all, a.n * sizeof *a.all) != 0);
        /* With sharded gradients each micro-batch is rounded, else their sum. A tied embedding's rows are added in bf16
         * to the sum of the head's gradients, with a sharded state in f32. */
        const int like = tied ? PB_SHARD_OPTIMIZER : PB_SHARD_NONE;
        if (shard > like && (shard < PB_SHARD_GRADIENTS || (parts == 1 && !tied)))
            assert_memory_equal(b[like].all, b[shard].all, a.n * sizeof *a.all);
    }
    assert_memory_equal(b[PB_SHARD_GRADIENTS].all, b[PB_SHARD_PARAMETERS].all, a.n * sizeof *a.all);
    for (int shard = 0; shard < PB_NSHARDS; shard++) free(b[shard].all);
    free(a.all);
}

/* The clip `fused` reads the sums in f32. */
static void check_converted(void **state, const char *model, pb_dtype dtype, int loss_chunk)
{
    plan p = {.model = model, .tuning = PB_FULL, .clip = PB_CLIP_FUSED, .dtype = dtype, .parts = 1};
    p.loss_chunk = loss_chunk;
    const result a = train(*state, &p, true);
    p.reduce = PB_REDUCE_BF16;
    const result b = train(*state, &p, true);
    for (int i = 0; i < STEPS; i++) CHECK_NEAR(b.loss[i], a.loss[i], 2e-3);
    CHECK_NEAR(b.norm, a.norm, 0.004 * (double)a.norm + 1e-12);
    assert_true(memcmp(a.all, b.all, a.n * sizeof *a.all) != 0);
    free(a.all), free(b.all);
}

static void bf16_sums_are_converted_for_other_clips(void **state)
{
    check_converted(state, "tiny", PB_F32, 0);
    check_converted(state, "tiny", PB_BF16, 0);
    check_converted(state, "tiny-llama", PB_BF16, 8);
    check_converted(state, "v4-tiny", PB_BF16, 0);
    check_converted(state, "doge-tiny", PB_BF16, 0);
}

static void reduction_in_bf16_stays_near_f32(void **state)
{
    check_bf16(state, "tiny", PB_F32, 2);
    check_bf16(state, "tiny-llama", PB_F32, 2);
    /* The backward pass writes bf16 gradients by itself, except with sharded gradients. */
    check_bf16(state, "tiny", PB_BF16, 1);
    check_bf16(state, "tiny-llama", PB_BF16, 1);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sharded_state_equals_one_rank),
        cmocka_unit_test(narrow_moments_equal_one_rank),
        cmocka_unit_test(sharded_weights_equal_one_rank),
        cmocka_unit_test(ranks_equal_one_rank_that_accumulates),
        cmocka_unit_test(every_clip_variant_gives_the_same_bits),
        cmocka_unit_test(one_large_batch_is_near),
        cmocka_unit_test(bf16_models_give_the_same_bits),
        cmocka_unit_test(v4_models_give_the_same_bits),
        cmocka_unit_test(a_step_is_skipped_by_all_ranks),
        cmocka_unit_test(reduction_in_bf16_stays_near_f32),
        cmocka_unit_test(bf16_sums_are_converted_for_other_clips),
        cmocka_unit_test(all_ranks_see_that_one_was_interrupted),
        cmocka_unit_test(bad_settings_are_refused),
    };
    return cmocka_run_group_tests(tests, open_group, close_group);
}
