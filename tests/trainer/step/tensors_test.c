/* tensors_test.c - the list of a trainer's tensors, and their statistics. */
#include "tests/trainer/step/trainer_fixture.h"
#include "trainer/step/tensors.h"

typedef struct list {
    pb_tensor x[400];
    int n;
} list;

static pb_status collect(void *self, const pb_tensor *x)
{
    list *l = self;
    assert_true(l->n < 400);
    l->x[l->n++] = *x;
    return PB_OK;
}

static const pb_tensor *find(const list *l, const char *name)
{
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->x[i].name, name) == 0) return &l->x[i];
    return NULL;
}

static void statistics_of_known_values(void **state)
{
    const float inf = INFINITY, x[] = {0, -3, NAN, 4, -0.0f, -inf, NAN};
    const uint16_t none[] = {pb_f32_to_bf16(NAN)};
    (void)state;
    pb_tensor_statistics s = pb_tensor_statistics_of(x, 7, PB_F32);
    assert_true(s.min == -3 && s.max == 4);
    CHECK_NEAR(s.rms, 2.5, 1e-15);
    assert_int_equal(s.zeros, 2);
    assert_int_equal(s.nans, 2);
    assert_int_equal(s.infs, 1);
    assert_int_equal(s.first, 2);
    s = pb_tensor_statistics_of(x, 2, PB_F32);
    assert_int_equal(s.first, 2); /* none */
    assert_true(s.max == 0);
    s = pb_tensor_statistics_of(none, 1, PB_BF16);
    assert_true(s.min == 0 && s.max == 0 && s.rms == 0 && s.nans == 1 && s.first == 0);
}

/* No two tensors have a name or a byte of memory in common, so no shape is too large. */
static void check_disjoint(const list *l)
{
    for (int i = 0; i < l->n; i++)
        for (int k = 0; k < i; k++) {
            const pb_tensor *a = &l->x[i], *b = &l->x[k];
            const uintptr_t pa = (uintptr_t)a->p, pb = (uintptr_t)b->p;
            if (strcmp(a->name, b->name) == 0) fail_msg("%s is listed twice", a->name);
            if (strstr(a->name, "idx") && strstr(b->name, "idx")) continue; /* layers of one ratio share lists */
            if (pa < pb + b->rows * b->cols * pb_dtype_size(b->dtype) &&
                pb < pa + a->rows * a->cols * pb_dtype_size(a->dtype))
                fail_msg("%s and %s overlap", a->name, b->name);
        }
}

static void tensors_are_disjoint(void **state)
{
    static const char *const models[] = {"tiny", "tiny-qwen3", "v4-tiny", "doge-tiny"};
    for (int i = 0; i < 4; i++)
        for (int recompute = 0; recompute < PB_NRECOMPUTES; recompute++) {
            pb_train_config c = config(models[i], PB_FULL);
            list l = {.n = 0};
            if (c.model.geometry->v4 && recompute == PB_RECOMPUTE_PRODUCTS) continue;
            c.recompute = (pb_recompute)recompute;
            pb_trainer *t = open_fixture(*state, &c);
            CHECK_OK(pb_train_step(*state, t));
            CHECK_OK(pb_trainer_tensors(t, collect, &l));
            check_disjoint(&l);
            const bool mlp = recompute == PB_RECOMPUTE_MLP || recompute >= PB_RECOMPUTE_PRODUCTS,
                       attention = recompute == PB_RECOMPUTE_ATTENTION || recompute >= PB_RECOMPUTE_PRODUCTS;
            /* The backward pass overwrites the activations that layers share, so not even layer 0's are given. */
            for (int layer = 0; layer < 2; layer++) {
                assert_int_equal(find(&l, layer ? "layers.1.gu" : "layers.0.gu") != NULL, !mlp);
                assert_int_equal(find(&l, layer ? "layers.1.lse" : "layers.0.lse") != NULL, !attention);
                assert_int_equal(find(&l, layer ? "layers.1.n2" : "layers.0.n2") != NULL,
                                 !mlp && recompute != PB_RECOMPUTE_NORMS);
            }
            assert_non_null(find(&l, "layers.1.h"));
            pb_trainer_close(t);
        }
}

/* Known relations: hf is the last residual stream, whose norm is nf; the gradient is the one that the optimizer
 * read. */
static void values_are_those_of_the_step(void **state)
{
    pb_ctx *ctx = *state;
    pb_train_config c = config("tiny", PB_FULL);
    pb_trainer *t = open_fixture(ctx, &c);
    list l = {.n = 0};
    CHECK_OK(pb_train_step(ctx, t));
    CHECK_OK(pb_trainer_tensors(t, collect, &l));
    const pb_tensor *h = find(&l, "hf"), *n = find(&l, "nf"), *g = find(&l, "norm.weight");
    const pb_param *o = param_named(pb_trainer_model(t), "layers.1.o");
    assert_true(find(&l, "layers.1.o.gradient")->p == o->sum && find(&l, "layers.1.o.momentum")->p == o->m);
    assert_int_equal(find(&l, "layers.1.o")->cols, o->cols); /* what attention gives to the projection o */
    float *x = test_fetch(ctx, h->p, h->rows * h->cols * 4), *y = test_fetch(ctx, n->p, n->rows * n->cols * 4);
    double sum = 0;
    for (size_t i = 0; i < h->cols; i++) sum += (double)x[i] * (double)x[i];
    float *w = test_fetch(ctx, g->p, g->cols * 4); /* after the step: about 1, as before it */
    const double rstd = 1 / sqrt(sum / (double)h->cols + (double)pb_trainer_model(t)->g.eps);
    for (size_t i = 0; i < h->cols; i++)
        CHECK_NEAR(y[i], (double)x[i] * rstd * (double)w[i], 0.05 * fabs((double)y[i]) + 1e-4);
    free(x), free(y), free(w);
    pb_trainer_close(t);
}

