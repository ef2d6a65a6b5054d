/* trainer_test.c - tests of whole training steps: they equal PyTorch's, also as a graph, with accumulated gradients and
 * with a quantised base, and the loss falls. */
#include "kernels/nf4/nf4.h"
#include "tests/trainer/step/trainer_fixture.h"

/* ---- comparison with PyTorch ---------------------------------------------------------------------- */

/* loss_chunk: see pb_train_config. */
static void compare_with_pytorch(pb_ctx *ctx, int loss_chunk)
{
    char line[256], model[32], tuning[8], what[48], open_as[48] = "";
    double norm, product;
    pb_trainer *t = NULL;
    int checked = 0;
    FILE *f = fopen(PB_FIXTURES "/model.csv", "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    while (fgets(line, sizeof line, f)) {
        char as[48];
        if (sscanf(line, "%31[^,],%7[^,],%47[^,],%lf,%lf", model, tuning, what, &norm, &product) != 5)
            fail_msg("%s", line);
        snprintf(as, sizeof as, "%s/%s", model, tuning);
        if (strcmp(as, open_as) != 0) { /* the following lines of the fixture are results of another model or tuning */
            pb_train_config c = config(model, strcmp(tuning, "full") == 0 ? PB_FULL : PB_LORA);
            c.clip = PB_CLIP_MULTI;
            c.max_norm = 0.05f;
            c.loss_chunk = loss_chunk;
            pb_trainer_close(t);
            t = open_fixture(ctx, &c);
            memcpy(open_as, as, sizeof as);
        }
        if (strncmp(what, "loss", 4) == 0) {
            if (what[4] != '0') run_phases(ctx, t, PB_PHASE_clip, PB_PHASE_optimizer);
            run_phases(ctx, t, PB_PHASE_forward, PB_PHASE_backward);
            CHECK_NEAR(loss_of(t), norm, 2e-5);
        } else {
            check_gradient(ctx, param_named(pb_trainer_model(t), what), norm, product);
        }
        checked++;
    }
    fclose(f);
    pb_trainer_close(t);
    assert_true(checked > 150);
}

static void matches_pytorch(void **state) { compare_with_pytorch(*state, 0); }
static void matches_pytorch_in_chunks(void **state) { compare_with_pytorch(*state, 5); }

/* Loss and gradients equal those of a trainer on the CPU in which every op uses its reference implementation. */
static void reference_ops_agree(void **state)
{
    static const char *const models[] = {"tiny", "tiny-qwen3", "tiny-llama", "doge-tiny"};
    pb_ctx *ctx = *state, cpu;
    CHECK_OK(pb_ctx_open(&cpu, PB_CPU, 0));
    cpu.impl = "ref";
    for (int i = 0; i < 8; i++) {
        size_t n;
        pb_train_config c = config(models[i / 2], i % 2 ? PB_QLORA : PB_FULL);
        pb_trainer *fast = open_fixture(ctx, &c), *ref = open_fixture(&cpu, &c);
        run_phases(ctx, fast, PB_PHASE_forward, PB_PHASE_backward);
        run_phases(&cpu, ref, PB_PHASE_forward, PB_PHASE_backward);
        CHECK_NEAR(loss_of(fast), loss_of(ref), 2e-6);
        float *a = snapshot(ref, true, &n), *b = snapshot(fast, true, &n);
        pb_diff d = pb_diff_arrays(a, b, n, PB_F32);
        if (!pb_diff_ok(&d, 2e-5)) fail_msg("%s: gradients differ by %g (max %g)", models[i / 2], d.rel, d.max);
        free(a), free(b);
        pb_trainer_close(fast), pb_trainer_close(ref);
    }
    pb_ctx_close(&cpu);
}

/* ---- graphs equal eager steps ------------------------------------------------------------------------ */

