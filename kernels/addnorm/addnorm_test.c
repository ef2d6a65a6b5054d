/* addnorm_test.c - tests of addnorm that the comparison with the reference does not cover: same bits as an addition and
 * rmsnorm, outputs in place, rounding of the sum, large outputs, errors. */
#include <string.h>

#include "kernels/addnorm/addnorm.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "tests/test.h"

enum { T = 3, D = 37, N = T * D };

static void fill(float *x, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) x[i] = (float)(2 * pb_uniform(seed, i) - 1);
}

static pb_addnorm_fwd_args fwd_args(const float *x, const float *r, const float *w, float *h, float *y, float *rstd)
{
    return (pb_addnorm_fwd_args){.x = x, .r = r, .w = w, .h = h, .y = y, .rstd = rstd, .T = T, .D = D, .eps = 1e-6f};
}

/* addnorm gives the bits of an addition followed by rmsnorm. */
static void is_a_sum_then_a_norm(void **state)
{
    float x[N], r[N], w[D], h[N], y[N], rstd[T], want[N], want_rstd[T];
    fill(x, N, 1), fill(r, N, 2), fill(w, D, 3);
    pb_addnorm_fwd_args a = fwd_args(x, r, w, h, y, rstd);
    CHECK_OK(pb_addnorm_fwd(*state, &a));
    for (int i = 0; i < N; i++) assert_true(h[i] == x[i] + r[i]);
    CHECK_OK(pb_rmsnorm_fwd(
        *state,
        &(pb_rmsnorm_fwd_args){
            .x = h, .w = w, .y = want, .rstd = want_rstd, .T = T, .G = 1, .D = D, .ldx = D, .ldy = D, .eps = 1e-6f}));
    assert_memory_equal(y, want, sizeof y);
    assert_memory_equal(rstd, want_rstd, sizeof rstd);
}

static void sum_in_place_of_either(void **state)
{
    float x[N], r[N], w[D], h[N], y[N], rstd[T], in[N], y2[N];
    fill(x, N, 1), fill(r, N, 2), fill(w, D, 3);
    pb_addnorm_fwd_args a = fwd_args(x, r, w, h, y, rstd);
    CHECK_OK(pb_addnorm_fwd(*state, &a));
    for (int k = 0; k < 2; k++) {
        memcpy(in, k ? r : x, sizeof in);
        pb_addnorm_fwd_args b = fwd_args(k ? x : in, k ? in : r, w, in, y2, rstd);
        CHECK_OK(pb_addnorm_fwd(*state, &b));
        assert_memory_equal(in, h, sizeof h);
        assert_memory_equal(y2, y, sizeof y);
    }
}

static void gradient_in_place_of_either(void **state)
{
    float dy[N], dh[N], h[N], w[D], rstd[T] = {1, 2, 0.5f}, dx[N], dw[D], in[N], dw2[D];
    fill(dy, N, 1), fill(dh, N, 2), fill(h, N, 3), fill(w, D, 4);
    pb_addnorm_bwd_args a = {.dy = dy, .dh = dh, .h = h, .w = w, .rstd = rstd, .dx = dx, .dw = dw, .T = T, .D = D};
    CHECK_OK(pb_addnorm_bwd(*state, &a));
    a.dx = in, a.dw = dw2;
    memcpy(in, dy, sizeof in);
    a.dy = in;
    CHECK_OK(pb_addnorm_bwd(*state, &a));
    assert_memory_equal(in, dx, sizeof dx);
    assert_memory_equal(dw2, dw, sizeof dw);
    memcpy(in, dh, sizeof in);
    a.dy = dy, a.dh = in;
    CHECK_OK(pb_addnorm_bwd(*state, &a));
    assert_memory_equal(in, dx, sizeof dx);
    assert_memory_equal(dw2, dw, sizeof dw);
}

/* h is the sum rounded to nearest even, ties included, in whole vectors and in tails. The norm must read the rounded h:
 * with the unrounded sum, y would be wrong by up to 2^-8. */
