/* newton_schulz_test.c - what the comparison with the reference cannot show: matrices with known singular values and
 * vectors keep the vectors and get singular values in the range that the header promises. Also rank-deficient, zero,
 * tiny, huge and non-finite matrices, transposition, batches, results in place, and errors. */
#include "kernels/newton_schulz/newton_schulz.h"
#include "tests/test.h"

enum { MOST = 70 };

/* Makes n orthonormal rows of length c from seeded values, by Gram-Schmidt, applied twice. */
static void orthonormal(double *q, int n, int c, uint64_t seed)
{
    for (int i = 0; i < n; i++) {
        double *row = q + (size_t)i * (size_t)c, norm = 0;
        for (int j = 0; j < c; j++) row[j] = 2 * pb_uniform(seed, (uint64_t)i * (uint64_t)c + (uint64_t)j) - 1;
        for (int again = 0; again < 2; again++)
            for (int k = 0; k < i; k++) {
                double dot = 0;
                for (int j = 0; j < c; j++) dot += row[j] * q[k * c + j];
                for (int j = 0; j < c; j++) row[j] -= dot * q[k * c + j];
            }
        for (int j = 0; j < c; j++) norm += row[j] * row[j];
        for (int j = 0; j < c; j++) row[j] /= sqrt(norm);
    }
}

/* A matrix x [R,C] = U^T diag(s) V, with m = min(R, C) rows in U [m,R] and V [m,C]. */
typedef struct known {
    int R, C, m;
    double U[MOST * MOST], V[MOST * MOST], s[MOST];
    float x[MOST * MOST], y[MOST * MOST];
    uint16_t x16[MOST * MOST], y16[MOST * MOST];
} known;

static known *make(int R, int C, double least, int zeros)
{
    known *k = calloc(1, sizeof *k);
    assert_non_null(k);
    k->R = R, k->C = C, k->m = R < C ? R : C;
    orthonormal(k->U, k->m, R, 3);
    orthonormal(k->V, k->m, C, 4);
    for (int i = 0; i < k->m; i++) /* geometric, from 1 to `least`; the last ones are 0 */
        k->s[i] = i >= k->m - zeros ? 0 : k->m == 1 ? 1 : pow(least, (double)i / (k->m - 1));
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++) {
            double x = 0;
            for (int i = 0; i < k->m; i++) x += k->U[i * R + r] * k->s[i] * k->V[i * C + c];
            k->x[r * C + c] = (float)x;
            k->x16[r * C + c] = pb_f32_to_bf16((float)x);
        }
    return k;
}

static void run(pb_ctx *ctx, known *k, pb_ns_variant v, pb_dtype t)
{
    CHECK_OK(pb_newton_schulz_run(ctx, &(pb_newton_schulz_run_args){.x = t == PB_F32 ? (void *)k->x : k->x16,
                                                                    .y = t == PB_F32 ? (void *)k->y : k->y16,
                                                                    .n = 1,
                                                                    .R = k->R,
                                                                    .C = k->C,
                                                                    .variant = v,
                                                                    .steps = 5,
                                                                    .eps = 1e-8f,
                                                                    .dtype = t}));
    for (int i = 0; i < k->R * k->C && t == PB_BF16; i++) k->y[i] = pb_bf16_to_f32(k->y16[i]);
}

/* U y V^T must be diagonal up to `off`; its diagonal must be in the range, and for singular values of 0 at most
 * `off`. */
static void check_factor(const known *k, double off, double slack)
{
    for (int i = 0; i < k->m; i++)
        for (int j = 0; j < k->m; j++) {
            double d = 0;
            for (int r = 0; r < k->R; r++)
                for (int c = 0; c < k->C; c++)
                    d += k->U[i * k->R + r] * (double)k->y[r * k->C + c] * k->V[j * k->C + c];
            const bool zero = i != j || k->s[i] == 0;
            if (zero ? !(fabs(d) <= off) : !(d >= PB_NS_LEAST - slack && d <= PB_NS_MOST + slack))
                fail_msg("%dx%d: element (%d,%d) of U y V^T is %g; singular value %g", k->R, k->C, i, j, d, k->s[i]);
        }
}

static void singular_values_are_in_the_stated_range(void **state)
{
    static const int shape[][2] = {{12, 40}, {40, 12}, {24, 24}, {1, 50}, {50, 1}, {33, 70}, {1, 1}, {5, 6}};
    for (int v = 0; v < PB_NNS; v++)
        for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
            known *k = make(shape[i][0], shape[i][1], 0.03, 0);
            run(*state, k, (pb_ns_variant)v, PB_F32);
            check_factor(k, 2e-4, 0);
            run(*state, k, (pb_ns_variant)v, PB_BF16);
            check_factor(k, 0.15, PB_NS_BF16);
            free(k);
        }
}

static void a_rank_deficient_matrix_keeps_its_rank(void **state)
{
    static const int shape[][2] = {{12, 40}, {40, 12}, {24, 24}};
    for (int v = 0; v < PB_NNS; v++)
        for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
            known *k = make(shape[i][0], shape[i][1], 0.1, 5);
            run(*state, k, (pb_ns_variant)v, PB_F32);
            check_factor(k, 2e-3, 0);
            free(k);
        }
}

static void repeated_singular_values_stay_finite(void **state)
{
    for (int v = 0; v < PB_NNS; v++) {
        known *k = make(20, 60, 1, 0);
        run(*state, k, (pb_ns_variant)v, PB_BF16);
        check_factor(k, 0.15, PB_NS_BF16);
        free(k);
    }
}