static void graph_equals_eager_over_ten_steps(void **state)
{
    pb_ctx *ctx = *state;
    static const pb_clip_variant variants[] = {PB_CLIP_FUSED, PB_CLIP_MULTI};
    ctx->deterministic = true;
    for (int i = 0; i < 4; i++) {
        pb_train_config c = config(i == 1 ? "doge-tiny" : "tiny", i % 2 ? PB_FULL : PB_QLORA);
        c.model.dtype = i / 2 ? PB_BF16 : PB_F32;
        c.clip = variants[i % 2];
        c.max_norm = 0.1f;
        pb_trainer *eager = open_fixture(ctx, &c), *graphed = open_fixture(ctx, &c);
        pb_graph *g = NULL;
        size_t n;
        CHECK_OK(pb_train_step(ctx, eager)); /* sizes the scratch memory */
        CHECK_OK(pb_train_step(ctx, graphed));
        CHECK_OK(pb_record(ctx, pb_train_step, graphed, &g));
        for (int step = 0; step < 10; step++) {
            const float lr = 1e-3f / (float)(step + 1);
            CHECK_OK(pb_trainer_set_lr(eager, lr));
            CHECK_OK(pb_trainer_set_lr(graphed, lr));
            fixture_batch(eager, 0, B, step + 10);
            fixture_batch(graphed, 0, B, step + 10);
            CHECK_OK(pb_train_step(ctx, eager));
            CHECK_OK(pb_replay(ctx, g));
        }
        float *a = snapshot(eager, false, &n), *b = snapshot(graphed, false, &n);
        assert_same(a, b, n);
        pb_graph_free(ctx, g);
        pb_trainer_close(eager), pb_trainer_close(graphed);
    }
    ctx->deterministic = false;
}

static void synchronous_clip_cannot_be_recorded(void **state)
{
    pb_ctx *ctx = *state;
    pb_train_config c = config("tiny", PB_LORA);
    c.clip = PB_CLIP_SYNC;
    pb_trainer *t = open_fixture(ctx, &c);
    pb_graph *g = NULL;
    CHECK_OK(pb_train_step(ctx, t));
    CHECK_FAILS(pb_record(ctx, pb_backward_and_clip, t, &g), PB_EUNSUPPORTED, "a host read cannot be recorded");
    CHECK_OK(pb_train_step(ctx, t)); /* the next step runs */
    pb_trainer_close(t);
}

static void backward_can_be_repeated(void **state)
{
    pb_ctx *ctx = *state;
    size_t n;
    pb_train_config c = config("tiny-qwen3", PB_FULL);
    pb_trainer *t = open_fixture(ctx, &c);
    run_phases(ctx, t, PB_PHASE_forward, PB_PHASE_backward);
    float *a = snapshot(t, true, &n);
    CHECK_OK(pb_phase_backward(ctx, t));
    assert_same(a, snapshot(t, true, &n), n);
    pb_trainer_close(t);
}

/* ---- accumulated gradients, NF4 bases, f32 and bf16 weights, falling loss ----------------------------------- */

static void accumulated_halves_equal_the_whole(void **state)
{
    pb_ctx *ctx = *state;
    static const pb_tuning tunings[] = {PB_FULL, PB_LORA, PB_FULL};
    for (int i = 0; i < 3; i++) {
        pb_train_config c = config(i < 2 ? "tiny-qwen3" : "doge-tiny", tunings[i]);
        double count = 0;
        size_t n;
        pb_trainer *whole = open_fixture(ctx, &c);
        c.B = 1;
        pb_trainer *half = open_trainer(ctx, &c);
        for (uint64_t k = 0; k < T; k++) count += pb_uniform(3, k) < 0.7;
        run_phases(ctx, whole, PB_PHASE_forward, PB_PHASE_backward);
        for (int b = 0; b < B; b++) {
            fixture_batch(half, b, 1, count);
            pb_trainer_accumulate(half, b > 0);
            run_phases(ctx, half, PB_PHASE_forward, PB_PHASE_backward);
        }
        float *x = snapshot(whole, true, &n), *y = snapshot(half, true, &n);
        pb_diff d = pb_diff_arrays(x, y, n, PB_F32);
        if (!pb_diff_ok(&d, 1e-6)) fail_msg("gradients differ by %g (max %g)", d.rel, d.max);
        free(x), free(y);
        pb_trainer_close(whole), pb_trainer_close(half);
    }
}

/* QLoRA equals LoRA on dequantised weights: equal loss, equal gradients. Returns the loss. */
static double check_qlora(pb_ctx *ctx, bool narrow_scales)
{
    pb_train_config c = config("tiny", PB_QLORA);
    size_t n;
    c.model.nf4_double = narrow_scales;
    pb_trainer *q = open_fixture(ctx, &c);
    c.model.tuning = PB_LORA;
    c.model.nf4_double = false;
    pb_trainer *l = open_fixture(ctx, &c);
    run_phases(ctx, l, PB_PHASE_forward, PB_PHASE_loss);
    const double exact = loss_of(l);
    int replaced = 0;
    for (int i = 0; i < pb_trainer_model(q)->n; i++) {
        const pb_param *from = &pb_trainer_model(q)->params[i], *to = param_named(pb_trainer_model(l), from->name);
        if (!from->q) continue;
        assert_null(from->w);
        CHECK_OK(pb_nf4_dequantize(
            ctx, &(pb_nf4_dequantize_args){from->q, from->scales, to->w, pb_param_n(from), to->dtype}));
        replaced++;
    }
    assert_int_equal(replaced, 2 * 4);
    run_phases(ctx, q, PB_PHASE_forward, PB_PHASE_backward);
    run_phases(ctx, l, PB_PHASE_forward, PB_PHASE_backward);
    CHECK_NEAR(loss_of(q), loss_of(l), 1e-5);
    assert_true(fabs(loss_of(q) - exact) > 1e-6); /* quantisation changed the weights */
    float *x = snapshot(l, true, &n), *y = snapshot(q, true, &n);
    pb_diff d = pb_diff_arrays(x, y, n, PB_F32);
    if (!pb_diff_ok(&d, 1e-5)) fail_msg("gradients differ by %g (max %g)", d.rel, d.max);
    const double loss = loss_of(q);
    free(x), free(y);
    pb_trainer_close(q), pb_trainer_close(l);
    return loss;
}

