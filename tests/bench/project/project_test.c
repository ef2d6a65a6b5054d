/* project_test.c - tests the alpha-beta model and its fit, and that `bench project` recovers the latency, bandwidth and
 * times of simulated runs (scripts/fixtures/project_fixtures.py). */
#define _GNU_SOURCE
#include <math.h>

#include "bench/project/alpha_beta.h"
#include "bench/project/project.h"
#include "tests/bench/files_test.h"

#define FIXTURES PB_SOURCE_DIR "/tests/fixtures/project/"

/* ---- the model of a collective --------------------------------------------------------------------- */

/* 800 bytes on 2 hosts of 4 ranks, counted by hand from the definition of each algorithm. */
static void terms_are_those_of_the_algorithm(void **state)
{
    static const struct {
        pb_collective op;
        double in_steps, in_bytes, out_steps, out_bytes;
    } want[] = {{PB_COLLECTIVE_all_reduce, 6, 1200, 2, 200},
                {PB_COLLECTIVE_reduce_scatter, 3, 600, 1, 100},
                {PB_COLLECTIVE_all_gather, 3, 600, 1, 100},
                {PB_COLLECTIVE_all_to_all, 3, 300, 4, 400},
                {PB_COLLECTIVE_broadcast, 3, 800, 1, 800}};
    (void)state;
    assert_int_equal(sizeof want / sizeof *want, PB_NCOLLECTIVES);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const pb_ab_point in = pb_ab_terms(want[i].op, 800, (pb_place){2, 4}, PB_LINK_IN);
        const pb_ab_point out = pb_ab_terms(want[i].op, 800, (pb_place){2, 4}, PB_LINK_OUT);
        const pb_ab_point one = pb_ab_terms(want[i].op, 800, (pb_place){1, 1}, PB_LINK_IN);
        CHECK_NEAR(in.steps, want[i].in_steps, 0);
        CHECK_NEAR(in.bytes, want[i].in_bytes, 1e-9);
        CHECK_NEAR(out.steps, want[i].out_steps, 0);
        CHECK_NEAR(out.bytes, want[i].out_bytes, 1e-9);
        CHECK_NEAR(one.steps + one.bytes, 0, 0);
    }
}

static void names_of_nccl_tests_are_known(void **state)
{
    (void)state;
    assert_int_equal(pb_collective_find("alltoall"), PB_COLLECTIVE_all_to_all);
    assert_int_equal(pb_collective_find("all_to_all"), PB_COLLECTIVE_all_to_all);
    assert_int_equal(pb_collective_find("sendrecv"), PB_NCOLLECTIVES);
    assert_string_equal(pb_collective_name(PB_COLLECTIVE_broadcast), "broadcast");
}

/* The sum of squared relative errors that the fit minimises. */
static double squares(const pb_ab_point *p, int n, pb_alpha_beta m)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        const double t = p[i].known + m.alpha * p[i].steps + m.seconds_per_byte * p[i].bytes;
        sum += (t / p[i].seconds - 1) * (t / p[i].seconds - 1);
    }
    return sum;
}

static void fit_is_exact_without_noise(void **state)
{
    const pb_alpha_beta truth = {3e-6, 1 / 40e9};
    pb_ab_point p[12];
    pb_alpha_beta m;
    (void)state;
    for (int i = 0; i < 12; i++) {
        p[i] = pb_ab_terms(PB_COLLECTIVE_all_reduce, pow(4, 5 + i % 6), (pb_place){1, i < 6 ? 2 : 8}, PB_LINK_IN);
        p[i].known = i * 1e-6;
        p[i].seconds = p[i].known + pb_ab_seconds(&truth, &p[i]);
    }
    CHECK_OK(pb_ab_fit(p, 12, &m));
    CHECK_NEAR(m.alpha / truth.alpha, 1, 1e-9);
    CHECK_NEAR(m.seconds_per_byte / truth.seconds_per_byte, 1, 1e-9);
}

