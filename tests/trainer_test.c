/* trainer_test.c - the training step as a whole: against PyTorch, against itself as a graph, in every clip
 * arm, and where numbers are not finite. */
#include <stdlib.h>
#include <string.h>

#include "kernels/core/bind.h"
#include "kernels/nf4/nf4.h"
#include "tests/test.h"
#include "trainer/trainer.h"

enum { B = 2, S = 17, T = B * S };

static pb_train_config config(const char *model, pb_tuning tuning)
{
    const pb_geometry *g;
    CHECK_OK(pb_geometry_find(model, &g));
    pb_train_config c = pb_train_defaults(g);
    c.model.tuning = tuning;
    c.model.rank = 4;
    c.model.alpha = 8;
    c.model.random_b = true;
    c.model.targets = (1u << PB_NTARGETS) - 1;
    c.B = B;
    c.S = S;
    c.lr = 1e-3f;
    return c;
}

static pb_trainer *open_trainer(pb_ctx *ctx, const pb_train_config *c)
{
    pb_trainer *t = NULL;
    CHECK_OK(pb_trainer_open(ctx, c, &t));
    return t;
}

/* The batch of scripts/fixtures/model_fixtures.py, rows first..first+rows-1 of B. */
static void fixture_batch(pb_trainer *t, int first, int rows, double count)
{
    const int V = pb_trainer_model(t)->g.V;
    int32_t ids[T], targets[T];
    float mask[T];
    for (int i = 0; i < rows * S; i++) {
        const uint64_t at = (uint64_t)(first * S + i);
        ids[i] = (int32_t)(pb_uniform(1, at) * V);
        targets[i] = (int32_t)(pb_uniform(2, at) * V);
        mask[i] = pb_uniform(3, at) < 0.7;
    }
    CHECK_OK(pb_trainer_set_batch(t, &(pb_batch){ids, targets, mask, count}));
}

static pb_trainer *open_fixture(pb_ctx *ctx, const pb_train_config *c)
{
    pb_trainer *t = open_trainer(ctx, c);
    fixture_batch(t, 0, B, 0);
    return t;
}

static void run_phases(pb_ctx *ctx, pb_trainer *t, int first, int last)
{
    for (int i = first; i <= last; i++) CHECK_OK(pb_phases[i](ctx, t));
}

static double loss_of(pb_trainer *t)
{
    double loss;
    CHECK_OK(pb_trainer_loss(t, &loss));
    return loss;
}

/* A copy of all gradients, weights or moments behind each other: what a step may change. */
static float *snapshot(pb_trainer *t, bool gradients, size_t *n)
{
    const pb_model *m = pb_trainer_model(t);
    float *all = calloc(m->trained * 3, sizeof *all), *at = all;
    assert_non_null(all);
    for (int i = 0; i < m->n; i++) {
        const pb_param *p = &m->params[i];
        const void *const parts[3] = {gradients ? p->grad : p->w, p->m, p->v};
        for (int k = 0; p->trained && k < (gradients ? 1 : 3); k++) {
            const size_t bytes = pb_param_n(p) * (k ? 4 : gradients ? 4 : pb_dtype_size(p->dtype));
            CHECK_OK(pb_download(m->ctx, at, parts[k], bytes));
            at += pb_param_n(p);
        }
    }
    *n = (size_t)(at - all);
    return all;
}

static void assert_same(float *a, float *b, size_t n)
{
    assert_memory_equal(a, b, n * sizeof *a);
    free(a);
    free(b);
}

/* ---- against PyTorch ------------------------------------------------------------------------------ */

static const pb_param *param_named(const pb_model *m, const char *name)
{
    for (int i = 0; i < m->n; i++)
        if (strcmp(m->params[i].name, name) == 0) return &m->params[i];
    fail_msg("the model has no parameter %s", name);
    return NULL;
}

static void check_gradient(const pb_param *p, double norm, double product)
{
    double sum = 0, dot = 0;
    for (size_t i = 0; i < pb_param_n(p); i++) {
        sum += (double)p->grad[i] * (double)p->grad[i];
        dot += (double)p->grad[i] * (2 * pb_uniform(99, i) - 1);
    }
    if (!(fabs(sqrt(sum) - norm) <= 2e-5 * norm) || !(fabs(dot - product) <= 2e-5 * norm))
        fail_msg("%s: |grad| %.9g and <grad,fixed> %.9g, PyTorch has %.9g and %.9g", p->name, sqrt(sum), dot, norm,
                 product);
}

