/* bench_device_test.c - the metrics break_even and crossover, which are computed from the times of eager and graph
 * cases, and the machine id of a machine with a GPU. The times and the GPU's facts are made up, so no GPU is needed. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/machine/fingerprint.h"
#include "bench/derived/graph_gain.h"
#include "bench/run/process.h"
#include "bench/suites/plan.h"
#include "launch/supervise.h"
#include "bench/suites/suite.h"
#include "kernels/engine/op.h"
#include "tests/bench/emitter.h"

/* ---- the crossover: the number of tokens from which a graph gains less than 5 % ------------------------ */

static void the_crossover_lies_between_its_neighbours(void **state)
{
    pb_gain_point p[] = {{2048, 1.01}, {128, 4}, {512, 1.85}, {8192, 1}};
    double tokens = 0;
    (void)state;
    assert_int_equal(pb_crossover(p, 4, 1.43, &tokens), PB_CROSSES);
    /* 1.43 is half way from 1.85 (at 512) to 1.01 (at 2048), and 1024 is half way between them on a log scale */
    CHECK_NEAR(tokens, 1024, 1e-9 * 1024);
}

/* If the ratio falls below the limit and rises above it again, the crossover is where it falls for the last time. The
 * ratios of points with equal numbers of tokens are averaged. */
static void the_last_fall_counts(void **state)
{
    pb_gain_point dip[] = {{100, 2}, {200, 1}, {400, 2}, {1600, 1}}, twice[] = {{100, 1.5}, {400, 1.2}, {400, 0.8}};
    double tokens = 0;
    (void)state;
    assert_int_equal(pb_crossover(dip, 4, 1.5, &tokens), PB_CROSSES);
    CHECK_NEAR(tokens, 800, 1e-6);
    assert_int_equal(pb_crossover(twice, 3, 1.25, &tokens), PB_CROSSES);
    CHECK_NEAR(tokens, 200, 1e-6); /* halfway between 1.5 at 100 and the mean at 400, 1.0 */
}

static void a_graph_may_always_or_never_pay(void **state)
{
    pb_gain_point p[] = {{128, 1.3}, {512, 1.1}};
    double tokens = -1;
    (void)state;
    assert_int_equal(pb_crossover(p, 2, 1.05, &tokens), PB_ALWAYS_PAYS);
    assert_int_equal(pb_crossover(p, 2, 1.5, &tokens), PB_NEVER_PAYS);
    p[1].ratio = (double)NAN; /* NaN: not known to be faster */
    assert_int_equal(pb_crossover(p, 2, 1.5, &tokens), PB_NEVER_PAYS);
    CHECK_NEAR(tokens, -1, 0);
}

/* ---- rows derived from pairs of eager and graph cases ----------------------------------------------- */

static void put_batch(pb_emitter *s, const char *batch, const char *mode, const char *seq, const char *metric,
                      double value)
{
    pb_case c = {.suite = "backward", .name = "step"};
    CHECK_OK(pb_case_set(&c, "batch", batch));
    CHECK_OK(pb_case_set(&c, "clip", "fused"));
    CHECK_OK(pb_case_set(&c, "mode", mode));
    CHECK_OK(pb_case_set(&c, "seq", seq));
    pb_case_finish(&c);
    CHECK_OK(pb_emit(s, &c, metric, value, 1, PB_ROW_OK, ""));
}

static void put(pb_emitter *s, const char *mode, const char *seq, const char *metric, double value)
{
    put_batch(s, "2", mode, seq, metric, value);
}

