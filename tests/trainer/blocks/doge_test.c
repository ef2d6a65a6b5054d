/* doge_test.c - tests of dynamic-mask attention in the trainer: which keys each variant keeps, what adapters leave
 * frozen, and refused settings. trainer_test and hf_test compare the family with PyTorch and with transformers. */
#include "tests/trainer/step/trainer_fixture.h"

/* Runs the forward phase and the loss on the seeded batch, whose last token of the first row is replaced by `last`
 * unless it is negative. Returns the losses of the tokens [T]. */
static float *losses(pb_ctx *ctx, const pb_train_config *c, int last)
{
    pb_trainer *t = open_trainer(ctx, c);
    float *nll = calloc(T, sizeof *nll), mask[T];
    int32_t ids[T], targets[T];
    assert_non_null(nll);
    for (int i = 0; i < T; i++) {
        ids[i] = (int32_t)(pb_uniform(1, (uint64_t)i) * c->model.geometry->V);
        targets[i] = (int32_t)(pb_uniform(2, (uint64_t)i) * c->model.geometry->V);
        mask[i] = 1;
    }
    if (last >= 0) ids[S - 1] = last;
    CHECK_OK(pb_trainer_set_batch(t, &(pb_batch){ids, targets, mask, 0}));
    run_phases(ctx, t, PB_PHASE_forward, PB_PHASE_loss);
    CHECK_OK(pb_trainer_nll(t, nll));
    pb_trainer_close(t);
    return nll;
}

static pb_train_config variant_of(const pb_geometry *g, int keep, pb_attention_variant attention)
{
    static pb_geometry changed;
    pb_train_config c = config("doge-tiny", PB_FULL);
    changed = *g;
    changed.keep = keep;
    c.model.geometry = &changed;
    c.attention = attention;
    return c;
}

static const pb_geometry *doge(void)
{
    const pb_geometry *g;
    CHECK_OK(pb_geometry_find("doge-tiny", &g));
    return g;
}

/* Up to 8 keys, dense and sparse attention are the same; from the ninth token on a query leaves keys out. */
static void sparse_leaves_out_keys_beyond_its_window(void **state)
{
    pb_train_config c = variant_of(doge(), 8, PB_ATTENTION_DENSE);
    float *dense = losses(*state, &c, -1);
    c = variant_of(doge(), 8, PB_ATTENTION_SPARSE);
    float *sparse = losses(*state, &c, -1);
    for (int i = 0; i < T; i++)
        if (i % S < 8) CHECK_NEAR(sparse[i], dense[i], 1e-6);
    assert_true(fabsf(sparse[8] - dense[8]) > 1e-5f && fabsf(sparse[S + 8] - dense[S + 8]) > 1e-5f);
    c = variant_of(doge(), S, PB_ATTENTION_AUTO);
    float *all = losses(*state, &c, -1);
    assert_memory_equal(all, dense, T * sizeof *all);
    free(dense), free(sparse), free(all);
}

/* Another last token of a row changes no earlier loss with sparse attention. With union it may, because union selects
 * keys of the whole row. Other rows never change. */
static void only_union_depends_on_later_tokens(void **state)
{
    for (int k = 0; k < 2; k++) {
        bool changed = false;
        pb_train_config c = variant_of(doge(), 3, k ? PB_ATTENTION_UNION : PB_ATTENTION_SPARSE);
        float *want = losses(*state, &c, -1);
        for (int id = 0; id < 40; id++) {
            float *got = losses(*state, &c, id);
            assert_memory_equal(got + S, want + S, S * sizeof *got);
            changed |= memcmp(got, want, (S - 1) * sizeof *got) != 0;
            free(got);
        }
        free(want);
        assert_int_equal(changed, k);
    }
}

/* With adapters, what computes the biases and the factors of the residual stream are frozen. */
static void adapters_leave_biases_and_factors_frozen(void **state)
{
    pb_ctx *ctx = *state;
    const pb_train_config c = config("doge-tiny", PB_LORA);
    pb_trainer *t = open_fixture(ctx, &c);
    const pb_model *m = pb_trainer_model(t);
    const char *const names[] = {"residual1", "residual2", "dt", "dt_a", "qkv"};
    float *before[5];
    for (int i = 0; i < 5; i++) {
        char name[48];
        snprintf(name, sizeof name, "layers.1.%s", names[i]);
        const pb_param *p = param_named(m, name);
        assert_false(p->trained);
        before[i] = test_fetch(ctx, p->w, pb_param_n(p) * sizeof(float));
    }
    CHECK_OK(pb_train_step(ctx, t));
    for (int i = 0; i < 5; i++) {
        char name[48];
        snprintf(name, sizeof name, "layers.1.%s", names[i]);
        const pb_param *p = param_named(m, name);
        float *after = test_fetch(ctx, p->w, pb_param_n(p) * sizeof(float));
        assert_memory_equal(before[i], after, pb_param_n(p) * sizeof(float));
        free(before[i]), free(after);
    }
    assert_true(param_named(m, "layers.1.norm1")->trained && param_named(m, "layers.1.lora_b.q")->trained);
    pb_trainer_close(t);
}

static void settings_of_other_families_are_refused(void **state)
{
    pb_trainer *t = NULL;
    pb_train_config c = config("tiny", PB_FULL);
    c.attention = PB_ATTENTION_UNION;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "tiny has no dynamic-mask attention");
    c = config("v4-tiny", PB_FULL), c.attention = PB_ATTENTION_UNION;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "v4-tiny has no dynamic-mask attention");
    c = config("doge-tiny", PB_FULL), c.kv_qat = PB_KV_QAT_F32;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "doge-tiny has no FP8 keys");
    c = config("doge-tiny", PB_FULL), c.attention = PB_ATTENTION_UNION;
    c.B = 1, c.model.frozen = true, c.cached = true;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "which generation does not have");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sparse_leaves_out_keys_beyond_its_window),
        cmocka_unit_test(only_union_depends_on_later_tokens),
        cmocka_unit_test(adapters_leave_biases_and_factors_frozen),
        cmocka_unit_test(settings_of_other_families_are_refused),
    };
    return cmocka_run_group_tests(tests, test_open_device, test_close);
}
