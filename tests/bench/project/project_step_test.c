/* project_step_test.c - tests the model of a step, its fit, and the points that are kept out of fits. */
#define _GNU_SOURCE
#include <math.h>

#include "bench/project/alpha_beta.h"
#include "bench/project/fit.h"
#include "bench/project/fit_check.h"
#include "bench/project/step_model.h"
#include "tests/bench/files_test.h"

/* ---- kept-out points ------------------------------------------------------------------------------- */

static void sizes_and_the_largest_number_of_ranks_are_kept_out(void **state)
{
    pb_timed t[15];
    pb_accuracy a;
    (void)state;
    for (int i = 0; i < 15; i++)
        t[i] = (pb_timed){.bytes = 1 << (i / 3), .place = {1, 2 << (i % 3)}, .seconds = 1, .model = 1};
    pb_keep_out(t, 15, 3);
    for (int i = 0; i < 15; i++) assert_int_equal(t[i].kept_out, i % 3 == 2 || i / 3 == 1 || i / 3 == 4);
    t[3].model = 1.25;
    t[14].model = 0.96;
    t[0].model = 9; /* fitted: its error does not count */
    CHECK_OK(pb_check_points(t, 15, &a));
    assert_int_equal(a.kept_out, 9);
    assert_int_equal(a.fitted, 6);
    CHECK_NEAR(a.max, 0.25, 1e-12);
    CHECK_NEAR(a.median, 0, 0);
    assert_false(pb_accurate(&a));
    t[3].model = 1.0999;
    CHECK_OK(pb_check_points(t, 15, &a));
    assert_true(pb_accurate(&a));
    t[3].model = (double)NAN;
    CHECK_OK(pb_check_points(t, 15, &a));
    assert_false(pb_accurate(&a));

    pb_keep_out(t, 6, 3); /* two sizes, but three numbers of ranks */
    for (int i = 0; i < 6; i++) assert_int_equal(t[i].kept_out, i % 3 == 2);
    pb_keep_out(t, 2, 2); /* two numbers of ranks are enough for a step */
    assert_true(!t[0].kept_out && t[1].kept_out);
    pb_keep_out(t, 1, 2);
    assert_false(t[0].kept_out);
    pb_keep_out(t, 2, 3); /* one size and two numbers of ranks: nothing can be kept out */
    CHECK_OK(pb_check_points(t, 2, &a));
    assert_int_equal(a.kept_out, 0);
    assert_true(isnan(a.max));
    assert_false(pb_accurate(&a));
}

/* ---- the model of a step --------------------------------------------------------------------------- */

static void check_schedule(int n, const double *seconds, double wait, double hidden)
{
    const pb_step_comm c = pb_step_schedule((double[]){30, 20, 50}, seconds, n, 10);
    CHECK_NEAR(c.wait, wait, 1e-12);
    CHECK_NEAR(c.hidden, hidden, 1e-12);
}

static void buckets_overlap_with_the_backward_pass(void **state)
{
    (void)state;
    /* Ready at 3, 5 and 10 s of a backward pass of 10 s. */
    check_schedule(3, (double[]){1, 1, 2}, 2, 2); /* only the last one is not hidden */
    check_schedule(3, (double[]){4, 5, 2}, 4, 7); /* 3+4, +5 = 12, +2: each waits for the one before */
    check_schedule(3, (double[]){3, 3, 3}, 3, 6); /* 6, 9, then the third waits for its data */
    check_schedule(3, (double[]){0, 0, 0}, 0, 0);
    check_schedule(0, NULL, 0, 0); /* nothing is trained */
}

static double sum_of_squares(const pb_step_point *p, int n, double compute, double contention)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        const double base = compute > 0 ? compute : p[i].one;
        const double e = (base + p[i].comm.wait + contention * p[i].comm.hidden) / p[i].seconds - 1;
        sum += e * e;
    }
    return sum;
}

static void compute_minimises_relative_errors(void **state)
{
    const pb_step_point p[] = {{4, 0, {0, 0}}, {5, 0, {1.2, 0.5}}, {9, 0, {4.5, 1}}};
    const double c = pb_step_compute(p, 3, 0.4), least = sum_of_squares(p, 3, c, 0.4);
    (void)state;
    assert_true(least < sum_of_squares(p, 3, c * 1.001, 0.4) && least < sum_of_squares(p, 3, c * 0.999, 0.4));
    CHECK_NEAR(pb_step_compute((const pb_step_point[]){{1, 0, {3, 0}}}, 1, 0), 0, 0);
}

