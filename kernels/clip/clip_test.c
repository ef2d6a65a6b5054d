/* clip_test.c - tests gradient clipping: known norms, the joint norm of several buffers, buffers that must stay
 * unchanged bit for bit, skipped steps, and errors. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/clip/clip.h"
#include "tests/test.h"

enum { MAX_SLOTS = 64 };

static pb_status multi(pb_ctx *ctx, pb_clip_entry *list, int n, float max_norm, bool apply, const float *loss_scale,
                       pb_clip_state *state)
{
    float partial[MAX_SLOTS];
    int slots = 0;
    for (int i = 0; i < n; i++) slots += pb_clip_slots(list[i].n);
    assert_true(slots <= MAX_SLOTS);
    return pb_clip_multi(ctx, &(pb_clip_multi_args){.list = list,
                                                    .state = state,
                                                    .partial = partial,
                                                    .loss_scale = loss_scale,
                                                    .n = n,
                                                    .slots = slots,
                                                    .max_norm = max_norm,
                                                    .apply = apply});
}

/* Makes six buffers of 100 elements +-10/sqrt(600); their joint norm is 10. */
static void six_buffers(float x[6][100], pb_clip_entry list[6])
{
    for (int b = 0; b < 6; b++) {
        for (int i = 0; i < 100; i++) x[b][i] = (float)((i % 2 ? 10 : -10) / sqrt(600));
        list[b] = (pb_clip_entry){x[b], 100};
    }
}

/* A norm of 10 and max_norm 1 must give the scale 0.1. Wrong formulas would give other scales: 0.01 with the squared
 * norm, 0.316 with the square root of the norm, 0.245 with a separate norm per buffer. */
static void joint_norm_ten_to_one_gives_a_tenth(void **state)
{
    float x[6][100];
    pb_clip_entry list[6];
    pb_clip_state s;
    six_buffers(x, list);
    CHECK_OK(multi(*state, list, 6, 1, true, NULL, &s));
    CHECK_NEAR(s.norm, 10, 1e-5);
    CHECK_NEAR(s.scale, 0.1, 1e-7);
    assert_true(s.skip == 0 && s.unused == 0);
    for (int b = 0; b < 6; b++)
        for (int i = 0; i < 100; i++) CHECK_NEAR(x[b][i], (i % 2 ? 1 : -1) / sqrt(600), 1e-8);
    CHECK_OK(multi(*state, list, 6, 1e9f, true, NULL, &s));
    CHECK_NEAR(s.norm, 1, 1e-6);
}

/* The norm is far from 1, so that the norm and its square differ in the first digit. */
static void the_norm_is_the_root_of_the_sum(void **state)
{
    float x[2] = {3e4f, 4e4f};
    pb_clip_state s;
    CHECK_OK(multi(*state, (pb_clip_entry[]){{x, 2}}, 1, 100, false, NULL, &s));
    assert_true(s.norm == 5e4f && s.scale == 2e-3f);
    assert_true(x[0] == 3e4f && x[1] == 4e4f); /* unchanged, because apply is false */
}

static void a_norm_below_the_maximum_changes_nothing(void **state)
{
    float x[6][100], before[6][100];
    pb_clip_entry list[6];
    pb_clip_state s;
    six_buffers(x, list);
    memcpy(before, x, sizeof x);
    CHECK_OK(multi(*state, list, 6, 10.001f, true, NULL, &s));
    assert_true(s.scale == 1 && s.skip == 0);
    assert_memory_equal(x, before, sizeof x);
    CHECK_OK(multi(*state, list, 6, INFINITY, true, NULL, &s));
    assert_true(s.scale == 1 && s.skip == 0);
    assert_memory_equal(x, before, sizeof x);
}

static void a_norm_that_is_not_finite_skips_the_step(void **state)
{
    const float bad[3] = {NAN, INFINITY, -INFINITY};
    for (int k = 0; k < 3; k++)
        for (int at = 0; at < 100; at += 33) {
            float x[6][100], before[6][100];
            pb_clip_entry list[6];
            pb_clip_state s;
            six_buffers(x, list);
            x[4][at] = bad[k];
            memcpy(before, x, sizeof x);
            CHECK_OK(multi(*state, list, 6, 1, true, NULL, &s));
            assert_true(s.scale == 1 && s.skip == 1 && !isfinite(s.norm));
            assert_memory_equal(x, before, sizeof x);
        }
}

static void empty_and_zero_buffers_have_norm_zero(void **state)
{
    float x[5] = {0};
    pb_clip_state s = {.scale = 7};
    CHECK_OK(multi(*state, (pb_clip_entry[]){{NULL, 0}, {x, 5}, {NULL, 0}}, 3, 1, true, NULL, &s));
    assert_true(s.norm == 0 && s.scale == 1 && s.skip == 0);
    s.scale = 7;
    CHECK_OK(multi(*state, NULL, 0, 1, true, NULL, &s));
    assert_true(s.norm == 0 && s.scale == 1 && s.skip == 0);
    s.scale = 7;
    CHECK_OK(pb_clip_reduce(*state, &(pb_clip_reduce_args){.state = &s, .max_norm = 1}));
    assert_true(s.norm == 0 && s.scale == 1 && s.skip == 0);
}

