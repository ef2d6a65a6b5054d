/* schedule_test.c - learning rates by step: known values, continuity between segments, defaults, and refused
 * settings. */
#include <math.h>

#include "tests/test.h"
#include "trainer/step/schedule.h"

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-15 + 1e-12 * fabs(want))) fail_msg("got %.17g, want %.17g", got, want);
}

static void warm_up_then_cosine(void **state)
{
    (void)state;
    const pb_schedule s = {.kind = PB_SCHEDULE_COSINE, .lr = 3e-4, .min = 1e-5, .warmup = 10, .steps = 110};
    CHECK_OK(pb_schedule_check(&s));
    near(pb_schedule_lr(&s, 0), 3e-5);
    near(pb_schedule_lr(&s, 4), 1.5e-4);
    near(pb_schedule_lr(&s, 9), 3e-4);
    near(pb_schedule_lr(&s, 10), 3e-4); /* the cosine begins at the peak rate */
    near(pb_schedule_lr(&s, 60), (3e-4 + 1e-5) / 2);
    near(pb_schedule_lr(&s, 35), 1e-5 + 2.9e-4 * (1 + sqrt(0.5)) / 2);
    near(pb_schedule_lr(&s, 110), 1e-5);
    near(pb_schedule_lr(&s, 5000), 1e-5);
    for (long i = 10; i < 110; i++) assert_true(pb_schedule_lr(&s, i + 1) < pb_schedule_lr(&s, i));
}

static void constant_and_short_runs(void **state)
{
    (void)state;
    const pb_schedule c = {.kind = PB_SCHEDULE_CONSTANT, .lr = 1e-3, .min = 1, .warmup = 2, .steps = 4};
    CHECK_OK(pb_schedule_check(&c)); /* the minimum applies to the cosine schedule only */
    near(pb_schedule_lr(&c, 0), 5e-4);
    near(pb_schedule_lr(&c, 3), 1e-3);
    const pb_schedule all = {.lr = 1e-3, .warmup = 4, .steps = 4}, one = {.lr = 1e-3, .steps = 1};
    CHECK_OK(pb_schedule_check(&all));
    near(pb_schedule_lr(&all, 3), 1e-3);
    near(pb_schedule_lr(&one, 0), 1e-3);
}

static void invalid_settings_are_refused(void **state)
{
    (void)state;
    CHECK_FAILS(pb_schedule_check(&(pb_schedule){.lr = -1, .steps = 4}), PB_EINVAL, "learning rate -1");
    CHECK_FAILS(pb_schedule_check(&(pb_schedule){.lr = (double)NAN, .steps = 4}), PB_EINVAL, "learning rate");
    CHECK_FAILS(pb_schedule_check(&(pb_schedule){.lr = 1e-5, .min = 1e-4, .steps = 4}), PB_EINVAL, "minimum");
    for (int kind = PB_SCHEDULE_COSINE; kind <= PB_SCHEDULE_CONSTANT; kind++)
        for (int i = 0; i < 3; i++) {
            const double bad[] = {-1, (double)INFINITY, (double)NAN};
            const pb_schedule s = {.kind = (pb_schedule_kind)kind, .lr = 1, .min = bad[i], .steps = 4};
            CHECK_FAILS(pb_schedule_check(&s), PB_EINVAL, "minimum learning rate");
        }
    CHECK_FAILS(pb_schedule_check(&(pb_schedule){.lr = (double)INFINITY, .steps = 4}), PB_EINVAL, "learning rate inf");
    CHECK_FAILS(pb_schedule_check(&(pb_schedule){.lr = 1, .warmup = 5, .steps = 4}), PB_EINVAL, "warm-up of 5");
}

static void defaults_follow_the_rank(void **state)
{
    (void)state;
    static const struct {
        int rank;
        double lr;
    } known[] = {{1, 2e-4}, {16, 2e-4}, {32, 2e-4}, {64, 1e-4}, {128, 5e-5}, {256, 2.5e-5}, {4096, 1e-5}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) near(pb_default_lr(PB_QLORA, known[i].rank), known[i].lr);
    near(pb_default_lr(PB_FULL, 16), 1e-5);
    assert_true(pb_lr_is_high(PB_LORA, 256, 2e-4));
    assert_false(pb_lr_is_high(PB_LORA, 256, 1e-4));
    assert_false(pb_lr_is_high(PB_LORA, 16, 2e-3));
    assert_false(pb_lr_is_high(PB_FULL, 256, 2e-4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm_up_then_cosine),
        cmocka_unit_test(constant_and_short_runs),
        cmocka_unit_test(invalid_settings_are_refused),
        cmocka_unit_test(defaults_follow_the_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