static void qlora_equals_lora_on_dequantised_weights(void **state)
{
    pb_train_config c = config("tiny", PB_LORA);
    pb_trainer *t = NULL;
    assert_true(check_qlora(*state, false) != check_qlora(*state, true));
    c.model.nf4_double = true;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "double quantisation needs the tuning qlora");
}

static void bf16_follows_f32(void **state)
{
    pb_ctx *ctx = *state;
    double loss[2];
    for (int i = 0; i < 2; i++) {
        pb_train_config c = config("tiny", PB_FULL);
        c.model.dtype = i ? PB_BF16 : PB_F32;
        pb_trainer *t = open_fixture(ctx, &c);
        for (int step = 0; step < 20; step++) CHECK_OK(pb_train_step(ctx, t));
        loss[i] = loss_of(t);
        pb_trainer_close(t);
    }
    CHECK_NEAR(loss[1], loss[0], 0.03);
}

/* An f32 model with `as_bf16` gets exactly the values of a bf16 model (equal NF4 codes, equal other weights), so that
 * its results can be compared with those of the bf16 model. */
static void an_f32_model_can_hold_the_values_of_a_bf16_one(void **state)
{
    const pb_geometry *g;
    pb_model narrow, wide;
    size_t codes = 0;
    CHECK_OK(pb_geometry_find("tiny", &g));
    pb_model_config c = pb_train_defaults(g).model;
    c.tuning = PB_QLORA, c.dtype = PB_BF16, c.random_b = true;
    CHECK_OK(pb_model_open(*state, &c, &narrow));
    c.dtype = PB_F32, c.as_bf16 = true;
    CHECK_OK(pb_model_open(*state, &c, &wide));
    for (int i = 0; i < wide.n; i++) {
        const pb_param *a = &narrow.params[i], *b = &wide.params[i];
        const size_t n = pb_param_n(a);
        void *x = test_fetch(*state, a->q ? a->q : a->w, a->q ? (n + 1) / 2 : n * pb_dtype_size(a->dtype));
        void *y = test_fetch(*state, b->q ? b->q : b->w, b->q ? (n + 1) / 2 : n * pb_dtype_size(b->dtype));
        if (a->q) assert_memory_equal(x, y, (n + 1) / 2);
        if (a->q) codes += n;
        for (size_t k = 0; !a->q && k < n; k++) CHECK_NEAR(pb_load(y, k, b->dtype), pb_load(x, k, a->dtype), 0);
        free(x), free(y);
    }
    assert_true(codes > 0);
    pb_model_close(&narrow), pb_model_close(&wide);
}

static void every_tuning_learns_a_batch(void **state)
{
    pb_ctx *ctx = *state;
    for (int tuning = 0; tuning < PB_NTUNINGS; tuning++) {
        pb_train_config c = config("tiny", (pb_tuning)tuning);
        c.model.random_b = false;
        c.lr = 1e-2f;
        pb_trainer *t = open_fixture(ctx, &c);
        CHECK_OK(pb_train_step(ctx, t));
        const double first = loss_of(t);
        for (int i = 0; i < 60; i++) CHECK_OK(pb_train_step(ctx, t));
        /* Targets are random, so adapters of rank 4 on a frozen base can learn only part of them. */
        if (!(loss_of(t) < (tuning == PB_FULL ? 0.5 : 0.85) * first))
            fail_msg("tuning %d: loss %g after %g", tuning, loss_of(t), first);
        pb_trainer_close(t);
    }
}