static void multi_equals_the_three_phases(void **state)
{
    enum { BUFFERS = 4 };
    static const size_t sizes[BUFFERS] = {5000, 0, 1, 2049};
    float *x[BUFFERS], *y[BUFFERS], partial[MAX_SLOTS];
    pb_clip_entry list[BUFFERS];
    pb_clip_state one, three;
    int slots = 0;
    for (int b = 0; b < BUFFERS; b++) {
        x[b] = malloc((sizes[b] + 1) * sizeof **x), y[b] = malloc((sizes[b] + 1) * sizeof **y);
        assert_true(x[b] && y[b]);
        for (size_t i = 0; i < sizes[b]; i++) x[b][i] = y[b][i] = (float)(pb_uniform(b + 1, i) - 0.5);
        list[b] = pb_clip_buffer(x[b], sizes[b], PB_F32);
        if (sizes[b]) CHECK_OK(pb_clip_sqsum(*state, &(pb_clip_sqsum_args){y[b], partial + slots, sizes[b]}));
        slots += pb_clip_slots(sizes[b]);
    }
    CHECK_OK(pb_clip_reduce(
        *state, &(pb_clip_reduce_args){.partial = partial, .state = &three, .slots = slots, .max_norm = 1}));
    CHECK_OK(multi(*state, list, BUFFERS, 1, true, NULL, &one));
    assert_memory_equal(&one, &three, sizeof one);
    for (int b = 0; b < BUFFERS; b++) {
        CHECK_OK(pb_clip_scale(*state, &(pb_clip_scale_args){y[b], &three, sizes[b]}));
        assert_memory_equal(x[b], y[b], sizes[b] * sizeof **x);
        free(x[b]), free(y[b]);
    }
}

/* Every element is in exactly one slot, also for buffers that are slightly shorter or longer than whole slots. */
static void slots_cover_a_buffer_once(void **state)
{
    static float x[300000], partial[256];
    const size_t sizes[] = {1, 63, 64, 1023, 1024, 1025, 2048, 4097, 262144, 262145, 299999};
    for (size_t i = 0; i < 300000; i++) x[i] = 1;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        double sum = 0;
        CHECK_OK(pb_clip_sqsum(*state, &(pb_clip_sqsum_args){x, partial, sizes[k]}));
        for (int s = 0; s < pb_clip_slots(sizes[k]); s++) sum += (double)partial[s];
        assert_true(sum == (double)sizes[k]);
    }
    assert_true(pb_clip_slots(0) == 0 && pb_clip_slots(1) == 1 && pb_clip_slots(1025) == 2);
    assert_true(pb_clip_slots((size_t)1 << 40) == 256);
}

/* The slots of a part of a buffer are slots of the buffer: ranks that hold parts compute the norm of the whole. */
static void a_part_gives_the_slots_of_the_whole(void **state)
{
    enum { N = 299999 };
    static float x[N], whole[256], part[256];
    const size_t run = pb_clip_run(N), first = 100 * run;
    for (size_t i = 0; i < N; i++) x[i] = (float)(pb_uniform(1, i) - 0.5);
    CHECK_OK(pb_clip_sqsum(*state, &(pb_clip_sqsum_args){x, whole, N}));
    CHECK_OK(pb_clip_sqsum(*state, &(pb_clip_sqsum_args){x, part, first, run}));
    assert_memory_equal(part, whole, 100 * sizeof *part);
    CHECK_OK(pb_clip_sqsum(*state, &(pb_clip_sqsum_args){x + first, part, N - first, run}));
    assert_memory_equal(part, whole + 100, (N - first + run - 1) / run * sizeof *part);
    CHECK_FAILS(pb_clip_sqsum(*state, &(pb_clip_sqsum_args){x, part, N, 65}), PB_EINVAL, "run=65");
}

/* Gradients that contain a loss scale of 2^k give the same bits after clipping as gradients without it. Tested with a
 * norm above and a norm below the maximum. */
static void a_loss_scale_changes_no_bit(void **state)
{
    const float scale = 4096;
    for (int clipped = 0; clipped < 2; clipped++) {
        float x[6][100], y[6][100];
        pb_clip_entry list[6], scaled[6];
        pb_clip_state s, r;
        six_buffers(x, list), six_buffers(y, scaled);
        for (int b = 0; b < 6; b++)
            for (int i = 0; i < 100; i++) y[b][i] *= scale;
        CHECK_OK(multi(*state, list, 6, clipped ? 1 : 11, true, NULL, &s));
        CHECK_OK(multi(*state, scaled, 6, clipped ? 1 : 11, true, &scale, &r));
        assert_true(r.norm == s.norm && r.scale == s.scale / scale && r.skip == 0);
        assert_memory_equal(x, y, sizeof x);
    }
}

static void bad_arguments_are_named(void **state)
{
    pb_clip_state s;
    CHECK_FAILS(pb_clip_reduce(*state, &(pb_clip_reduce_args){.state = &s}), PB_EINVAL, "max_norm=0");
    CHECK_FAILS(multi(*state, NULL, 0, NAN, true, NULL, &s), PB_EINVAL, "max_norm=");
    CHECK_FAILS(pb_clip_sqsum(*state, &(pb_clip_sqsum_args){0}), PB_EINVAL, "n=0");
    CHECK_FAILS(pb_clip_reduce(*state, &(pb_clip_reduce_args){.slots = -1, .max_norm = 1}), PB_EINVAL, "slots=-1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joint_norm_ten_to_one_gives_a_tenth),
        cmocka_unit_test(the_norm_is_the_root_of_the_sum),
        cmocka_unit_test(a_norm_below_the_maximum_changes_nothing),
        cmocka_unit_test(a_norm_that_is_not_finite_skips_the_step),
        cmocka_unit_test(empty_and_zero_buffers_have_norm_zero),
        cmocka_unit_test(multi_equals_the_three_phases),
        cmocka_unit_test(slots_cover_a_buffer_once),
        cmocka_unit_test(a_part_gives_the_slots_of_the_whole),
        cmocka_unit_test(a_loss_scale_changes_no_bit),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return test_every_impl(&pb_op_clip_multi, tests, sizeof tests / sizeof *tests);
}
