/* nf4_linear_test.c - tests of the NF4 layer that the comparison with the reference does not cover: unit vectors give
 * rows and columns of the weight, scales act linearly, accumulating, errors. */
#include <string.h>

#include "kernels/nf4/nf4.h"
#include "kernels/nf4_linear/nf4_linear.h"
#include "tests/test.h"

enum { T = 3, N = 37, K = 45, BLOCK = 32, BLOCKS = (N * K + BLOCK - 1) / BLOCK };

typedef struct layer {
    float w[N * K], x[T * K], y[T * N], dx[T * K], absmax[BLOCKS];
    uint8_t q[(N * K + 1) / 2];
} layer;

static layer make(pb_ctx *ctx)
{
    layer l = {0};
    for (uint64_t i = 0; i < N * K; i++) l.w[i] = (float)(pb_uniform(1, i) - 0.5);
    for (uint64_t i = 0; i < T * K; i++) l.x[i] = (float)(pb_uniform(2, i) - 0.5);
    CHECK_OK(pb_nf4_quantize(
        ctx, &(pb_nf4_quantize_args){.w = l.w, .q = l.q, .absmax = l.absmax, .n = N * K, .block = BLOCK}));
    CHECK_OK(pb_nf4_dequantize(
        ctx,
        &(pb_nf4_dequantize_args){.q = l.q, .scales = {.absmax = l.absmax, .block = BLOCK}, .w = l.w, .n = N * K}));
    return l;
}

static pb_nf4_linear_fwd_args forward(layer *l)
{
    return (pb_nf4_linear_fwd_args){
        .x = l->x, .q = l->q, .scales = {.absmax = l->absmax, .block = BLOCK}, .y = l->y, .T = T, .N = N, .K = K};
}

static pb_nf4_linear_dx_args backward(layer *l)
{
    return (pb_nf4_linear_dx_args){
        .dy = l->y, .q = l->q, .scales = {.absmax = l->absmax, .block = BLOCK}, .dx = l->dx, .T = T, .N = N, .K = K};
}

/* A unit vector as x returns a column of the dequantised weight; a unit vector as dy returns a row. */
static void unit_vectors_read_the_dequantised_weight(void **state)
{
    layer l = make(*state);
    for (int k = 0; k < K; k += 11) {
        memset(l.x, 0, sizeof l.x);
        l.x[K + k] = 1;
        pb_nf4_linear_fwd_args f = forward(&l);
        CHECK_OK(pb_nf4_linear_fwd(*state, &f));
        for (int n = 0; n < N; n++) CHECK_NEAR(l.y[N + n], l.w[n * K + k], 0);
    }
    for (int n = 0; n < N; n += 9) {
        memset(l.y, 0, sizeof l.y);
        l.y[2 * N + n] = 1;
        pb_nf4_linear_dx_args b = backward(&l);
        CHECK_OK(pb_nf4_linear_dx(*state, &b));
        for (int k = 0; k < K; k++) CHECK_NEAR(l.dx[2 * K + k], l.w[n * K + k], 0);
    }
}

/* Doubled scales must double the result exactly, because multiplication by a power of two does not round. */
static void result_is_linear_in_the_scales(void **state)
{
    layer l = make(*state);
    float once[T * N];
    pb_nf4_linear_fwd_args f = forward(&l);
    CHECK_OK(pb_nf4_linear_fwd(*state, &f));
    memcpy(once, l.y, sizeof once);
    for (int j = 0; j < BLOCKS; j++) l.absmax[j] *= 2;
    CHECK_OK(pb_nf4_linear_fwd(*state, &f));
    for (int i = 0; i < T * N; i++) CHECK_NEAR(l.y[i], 2 * once[i], 0);
}

static void accumulating_twice_doubles(void **state)
{
    layer l = make(*state);
    float once[T * K];
    for (int i = 0; i < T * N; i++) l.y[i] = (float)i / 64;
    pb_nf4_linear_dx_args b = backward(&l);
    CHECK_OK(pb_nf4_linear_dx(*state, &b));
    memcpy(once, l.dx, sizeof once);
    b.accumulate = true;
    CHECK_OK(pb_nf4_linear_dx(*state, &b));
    for (int i = 0; i < T * K; i++) CHECK_NEAR(l.dx[i], 2 * once[i], 0);
}

static void bad_arguments_are_named(void **state)
{
    layer l = make(*state);
    pb_nf4_linear_fwd_args f = forward(&l);
    f.scales.block = 48;
    CHECK_FAILS(pb_nf4_linear_fwd(*state, &f), PB_EINVAL, "nf4_linear_fwd: block=48");
    f = forward(&l), f.scales.absmax = NULL;
    CHECK_FAILS(pb_nf4_linear_fwd(*state, &f), PB_EINVAL, "need absmax");
    f = forward(&l), f.K = 0;
    CHECK_FAILS(pb_nf4_linear_fwd(*state, &f), PB_EINVAL, "K=0");
    f = forward(&l), f.q = NULL;
    CHECK_FAILS(pb_nf4_linear_fwd(*state, &f), PB_EINVAL, "NULL");
    pb_nf4_linear_dx_args b = backward(&l);
    b.scales.block = 0;
    CHECK_FAILS(pb_nf4_linear_dx(*state, &b), PB_EINVAL, "nf4_linear_dx: block=0");
    b = backward(&l), b.dx = NULL;
    CHECK_FAILS(pb_nf4_linear_dx(*state, &b), PB_EINVAL, "NULL");
    b = backward(&l), b.T = -1;
    CHECK_FAILS(pb_nf4_linear_dx(*state, &b), PB_EINVAL, "T=-1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unit_vectors_read_the_dequantised_weight),
        cmocka_unit_test(result_is_linear_in_the_scales),
        cmocka_unit_test(accumulating_twice_doubles),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
