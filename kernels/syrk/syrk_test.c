/* syrk_test.c - the result is exactly symmetric, also where blocks of rows end; the upper triangle of the added matrix
 * is not read; the square of a symmetric matrix; NaN; errors. */
#include "kernels/syrk/syrk.h"
#include "tests/test.h"

static void results_are_exactly_symmetric(void **state)
{
    static const int size[] = {1, 2, 95, 96, 97, 191, 193};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            const size_t M = (size_t)size[i], K = 21;
            const pb_dtype t = bf16 ? PB_BF16 : PB_F32;
            void *x = test_values(M * K, t, 5), *c = calloc(M * M, sizeof(float));
            pb_syrk_product_args a = {.x = x, .c = c, .n = 1, .M = size[i], .K = 21, .alpha = 1};
            a.dtype = a.c_dtype = t;
            CHECK_OK(pb_syrk_product(*state, &a));
            for (size_t r = 0; r < M; r++)
                for (size_t s = 0; s < r; s++) assert_true(pb_load(c, r * M + s, t) == pb_load(c, s * M + r, t));
            for (size_t r = 0; r < M; r++) assert_true(pb_load(c, r * (M + 1), t) > 0);
            free(x), free(c);
        }
}

/* c A^2 + b A for a symmetric A whose upper triangle is not a number: only `x` reads it. */
static void only_the_lower_triangle_is_added(void **state)
{
    float x[9] = {1, 2, 3, 2, 5, 6, 3, 6, 9}, add[9] = {1, NAN, NAN, 2, 5, NAN, 3, 6, 9}, c[9];
    pb_syrk_product_args a = {.x = x, .add = add, .c = c, .n = 1, .M = 3, .K = 3, .alpha = 0.5f, .beta = -2};
    CHECK_OK(pb_syrk_product(*state, &a));
    const float want[9] = {5, 11, 15, 11, 22.5f, 33, 15, 33, 45};
    for (int i = 0; i < 9; i++) CHECK_NEAR(c[i], want[i], 1e-6);
}

static void no_terms_give_the_added_matrix(void **state)
{
    float add[4] = {1, 7, 2, 3}, c[4];
    pb_syrk_product_args a = {.add = add, .c = c, .n = 1, .M = 2, .K = 0, .alpha = 1, .beta = 2};
    CHECK_OK(pb_syrk_product(*state, &a));
    const float want[4] = {2, 4, 4, 6};
    assert_memory_equal(c, want, sizeof c);
}

static void a_nan_reaches_its_row_and_column_only(void **state)
{
    float x[4 * 3], c[16];
    for (int i = 0; i < 12; i++) x[i] = (float)i;
    x[2 * 3 + 1] = NAN;
    pb_syrk_product_args a = {.x = x, .c = c, .n = 1, .M = 4, .K = 3, .alpha = 1};
    CHECK_OK(pb_syrk_product(*state, &a));
    for (int i = 0; i < 16; i++) assert_int_equal(isnan(c[i]) != 0, i / 4 == 2 || i % 4 == 2);
}

static void bad_arguments_are_named(void **state)
{
    float x[4] = {0}, c[4];
    const pb_syrk_product_args good = {.x = x, .c = c, .n = 1, .M = 2, .K = 2, .alpha = 1};
    pb_syrk_product_args a = good;
    a.M = -1;
    CHECK_FAILS(pb_syrk_product(*state, &a), PB_EINVAL, "M=-1");
    a = good, a.alpha = INFINITY;
    CHECK_FAILS(pb_syrk_product(*state, &a), PB_EINVAL, "alpha=inf");
    a = good, a.x = NULL;
    CHECK_FAILS(pb_syrk_product(*state, &a), PB_EINVAL, "NULL");
    a = good, a.c_dtype = PB_U8;
    CHECK_FAILS(pb_syrk_product(*state, &a), PB_EINVAL, "f32 or bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_exactly_symmetric),  cmocka_unit_test(only_the_lower_triangle_is_added),
        cmocka_unit_test(no_terms_give_the_added_matrix), cmocka_unit_test(a_nan_reaches_its_row_and_column_only),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return test_every_impl(&pb_op_syrk_product, tests, sizeof tests / sizeof *tests);
}
