/* v4_step_test.c - tests of training steps with DeepSeek-V4's attention block: packed samples compute the results of
 * single ones, graphs equal eager steps, gradients accumulate, short rows, FP8 keys and values, and refused
 * settings. */
#include "tests/trainer/blocks/v4_trainer.h"

/* ---- packed samples do not affect each other ----------------------------------------------------------- */

/* Lengths and first positions of the three samples in one packed row. Samples begin at multiples of 128. The first has
 * more compressed rows than the indexer selects. */
enum { SAMPLES = 3, ROW = 648 };
static const int lengths[SAMPLES] = {300, 70, 130}, begins[SAMPLES] = {0, 384, 512};

static void set_packed(pb_trainer *t, uint64_t first_seed)
{
    text x = open_text(t);
    double count = 0;
    for (int i = 0; i < ROW; i++) x.start[i] = i; /* padding between samples attends to itself only */
    for (int k = 0; k < SAMPLES; k++) {
        seeded(&x, (size_t)begins[k], k ? (uint64_t)begins[k] : first_seed, (size_t)lengths[k], 272);
        for (int i = 0; i < lengths[k]; i++) x.start[begins[k] + i] = begins[k], x.pos[begins[k] + i] = i;
    }
    for (int i = 0; i < ROW; i++) count += (double)x.mask[i];
    assert_true(count > 300);
    CHECK_OK(pb_trainer_set_batch(
        t,
        &(pb_batch){.ids = x.ids, .targets = x.targets, .mask = x.mask, .count = 400, .start = x.start, .pos = x.pos}));
    close_text(&x);
}

static void set_alone(pb_trainer *t, int k)
{
    text x = open_text(t);
    seeded(&x, 0, (uint64_t)begins[k], (size_t)lengths[k], 272);
    CHECK_OK(pb_trainer_set_batch(
        t, &(pb_batch){.ids = x.ids, .targets = x.targets, .mask = x.mask, .count = 400, .S = lengths[k]}));
    close_text(&x);
}

static float *nll_of(pb_trainer *t)
{
    float *nll = calloc(ROW, sizeof *nll);
    assert_non_null(nll);
    CHECK_OK(pb_trainer_nll(t, nll));
    return nll;
}

static void packed_conversations_equal_unpacked_ones(void **state)
{
    pb_ctx *ctx = *state;
    size_t n;
    for (int variant = PB_ATTENTION_DENSE; variant <= WITH_INDEX_LOSS; variant++) {
        pb_train_config c = v4_config(1, ROW, variant);
        pb_trainer *alone = open_trainer(ctx, &c);
        c.packed = true;
        pb_trainer *packed = open_trainer(ctx, &c);
        set_packed(packed, 0);
        run_phases(ctx, packed, PB_PHASE_forward, PB_PHASE_backward);
        float *together = nll_of(packed);
        for (int k = 0; k < SAMPLES; k++) {
            set_alone(alone, k);
            pb_trainer_accumulate(alone, k > 0);
            run_phases(ctx, alone, PB_PHASE_forward, PB_PHASE_backward);
            float *apart = nll_of(alone);
            for (int i = 0; i < lengths[k]; i++) CHECK_NEAR((double)together[begins[k] + i], (double)apart[i], 1e-5);
            free(apart);
        }
        free(together);
        float *a = snapshot(alone, true, &n);
        assert_close(a, snapshot(packed, true, &n), n, 2e-5, "gradients of packed samples");
        pb_trainer_close(alone), pb_trainer_close(packed);
    }
}

/* Changing one sample does not change any bit of the samples after it. */
static void packed_samples_do_not_see_each_other(void **state)
{
    pb_ctx *ctx = *state;
    pb_train_config c = v4_config(1, ROW, PB_ATTENTION_SPARSE);
    c.packed = true;
    pb_trainer *t = open_trainer(ctx, &c);
    float *nll[2];
    for (int i = 0; i < 2; i++) {
        set_packed(t, (uint64_t)(5000 * i));
        run_phases(ctx, t, PB_PHASE_forward, PB_PHASE_loss);
        nll[i] = nll_of(t);
    }
    assert_memory_not_equal(nll[0], nll[1], (size_t)lengths[0] * sizeof(float));
    assert_memory_equal(nll[0] + begins[1], nll[1] + begins[1], (ROW - (size_t)begins[1]) * sizeof(float));
    free(nll[0]), free(nll[1]);
    pb_trainer_close(t);
}