static void a_process_says_what_its_graphs_bought(void **state)
{
    pb_emitter s;
    (void)state;
    open_emitter(&s);
    put(&s, "eager", "64", "backward_time", 0.004);
    put(&s, "graph", "64", "backward_time", 0.002);
    put(&s, "graph", "64", "record_time", 0.05);
    put(&s, "graph", "1024", "backward_time", 0.010);
    put(&s, "graph", "1024", "record_time", 0.05);
    put(&s, "eager", "1024", "backward_time", 0.010);
    put(&s, "graph", "4096", "backward_time", 0.040); /* no eager case has this length, so no gain is derived */
    CHECK_OK(pb_graph_gain_conclude(&s, "backward", "backward_time"));
    char *text = results();
    assert_non_null(strstr(text, "mode=graph&seq=64,break_even,1,none,25,0,ok"));
    assert_non_null(strstr(text, "mode=graph&seq=1024,break_even,1,none,,0,unsupported"));
    assert_null(strstr(text, "seq=4096,break_even"));
    char *row = strstr(text, "crossover/backward?clip=fused,crossover,1,none,");
    assert_non_null(row);
    CHECK_NEAR(atof(row + strlen("crossover/backward?clip=fused,crossover,1,none,")), 128 * pow(16, 0.95), 0.01);
    assert_null(strstr(row + 1, "crossover/backward")); /* one row per family */
    assert_non_null(strstr(row, "2 sizes; gain at most 2.000"));
    close(s.results);
    s.results = open("/dev/full", O_WRONLY);
    assert_true(s.results >= 0);
    CHECK_FAILS(pb_graph_gain_conclude(&s, "backward", "backward_time"), PB_EIO, "No space left");
    close_emitter(&s);
}

/* Cases with equal batch x seq, here batch 1 x seq 256 and batch 2 x seq 128, are one point of the crossover. */
static void cases_of_one_size_count_once(void **state)
{
    static const char *const shapes[][2] = {{"1", "256"}, {"2", "128"}, {"2", "512"}};
    pb_emitter s;
    (void)state;
    open_emitter(&s);
    for (int i = 0; i < 3; i++) {
        put_batch(&s, shapes[i][0], "eager", shapes[i][1], "backward_time", 0.004);
        put_batch(&s, shapes[i][0], "graph", shapes[i][1], "backward_time", i < 2 ? 0.002 : 0.004);
    }
    CHECK_OK(pb_graph_gain_conclude(&s, "backward", "backward_time"));
    assert_non_null(strstr(results(), "2 sizes; gain at most 2.000"));
    close_emitter(&s);
}

/* Graphs are 2 times faster at the first 299 lengths and gain nothing at the 300th, the longest: the crossover is found
 * only if no point is dropped. */
static void every_size_counts(void **state)
{
    pb_emitter s;
    (void)state;
    open_emitter(&s);
    for (int i = 1; i <= 300; i++) {
        char seq[16];
        snprintf(seq, sizeof seq, "%d", 8 * i);
        put(&s, "eager", seq, "backward_time", 0.004);
        put(&s, "graph", seq, "backward_time", i < 300 ? 0.002 : 0.004);
    }
    CHECK_OK(pb_graph_gain_conclude(&s, "backward", "backward_time"));
    char *row = strstr(results(), "crossover/backward?clip=fused,crossover,1,none,");
    assert_non_null(row);
    assert_non_null(strstr(row, "300 sizes; gain at most 2.000; of tokens a step"));
    close_emitter(&s);
}

/* ---- estimated times of cases, and the time budget ---------------------------------------------------- */

static pb_status weigh(void *user, const pb_case *c)
{
    const pb_plan p = {.device = true, .suite = pb_suite_find(c->suite)};
    const double e = pb_plan_expect(&p, c);
    if (!(e > 0.05 && e < 120)) fail_msg("%s: %g s", c->key, e);
    *(double *)user += e;
    return PB_OK;
}

/* Every case on a GPU has an estimate of its time. Without one a case counts as 1 s, which is wrong by a factor of 10
 * for a model of 1.5 billion weights. */
static void every_grid_has_an_estimate_on_a_gpu(void **state)
{
    static const struct {
        const char *suite;
        double least, most; /* seconds of the device grid */
    } want[] = {{"load", 10, 40}, {"ceiling", 3, 8}, {"self", 3, 8}};
    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const pb_suite *s = pb_suite_find(want[i].suite);
        double all = 0;
        assert_non_null(s->device_expect);
        for (const char *const *line = s->device_grid ? s->device_grid : s->grid; *line; line++)
            CHECK_OK(pb_grid_expand(s->name, s->axes, *line, weigh, &all));
        if (!(all > want[i].least && all < want[i].most)) fail_msg("%s: %g s in all", s->name, all);
    }
    for (const pb_suite *const *s = pb_suites; *s; s++)
        if ((*s)->expect && !(*s)->device_expect) fail_msg("%s: no estimate on a GPU", (*s)->name);
}

static pb_status cost_of(void *user, const pb_case *c)
{
    *(double *)user = pb_plan_expect(&(pb_plan){0}, c);
    return PB_OK;
}

