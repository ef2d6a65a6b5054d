/* gates_test.c - where a metric gates: against stored sessions, between two executables, or both. read_test reads
 * files that are wrong. */
#include "bench/compare/gates.h"

#include "tests/test.h"

static void a_metric_gates_where_its_line_says(void **state)
{
    static const struct {
        const char *word;
        bool stored, pairs;
    } words[] = {{"yes", true, true}, {"no", false, false}, {"pairs", false, true}, {"stored", true, false}};
    char text[256];
    pb_gates gates;
    (void)state;
    for (int i = 0; i < 4; i++) {
        const int n = snprintf(text, sizeof text,
                               "suite,metric,better,stored_limit,ceiling,gating\nkernels,kernel_time,lower,0.1,,%s\n",
                               words[i].word);
        CHECK_OK(pb_gates_parse("g.csv", text, (size_t)n, &gates));
        const pb_gate *g = pb_gates_find(&gates, "kernels/k", "kernel_time");
        assert_int_equal(g->gating, words[i].stored);
        assert_int_equal(g->gating_pairs, words[i].pairs);
    }
}

static void another_word_is_refused(void **state)
{
    static const char text[] =
        "suite,metric,better,stored_limit,ceiling,gating\nkernels,kernel_time,lower,0.1,,always\n";
    pb_gates gates;
    (void)state;
    CHECK_FAILS(pb_gates_parse("g.csv", text, sizeof text - 1, &gates), PB_EINVAL,
                "g.csv:2: gating must be yes, no, pairs or stored, not always");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_metric_gates_where_its_line_says),
        cmocka_unit_test(another_word_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
