/* divergence_test.c - two trainers side by side: equal ones agree in every tensor, and a fault in one op of one layer
 * is named by the first tensor that it spoils, and does not become an error of later layers. */
#include "tests/trainer/step/trainer_fixture.h"
#include "trainer/step/divergence.h"
#include "trainer/step/trainer_impl.h"

typedef struct seen {
    int n, differ;
    pb_divergence first;
    char names[4000]; /* of all tensors that differ, each followed by a blank */
} seen;

static void see(void *self, const pb_divergence *d)
{
    seen *s = self;
    s->n++;
    if (!pb_diverges(d)) return;
    if (!s->differ++) s->first = *d;
    const size_t used = strlen(s->names);
    snprintf(s->names + used, sizeof s->names - used, "%s ", d->name);
}

/* Keeps the tensor with the largest error of a row. */
static void keep_worst(void *self, const pb_divergence *d)
{
    pb_divergence *w = self;
    if (d->row_error > w->row_error) *w = *d;
}

static seen diverge(pb_trainer *a, pb_trainer *b)
{
    seen s = {.n = 0};
    CHECK_OK(pb_diverge(a, b, see, &s));
    return s;
}

static void equal_trainers_agree(void **state)
{
    static const char *const models[] = {"tiny", "tiny-qwen3", "v4-tiny", "doge-tiny"};
    for (int i = 0; i < 4; i++) {
        pb_train_config c = config(models[i], PB_FULL);
        pb_trainer *a = open_fixture(*state, &c), *b = open_fixture(*state, &c);
        const seen s = diverge(a, b);
        if (s.differ) fail_msg("%s: %s differ", models[i], s.names);
        assert_true(s.n > 40);
        pb_trainer_close(a);
        pb_trainer_close(b);
    }
}

/* Every norm of the second trainer adds another number to the mean of squares. */
static void the_op_of_a_fault_is_named(void **state)
{
    pb_train_config c = config("tiny", PB_FULL);
    pb_trainer *a = open_fixture(*state, &c), *b = open_fixture(*state, &c);
    b->model.g.eps = 0.3f; /* of every norm */
    seen s = diverge(a, b);
    assert_string_equal(s.first.name, "layers.0.n1");
    assert_string_equal(s.first.ops, "rmsnorm_fwd");
    /* Each layer got the values of the first trainer, so products and attention are right. */
    assert_null(strstr(s.names, "layers.0.qkv "));
    assert_null(strstr(s.names, "layers.1.o "));
    assert_null(strstr(s.names, "layers.1.hm "));
    assert_non_null(strstr(s.names, "layers.1.n1 "));
    pb_trainer_close(b);
    pb_trainer_close(a);
}

/* A fault in the last product of a layer is not blamed on the addition that reads its output. */
static void a_product_whose_output_is_not_kept_is_named(void **state)
{
    pb_train_config c = config("tiny", PB_FULL);
    pb_trainer *a = open_fixture(*state, &c), *b = open_fixture(*state, &c);
    float *w = param_named(&b->model, "layers.0.down")->w;
    w[3] += 1;
    const seen s = diverge(a, b);
    assert_string_equal(s.first.name, "layers.0.down.weight");
    assert_non_null(strstr(s.names, "layers.0.proj layers.1.h "));
    assert_null(strstr(s.names, "layers.0.act "));
    pb_trainer_close(b);
    pb_trainer_close(a);
}

static void weights_that_differ_are_named(void **state)
{
    pb_train_config c = config("tiny", PB_LORA);
    pb_trainer *a = open_fixture(*state, &c), *b = open_fixture(*state, &c);
    float *w = param_named(&b->model, "layers.1.o")->w;
    w[70] = nextafterf(w[70], 1);
    const seen s = diverge(a, b);
    assert_string_equal(s.first.name, "layers.1.o.weight");
    assert_int_equal(s.first.row, 0);
    assert_int_equal(s.first.col, 70);
    assert_int_equal(s.differ, 1); /* one bit changes no tensor beyond its bound */
    w[70] += 1;
    const seen large = diverge(a, b);
    assert_non_null(strstr(large.names, "layers.1.hm "));
    assert_null(strstr(large.names, "layers.1.o "));
    pb_trainer_close(b);
    pb_trainer_close(a);
}

static void not_finite_values_differ_unless_equal(void **state)
{
    pb_train_config c = config("tiny", PB_FULL);
    pb_trainer *a = open_fixture(*state, &c), *b = open_fixture(*state, &c);
    float *x = param_named(&a->model, "layers.1.qkv")->w, *y = param_named(&b->model, "layers.1.qkv")->w;
    y[65] = NAN;
    seen s = diverge(a, b);
    assert_string_equal(s.first.name, "layers.1.qkv.weight");
    assert_true(isinf(s.first.error) && isnan(s.first.is));
    x[65] = NAN;
    s = diverge(a, b);
    if (s.differ) fail_msg("equal NaN: %s differ", s.names);
    pb_trainer_close(b);
    pb_trainer_close(a);
}

/* A row that is not written has an error of 1, of however many rows the tensor has. */
static void a_row_that_differs_is_named(void **state)
{
    pb_train_config c = config("tiny", PB_FULL);
    pb_trainer *a = open_fixture(*state, &c), *b = open_fixture(*state, &c);
    const size_t D = (size_t)a->model.g.D, token = 9;
    float *x = param_named(&b->model, "embed")->w;
    memset(x + D * (size_t)b->ids[token], 0, D * sizeof *x);
    pb_divergence w = {.row_error = 0};
    CHECK_OK(pb_diverge_forward(a, b, keep_worst, &w));
    assert_string_equal(w.name, "layers.0.h");
    assert_int_equal(b->ids[w.worst_row], b->ids[token]);
    CHECK_NEAR(w.row_error, 1, 1e-12);
    assert_true(w.error < 0.9);
    pb_trainer_close(b);
    pb_trainer_close(a);
}

static void what_cannot_be_compared_is_refused(void **state)
{
    pb_train_config c = config("tiny", PB_FULL), other = c;
    seen s = {.n = 0};
    pb_trainer *a = open_fixture(*state, &c);
    other.recompute = PB_RECOMPUTE_LAYER;
    pb_trainer *b = open_fixture(*state, &other);
    CHECK_FAILS(pb_diverge(a, b, see, &s), PB_EINVAL, "needs all activations");
    pb_trainer_close(b);
    other = config("tiny", PB_LORA);
    other.model.targets = 1u << PB_TARGET_Q; /* so the backward pass does not read n2, which is not kept */
    pb_trainer *lora[2] = {open_fixture(*state, &other), open_fixture(*state, &other)};
    CHECK_FAILS(pb_diverge(lora[0], lora[1], see, &s), PB_EINVAL, "needs all activations");
    for (int i = 0; i < 2; i++) pb_trainer_close(lora[i]);
    b = open_fixture(*state, (other = config("tiny-qwen3", PB_FULL), &other));
    CHECK_FAILS(pb_diverge(a, b, see, &s), PB_EINVAL, "different tensors");
    assert_int_equal(s.n, 0);
    pb_trainer_close(b);
    pb_trainer_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_trainers_agree),
        cmocka_unit_test(the_op_of_a_fault_is_named),
        cmocka_unit_test(a_product_whose_output_is_not_kept_is_named),
        cmocka_unit_test(weights_that_differ_are_named),
        cmocka_unit_test(not_finite_values_differ_unless_equal),
        cmocka_unit_test(a_row_that_differs_is_named),
        cmocka_unit_test(what_cannot_be_compared_is_refused),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