static void matches_pytorch(void **state)
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
        if (strcmp(as, open_as) != 0) { /* a new model */
            pb_train_config c = config(model, strcmp(tuning, "full") == 0 ? PB_FULL : PB_LORA);
            c.clip = PB_CLIP_MULTI;
            c.max_norm = 0.05f;
            pb_trainer_close(t);
            t = open_fixture(*state, &c);
            strcpy(open_as, as);
        }
        if (strncmp(what, "loss", 4) == 0) {
            if (what[4] != '0') run_phases(*state, t, PB_PHASE_clip, PB_PHASE_optimizer);
            run_phases(*state, t, PB_PHASE_forward, PB_PHASE_backward);
            CHECK_NEAR(loss_of(t), norm, 2e-5);
        } else {
            check_gradient(param_named(pb_trainer_model(t), what), norm, product);
        }
        checked++;
    }
    fclose(f);
    pb_trainer_close(t);
    assert_true(checked > 150);
}

/* The same model with the reference implementation of every op: the fast ones change nothing. */
static void reference_ops_agree(void **state)
{
    pb_ctx *ctx = *state;
    size_t n;
    pb_train_config c = config("tiny-qwen3", PB_FULL);
    pb_trainer *fast = open_fixture(ctx, &c), *ref = open_fixture(ctx, &c);
    run_phases(ctx, fast, PB_PHASE_forward, PB_PHASE_backward);
    ctx->impl = "ref";
    run_phases(ctx, ref, PB_PHASE_forward, PB_PHASE_backward);
    ctx->impl = NULL;
    float *a = snapshot(ref, true, &n), *b = snapshot(fast, true, &n);
    pb_diff d = pb_diff_arrays(a, b, n, PB_F32);
    if (!pb_diff_ok(&d, 2e-5)) fail_msg("gradients differ by %g (max %g)", d.rel, d.max);
    free(a), free(b);
    pb_trainer_close(fast), pb_trainer_close(ref);
}

/* ---- graphs ------------------------------------------------------------------------------------------ */

