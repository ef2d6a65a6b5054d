/* trainer_clip_test.c - the clip phase in every variant: the resulting norm, the number of launches and host syncs,
 * and gradients or losses that are not finite. */
#include "tests/trainer/step/trainer_fixture.h"

static double joint_norm(pb_trainer *t, int layer)
{
    const pb_model *m = pb_trainer_model(t);
    double sum = 0;
    for (int i = 0; i < m->n; i++) {
        const pb_param *p = &m->params[i];
        if (!p->trained || p->layer != layer) continue;
        float *grad = test_fetch(m->ctx, p->grad, pb_param_n(p) * sizeof *grad);
        for (size_t k = 0; k < pb_param_n(p); k++) sum += (double)grad[k] * (double)grad[k];
        free(grad);
    }
    return sqrt(sum);
}

static void clip_bounds_each_layers_joint_norm(void **state)
{
    pb_ctx *ctx = *state;
    for (int variant = PB_CLIP_SYNC; variant <= PB_CLIP_FUSED; variant++) {
        pb_train_config c = config("tiny", PB_LORA);
        double before[2];
        pb_clip_state states[3];
        c.clip = (pb_clip_variant)variant;
        c.max_norm = 1e-3f; /* far below any layer's norm, so all layers are clipped */
        pb_trainer *t = open_fixture(ctx, &c);
        run_phases(ctx, t, PB_PHASE_forward, PB_PHASE_backward);
        for (int l = 0; l < 2; l++) before[l] = joint_norm(t, l);
        CHECK_OK(pb_phase_clip(ctx, t));
        assert_int_equal(pb_trainer_clip_groups(t), 2);
        CHECK_OK(pb_trainer_clip_states(t, states));
        for (int l = 0; l < 2; l++) {
            assert_true(before[l] > 2e-3);
            CHECK_NEAR(states[l].norm, before[l], 1e-5 * before[l]);
            CHECK_NEAR(joint_norm(t, l), 1e-3, 1e-8);
        }
        pb_trainer_close(t);
    }
}

static void clip_groups_name_their_layers(void **state)
{
    static const struct {
        pb_tuning tuning;
        pb_clip_variant variant;
        int n, layer[3];
    } want[] = {{PB_FULL, PB_CLIP_FUSED, 3, {0, 1, -1}},
                {PB_FULL, PB_CLIP_SYNC, 3, {0, 1, -1}},
                {PB_FULL, PB_CLIP_MULTI, 1, {-1}},
                {PB_LORA, PB_CLIP_FUSED, 2, {0, 1}},
                {PB_FULL, PB_CLIP_NONE, 0, {0}}};
    for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
        pb_train_config c = config("tiny", want[k].tuning);
        c.clip = want[k].variant;
        pb_trainer *t = open_trainer(*state, &c);
        assert_int_equal(pb_trainer_clip_groups(t), want[k].n);
        for (int i = 0; i < want[k].n; i++) assert_int_equal(pb_trainer_clip_layer(t, i), want[k].layer[i]);
        pb_trainer_close(t);
    }
}

static void invalid_learning_rates_are_refused(void **state)
{
    pb_train_config c = config("tiny", PB_LORA);
    pb_trainer *t = open_trainer(*state, &c);
    const float bad[] = {-1, INFINITY, NAN};
    for (int i = 0; i < 3; i++)
        CHECK_FAILS(pb_trainer_set_lr(t, bad[i]), PB_EINVAL, "need a finite number of at least 0");
    assert_true(pb_trainer_config(t)->lr == c.lr);
    pb_trainer_close(t);
}