static void a_zero_matrix_stays_zero(void **state)
{
    for (int v = 0; v < PB_NNS; v++)
        for (int eps = 0; eps < 2; eps++) {
            float x[6 * 9] = {0}, y[6 * 9];
            memset(y, 0x7f, sizeof y);
            CHECK_OK(pb_newton_schulz_run(*state, &(pb_newton_schulz_run_args){.x = x,
                                                                               .y = y,
                                                                               .n = 1,
                                                                               .R = 6,
                                                                               .C = 9,
                                                                               .variant = (pb_ns_variant)v,
                                                                               .steps = 5,
                                                                               .eps = eps ? 1e-8f : 0}));
            for (int i = 0; i < 54; i++) assert_true(y[i] == 0);
        }
}

/* The result does not depend on the scale of a matrix, also where squares of its elements exceed the range of f32. */
static void the_scale_does_not_matter(void **state)
{
    const double scale[] = {0x1p-66, 0x1p70, 0x1p100};
    for (int v = 0; v < PB_NNS; v++)
        for (size_t i = 0; i < sizeof scale / sizeof *scale; i++) {
            known *k = make(10, 30, 0.1, 0);
            float before[10 * 30];
            pb_newton_schulz_run_args a = {.x = k->x, .y = before, .n = 1, .R = 10, .C = 30, .steps = 5};
            a.variant = (pb_ns_variant)v;
            CHECK_OK(pb_newton_schulz_run(*state, &a));
            for (int e = 0; e < 300; e++) k->x[e] = (float)(scale[i] * (double)k->x[e]);
            a.y = k->y;
            CHECK_OK(pb_newton_schulz_run(*state, &a));
            for (int e = 0; e < 300; e++) CHECK_NEAR(k->y[e], before[e], 1e-6);
            free(k);
        }
}

static void a_tall_matrix_is_the_transpose_of_a_wide_one(void **state)
{
    for (int v = 0; v < PB_NNS; v++) {
        known *k = make(13, 37, 0.05, 0);
        float tall[37 * 13], y[37 * 13];
        for (int r = 0; r < 13; r++)
            for (int c = 0; c < 37; c++) tall[c * 13 + r] = k->x[r * 37 + c];
        run(*state, k, (pb_ns_variant)v, PB_F32);
        pb_newton_schulz_run_args a = {.x = tall, .y = y, .n = 1, .R = 37, .C = 13, .steps = 5, .eps = 1e-8f};
        a.variant = (pb_ns_variant)v;
        CHECK_OK(pb_newton_schulz_run(*state, &a));
        for (int r = 0; r < 13; r++)
            for (int c = 0; c < 37; c++) CHECK_NEAR(y[c * 13 + r], k->y[r * 37 + c], 1e-4);
        free(k);
    }
}

/* A matrix that is not finite gives one that is not finite, and does not change the other matrices of the batch. A
 * result in place has the same bits. */
static void only_the_bad_matrix_of_a_batch_is_bad(void **state)
{
    enum { R = 6, C = 15, ONE = R * C };
    for (int v = 0; v < PB_NNS; v++)
        for (int bad = 0; bad < 3; bad++) {
            float x[3 * ONE], good[3 * ONE], y[3 * ONE];
            for (uint64_t i = 0; i < 3 * ONE; i++) x[i] = (float)(2 * pb_uniform(9, i) - 1);
            pb_newton_schulz_run_args a = {.x = x, .y = good, .n = 3, .R = R, .C = C, .steps = 5, .eps = 1e-8f};
            a.variant = (pb_ns_variant)v;
            CHECK_OK(pb_newton_schulz_run(*state, &a));
            x[ONE + 17] = bad == 0 ? NAN : bad == 1 ? INFINITY : x[ONE + 17];
            memcpy(y, x, sizeof y);
            a.x = a.y = y;
            CHECK_OK(pb_newton_schulz_run(*state, &a));
            assert_memory_equal(y, good, ONE * sizeof *y);
            assert_memory_equal(y + 2 * ONE, good + 2 * ONE, ONE * sizeof *y);
            int wild = 0;
            for (int i = ONE; i < 2 * ONE; i++) wild += !isfinite(y[i]);
            assert_true(bad == 2 ? wild == 0 : wild > 0);
        }
}

static void bad_arguments_are_named(void **state)
{
    float x[4] = {1, 2, 3, 4}, y[4];
    const pb_newton_schulz_run_args good = {.x = x, .y = y, .n = 1, .R = 2, .C = 2, .steps = 5, .eps = 1e-8f};
    pb_newton_schulz_run_args a = good;
    a.R = 0;
    CHECK_FAILS(pb_newton_schulz_run(*state, &a), PB_EINVAL, "R=0");
    a = good, a.steps = 11;
    CHECK_FAILS(pb_newton_schulz_run(*state, &a), PB_EINVAL, "steps=11, need 1 to 10");
    a = good, a.eps = NAN;
    CHECK_FAILS(pb_newton_schulz_run(*state, &a), PB_EINVAL, "eps");
    a = good, a.y = NULL;
    CHECK_FAILS(pb_newton_schulz_run(*state, &a), PB_EINVAL, "NULL");
    a = good, a.dtype = PB_I32;
    CHECK_FAILS(pb_newton_schulz_run(*state, &a), PB_EINVAL, "dtype");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(singular_values_are_in_the_stated_range),
        cmocka_unit_test(a_rank_deficient_matrix_keeps_its_rank),
        cmocka_unit_test(repeated_singular_values_stay_finite),
        cmocka_unit_test(a_zero_matrix_stays_zero),
        cmocka_unit_test(the_scale_does_not_matter),
        cmocka_unit_test(a_tall_matrix_is_the_transpose_of_a_wide_one),
        cmocka_unit_test(only_the_bad_matrix_of_a_batch_is_bad),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return test_every_impl(&pb_op_newton_schulz_run, tests, sizeof tests / sizeof *tests);
}
