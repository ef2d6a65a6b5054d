/* compare_cases.h - table-driven cases for the tests of `bench compare`, and comparisons with a folder of baselines. */
#ifndef PB_COMPARE_CASES_H
#define PB_COMPARE_CASES_H
#include <ctype.h>

#include "bench/compare/baseline.h"
#include "bench/compare/compare.h"
#include "tests/files_test.h"

typedef struct expected {
    const char *base, *cand;
    pb_compare_opts opts; /* .gates: name of a fixture; NULL: gates.csv */
    const char *counts;   /* text of the last line of the output; NULL: an error is expected */
    pb_exit exit;
    const char *text; /* text in the output or in the error message; NULL: not checked */
} expected;

/* Fails when a report contains a number that is not finite. */
static inline void check_figures(const char *text)
{
    static const char *const bad[] = {"nan", "inf"};
    for (int i = 0; i < 2; i++)
        for (const char *p = text; (p = strstr(p, bad[i])); p++)
            if ((p == text || !isalpha((unsigned char)p[-1])) && !isalpha((unsigned char)p[3]))
                fail_msg("'%s' is in\n%s", bad[i], text);
}

static inline void check_case(const expected *x)
{
    capture c;
    pb_compare_opts o = x->opts;
    o.gates = fixture(o.gates ? o.gates : "gates.csv");
    pb_exit e = pb_compare_files(fixture(x->base), fixture(x->cand), &o, capture_begin(&c));
    const char *text = capture_end(&c), *last = last_line(text);
    char end[32];
    snprintf(end, sizeof end, " exit=%d\n", (int)x->exit);
    if (e != x->exit) fail_msg("%s %s: exit %d, want %d\n%s", x->base, x->cand, (int)e, (int)x->exit, text);
    if (!x->counts && *text) fail_msg("%s %s: an error, and yet output:\n%s", x->base, x->cand, text);
    if (x->counts && (!strstr(last, x->counts) || !strstr(last, end) || strncmp(last, "bench: ", 7) != 0))
        fail_msg("%s %s: want %s%s\n%s", x->base, x->cand, x->counts, end, text);
    if (x->text && !strstr(x->counts ? text : pb_error(), x->text))
        fail_msg("%s %s: nothing says '%s'\n%s%s", x->base, x->cand, x->text, text, x->counts ? "" : pb_error());
    if (!x->counts && strchr(pb_error(), '\n')) fail_msg("the error is not one line: %s", pb_error());
    if (x->counts && strstr(text, "\n/\n")) fail_msg("a line of a suite without a name:\n%s", text);
    check_figures(text);
    free(c.text);
}

static inline void make_folder(char *path)
{
    static const char pattern[] = "/tmp/pb_baselines_XXXXXX";
    memcpy(path, pattern, sizeof pattern);
    assert_non_null(mkdtemp(path));
}

static inline void remove_folder(const char *path)
{
    char command[256];
    snprintf(command, sizeof command, "rm -r '%s'", path);
    assert_int_equal(system(command), 0);
}

static inline pb_exit against_baseline(const char *run, pb_compare_opts o, const char *folder, const char *want)
{
    capture c;
    o.baselines = folder;
    o.gates = FIXTURE("gates.csv");
    pb_exit e = pb_compare_baseline(run, &o, capture_begin(&c));
    if (!strstr(capture_end(&c), want)) fail_msg("nothing says '%s'\n%s", want, c.text);
    free(c.text);
    return e;
}

#endif