static void more_work_takes_longer_on_the_cpu(void **state)
{
    static const struct {
        const char *suite, *less, *more;
    } pairs[] = {
        {"backward", "batch=1", "batch=4"},
        /* tuning=full also computes the gradients that lora does not need */
        {"backward", "tuning=lora", "tuning=full"},
        {"attention", "fwd topk=32", "fwd topk=128"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const pb_suite *s = pb_suite_find(pairs[i].suite);
        double less = 0, more = 0;
        CHECK_OK(pb_grid_expand(s->name, s->axes, pairs[i].less, cost_of, &less));
        CHECK_OK(pb_grid_expand(s->name, s->axes, pairs[i].more, cost_of, &more));
        if (!(less > 0 && more > less))
            fail_msg("%s: %s %g s, %s %g s", s->name, pairs[i].less, less, pairs[i].more, more);
    }
}

static pb_status check_of(void *user, const pb_case *c)
{
    const pb_suite *s = user;
    return s->check(c);
}

static void a_word_that_an_axis_lacks_is_refused(void **state)
{
    const pb_suite *s = pb_suite_find("backward");
    (void)state;
    CHECK_OK(pb_grid_expand(s->name, s->axes, "clip=sync", check_of, (void *)s));
    CHECK_FAILS(pb_grid_expand(s->name, s->axes, "clip=odd", check_of, (void *)s), PB_EINVAL, "axis clip: 'odd'");
}

/* A case that is stuck gets SIGTERM at the deadline and SIGKILL PB_GRACE seconds later; both lie within the budget. */
static void a_budget_reserves_the_grace(void **state)
{
    (void)state;
    for (int i = 0; i < 90; i++) {
        const double budget = 24 * pow(1.1, i);
        const double reserve = 1000 + budget - pb_budget_deadline(1000, budget);
        assert_true(reserve >= PB_GRACE + 0.999 && reserve < 10.001);
    }
    CHECK_NEAR(pb_budget_deadline(7, 100), 7 + 94, 1e-9);
    CHECK_NEAR(pb_budget_deadline(7, 160), 7 + 152, 1e-9);
    CHECK_NEAR(pb_budget_deadline(7, 3600), 7 + 3590, 1e-9);
    CHECK_NEAR(pb_budget_deadline(7, 2), 7 + 1.5, 1e-9); /* at least three quarters of a budget are for measuring */
}

/* ---- the machine id ----------------------------------------------------------------------------------- */

static void name_of(const pb_device_facts *f, const char *cpu, char id[PB_MACHINE_TEXT])
{
    json_t *o = json_pack("{s:{s:s,s:s},s:{}}", "hard", "device", "cuda", "cpu", cpu, "soft");
    pb_fingerprint_gpu(json_object_get(o, "hard"), json_object_get(o, "soft"), f);
    pb_machine_id(o, id);
    json_decref(o);
}

static void a_gpu_names_its_machine(void **state)
{
    pb_device_facts f = {.name = "NVIDIA H200", .multiprocessors = 132, .capability = 90, .memory = 150120169472u};
    char id[PB_MACHINE_TEXT], same[PB_MACHINE_TEXT], other[PB_MACHINE_TEXT];
    (void)state;
    name_of(&f, "Xeon", id);
    assert_int_equal(strncmp(id, "cuda-nvidia-h200-132sm-", 23), 0);
    f.driver = 13000, f.clock_hz = 1.98e9; /* facts that may change without changing the machine id */
    name_of(&f, "Xeon", same);
    assert_string_equal(id, same);
    name_of(&f, "EPYC", other);
    assert_string_not_equal(id, other);
    f.memory = (size_t)80 << 30;
    name_of(&f, "Xeon", other);
    assert_string_not_equal(id, other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_crossover_lies_between_its_neighbours),
        cmocka_unit_test(the_last_fall_counts),
        cmocka_unit_test(a_graph_may_always_or_never_pay),
        cmocka_unit_test(a_process_says_what_its_graphs_bought),
        cmocka_unit_test(cases_of_one_size_count_once),
        cmocka_unit_test(every_size_counts),
        cmocka_unit_test(every_grid_has_an_estimate_on_a_gpu),
        cmocka_unit_test(more_work_takes_longer_on_the_cpu),
        cmocka_unit_test(a_word_that_an_axis_lacks_is_refused),
        cmocka_unit_test(a_budget_reserves_the_grace),
        cmocka_unit_test(a_gpu_names_its_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