static void norm_reads_the_rounded_sum(void **state)
{
    uint16_t x[N], r[N], h[N], y[N];
    float w[D], rstd[T];
    for (size_t i = 0; i < N; i++) {
        x[i] = pb_f32_to_bf16((float)(1 + pb_uniform(1, i)));
        r[i] = pb_f32_to_bf16(i % 3 ? 0x1p-8f : (float)pb_uniform(2, i)); /* a tie: half an ulp of x */
    }
    fill(w, D, 3);
    CHECK_OK(pb_addnorm_fwd(
        *state,
        &(pb_addnorm_fwd_args){
            .x = x, .r = r, .w = w, .h = h, .y = y, .rstd = rstd, .T = T, .D = D, .eps = 1e-6f, .dtype = PB_BF16}));
    for (int t = 0; t < T; t++) {
        double sum = 0;
        for (int i = t * D; i < t * D + D; i++) {
            assert_int_equal(h[i], pb_f32_to_bf16(pb_bf16_to_f32(x[i]) + pb_bf16_to_f32(r[i])));
            sum += (double)pb_bf16_to_f32(h[i]) * (double)pb_bf16_to_f32(h[i]);
        }
        CHECK_NEAR(rstd[t], 1 / sqrt(sum / D + 1e-6), 1e-7);
    }
}

/* Outputs that are large enough for streaming stores must have the same bits as outputs written in place, which are
 * never streamed. */
static void large_outputs_are_equal(void **state)
{
    enum { ROWS = 8800, WIDE = 2048 };
    const size_t n = (size_t)ROWS * WIDE;
    if (strcmp(((pb_ctx *)*state)->impl, "ref") == 0) skip();
    for (int t = 0; t < PB_NFLOAT; t++) {
        const size_t bytes = n * pb_dtype_size((pb_dtype)t);
        char *x = test_values(n, t, 1), *r = test_values(n, t, 2), *h = test_values(n, t, 3), *y = test_values(n, t, 4);
        float *w = test_values(WIDE, PB_F32, 5), *rstd = test_values(ROWS, PB_F32, 6);
        pb_addnorm_fwd_args a = {
            .x = x, .r = r, .w = w, .h = h, .y = y, .rstd = rstd, .T = ROWS, .D = WIDE, .eps = 1e-6f, .dtype = t};
        CHECK_OK(pb_addnorm_fwd(*state, &a));
        pb_addnorm_bwd_args b = {.dy = y, .dh = r, .h = h, .w = w, .rstd = rstd, .T = ROWS, .D = WIDE, .dtype = t};
        a.h = x; /* h overwrites x, so it is not streamed; y is streamed in both calls */
        CHECK_OK(pb_addnorm_fwd(*state, &a));
        assert_true(memcmp(x, h, bytes) == 0);
        b.dx = x;
        CHECK_OK(pb_addnorm_bwd(*state, &b));
        b.dx = y;
        CHECK_OK(pb_addnorm_bwd(*state, &b));
        assert_true(memcmp(x, y, bytes) == 0);
        free(x), free(r), free(h), free(y), free(w), free(rstd);
    }
}

static void bad_arguments_are_named(void **state)
{
    float x[1] = {1};
    pb_addnorm_fwd_args a = fwd_args(x, x, x, x, x, x);
    a.eps = 0;
    CHECK_FAILS(pb_addnorm_fwd(*state, &a), PB_EINVAL, "eps=0");
    a.eps = 1, a.D = 0;
    CHECK_FAILS(pb_addnorm_fwd(*state, &a), PB_EINVAL, "D=0");
    CHECK_FAILS(pb_addnorm_bwd(*state, &(pb_addnorm_bwd_args){.T = -1, .D = 1}), PB_EINVAL, "T=-1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_a_sum_then_a_norm),        cmocka_unit_test(sum_in_place_of_either),
        cmocka_unit_test(gradient_in_place_of_either), cmocka_unit_test(norm_reads_the_rounded_sum),
        cmocka_unit_test(large_outputs_are_equal),     cmocka_unit_test(bad_arguments_are_named),
    };
    return test_every_impl(&pb_op_addnorm_fwd, tests, sizeof tests / sizeof *tests);
}
