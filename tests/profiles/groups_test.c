/* groups_test.c - metric groups: what a file says, the values of formulas, and one clear line for each wrong file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiles/groups.h"
#include "tests/test.h"

#define HEAD "SHORT words\nCHIP GH100\nPASSES 2\nEVENTS\na x__a.sum\nb x__b.sum\nMETRICS\n"

static char path[] = "/tmp/GROUPXXXXXX";

static pb_status read_text(const char *text, pb_counter_group *g)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
    return pb_group_read(path, g);
}

static void reads_a_file(void **state)
{
    pb_counter_group g;
    (void)state;
    CHECK_OK(read_text("# about\n" HEAD "m1  B/s  a + b\t\r\n\nm2 1 b\nLONG\nSHORT anything\nm1 1 !!\n", &g));
    assert_string_equal(g.summary, "words");
    assert_string_equal(g.chip, "GH100");
    assert_false(pb_group_on_cpu(&g));
    assert_int_equal(g.passes, 2);
    assert_int_equal(g.events, 2);
    assert_string_equal(g.event[1].name, "b");
    assert_string_equal(g.event[1].counter, "x__b.sum");
    assert_int_equal(g.metrics, 2);
    assert_string_equal(g.metric[0].unit, "B/s");
    assert_string_equal(g.metric[0].formula, "a + b");
}

static double value_of(const char *formula, double a, double b)
{
    char text[400];
    pb_counter_group g;
    snprintf(text, sizeof text, HEAD "m 1 %s\n", formula);
    CHECK_OK(read_text(text, &g));
    return pb_group_value(&g, 0, (const double[]){a, b});
}

static void evaluates_formulas(void **state)
{
    (void)state;
    assert_true(fabs(value_of("a - b - 1", 7, 2) - 4) < 1e-12);
    assert_true(fabs(value_of("a + b * 3", 7, 2) - 13) < 1e-12);
    assert_true(fabs(value_of("(a+b)*3", 7, 2) - 27) < 1e-12);
    assert_true(fabs(value_of("a / b / 2", 8, 2) - 2) < 1e-12);
    assert_true(fabs(value_of("a / (b * 1e-9)", 8, 2) - 4e9) < 1e-3);
    assert_true(isnan(value_of("a / b", 8, 0)));
    assert_true(isnan(value_of("a + b", 8, (double)NAN)));
    assert_false(isnan(value_of("a", 8, (double)NAN)));
}

static void refuses_wrong_files(void **state)
{
    static const struct {
        const char *text, *why;
    } wrong[] = {
        {HEAD "m 1 a +\n", ":8: the formula is wrong: a name, a number or a parenthesis is missing at 'its end'"},
        {HEAD "m 1 (a + b\n", "a parenthesis is not closed, at 'its end'"},
        {HEAD "m 1 a b\n", "an operator is missing at 'b'"},
        {HEAD "m 1 a + c\n", "no event has this name, at 'c'"},
        {HEAD "m 1 ab\n", "no event has this name, at 'ab'"},
        {HEAD "m 1 ((((((((((((((((((a))))))))))))))))))\n", "the formula is wrong"},
        {HEAD "m 1\n", ":8: a metric has a name, a unit and a formula"},
        {HEAD "m 1 a\nm 1 b\n", ":9: a metric before has this name"},
        {HEAD, ": it has no metrics"},
        {"SHORT s\nCHIP GH100\nPASSES 0\n", ":3: PASSES needs a number from 1 to 1000"},
        {"SHORT s\nCHIP GH100\nEVENTS\n", ":3: SHORT, CHIP and PASSES must come first"},
        {"SHORT s\nCHIPS GH100\n", ":2: a line of the head begins with SHORT, CHIP, PASSES or READ"},
        {"SHORT s\nCHIP GH100\nREAD often\n", ":3: READ needs counted or sampled"},
        {"SHORT s\nCHIP GH100\nPASSES 2\nREAD sampled\nEVENTS\n", ":5: a sampled group is of a GPU, and has PASSES 1"},
        {"SHORT s\nCHIP cpu\nPASSES 1\nREAD sampled\nEVENTS\n", ":5: a sampled group is of a GPU, and has PASSES 1"},
        {"SHORT s\nCHIP GH100\nPASSES 1\nREAD sampled\nEVENTS\nseconds x\n", ":6: seconds is the length of a sample"},
        {"SHORT s\nCHIP GH100\nPASSES 1\nMETRICS\n", ":4: the sections are EVENTS, METRICS and LONG, in this order"},
        {"SHORT s\nCHIP GH100\nPASSES 1\nEVENTS\na x__a.avg\n", ":5: a counter of a GPU must be a sum, NAME.sum"},
        {"SHORT s\nCHIP GH100\nPASSES 1\nEVENTS\na x.sum\na y.sum\n", ":6: an event before has this name"},
        {"SHORT s\nCHIP GH100\nPASSES 1\nEVENTS\na x y\n", ":5: an event has a name for formulas"},
    };
    pb_counter_group g;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_FAILS(read_text(wrong[i].text, &g), PB_EINVAL, wrong[i].why);
    CHECK_OK(read_text("SHORT s\nCHIP cpu\nPASSES 1\nEVENTS\na cycles\nMETRICS\nm 1 a\n", &g));
    assert_true(pb_group_on_cpu(&g));
}

static pb_status count(void *user, const pb_counter_group *g)
{
    int *n = user;
    (*n)++;
    return g->passes > 0 ? PB_OK : PB_EINVAL;
}

static void finds_the_shipped_groups(void **state)
{
    pb_counter_group g;
    int n = 0;
    (void)state;
    unsetenv("PB_GROUPS");
    CHECK_OK(pb_group_find("MEM", &g));
    assert_string_equal(g.name, "MEM");
    CHECK_FAILS(pb_group_find("MEMORY", &g), PB_EINVAL,
                "there is no metric group 'MEMORY'; there are CACHE, CPU, L2, MEM");
    CHECK_FAILS(pb_group_find("../groups/MEM", &g), PB_EINVAL, "there is no metric group");
    CHECK_OK(pb_group_each(count, &n));
    assert_true(n >= 8);
    setenv("PB_GROUPS", "/nonexistent", 1);
    CHECK_FAILS(pb_group_find("MEM", &g), PB_EPATH, "/nonexistent: the folder of the metric groups cannot be read");
    unsetenv("PB_GROUPS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_file),
        cmocka_unit_test(evaluates_formulas),
        cmocka_unit_test(refuses_wrong_files),
        cmocka_unit_test(finds_the_shipped_groups),
    };
    close(mkstemp(path));
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failures;
}