/* With adapters on q and v a layer has six gradients: A_q, B_q, A_v, B_v and both gains. */
static void clip_variants_have_the_documented_cost(void **state)
{
    static const struct {
        pb_clip_variant variant;
        unsigned kernel_launches, host_syncs; /* per layer */
    } want[] = {{PB_CLIP_SYNC, 6 + 6, 6}, {PB_CLIP_FUSED, 6 + 1 + 6, 0}};
    pb_ctx *ctx = *state;
    pb_train_config c = config("tiny", PB_LORA);
    c.model.targets = 1u << PB_TARGET_Q | 1u << PB_TARGET_V;
    c.max_norm = 1e-3f;
    pb_trainer *t = open_fixture(ctx, &c);
    CHECK_OK(pb_train_step(ctx, t));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(pb_trainer_set_clip(t, want[i].variant, 1e-3f));
        CHECK_OK(pb_phase_backward(ctx, t));
        const pb_counts a = ctx->counts;
        CHECK_OK(pb_phase_clip(ctx, t));
        assert_int_equal(ctx->counts.kernel_launches - a.kernel_launches, 2 * want[i].kernel_launches);
        assert_int_equal(ctx->counts.host_syncs - a.host_syncs, 2 * want[i].host_syncs);
    }
    CHECK_OK(pb_trainer_set_clip(t, PB_CLIP_MULTI, 1e-3f));
    const pb_counts a = ctx->counts;
    CHECK_OK(pb_phase_clip(ctx, t));
    assert_int_equal(ctx->counts.kernel_launches - a.kernel_launches,
                     ctx->id == PB_CPU ? 1 : 2); /* CPU: one op; GPU: two kernels */
    assert_int_equal(ctx->counts.host_syncs - a.host_syncs, 0);
    pb_trainer_close(t);
}

static void poison_embedding(pb_trainer *t)
{
    const pb_model *m = pb_trainer_model(t);
    const size_t n = (size_t)m->g.D * 64;
    float *nan = malloc(n * sizeof *nan);
    assert_non_null(nan);
    for (size_t i = 0; i < n; i++) nan[i] = NAN;
    CHECK_OK(pb_upload(m->ctx, m->outer[PB_P_embed]->w, nan, n * sizeof *nan));
    free(nan);
}

static void non_finite_norm_skips_the_step(void **state)
{
    pb_ctx *ctx = *state;
    for (int variant = PB_CLIP_SYNC; variant <= PB_CLIP_MULTI; variant++) {
        pb_train_config c = config("tiny", PB_LORA);
        pb_adamw_state st;
        size_t n;
        c.clip = (pb_clip_variant)variant;
        pb_trainer *t = open_fixture(ctx, &c);
        CHECK_OK(pb_train_step(ctx, t));
        poison_embedding(t);
        float *before = snapshot(t, false, &n);
        CHECK_OK(pb_train_step(ctx, t));
        assert_true(isnan(loss_of(t)));
        assert_same(before, snapshot(t, false, &n), n);
        CHECK_OK(pb_trainer_state(t, &st));
        assert_int_equal(st.step, 1);
        assert_int_equal(st.skipped, 1);
        pb_trainer_close(t);
    }
}

/* Sets a batch whose loss exceeds the range of f32 while all gradients and their norm are finite. */
static void infinite_loss_batch(pb_trainer *t)
{
    int32_t ids[T];
    float mask[T];
    /* this mask times the mean loss of about 5.6 exceeds 3.4e38, the range of f32 */
    for (int i = 0; i < T; i++) ids[i] = i % 7, mask[i] = 9e37f;
    CHECK_OK(pb_trainer_set_batch(t, &(pb_batch){ids, ids, mask, T}));
}

/* Runs a step of several micro-batches, of which only the first has an infinite loss. */
static void accumulated_step(pb_ctx *ctx, pb_trainer *t)
{
    infinite_loss_batch(t);
    CHECK_OK(pb_train_micro(ctx, t));
    pb_trainer_accumulate(t, true);
    fixture_batch(t, 0, B, 0);
    CHECK_OK(pb_train_micro(ctx, t));
    CHECK_OK(pb_train_finish(ctx, t));
    pb_trainer_accumulate(t, false);
}

static void expect_counts(pb_trainer *t, int steps, int skipped)
{
    pb_adamw_state st;
    CHECK_OK(pb_trainer_state(t, &st));
    assert_int_equal(st.step, steps);
    assert_int_equal(st.skipped, skipped);
}