static void fit_minimises_relative_errors(void **state)
{
    const pb_ab_point p[] = {{12e-6, 0, 2, 1e3},  {9e-6, 0, 2, 4e3},   {21e-6, 3e-6, 6, 2e4},
                             {130e-6, 0, 2, 1e6}, {1.3e-3, 0, 6, 1e7}, {10e-3, 0, 6, 1e8}};
    const int n = sizeof p / sizeof *p;
    pb_alpha_beta m;
    (void)state;
    CHECK_OK(pb_ab_fit(p, n, &m));
    assert_true(m.alpha > 0 && m.seconds_per_byte > 0);
    for (int a = -1; a <= 1; a++)
        for (int b = -1; b <= 1; b++)
            if (a || b)
                assert_true(
                    squares(p, n, m) <
                    squares(p, n, (pb_alpha_beta){m.alpha * (1 + a * 1e-3), m.seconds_per_byte * (1 + b * 1e-3)}));
}

/* Times that fall with the size, or to below what they need at any bandwidth, must not give a negative parameter. */
static void fit_is_never_negative(void **state)
{
    const pb_ab_point falling[] = {{10e-6, 0, 2, 1e3}, {8e-6, 0, 2, 1e4}, {6e-6, 0, 2, 2e4}};
    const pb_ab_point steep[] = {{1e-6, 0, 2, 1e3}, {20e-6, 0, 2, 1e4}, {50e-6, 0, 2, 2e4}};
    const pb_ab_point known[] = {{1e-6, 2e-6, 2, 1e3}, {2e-6, 3e-6, 2, 1e4}};
    pb_alpha_beta m;
    (void)state;
    CHECK_OK(pb_ab_fit(falling, 3, &m));
    CHECK_NEAR(m.seconds_per_byte, 0, 0);
    /* With bandwidth out of the way alpha is the weighted mean: sum(1/t) / sum(2/t^2). */
    CHECK_NEAR(m.alpha, (1 / 10e-6 + 1 / 8e-6 + 1 / 6e-6) / (2 / 100e-12 + 2 / 64e-12 + 2 / 36e-12), 1e-15);
    CHECK_OK(pb_ab_fit(steep, 3, &m));
    CHECK_NEAR(m.alpha, 0, 0);
    assert_true(m.seconds_per_byte > 0);
    CHECK_OK(pb_ab_fit(known, 2, &m));
    CHECK_NEAR(m.alpha + m.seconds_per_byte, 0, 0);
}

static void one_size_is_not_enough(void **state)
{
    const pb_ab_point p[] = {{10e-6, 0, 2, 1e3}, {11e-6, 0, 2, 1e3}, {30e-6, 0, 6, 3e3}};
    pb_alpha_beta m;
    (void)state;
    CHECK_FAILS(pb_ab_fit(p, 3, &m), PB_EINVAL, "cannot tell latency from bandwidth");
    CHECK_FAILS(pb_ab_fit(p, 1, &m), PB_EINVAL, "cannot tell latency from bandwidth");
}

/* ---- simulated runs -------------------------------------------------------------------------------- */

/* Runs `bench project` with CSV output on one or two fixtures; the caller frees the text. */
static char *project(pb_project_opts o, const char *first, const char *second, pb_exit want)
{
    const char *runs[] = {first, second};
    capture out, notes;
    o.runs = runs;
    o.nruns = second ? 2 : 1;
    o.csv = true;
    FILE *f = capture_begin(&out), *g = capture_begin(&notes);
    const pb_exit got = pb_project(&o, f, g);
    capture_end(&out);
    capture_end(&notes);
    free(notes.text);
    if (got != want) fail_msg("exit code %d, want %d: %s", got, want, pb_error());
    return out.text;
}

/* The value of the only line that has this basis, a case that begins like `name`, link, ranks ("" for none) and
 * metric. */