static void defaults_are_those_of_the_header(void **state)
{
    const pb_train_config c = pb_train_defaults(pb_geometries);
    (void)state;
    assert_true(c.model.tuning == PB_LORA && c.model.rank == 16 && c.model.alpha == 32 && c.model.dtype == PB_F32);
    assert_int_equal(c.model.targets, 1u << PB_TARGET_Q | 1u << PB_TARGET_V);
    assert_true(c.model.seed == 42 && c.B == 1 && c.S == 128 && c.clip == PB_CLIP_FUSED && c.max_norm == 1);
    assert_true(c.lr == 1e-4f && c.beta1 == 0.9f && c.beta2 == 0.999f && c.eps == 1e-8f);
    assert_true(c.weight_decay == 0.01f && c.loss_scale == 1);
}

static void invalid_configurations_are_refused(void **state)
{
    pb_train_config c = config("tiny", PB_LORA);
    pb_trainer *t = NULL;
    const pb_geometry *g;
    CHECK_FAILS(pb_geometry_find("tinny", &g), PB_EINVAL, "tiny, tiny-qwen3");
    c.S = 4096;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "seq 4096");
    c.S = S, c.B = 0;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "batch 0");
    c.B = B, c.model.rank = 0;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "rank 0");
    c.model.rank = 4, c.model.layers = 3;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "layers 3");
    c.model.layers = 1, c.max_norm = NAN;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "max norm");
    c.max_norm = 1;
    t = open_trainer(*state, &c);
    int32_t ids[T] = {0, 272}, targets[T] = {0};
    float mask[T] = {1};
    CHECK_FAILS(pb_trainer_set_batch(t, &(pb_batch){ids, targets, mask, 0}), PB_EINVAL, "id 272 of token 1");
    ids[1] = 0, targets[0] = -1;
    CHECK_FAILS(pb_trainer_set_batch(t, &(pb_batch){ids, targets, mask, 0}), PB_EINVAL, "target -1 of token 0");
    pb_trainer_close(t);
}

/* Returns the bytes of the moments of `tiny` in a format. */
static double moments_of(pb_ctx *ctx, pb_adamw_format format)
{
    pb_train_config c = config("tiny", PB_FULL);
    c.model.moments = format;
    pb_trainer *t = open_trainer(ctx, &c);
    const double bytes = (double)pb_trainer_memory(t).moments;
    pb_trainer_close(t);
    return bytes;
}

/* Moments in 8 bits are those of trained tensors from 4096 elements on. */
static void moments_have_the_size_of_their_format(void **state)
{
    pb_train_config c = config("tiny", PB_FULL);
    c.model.moments = PB_ADAMW_8BIT;
    pb_trainer *t = open_trainer(*state, &c);
    const pb_model *m = pb_trainer_model(t);
    int narrow = 0;
    for (int i = 0; i < m->n; i++) {
        const pb_param *p = &m->params[i];
        const bool large = p->trained && pb_param_n(p) >= 4096;
        assert_int_equal(p->moments, large ? PB_ADAMW_8BIT : PB_ADAMW_F32);
        narrow += large;
    }
    assert_true(narrow > 0 && narrow < m->n);
    pb_trainer_close(t);
    /* bf16 has 2 of 4 bytes, 8 bits 1 + 4/256 of 4. The bound leaves room for alignment and small tensors in f32. */
    const double f32 = moments_of(*state, PB_ADAMW_F32);
    assert_true(fabs(moments_of(*state, PB_ADAMW_BF16) / f32 - 0.5) < 0.05);
    assert_true(fabs(moments_of(*state, PB_ADAMW_8BIT) / f32 - 65.0 / 256) < 0.05);
    c.optimizer = PB_OPTIMIZER_NORMUON;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "need the optimizer adamw");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_pytorch),
        cmocka_unit_test(matches_pytorch_in_chunks),
        cmocka_unit_test(reference_ops_agree),
        cmocka_unit_test(graph_equals_eager_over_ten_steps),
        cmocka_unit_test(synchronous_clip_cannot_be_recorded),
        cmocka_unit_test(backward_can_be_repeated),
        cmocka_unit_test(accumulated_halves_equal_the_whole),
        cmocka_unit_test(qlora_equals_lora_on_dequantised_weights),
        cmocka_unit_test(bf16_follows_f32),
        cmocka_unit_test(an_f32_model_can_hold_the_values_of_a_bf16_one),
        cmocka_unit_test(every_tuning_learns_a_batch),
        cmocka_unit_test(defaults_are_those_of_the_header),
        cmocka_unit_test(invalid_configurations_are_refused),
        cmocka_unit_test(moments_have_the_size_of_their_format),
    };
    return cmocka_run_group_tests(tests, test_open_device, test_close);
}
