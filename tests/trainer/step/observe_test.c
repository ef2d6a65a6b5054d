/* observe_test.c - tests gradients of activations that the backward pass reports: which ones, in what order, and that
 * the gradients of weights and of other activations are products of them; and activations that are computed again. */
#include "tests/trainer/step/trainer_fixture.h"
#include "trainer/step/graphs.h"
#include "trainer/step/trainer_impl.h"

enum { MOST = 400 };

/* Copies of tensors. */
typedef struct copies {
    pb_tensor x[MOST];
    float *value[MOST];
    int n;
} copies;

static pb_status keep(void *self, const pb_tensor *x)
{
    copies *c = self;
    const size_t n = x->rows * x->cols;
    if (x->dtype != PB_F32 || strstr(x->name, ".momentum")) return PB_OK;
    assert_true(c->n < MOST);
    c->x[c->n] = *x;
    c->value[c->n] = malloc(n * sizeof(float));
    assert_non_null(c->value[c->n]);
    memcpy(c->value[c->n++], x->p, n * sizeof(float)); /* of the CPU backend */
    return PB_OK;
}

static int find(const copies *c, const char *name)
{
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->x[i].name, name) == 0) return i;
    fail_msg("there is no %s", name);
    return -1;
}

/* All tensors of a step, the weights as they were before it. */
static copies step_of(pb_trainer *t)
{
    copies c = {.n = 0};
    CHECK_OK(pb_phase_forward(t->ctx, t));
    CHECK_OK(pb_phase_loss(t->ctx, t));
    pb_trainer_observe(t, keep, &c, true);
    CHECK_OK(pb_phase_backward(t->ctx, t));
    CHECK_OK(pb_trainer_tensors(t, keep, &c));
    pb_trainer_observe(t, NULL, NULL, false);
    return c;
}

static void drop(copies *c)
{
    for (int i = 0; i < c->n; i++) free(c->value[i]);
}

/* Checks want = a^T b (transposed) or a b, in double precision. */
static void check_product(const copies *c, const char *a, const char *b, const char *want, bool transposed)
{
    const int i = find(c, a), k = find(c, b), w = find(c, want);
    const pb_tensor *x = &c->x[i], *y = &c->x[k], *z = &c->x[w];
    const size_t rows = transposed ? x->cols : x->rows, inner = transposed ? x->rows : x->cols;
    double sum = 0, norm = 0;
    assert_int_equal(inner, y->rows);
    assert_true(z->rows == rows && z->cols == y->cols);
    for (size_t r = 0; r < rows; r++)
        for (size_t col = 0; col < y->cols; col++) {
            double p = 0;
            for (size_t n = 0; n < inner; n++)
                p += (double)c->value[i][transposed ? n * x->cols + r : r * x->cols + n] *
                     (double)c->value[k][n * y->cols + col];
            const double d = p - (double)c->value[w][r * y->cols + col];
            sum += d * d;
            norm += p * p;
        }
    if (!(norm > 0 && sqrt(sum / norm) < 1e-5)) fail_msg("%s is not the product of %s and %s", want, a, b);
}

static void other_gradients_are_products_of_them(void **state)
{
    pb_train_config c = config("tiny-qwen3", PB_FULL);
    pb_trainer *t = open_fixture(*state, &c);
    copies all = step_of(t);
    for (int layer = 0; layer < t->model.g.L; layer++) {
        char n[6][40];
#define NAME(i, part) (snprintf(n[i], sizeof n[i], "layers.%d." part, layer), n[i])
        check_product(&all, NAME(0, "grad_qkv"), NAME(1, "n1"), NAME(2, "qkv.gradient"), true);
        check_product(&all, NAME(0, "grad_qkv"), NAME(1, "qkv.weight"), NAME(2, "grad_n1"), false);
        check_product(&all, NAME(0, "grad_hm"), NAME(1, "o"), NAME(2, "o.gradient"), true);
        check_product(&all, NAME(0, "grad_hm"), NAME(1, "o.weight"), NAME(2, "grad_o"), false);
        check_product(&all, NAME(0, "grad_gu"), NAME(1, "n2"), NAME(2, "gate_up.gradient"), true);
        check_product(&all, NAME(0, "grad_gu"), NAME(1, "gate_up.weight"), NAME(2, "grad_n2"), false);
        snprintf(n[3], sizeof n[3], "layers.%d.grad_h", layer + 1); /* the gradient of the layer's output */
        check_product(&all, layer + 1 < t->model.g.L ? n[3] : "grad_hf", NAME(1, "down.weight"), NAME(2, "grad_act"),
                      false);
#undef NAME
    }
    check_product(&all, "logits", t->model.g.tied ? "embed.weight" : "head.weight", "grad_nf", false);
    drop(&all);
    pb_trainer_close(t);
}