static double value_of(const char *csv, const char *basis, const char *name, const char *link, const char *ranks,
                       const char *metric)
{
    double found = (double)NAN;
    int lines = 0;
    for (const char *line = csv; *line; line = strchr(line, '\n') + 1) {
        char text[512], *field[8], *rest = text;
        snprintf(text, sizeof text, "%.*s", (int)strcspn(line, "\n"), line);
        for (int i = 0; i < 8; i++) field[i] = strsep(&rest, ",");
        assert_non_null(field[7]);
        const char *slash = strchr(field[1], '/');
        if (strcmp(field[0], basis) != 0 || !slash || strncmp(slash + 1, name, strlen(name)) != 0) continue;
        if (strcmp(field[2], link) != 0 || strcmp(field[3], ranks) != 0 || strcmp(field[5], metric) != 0) continue;
        found = *field[7] ? strtod(field[7], NULL) : (double)NAN;
        lines++;
    }
    if (lines != 1) fail_msg("%d lines of %s %s %s %s %s", lines, basis, name, link, ranks, metric);
    return found;
}

/* With noise of 1 % on every time, latency and bandwidth come out within 3 %. */
static void latency_and_bandwidth_are_recovered(void **state)
{
    static const struct {
        const char *op;
        double alpha, bandwidth;
    } truth[] = {{"all_reduce", 20e-6, 1e9},
                 {"reduce_scatter", 15e-6, 1.2e9},
                 {"all_gather", 12e-6, 1.5e9},
                 {"all_to_all", 8e-6, 0.8e9},
                 {"broadcast", 10e-6, 2e9}};
    char *csv = project((pb_project_opts){.ranks = "8"}, FIXTURES "collectives.csv", NULL, PB_EXIT_OK);
    (void)state;
    for (size_t i = 0; i < sizeof truth / sizeof *truth; i++) {
        const char *op = truth[i].op;
        CHECK_NEAR(value_of(csv, "fitted", op, "in", "", "alpha") / truth[i].alpha, 1, 0.03);
        CHECK_NEAR(value_of(csv, "fitted", op, "in", "", "bandwidth") / truth[i].bandwidth, 1, 0.03);
        CHECK_NEAR(value_of(csv, "kept-out", op, "in", "", "points"), 14, 0);
        CHECK_NEAR(value_of(csv, "kept-out", op, "in", "", "max_error"), 0, 0.05);
    }
    free(csv);
    csv = project((pb_project_opts){.ranks = "1024"}, FIXTURES "hosts.csv", NULL, PB_EXIT_OK);
    CHECK_NEAR(value_of(csv, "fitted", "all_reduce", "out", "", "alpha") / 50e-6, 1, 0.05);
    CHECK_NEAR(value_of(csv, "fitted", "all_reduce", "out", "", "bandwidth") / 0.25e9, 1, 0.05);
    CHECK_NEAR(value_of(csv, "kept-out", "all_reduce", "out", "", "max_error"), 0, 0.05);
    free(csv);
}

/* Each line of expected.csv, which the simulation wrote, within 3 %. */
static void projections_are_those_of_the_simulation(void **state)
{
    char *one =
        project((pb_project_opts){.ranks = "3,8"}, FIXTURES "collectives.csv", FIXTURES "steps.csv", PB_EXIT_OK);
    char *many = project((pb_project_opts){.ranks = "16,1024"}, FIXTURES "hosts.csv", NULL, PB_EXIT_OK);
    char line[256], name[64], ranks[16], metric[32], file[32];
    int lines = 0;
    double want;
    FILE *f = fopen(FIXTURES "expected.csv", "r");
    (void)state;
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    for (; fgets(line, sizeof line, f); lines++) {
        assert_int_equal(sscanf(line, "%31[^,],%63[^,],%15[^,],%31[^,],%lf", file, name, ranks, metric, &want), 5);
        const double got = value_of(strcmp(file, "hosts") == 0 ? many : one, "projected", name, "", ranks, metric);
        if (!(fabs(got / want - 1) <= 0.03)) fail_msg("%s %s %s: %g, want %g", name, ranks, metric, got, want);
    }
    assert_int_equal(lines, 20);
    fclose(f);
    free(one);
    free(many);
}

