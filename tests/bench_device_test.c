/* bench_device_test.c - what benchmarks on a GPU derive from their rows, and how such a machine is named; no GPU is
 * needed. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/fingerprint.h"
#include "bench/graph_gain.h"
#include "bench/results.h"
#include "tests/test.h"

/* ---- the crossover ---------------------------------------------------------------------------------- */

static void the_crossover_lies_between_its_neighbours(void **state)
{
    pb_gain_point p[] = {{2048, 1.01}, {128, 4}, {512, 1.85}, {8192, 1}};
    double tokens = 0;
    (void)state;
    assert_int_equal(pb_crossover(p, 4, 1.43, &tokens), PB_CROSSES);
    CHECK_NEAR(tokens, 1024, 1e-9 * 1024); /* half way from 1.85 to 1.01, between 512 and 2048 */
}

/* A dip that recovers is no crossing; equal sizes are one point. */
static void the_last_fall_counts(void **state)
{
    pb_gain_point dip[] = {{100, 2}, {200, 1}, {400, 2}, {1600, 1}}, twice[] = {{100, 1.5}, {400, 1.2}, {400, 0.8}};
    double tokens = 0;
    (void)state;
    assert_int_equal(pb_crossover(dip, 4, 1.5, &tokens), PB_CROSSES);
    CHECK_NEAR(tokens, 800, 1e-6);
    assert_int_equal(pb_crossover(twice, 3, 1.25, &tokens), PB_CROSSES);
    CHECK_NEAR(tokens, 200, 1e-6); /* from 1.5 to the mean, 1.0 */
}

static void a_graph_may_always_or_never_pay(void **state)
{
    pb_gain_point p[] = {{128, 1.3}, {512, 1.1}};
    double tokens = -1;
    (void)state;
    assert_int_equal(pb_crossover(p, 2, 1.05, &tokens), PB_ALWAYS_PAYS);
    assert_int_equal(pb_crossover(p, 2, 1.5, &tokens), PB_NEVER_PAYS);
    p[1].ratio = (double)NAN; /* no evidence that it pays */
    assert_int_equal(pb_crossover(p, 2, 1.5, &tokens), PB_NEVER_PAYS);
    CHECK_NEAR(tokens, -1, 0);
}

/* ---- rows ------------------------------------------------------------------------------------------- */

static char dir[] = "/tmp/pb_device_XXXXXX";

static void put(pb_sink *s, const char *mode, const char *seq, const char *metric, double value)
{
    pb_case c = {.suite = "backward", .name = "step"};
    CHECK_OK(pb_case_set(&c, "batch", "2"));
    CHECK_OK(pb_case_set(&c, "clip", "fused"));
    CHECK_OK(pb_case_set(&c, "mode", mode));
    CHECK_OK(pb_case_set(&c, "seq", seq));
    pb_case_finish(&c);
    CHECK_OK(pb_emit(s, &c, metric, value, 1, "ok", ""));
}

static char *results(void)
{
    static char text[65536];
    char path[128];
    snprintf(path, sizeof path, "%s/results.csv", dir);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

static void a_launch_says_what_its_graphs_bought(void **state)
{
    pb_sink s;
    (void)state;
    assert_non_null(mkdtemp(dir));
    CHECK_OK(pb_results_create(dir));
    CHECK_OK(pb_sink_open(dir, &s));
    s.run_id = "r", s.machine_id = "m";
    put(&s, "eager", "64", "backward_time", 0.004);
    put(&s, "graph", "64", "backward_time", 0.002);
    put(&s, "graph", "64", "record_time", 0.05);
    put(&s, "graph", "1024", "backward_time", 0.010);
    put(&s, "graph", "1024", "record_time", 0.05);
    put(&s, "eager", "1024", "backward_time", 0.010);
    put(&s, "graph", "4096", "backward_time", 0.040); /* without its eager twin */
    CHECK_OK(pb_graph_gain_conclude(&s, "backward", "backward_time"));
    pb_sink_close(&s);
    char *text = results();
    assert_non_null(strstr(text, "mode=graph&seq=64,break_even,1,none,25,0,ok"));
    assert_non_null(strstr(text, "mode=graph&seq=1024,break_even,1,none,,0,unsupported"));
    assert_null(strstr(text, "seq=4096,break_even"));
    char *row = strstr(text, "crossover/backward?clip=fused,crossover,1,none,");
    assert_non_null(row);
    CHECK_NEAR(atof(row + strlen("crossover/backward?clip=fused,crossover,1,none,")), 128 * pow(16, 0.95), 0.01);
    assert_null(strstr(row + 1, "crossover/backward")); /* one a family */
    assert_non_null(strstr(row, "2 sizes; gain at most 2.000"));
    static const char *const files[] = {"results.csv", "samples.csv"};
    char path[128];
    for (int i = 0; i < 2; i++) snprintf(path, sizeof path, "%s/%s", dir, files[i]), unlink(path);
    rmdir(dir);
}

/* ---- the machine -------------------------------------------------------------------------------------- */

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
    f.driver = 13000, f.clock_hz = 1.98e9; /* may explain a difference, but it is the same machine */
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
        cmocka_unit_test(a_launch_says_what_its_graphs_bought),
        cmocka_unit_test(a_gpu_names_its_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