static void graph_equals_eager_over_ten_steps(void **state)
{
    pb_ctx *ctx = *state;
    static const pb_clip_arm arms[] = {PB_CLIP_FUSED, PB_CLIP_MULTI};
    for (int i = 0; i < 2; i++) {
        pb_train_config c = config("tiny", i ? PB_FULL : PB_QLORA);
        c.clip = arms[i];
        c.max_norm = 0.1f;
        pb_trainer *eager = open_fixture(ctx, &c), *graphed = open_fixture(ctx, &c);
        pb_graph *g = NULL;
        size_t n;
        CHECK_OK(pb_train_step(ctx, eager)); /* sizes the scratch */
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
    CHECK_OK(pb_train_step(ctx, t)); /* and the next step runs */
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

/* ---- clipping -------------------------------------------------------------------------------------------- */

static double joint_norm(pb_trainer *t, int layer)
{
    const pb_model *m = pb_trainer_model(t);
    double sum = 0;
    for (int i = 0; i < m->n; i++)
        for (size_t k = 0; m->params[i].trained && m->params[i].layer == layer && k < pb_param_n(&m->params[i]); k++)
            sum += (double)m->params[i].grad[k] * (double)m->params[i].grad[k];
    return sqrt(sum);
}

static void clip_bounds_each_layers_joint_norm(void **state)
{
    pb_ctx *ctx = *state;
    for (int arm = PB_CLIP_SYNC; arm <= PB_CLIP_FUSED; arm++) {
        pb_train_config c = config("tiny", PB_LORA);
        double before[2];
        pb_clip_state states[3];
        c.clip = (pb_clip_arm)arm;
        c.max_norm = 1e-3f; /* far below any layer's norm: all are clipped */
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

/* Six gradients a layer with adapters on q and v: A_q, B_q, A_v, B_v and both gains. */
static void clip_arms_cost_what_they_say(void **state)
{
    static const struct {
        pb_clip_arm arm;
        unsigned launches, waits; /* of one layer */
    } want[] = {{PB_CLIP_SYNC, 6 + 6, 6}, {PB_CLIP_FUSED, 6 + 1 + 6, 0}};
    pb_ctx *ctx = *state;
    pb_train_config c = config("tiny", PB_LORA);
    c.model.targets = 1u << PB_TARGET_Q | 1u << PB_TARGET_V;
    c.max_norm = 1e-3f;
    pb_trainer *t = open_fixture(ctx, &c);
    CHECK_OK(pb_train_step(ctx, t));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(pb_trainer_set_clip(t, want[i].arm, 1e-3f));
        CHECK_OK(pb_phase_backward(ctx, t));
        const pb_counts a = ctx->counts;
        CHECK_OK(pb_phase_clip(ctx, t));
        assert_int_equal(ctx->counts.launches - a.launches, 2 * want[i].launches);
        assert_int_equal(ctx->counts.waits - a.waits, 2 * want[i].waits);
    }
    CHECK_OK(pb_trainer_set_clip(t, PB_CLIP_MULTI, 1e-3f));
    const pb_counts a = ctx->counts;
    CHECK_OK(pb_phase_clip(ctx, t));
    assert_int_equal(ctx->counts.launches - a.launches, 1);
    assert_int_equal(ctx->counts.waits - a.waits, 0);
    pb_trainer_close(t);
}

static void poison_embedding(pb_trainer *t)
{
    float *w = pb_trainer_model(t)->outer[PB_P_embed]->w;
    for (int i = 0; i < pb_trainer_model(t)->g.D * 64; i++) w[i] = NAN;
}

static void non_finite_norm_skips_the_step(void **state)
{
    pb_ctx *ctx = *state;
    for (int arm = PB_CLIP_SYNC; arm <= PB_CLIP_MULTI; arm++) {
        pb_train_config c = config("tiny", PB_LORA);
        pb_adamw_state st;
        size_t n;
        c.clip = (pb_clip_arm)arm;
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

static void empty_mask_learns_nothing(void **state)
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

/* ---- accumulation, quantisation, precision, learning -------------------------------------------------------- */

static void accumulated_halves_equal_the_whole(void **state)
{
    pb_ctx *ctx = *state;
    static const pb_tuning tunings[] = {PB_FULL, PB_LORA};
    for (int i = 0; i < 2; i++) {
        pb_train_config c = config("tiny-qwen3", tunings[i]);
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

/* QLoRA is LoRA on the dequantised weights: same loss, same gradients. */
static void qlora_equals_lora_on_dequantised_weights(void **state)
{
    pb_ctx *ctx = *state;
    pb_train_config c = config("tiny", PB_QLORA);
    size_t n;
    pb_trainer *q = open_fixture(ctx, &c);
    c.model.tuning = PB_LORA;
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
    assert_true(fabs(loss_of(q) - exact) > 1e-6); /* quantisation did something */
    float *x = snapshot(l, true, &n), *y = snapshot(q, true, &n);
    pb_diff d = pb_diff_arrays(x, y, n, PB_F32);
    if (!pb_diff_ok(&d, 1e-5)) fail_msg("gradients differ by %g (max %g)", d.rel, d.max);
    free(x), free(y);
    pb_trainer_close(q), pb_trainer_close(l);
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
        /* Targets are random; adapters of rank 4 on a frozen base can learn only part of them. */
        if (!(loss_of(t) < (tuning == PB_FULL ? 0.5 : 0.85) * first))
            fail_msg("tuning %d: loss %g after %g", tuning, loss_of(t), first);
        pb_trainer_close(t);
    }
}

static void bad_configurations_are_named(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_pytorch),
        cmocka_unit_test(reference_ops_agree),
        cmocka_unit_test(graph_equals_eager_over_ten_steps),
        cmocka_unit_test(synchronous_clip_cannot_be_recorded),
        cmocka_unit_test(backward_can_be_repeated),
        cmocka_unit_test(clip_bounds_each_layers_joint_norm),
        cmocka_unit_test(clip_arms_cost_what_they_say),
        cmocka_unit_test(non_finite_norm_skips_the_step),
        cmocka_unit_test(empty_mask_learns_nothing),
        cmocka_unit_test(accumulated_halves_equal_the_whole),
        cmocka_unit_test(qlora_equals_lora_on_dequantised_weights),
        cmocka_unit_test(bf16_follows_f32),
        cmocka_unit_test(every_tuning_learns_a_batch),
        cmocka_unit_test(bad_configurations_are_named),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