/* ---- graphs, accumulation and settings of a step --------------------------------------------------------- */

static void graph_equals_eager(void **state)
{
    pb_ctx *ctx = *state;
    ctx->deterministic = true;
    for (int dtype = 0; dtype < PB_NFLOAT; dtype++) {
        pb_train_config c = v4_config(2, 260, WITH_INDEX_LOSS);
        size_t n;
        c.model.dtype = (pb_dtype)dtype;
        pb_trainer *eager = open_seeded(ctx, &c), *graphed = open_seeded(ctx, &c);
        pb_graph *g = NULL;
        CHECK_OK(pb_train_step(ctx, eager));
        CHECK_OK(pb_train_step(ctx, graphed));
        CHECK_OK(pb_record(ctx, pb_train_step, graphed, &g));
        for (int step = 0; step < 3; step++) {
            CHECK_OK(pb_train_step(ctx, eager));
            CHECK_OK(pb_replay(ctx, g));
        }
        float *a = snapshot(eager, false, &n);
        assert_same(a, snapshot(graphed, false, &n), n);
        pb_graph_free(ctx, g);
        pb_trainer_close(eager), pb_trainer_close(graphed);
    }
    ctx->deterministic = false;
}

static void backward_can_be_repeated(void **state)
{
    pb_ctx *ctx = *state;
    size_t n;
    pb_train_config c = v4_config(1, 260, WITH_INDEX_LOSS);
    ctx->deterministic = true;
    pb_trainer *t = open_seeded(ctx, &c);
    run_phases(ctx, t, PB_PHASE_forward, PB_PHASE_backward);
    float *a = snapshot(t, true, &n);
    CHECK_OK(pb_phase_backward(ctx, t));
    assert_same(a, snapshot(t, true, &n), n);
    ctx->deterministic = false;
    pb_trainer_close(t);
}

/* Accumulating the same batch twice gives twice the gradient. */
static void accumulated_gradients_add_up(void **state)
{
    pb_ctx *ctx = *state;
    size_t n;
    pb_train_config c = v4_config(1, 260, WITH_INDEX_LOSS);
    pb_trainer *t = open_seeded(ctx, &c);
    run_phases(ctx, t, PB_PHASE_forward, PB_PHASE_backward);
    float *once = snapshot(t, true, &n);
    pb_trainer_accumulate(t, true);
    CHECK_OK(pb_phase_backward(ctx, t));
    for (size_t i = 0; i < n; i++) once[i] *= 2;
    assert_close(once, snapshot(t, true, &n), n, 5e-6, "accumulated gradients");
    pb_trainer_close(t);
}

/* Rows shorter than the trainer's, down to rows without a compressed row, give the result of a trainer of that
 * length. */
static void short_rows_in_a_long_trainer(void **state)
{
    static const int at[] = {3, 17, 140};
    pb_ctx *ctx = *state;
    pb_train_config c = v4_config(2, 320, WITH_INDEX_LOSS);
    pb_trainer *large = open_seeded(ctx, &c);
    /* fills the buffers with values that shorter rows must not read */
    run_phases(ctx, large, PB_PHASE_forward, PB_PHASE_backward);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        size_t n;
        c.S = at[i];
        pb_trainer *t = open_seeded(ctx, &c);
        set_seeded(large, at[i]);
        run_phases(ctx, t, PB_PHASE_forward, PB_PHASE_backward);
        run_phases(ctx, large, PB_PHASE_forward, PB_PHASE_backward);
        CHECK_NEAR(loss_of(large), loss_of(t), 1e-6);
        float *a = snapshot(t, true, &n);
        assert_close(a, snapshot(large, true, &n), n, 1e-5, "gradients of short rows");
        pb_trainer_close(t);
    }
    pb_trainer_close(large);
}

static void a_frozen_model_has_the_same_loss(void **state)
{
    pb_ctx *ctx = *state;
    double loss[2];
    for (int i = 0; i < 2; i++) {
        pb_train_config c = v4_config(2, 260, PB_ATTENTION_SPARSE);
        c.model.frozen = i;
        pb_trainer *t = open_seeded(ctx, &c);
        run_phases(ctx, t, PB_PHASE_forward, PB_PHASE_loss);
        loss[i] = loss_of(t);
        pb_trainer_close(t);
    }
    CHECK_NEAR(loss[1], loss[0], 0);
}

