/* gpu_work_test.c - a trace's work on a GPU by kinds that run at once, and by name. */
#include "bench/analyze/gpu_work.h"

#include "tests/test.h"

enum { KERNEL = 1 << PB_WORK_KERNEL, NCCL = 1 << PB_WORK_COMMUNICATION, MEMORY = 1 << PB_WORK_MEMORY };

static void time_is_divided_by_the_kinds_that_run(void **state)
{
    (void)state;
    pb_gpu_span work[] = {
        {.name = "copy", .what = PB_WORK_MEMORY, .copy = true, .begin = 5, .end = 7, .moved = 20},
        {.name = "a", .what = PB_WORK_KERNEL, .begin = 10, .end = 14},
        {.name = "a", .what = PB_WORK_KERNEL, .begin = 12, .end = 16}, /* at once with the first */
        {.name = "nccl", .what = PB_WORK_COMMUNICATION, .begin = 15, .end = 20},
        {.name = "copy", .what = PB_WORK_MEMORY, .copy = true, .begin = 15.5, .end = 18, .moved = 100},
        {.name = "b", .what = PB_WORK_KERNEL, .begin = 25, .end = 26},
        {.name = "b", .what = PB_WORK_KERNEL, .begin = 24, .end = 24}, /* of no length */
    };
    const pb_trace t = {.gpu = work, .ngpu = sizeof work / sizeof *work};
    pb_gpu_total g;
    CHECK_OK(pb_gpu_total_make(&t, &g));
    const double want[PB_WORK_SETS] = {[0] = 8,
                                       [KERNEL] = 6,
                                       [NCCL] = 2,
                                       [MEMORY] = 2,
                                       [KERNEL | NCCL] = 0.5,
                                       [NCCL | MEMORY] = 2,
                                       [KERNEL | NCCL | MEMORY] = 0.5};
    CHECK_NEAR(g.window, 21, 0);
    for (int s = 0; s < PB_WORK_SETS; s++) CHECK_NEAR(g.set[s], want[s], 1e-12);
    static const pb_gpu_named named[] = {
        {"a", PB_WORK_KERNEL, 2, 8, 4, 4, false, 0},
        {"nccl", PB_WORK_COMMUNICATION, 1, 5, 5, 5, false, 0},
        {"copy", PB_WORK_MEMORY, 2, 4.5, 2, 2.5, true, 120},
        {"b", PB_WORK_KERNEL, 2, 1, 0, 1, false, 0},
    };
    assert_int_equal(g.n, 4);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(g.named[i].name, named[i].name);
        assert_int_equal(g.named[i].what, named[i].what);
        assert_int_equal(g.named[i].calls, named[i].calls);
        CHECK_NEAR(g.named[i].seconds, named[i].seconds, 1e-12);
        CHECK_NEAR(g.named[i].shortest, named[i].shortest, 1e-12);
        CHECK_NEAR(g.named[i].longest, named[i].longest, 1e-12);
        assert_int_equal(g.named[i].copy, named[i].copy);
        CHECK_NEAR(g.named[i].moved, named[i].moved, 0);
    }
    pb_gpu_total_free(&g);
}

static void a_trace_without_a_gpu_is_zero(void **state)
{
    (void)state;
    const pb_trace t = {0};
    pb_gpu_total g;
    CHECK_OK(pb_gpu_total_make(&t, &g));
    assert_int_equal(g.n, 0);
    CHECK_NEAR(g.window, 0, 0);
    for (int s = 0; s < PB_WORK_SETS; s++) CHECK_NEAR(g.set[s], 0, 0);
    pb_gpu_total_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_is_divided_by_the_kinds_that_run),
        cmocka_unit_test(a_trace_without_a_gpu_is_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