/* The gradient of a row of an embedding that is not tied is the sum of grad_h over the tokens that read it. */
static void grad_h_of_layer_0_sums_to_the_embedding_gradient(void **state)
{
    pb_train_config c = config("tiny-llama", PB_FULL);
    pb_trainer *t = open_fixture(*state, &c);
    copies all = step_of(t);
    assert_false(t->model.g.tied);
    const int h = find(&all, "layers.0.grad_h"), e = find(&all, "embed.gradient");
    const size_t D = all.x[h].cols;
    for (int i = 0; i < t->T; i++)
        for (size_t k = 0; k < D; k++) all.value[e][(size_t)t->ids[i] * D + k] -= all.value[h][(size_t)i * D + k];
    for (size_t i = 0; i < all.x[e].rows * D; i++) CHECK_NEAR(all.value[e][i], 0, 1e-7);
    drop(&all);
    pb_trainer_close(t);
}

static void all_are_reported_in_the_order_of_the_backward_pass(void **state)
{
    static const char *const gqa[] = {"grad_act", "grad_gu",  "grad_n2", "grad_hm",
                                      "grad_o",   "grad_qkv", "grad_n1", "grad_h"};
    static const char *const v4[] = {"grad_act", "grad_gu",     "grad_n2", "grad_hm", "grad_o",
                                     "grad_q",   "grad_latent", "grad_n1", "grad_h"};
    static const char *const models[] = {"tiny", "doge-tiny", "v4-tiny"};
    for (int m = 0; m < 3; m++) {
        const bool is_v4 = m == 2;
        const int each = is_v4 ? 9 : 8;
        pb_train_config c = config(models[m], PB_FULL);
        c.recompute = PB_RECOMPUTE_LAYER;
        pb_trainer *t = open_fixture(*state, &c);
        copies all = step_of(t);
        assert_string_equal(all.x[0].name, "grad_nf");
        assert_string_equal(all.x[1].name, "grad_hf");
        int at = 2;
        for (int i = 0; i < each * t->model.g.L; i++, at++) {
            char want[40];
            while (!strstr(all.x[at].name, ".grad_")) at++; /* an activation that was computed again */
            const pb_tensor *x = &all.x[at];
            const int layer = t->model.g.L - 1 - i / each;
            snprintf(want, sizeof want, "layers.%d.%s", layer, is_v4 ? v4[i % each] : gqa[i % each]);
            assert_string_equal(x->name, want);
            assert_int_equal(x->layer, layer);
            assert_true(x->by_token && *x->ops && x->rows == (size_t)t->T);
        }
        assert_string_equal(all.x[at].name, "hf"); /* the first that is not of a layer */
        drop(&all);
        pb_trainer_close(t);
    }
}

/* Every activation of every layer is given once, with the values that it has when nothing is computed again. */
static void activations_that_are_computed_again_are_given_for_every_layer(void **state)
{
    static const char *const models[] = {"tiny", "tiny-qwen3", "doge-tiny", "v4-tiny"};
    for (int m = 0; m < 4 * PB_NRECOMPUTES; m++) {
        pb_train_config c = config(models[m / PB_NRECOMPUTES], PB_FULL);
        if (c.model.geometry->v4 && m % PB_NRECOMPUTES == PB_RECOMPUTE_PRODUCTS) continue;
        c.loss_chunk = m % 2 ? 5 : 0;
        pb_trainer *kept = open_fixture(*state, &c);
        copies want = step_of(kept);
        c.recompute = (pb_recompute)(m % PB_NRECOMPUTES);
        pb_trainer *t = open_fixture(*state, &c);
        copies got = step_of(t);
        assert_int_equal(got.n, want.n);
        for (int i = 0; i < want.n; i++) {
            const pb_tensor *x = &want.x[i];
            if (!*x->ops) continue; /* of a parameter */
            const int k = find(&got, x->name);
            assert_true(got.x[k].rows == x->rows && got.x[k].cols == x->cols && got.x[k].layer == x->layer);
            assert_string_equal(got.x[k].ops, x->ops);
            assert_memory_equal(got.value[k], want.value[i], x->rows * x->cols * sizeof(float));
        }
        drop(&got), drop(&want);
        pb_trainer_close(t);
        pb_trainer_close(kept);
    }
}

static pb_status refuse(void *self, const pb_tensor *x)
{
    (void)x;
    return ++*(int *)self == 3 ? pb_fail(PB_EIO, "the third") : PB_OK;
}

static void a_failure_ends_the_backward_pass(void **state)
{
    pb_train_config c = config("tiny", PB_LORA);
    pb_trainer *t = open_fixture(*state, &c);
    int n = 0;
    CHECK_OK(pb_phase_forward(t->ctx, t));
    CHECK_OK(pb_phase_loss(t->ctx, t));
    pb_trainer_observe(t, refuse, &n, true);
    CHECK_FAILS(pb_phase_backward(t->ctx, t), PB_EIO, "the third");
    assert_int_equal(n, 3);
    pb_trainer_observe(t, NULL, NULL, false);
    CHECK_OK(pb_phase_backward(t->ctx, t));
    assert_int_equal(n, 3);
    pb_trainer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_gradients_are_products_of_them),
        cmocka_unit_test(grad_h_of_layer_0_sums_to_the_embedding_gradient),
        cmocka_unit_test(all_are_reported_in_the_order_of_the_backward_pass),
        cmocka_unit_test(activations_that_are_computed_again_are_given_for_every_layer),
        cmocka_unit_test(a_failure_ends_the_backward_pass),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