static void contention_minimises_relative_errors(void **state)
{
    const pb_step_point p[] = {{5, 4, {0.2, 1}}, {9, 6, {0.5, 3}}, {20, 19, {0.1, 2}}};
    const pb_step_point nothing_hidden = {5, 4, {0.2, 0}}, faster = {4, 4, {1, 1}};
    const double k = pb_step_contention(p, 3), least = sum_of_squares(p, 3, 0, k);
    (void)state;
    assert_true(k > 0.4 && k < 0.9);
    assert_true(least < sum_of_squares(p, 3, 0, k * 1.001) && least < sum_of_squares(p, 3, 0, k * 0.999));
    CHECK_NEAR(pb_step_contention(p, 0), 0, 0);
    CHECK_NEAR(pb_step_contention(&nothing_hidden, 1), 0, 0);
    CHECK_NEAR(pb_step_contention(&faster, 1), 0, 0); /* never below 0 */
}

#define STEP(model, more)                                                                                              \
    "throughput/step?" more "batch=2&clip=multi&dtype=f32&layers=0&mode=eager&model=" model "&rank=16"

static void check_buckets(const char *key, int buckets, double total, double slack)
{
    pb_case c;
    double *bytes, tokens, sum = 0;
    int n;
    CHECK_OK(pb_case_parse(key, &c));
    CHECK_OK(pb_step_buckets(&c, &bytes, &n, &tokens));
    CHECK_NEAR(tokens, 256, 0);
    assert_int_equal(n, buckets);
    for (int i = 0; i < n; i++) {
        assert_true(i + 1 == n || bytes[i] >= 25 << 20);
        sum += bytes[i];
    }
    CHECK_NEAR(sum, total, slack);
    free(bytes);
}

static void buckets_are_those_of_the_trainer(void **state)
{
    pb_case c;
    double *bytes, tokens;
    int n;
    (void)state;
    check_buckets(STEP("tiny", "") "&seq=128&targets=q+v&tuning=full", 1, 605952, 0);
    check_buckets(STEP("tiny", "") "&reduce=bf16&seq=128&targets=q+v&tuning=full", 1, 302976, 0);
    /* 134515008 parameters (config.json of SmolLM2-135M). */
    check_buckets(STEP("smollm2-135m", "") "&seq=128&targets=q+v&tuning=full", 16, 4 * 134515008.0, 0);
    CHECK_OK(pb_case_parse(STEP("tiny", "accumulate=2&") "&seq=128&targets=q+v&tuning=full", &c));
    CHECK_FAILS(pb_step_buckets(&c, &bytes, &n, &tokens), PB_EINVAL, "only accumulate=1");
    CHECK_OK(pb_case_parse(STEP("tiny", "") "&seq=128&shard=optimizer&targets=q+v&tuning=full", &c));
    CHECK_FAILS(pb_step_buckets(&c, &bytes, &n, &tokens), PB_EINVAL, "only shard=none");
}

static pb_curve curve_of(pb_timed *t, int n, pb_collective op)
{
    return (pb_curve){.name = "curve", .op = op, .dtype = "f32", .points = {t, n, n}};
}

/* Doubles the measured times of the points that were kept out. */
static int double_kept_out(pb_timed *t, int n)
{
    int doubled = 0;
    for (int i = 0; i < n; i++)
        if (t[i].kept_out) t[i].seconds *= 2, doubled++;
    return doubled;
}

/* A point that checks a model must not have formed it. */
static void kept_out_points_do_not_change_the_fit(void **state)
{
    const pb_alpha_beta truth = {3e-6, 1 / 40e9};
    pb_timed t[15], steps[4];
    pb_fit before, after;
    pb_step_fit one, other;
    (void)state;
    for (int i = 0; i < 15; i++) {
        t[i] = (pb_timed){.bytes = pow(16, 2 + i / 3), .place = {1, 2 << (i % 3)}};
        const pb_ab_point p = pb_ab_terms(PB_COLLECTIVE_all_reduce, t[i].bytes, t[i].place, PB_LINK_IN);
        t[i].seconds = pb_ab_seconds(&truth, &p);
    }
    pb_curve collective = curve_of(t, 15, PB_COLLECTIVE_all_reduce);
    CHECK_OK(pb_fit_make(&collective, 0, NULL, &before));
    assert_int_equal(double_kept_out(t, 15), 9);
    CHECK_OK(pb_fit_make(&collective, 0, NULL, &after));
    CHECK_NEAR(after.link[PB_LINK_IN].model.alpha, before.link[PB_LINK_IN].model.alpha, 0);
    CHECK_NEAR(after.link[PB_LINK_IN].model.seconds_per_byte, before.link[PB_LINK_IN].model.seconds_per_byte, 0);
    CHECK_NEAR(before.link[PB_LINK_IN].accuracy.max, 0, 1e-9);
    CHECK_NEAR(after.link[PB_LINK_IN].accuracy.median, 0.5, 1e-9);

    for (int i = 0; i < 4; i++) steps[i] = (pb_timed){.place = {1, 1 << i}, .seconds = 1 + i, .backward = 0.5};
    pb_curve step = curve_of(steps, 4, PB_NCOLLECTIVES);
    CHECK_OK(pb_step_fit_make(&step, &before, calloc(1, sizeof(double)), 0, 256, &one));
    CHECK_OK(pb_step_fit_all(&one, 1));
    assert_int_equal(double_kept_out(steps, 4), 1);
    CHECK_OK(pb_step_fit_make(&step, &before, calloc(1, sizeof(double)), 0, 256, &other));
    CHECK_OK(pb_step_fit_all(&other, 1));
    CHECK_NEAR(other.compute, one.compute, 0);
    pb_step_fit_free(&one);
    pb_step_fit_free(&other);
}

