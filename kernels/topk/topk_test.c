/* topk_test.c - tests of topk: known lists, ties, -inf and NaN scores, and errors. */
#include "kernels/topk/topk.h"
#include "tests/test.h"

static void expect(pb_ctx *ctx, const float *score, int G, int k, const int32_t *want)
{
    int32_t pick[16];
    for (const pb_impl *i = pb_topk_fwd_cpu; i->name; i++) {
        if (i->available && !i->available()) continue;
        ctx->impl = i->name;
        CHECK_OK(pb_topk_fwd(ctx, &(pb_topk_fwd_args){.score = score, .pick = pick, .R = 1, .G = G, .k = k}));
        for (int j = 0; j < k; j++)
            if (pick[j] != want[j]) fail_msg("%s: slot %d is %d, want %d", i->name, j, pick[j], want[j]);
    }
    ctx->impl = NULL;
}

static void known_lists(void **state)
{
    static const float score[] = {0.5f, -3, 7, 0.25f, 7.5f, -1e30f, 1e-38f};
    expect(*state, score, 7, 3, (int32_t[]){0, 2, 4});
    expect(*state, score, 7, 6, (int32_t[]){0, 1, 2, 3, 4, 6});
    expect(*state, score, 7, 9, (int32_t[]){0, 1, 2, 3, 4, 5, 6, -1, -1});
}

/* Among equal scores, the one in the lower column is selected; 0 and -0 are equal. */
static void ties_go_to_lower_columns(void **state)
{
    static const float score[] = {1, 2, 1, -0.0f, 1, 0, 2, 0};
    expect(*state, score, 8, 3, (int32_t[]){0, 1, 6});
    expect(*state, score, 8, 4, (int32_t[]){0, 1, 2, 6});
    expect(*state, score, 8, 6, (int32_t[]){0, 1, 2, 3, 4, 6});
    expect(*state, score, 8, 7, (int32_t[]){0, 1, 2, 3, 4, 5, 6});
}

static void masked_columns_are_never_selected(void **state)
{
    static const float score[] = {-INFINITY, -3.4e38f, -INFINITY, 0}, none[] = {-INFINITY, -INFINITY};
    expect(*state, score, 4, 3, (int32_t[]){1, 3, -1});
    expect(*state, none, 2, 2, (int32_t[]){-1, -1});
}

static void a_nan_is_selected_first(void **state)
{
    static const float score[] = {1, NAN, INFINITY, -NAN, 5, -INFINITY};
    expect(*state, score, 6, 1, (int32_t[]){1});
    expect(*state, score, 6, 2, (int32_t[]){1, 3});
    expect(*state, score, 6, 3, (int32_t[]){1, 2, 3});
    expect(*state, score, 6, 6, (int32_t[]){0, 1, 2, 3, 4, -1});
}

static void bad_arguments_are_named(void **state)
{
    float score[4] = {0};
    int32_t pick[4];
    pb_topk_fwd_args a = {.score = score, .pick = pick, .R = 1, .G = 4, .k = -1};
    CHECK_FAILS(pb_topk_fwd(*state, &a), PB_EINVAL, "k=-1");
    a.k = 2, a.score = NULL;
    CHECK_FAILS(pb_topk_fwd(*state, &a), PB_EINVAL, "score is NULL");
    a.score = score, a.pick = NULL;
    CHECK_FAILS(pb_topk_fwd(*state, &a), PB_EINVAL, "pick is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_lists),
        cmocka_unit_test(ties_go_to_lower_columns),
        cmocka_unit_test(masked_columns_are_never_selected),
        cmocka_unit_test(a_nan_is_selected_first),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
