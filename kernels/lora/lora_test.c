/* lora_test.c - tests of LoRA that the comparison with the reference does not cover: a new adapter changes nothing, one
 * call equals a call per target, the adapter equals a merged weight, errors. */
#include <string.h>

#include "kernels/lora/lora.h"
#include "tests/test.h"

enum { T = 5, K = 24, R = 4, NQ = 20, NV = 8, LD = NQ + NV + 3 };

/* Two adapters of one layer, on its projections q and v. A row of y holds the columns of q, the columns of v, and a gap
 * of 3 elements. */
typedef struct layer {
    float x[T * K], dx[T * K], y[T * LD];
    float a[2][R * K], b[2][NQ * R], xa[2][T * R], da[2][R * K], db[2][NQ * R];
} layer;

static void fill(float *p, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) p[i] = (float)(pb_uniform(seed, i) - 0.5);
}

static layer make(void)
{
    layer l = {0};
    fill(l.x, T * K, 1), fill(l.y, T * LD, 2), fill(l.dx, T * K, 3);
    for (uint64_t i = 0; i < 2; i++) fill(l.a[i], R * K, 4 + i), fill(l.b[i], NQ * R, 6 + i);
    return l;
}

static pb_lora_fwd_args forward(layer *l, int n)
{
    pb_lora_fwd_args f = {.x = l->x, .n = n, .T = T, .K = K, .R = R, .scale = 2};
    for (int i = 0; i < 2; i++)
        f.target[i] = (pb_lora_target){
            .a = l->a[i], .b = l->b[i], .xa = l->xa[i], .y = l->y + (i ? NQ : 0), .ldy = LD, .N = i ? NV : NQ};
    return f;
}

static pb_lora_bwd_args backward(layer *l, int n)
{
    pb_lora_bwd_args g = {.x = l->x, .dx = l->dx, .n = n, .T = T, .K = K, .R = R, .scale = 2};
    for (int i = 0; i < 2; i++)
        g.target[i] = (pb_lora_grad){.a = l->a[i],
                                     .b = l->b[i],
                                     .xa = l->xa[i],
                                     .dy = l->y + (i ? NQ : 0),
                                     .da = l->da[i],
                                     .db = l->db[i],
                                     .lddy = LD,
                                     .N = i ? NV : NQ};
    return g;
}

/* A new adapter has b = 0. Then y and dx do not change and da is zero; only db is nonzero. */
static void fresh_adapter_changes_nothing(void **state)
{
    layer l = make(), before = l;
    memset(l.b, 0, sizeof l.b);
    pb_lora_fwd_args f = forward(&l, 2);
    CHECK_OK(pb_lora_fwd(*state, &f));
    assert_memory_equal(l.y, before.y, sizeof l.y);
    pb_lora_bwd_args g = backward(&l, 2);
    memset(l.da, 0x55, sizeof l.da);
    CHECK_OK(pb_lora_bwd(*state, &g));
    assert_memory_equal(l.dx, before.dx, sizeof l.dx);
    for (int i = 0; i < R * K; i++) CHECK_NEAR(l.da[0][i], 0, 0);
    double norm = 0;
    for (int i = 0; i < NV * R; i++) norm += fabs((double)l.db[1][i]);
    assert_true(norm > 0.1);
}

/* One call with two targets must give the same result as two calls with one target each, and
 * leave the gap in y unchanged. */
static void one_call_equals_a_call_per_target(void **state)
{
    layer l = make(), one = l;
    pb_lora_fwd_args f = forward(&l, 2);
    pb_lora_bwd_args g = backward(&l, 2);
    CHECK_OK(pb_lora_fwd(*state, &f));
    CHECK_OK(pb_lora_bwd(*state, &g));
    f = forward(&one, 2);
    for (int i = 0; i < 2; i++) {
        pb_lora_fwd_args single = f;
        single.n = 1, single.target[0] = f.target[i];
        CHECK_OK(pb_lora_fwd(*state, &single));
    }
    g = backward(&one, 2);
    for (int i = 0; i < 2; i++) {
        pb_lora_bwd_args single = g;
        single.n = 1, single.target[0] = g.target[i];
        CHECK_OK(pb_lora_bwd(*state, &single));
    }
    /* `layer` has float members only, so it can be compared as an array */
    const float *p = (const float *)&l, *q = (const float *)&one;
    for (size_t i = 0; i < sizeof l / sizeof(float); i++) CHECK_NEAR(p[i], q[i], 2e-6);
    layer fresh = make();
    for (int t = 0; t < T; t++)
        for (int i = NQ + NV; i < LD; i++) CHECK_NEAR(l.y[t * LD + i], fresh.y[t * LD + i], 0);
}

/* The adapter adds to y a term proportional to scale. The merged weight W + scale b a gives the same y. */
static void adds_scale_times_the_product(void **state)
{
    layer l = make(), twice = l;
    pb_lora_fwd_args f = forward(&l, 2), g = forward(&twice, 2);
    g.scale = 2 * f.scale;
    const layer before = l;
    CHECK_OK(pb_lora_fwd(*state, &f));
    CHECK_OK(pb_lora_fwd(*state, &g));
    for (int t = 0; t < T; t++)
        for (int n = 0; n < NQ; n++) {
            double sum = 0;
            for (int r = 0; r < R; r++)
                for (int k = 0; k < K; k++)
                    sum += (double)l.b[0][n * R + r] * (double)l.a[0][r * K + k] * (double)l.x[t * K + k];
            CHECK_NEAR(l.y[t * LD + n] - before.y[t * LD + n], 2 * sum, 1e-6);
            CHECK_NEAR(twice.y[t * LD + n] - before.y[t * LD + n], 4 * sum, 1e-6);
        }
    assert_memory_equal(l.xa, twice.xa, sizeof l.xa);
}

static void bad_arguments_are_named(void **state)
{
    layer l = make();
    pb_lora_fwd_args f = forward(&l, 2);
    f.R = 0;
    CHECK_FAILS(pb_lora_fwd(*state, &f), PB_EINVAL, "R=0");
    f.R = 257;
    CHECK_FAILS(pb_lora_fwd(*state, &f), PB_EINVAL, "R=257");
    f = forward(&l, 5);
    CHECK_FAILS(pb_lora_fwd(*state, &f), PB_EINVAL, "n=5");
    f = forward(&l, 0);
    CHECK_FAILS(pb_lora_fwd(*state, &f), PB_EINVAL, "n=0");
    f = forward(&l, 3);
    CHECK_FAILS(pb_lora_fwd(*state, &f), PB_EINVAL, "target 2 is NULL");
    f = forward(&l, 2), f.target[1].ldy = NV - 1;
    CHECK_FAILS(pb_lora_fwd(*state, &f), PB_EINVAL, "need at least N=8");
    f = forward(&l, 2), f.scale = NAN;
    CHECK_FAILS(pb_lora_fwd(*state, &f), PB_EINVAL, "scale=");
    pb_lora_bwd_args g = backward(&l, 2);
    g.target[0].db = NULL;
    CHECK_FAILS(pb_lora_bwd(*state, &g), PB_EINVAL, "target 0 is NULL");
    g = backward(&l, 2), g.dx = NULL;
    CHECK_FAILS(pb_lora_bwd(*state, &g), PB_EINVAL, "dx is NULL");
    g = backward(&l, 2), g.R = 0;
    CHECK_FAILS(pb_lora_bwd(*state, &g), PB_EINVAL, "lora_bwd: R=0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fresh_adapter_changes_nothing),
        cmocka_unit_test(one_call_equals_a_call_per_target),
        cmocka_unit_test(adds_scale_times_the_product),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