/* By default, keys and values are not converted to FP8. With another kv_qat a step has one more op per layer, and its
 * loss changes within the precision of FP8. */
static void fp8_keys_and_values_are_off_by_default(void **state)
{
    pb_ctx *ctx = *state;
    double loss[PB_NKVQATS];
    uint64_t launches[PB_NKVQATS];
    assert_true(config("v4-tiny", PB_FULL).kv_qat == PB_KV_QAT_NONE);
    for (int i = 0; i < PB_NKVQATS; i++) {
        pb_train_config c = v4_config(1, 260, PB_ATTENTION_SPARSE);
        c.kv_qat = (pb_kv_qat_variant)i;
        pb_trainer *t = open_seeded(ctx, &c);
        const uint64_t before = ctx->counts.kernel_launches;
        run_phases(ctx, t, PB_PHASE_forward, PB_PHASE_backward);
        launches[i] = ctx->counts.kernel_launches - before;
        loss[i] = loss_of(t);
        pb_trainer_close(t);
    }
    /* one op per layer */
    if (ctx->id == PB_CPU) assert_int_equal(launches[PB_KV_QAT_UE8M0] - launches[PB_KV_QAT_NONE], 3);
    for (int i = 1; i < PB_NKVQATS; i++) {
        assert_true(fabs(loss[i] - loss[0]) > 1e-6);
        CHECK_NEAR(loss[i], loss[0], 1e-2);
    }
    assert_true(fabs(loss[1] - loss[2]) > 1e-7);
}

static void bf16_follows_f32(void **state)
{
    pb_ctx *ctx = *state;
    double loss[PB_NFLOAT];
    for (int i = 0; i < PB_NFLOAT; i++) {
        pb_train_config c = v4_config(1, 320, WITH_INDEX_LOSS);
        c.model.dtype = (pb_dtype)i;
        pb_trainer *t = open_seeded(ctx, &c);
        for (int step = 0; step < 20; step++) CHECK_OK(pb_train_step(ctx, t));
        loss[i] = loss_of(t);
        pb_trainer_close(t);
    }
    CHECK_NEAR(loss[PB_BF16], loss[PB_F32], 0.03);
}

static void invalid_settings_are_refused(void **state)
{
    pb_train_config c = config("v4-tiny", PB_LORA);
    pb_trainer *t = NULL;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "v4-tiny has no adapters");
    c = config("tiny", PB_LORA), c.attention = PB_ATTENTION_SPARSE;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "no sparse attention");
    c.attention = PB_ATTENTION_DENSE, c.kv_qat = PB_KV_QAT_UE8M0;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "FP8");
    c.kv_qat = PB_KV_QAT_NONE, c.model.index_loss = 1;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "no indexer to train");
    c = v4_config(1, 200, PB_ATTENTION_DENSE), c.model.index_loss = 1;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "dense attention has no indexer to train");
    c.model.index_loss = -1;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "index loss -1");
    c = v4_config(1, 200, PB_ATTENTION_AUTO), c.packed = true;
    t = open_trainer(*state, &c);
    text x = open_text(t);
    for (int i = 130; i < 200; i++) x.start[i] = 130;
    CHECK_FAILS(pb_trainer_set_batch(t, &(pb_batch){x.ids, x.targets, x.mask, 0, x.start, x.pos, 0}), PB_EINVAL,
                "start 130 of token 131: samples begin at multiples of 128");
    close_text(&x);
    pb_trainer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_conversations_equal_unpacked_ones),
        cmocka_unit_test(packed_samples_do_not_see_each_other),
        cmocka_unit_test(graph_equals_eager),
        cmocka_unit_test(backward_can_be_repeated),
        cmocka_unit_test(accumulated_gradients_add_up),
        cmocka_unit_test(short_rows_in_a_long_trainer),
        cmocka_unit_test(a_frozen_model_has_the_same_loss),
        cmocka_unit_test(fp8_keys_and_values_are_off_by_default),
        cmocka_unit_test(bf16_follows_f32),
        cmocka_unit_test(invalid_settings_are_refused),
    };
    return cmocka_run_group_tests(tests, test_open_device, test_close);
}