static void check_place(const pb_trainer *t, const list *l, const char *name, size_t row, size_t col, long in_batch,
                        long token, long head)
{
    const pb_tensor *x = find(l, name);
    assert_non_null(x);
    assert_true(row < x->rows && col < x->cols);
    const pb_tensor_place p = pb_tensor_place_of(t, x, row * x->cols + col);
    if (p.row != in_batch || p.token != token || p.head != head)
        fail_msg("%s[%zu][%zu] is batch row %ld, token %ld, head %ld; want %ld, %ld, %ld", name, row, col, p.row,
                 p.token, p.head, in_batch, token, head);
}

static void elements_have_places_and_ops(void **state)
{
    pb_train_config c = config("tiny-qwen3", PB_QLORA); /* 8 heads of 16 */
    list l = {.n = 0};
    pb_trainer *t = open_fixture(*state, &c);
    CHECK_OK(pb_trainer_tensors(t, collect, &l));
    check_place(t, &l, "layers.1.o", S + 5, 2 * 16 + 3, 1, 5, 2);
    check_place(t, &l, "layers.1.lse", 8 + 2, 5, 1, 5, 2);
    check_place(t, &l, "layers.0.gu", S - 1, 7, 0, S - 1, -1);
    check_place(t, &l, "logits", S, 0, 1, 0, -1);
    check_place(t, &l, "norm.weight", 0, 4, -1, -1, -1);
    assert_string_equal(find(&l, "layers.1.qkv")->ops, "nf4_linear_fwd+lora_fwd");
    assert_string_equal(find(&l, "layers.1.qk")->ops, "rmsnorm_fwd+rope_fwd");
    assert_string_equal(find(&l, "layers.0.h")->ops, "embedding_fwd");
    assert_string_equal(find(&l, "layers.1.h")->ops, "swiglu_fwd+nf4_linear_fwd+lora_fwd+addnorm_fwd");
    assert_string_equal(find(&l, "layers.1.hm")->ops, "nf4_linear_fwd+lora_fwd+addnorm_fwd");
    assert_string_equal(find(&l, "layers.1.n2")->ops, "addnorm_fwd");
    assert_string_equal(find(&l, "layers.1.o")->ops, "attention_fwd");
    assert_string_equal(find(&l, "norm.weight")->ops, "");
    pb_trainer_close(t);
}

/* A rank that shares rows with another one has chunks 1 and 2 of 4: its tokens are not those from 0 on. */
static void places_are_those_of_whole_rows(void **state)
{
    pb_ctx plan;
    pb_comm *comm, *context;
    list l = {.n = 0};
    pb_train_config c = config("tiny-qwen3", PB_FULL);
    (void)state;
    CHECK_OK(pb_ctx_open_plan(&plan, PB_CPU));
    CHECK_OK(pb_comm_open_plan(&plan, "dp", 1, 2, &comm));
    CHECK_OK(pb_comm_open_plan(&plan, "cp", 1, 2, &context));
    c.S = 16;
    c.comm = comm;
    c.context = context;
    pb_trainer *t = open_trainer(&plan, &c);
    CHECK_OK(pb_trainer_tensors(t, collect, &l));
    check_place(t, &l, "layers.1.o", 0, 0, 0, 4, 0);
    check_place(t, &l, "layers.1.o", 8 + 4, 0, 1, 8, 0);
    check_place(t, &l, "layers.1.lse", 0, 5, 0, 5, 1); /* [part,head,token] of 4 tokens each */
    check_place(t, &l, "layers.1.lse", 4, 0, 0, 8, 0);
    pb_trainer_close(t);
    pb_comm_close(context);
    pb_comm_close(comm);
    pb_ctx_close(&plan);
}

static pb_status refuse(void *self, const pb_tensor *x)
{
    int *calls = self;
    (void)x;
    return ++*calls == 3 ? pb_fail(PB_EIO, "enough") : PB_OK;
}

static void the_first_failure_ends_the_list(void **state)
{
    pb_train_config c = config("tiny", PB_FULL);
    pb_trainer *t = open_fixture(*state, &c);
    int calls = 0;
    CHECK_FAILS(pb_trainer_tensors(t, refuse, &calls), PB_EIO, "enough");
    assert_int_equal(calls, 3);
    pb_trainer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_of_known_values),     cmocka_unit_test(tensors_are_disjoint),
        cmocka_unit_test(values_are_those_of_the_step),   cmocka_unit_test(elements_have_places_and_ops),
        cmocka_unit_test(places_are_those_of_whole_rows), cmocka_unit_test(the_first_failure_ends_the_list),
    };
    return cmocka_run_group_tests(tests, test_open_device, test_close);
}