static void non_finite_loss_skips_the_step(void **state)
{
    pb_ctx *ctx = *state;
    pb_train_config c = config("tiny", PB_LORA);
    pb_clip_state clip;
    pb_graph *graph = NULL;
    size_t n;
    c.clip = PB_CLIP_MULTI;
    c.loss_scale = 1e-37f; /* keeps the gradients and their sum of squares finite; it does not scale the loss itself */
    pb_trainer *t = open_fixture(ctx, &c);
    CHECK_OK(pb_train_step(ctx, t));
    float *before = snapshot(t, false, &n);
    infinite_loss_batch(t);
    CHECK_OK(pb_train_step(ctx, t));
    assert_true(isinf(loss_of(t)));
    CHECK_OK(pb_trainer_clip_states(t, &clip));
    assert_true(isfinite(clip.norm) && clip.skip == 0);
    expect_counts(t, 1, 1);
    accumulated_step(ctx, t);
    assert_true(isfinite(loss_of(t)));
    expect_counts(t, 1, 2);
    /* The check also works in a replayed graph, and later replays with finite losses update the weights. */
    fixture_batch(t, 0, B, 0);
    CHECK_OK(pb_record(ctx, pb_train_step, t, &graph));
    infinite_loss_batch(t);
    CHECK_OK(pb_replay(ctx, graph));
    expect_counts(t, 1, 3);
    assert_same(before, snapshot(t, false, &n), n);
    fixture_batch(t, 0, B, 0);
    CHECK_OK(pb_replay(ctx, graph));
    expect_counts(t, 2, 3);
    pb_graph_free(ctx, graph);
    pb_trainer_close(t);
}

static void an_empty_mask_changes_no_weight(void **state)
{
    pb_ctx *ctx = *state;
    int32_t ids[T] = {0}, targets[T];
    float mask[T] = {0};
    size_t n;
    pb_train_config c = config("tiny", PB_FULL);
    pb_trainer *t = open_trainer(ctx, &c);
    for (int i = 0; i < T; i++) targets[i] = -1;
    CHECK_OK(pb_trainer_set_batch(t, &(pb_batch){ids, targets, mask, 0}));
    CHECK_OK(pb_train_step(ctx, t));
    CHECK_NEAR(loss_of(t), 0, 0);
    float *g = snapshot(t, true, &n);
    for (size_t i = 0; i < n; i++) assert_true(g[i] == 0);
    free(g);
    pb_trainer_close(t);
}

/* With a zero gradient a step applies only weight decay: to matrices, tables and adapters, not to gains and biases. */
static void only_matrices_and_tables_have_weight_decay(void **state)
{
    pb_ctx *ctx = *state;
    for (int tuning = PB_FULL; tuning <= PB_LORA; tuning++) {
        pb_train_config c = config("tiny", (pb_tuning)tuning);
        c.weight_decay = 0.5f;
        c.lr = 0.5f;
        pb_trainer *t = open_trainer(ctx, &c);
        const pb_model *m = pb_trainer_model(t);
        int32_t ids[T] = {0};
        float mask[T] = {0};
        int kinds = 0;
        CHECK_OK(pb_trainer_set_batch(t, &(pb_batch){ids, ids, mask, 0}));
        float **before = calloc((size_t)m->n, sizeof *before);
        assert_non_null(before);
        for (int i = 0; i < m->n; i++)
            if (m->params[i].trained) before[i] = test_fetch(ctx, m->params[i].w, pb_param_n(&m->params[i]) * 4);
        CHECK_OK(pb_train_step(ctx, t));
        for (int i = 0; i < m->n; i++) {
            const pb_param *p = &m->params[i];
            if (!p->trained) continue;
            float *after = test_fetch(ctx, p->w, pb_param_n(p) * 4);
            const float left = p->kind == PB_KIND_GAIN || p->kind == PB_KIND_BIAS ? 1 : 0.75f;
            for (size_t k = 0; k < pb_param_n(p); k++) CHECK_NEAR(after[k], left * before[i][k], 1e-7);
            kinds |= 1 << p->kind;
            free(after);
            free(before[i]);
        }
        const int vectors = 1 << PB_KIND_GAIN | (tuning == PB_FULL ? 1 << PB_KIND_BIAS : 0);
        assert_int_equal(kinds & vectors, vectors);
        free(before);
        pb_trainer_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clip_bounds_each_layers_joint_norm),
        cmocka_unit_test(clip_variants_have_the_documented_cost),
        cmocka_unit_test(non_finite_norm_skips_the_step),
        cmocka_unit_test(an_empty_mask_changes_no_weight),
        cmocka_unit_test(only_matrices_and_tables_have_weight_decay),
        cmocka_unit_test(non_finite_loss_skips_the_step),
        cmocka_unit_test(clip_groups_name_their_layers),
        cmocka_unit_test(invalid_learning_rates_are_refused),
    };
    return cmocka_run_group_tests(tests, test_open_device, test_close);
}