/* A bandwidth that changes with the size is not an alpha-beta model, and compute that grows with the ranks is not this
 * model of a step: the kept-out points say so, and nothing is projected. */
static void wrong_models_are_not_projected(void **state)
{
    char *csv = project((pb_project_opts){.ranks = "8"}, FIXTURES "protocol.csv", NULL, PB_EXIT_INCONCLUSIVE);
    (void)state;
    assert_true(value_of(csv, "kept-out", "all_reduce", "in", "", "max_error") > 0.3);
    assert_null(strstr(csv, "projected"));
    free(csv);
    csv = project((pb_project_opts){.ranks = "8"}, FIXTURES "collectives.csv", FIXTURES "slower.csv",
                  PB_EXIT_INCONCLUSIVE);
    assert_true(value_of(csv, "kept-out", "step", "", "", "max_error") > 0.15);
    assert_null(strstr(csv, "projected,throughput"));
    assert_non_null(strstr(csv, "projected,comm"));
    free(csv);
    csv = project((pb_project_opts){.ranks = "8"}, FIXTURES "protocol.csv", FIXTURES "steps.csv", PB_EXIT_INCONCLUSIVE);
    assert_true(value_of(csv, "kept-out", "step", "", "", "max_error") < 0.1);
    assert_null(strstr(csv, "projected")); /* the step is accurate, but the reduction that it uses is not */
    free(csv);
    csv = project((pb_project_opts){.ranks = "8", .unchecked = true}, FIXTURES "protocol.csv", FIXTURES "slower.csv",
                  PB_EXIT_OK);
    assert_non_null(strstr(csv, "projected,comm"));
    assert_non_null(strstr(csv, "projected,throughput"));
    free(csv);
    csv = project((pb_project_opts){.ranks = "8", .min_bytes = 1 << 20}, FIXTURES "protocol.csv", NULL, PB_EXIT_OK);
    CHECK_NEAR(value_of(csv, "fitted", "all_reduce", "in", "", "bandwidth") / 1e9, 1, 0.05);
    free(csv);
}

static void given_network_adds_its_part(void **state)
{
    char *csv = project((pb_project_opts){.ranks = "64", .network = "alpha=5e-3,bandwidth=1e8"},
                        FIXTURES "collectives.csv", NULL, PB_EXIT_OK);
    (void)state;
    /* Inside the host 14 messages; between 8 hosts 14 steps, and 14/8 of an eighth of the bytes. */
    const double bytes = 25 << 20, in = 14 * 20e-6 + 14.0 / 8 * bytes / 1e9, out = 14 * 5e-3 + 14.0 / 64 * bytes / 1e8;
    CHECK_NEAR(value_of(csv, "given", "all_reduce", "out", "", "bandwidth"), 1e8, 1);
    CHECK_NEAR(value_of(csv, "projected", "all_reduce", "", "64", "time") / (in + out), 1, 0.01);
    free(csv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(terms_are_those_of_the_algorithm),
                                       cmocka_unit_test(names_of_nccl_tests_are_known),
                                       cmocka_unit_test(fit_is_exact_without_noise),
                                       cmocka_unit_test(fit_minimises_relative_errors),
                                       cmocka_unit_test(fit_is_never_negative),
                                       cmocka_unit_test(one_size_is_not_enough),
                                       cmocka_unit_test(latency_and_bandwidth_are_recovered),
                                       cmocka_unit_test(projections_are_those_of_the_simulation),
                                       cmocka_unit_test(wrong_models_are_not_projected),
                                       cmocka_unit_test(given_network_adds_its_part)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