/* Two buckets of equal size, whose collectives take less than half of the backward pass each: the first is hidden. */
static void step_of(pb_timed *t, int ranks, double compute, double contention, const pb_fit *reduce)
{
    const double bytes = 1 << 26, each = ranks > 1 ? pb_fit_seconds(reduce, bytes, (pb_place){1, ranks}) : 0;
    *t = (pb_timed){.place = {1, ranks}, .backward = 0.5, .seconds = compute + each + contention * each};
}

/* On one and two ranks the contention of each case comes from the other cases, so its step of two ranks checks it. On one,
 * two and four ranks it comes from the steps of two ranks, and the step of four checks it. */
static void contention_of_a_step_comes_from_the_others(void **state)
{
    pb_timed t[8], steps[3][3];
    pb_curve curve[3];
    pb_step_fit f[3];
    pb_fit reduce;
    (void)state;
    for (int i = 0; i < 8; i++) {
        t[i] = (pb_timed){.bytes = pow(16, 2 + i / 2), .place = {1, 2 << (i % 2)}};
        const pb_ab_point p = pb_ab_terms(PB_COLLECTIVE_all_reduce, t[i].bytes, t[i].place, PB_LINK_IN);
        t[i].seconds = pb_ab_seconds(&(const pb_alpha_beta){3e-6, 1 / 1e9}, &p);
    }
    pb_curve collective = curve_of(t, 8, PB_COLLECTIVE_all_reduce);
    CHECK_OK(pb_fit_make(&collective, 0, NULL, &reduce));
    for (int n = 2; n <= 3; n++) { /* numbers of ranks: 1, 2, and 4 */
        for (int i = 0; i < 3; i++) {
            for (int j = 0; j < n; j++) step_of(&steps[i][j], 1 << j, 1 + i, i == 0 && n == 2 ? 0.2 : 0.6, &reduce);
            curve[i] = curve_of(steps[i], n, PB_NCOLLECTIVES);
            double *bytes = malloc(2 * sizeof *bytes);
            assert_non_null(bytes);
            bytes[0] = bytes[1] = 1 << 26;
            CHECK_OK(pb_step_fit_make(&curve[i], &reduce, bytes, 2, 256, &f[i]));
        }
        CHECK_OK(pb_step_fit_all(f, 3));
        for (int i = 0; i < 3; i++) {
            assert_int_equal(f[i].accuracy.kept_out, 1);
            assert_int_equal(f[i].contended, n == 2 ? 2 : 3);
            CHECK_NEAR(f[i].compute, 1 + i, 1e-3);
        }
        CHECK_NEAR(f[0].contention, 0.6, 1e-6); /* of the others, or of all on two ranks */
        if (n == 2) assert_true(f[1].contention < 0.59 && f[0].accuracy.max > 0.02 && f[2].accuracy.max < 0.02);
        if (n == 3) CHECK_NEAR(f[1].accuracy.max, 0, 1e-6);
        for (int i = 0; i < 3; i++) pb_step_fit_free(&f[i]);
    }
    step_of(&steps[0][1], 2, 1, 0.6, &reduce);
    curve[0].points.n = 2;
    CHECK_OK(pb_step_fit_make(&curve[0], &reduce, calloc(1, sizeof(double)), 0, 256, &f[0]));
    CHECK_OK(pb_step_fit_all(f, 1));
    assert_int_equal(f[0].contended, 0); /* there is no other step */
    CHECK_NEAR(f[0].contention, 0, 0);
    pb_step_fit_free(&f[0]);
}
int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes_and_the_largest_number_of_ranks_are_kept_out),
                                       cmocka_unit_test(buckets_overlap_with_the_backward_pass),
                                       cmocka_unit_test(compute_minimises_relative_errors),
                                       cmocka_unit_test(contention_minimises_relative_errors),
                                       cmocka_unit_test(contention_of_a_step_comes_from_the_others),
                                       cmocka_unit_test(buckets_are_those_of_the_trainer),
                                       cmocka_unit_test(kept_out_points_do_not_change_the_fit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
