/* compare_cases.h - makes the comparisons of tests/fixtures/compare/cases.txt, and comparisons with a folder of
 * baselines. */
#ifndef PB_COMPARE_CASES_H
#define PB_COMPARE_CASES_H
#include <ctype.h>

#include "bench/compare/baseline.h"
#include "bench/compare/compare_results.h"
#include "tests/bench/run_files.h"

/* Fails when a report contains a number that is not finite. */
static inline void check_figures(const char *text)
{
    static const char *const bad[] = {"nan", "inf"};
    for (int i = 0; i < 2; i++)
        for (const char *p = text; (p = strstr(p, bad[i])); p++)
            if ((p == text || !isalpha((unsigned char)p[-1])) && !isalpha((unsigned char)p[3]))
                fail_msg("'%s' is in\n%s", bad[i], text);
}

static inline void check_comparison(const pb_comparison *x)
{
    char end[32], where[192];
    capture c;
    pb_compare_opts o = x->opts;
    snprintf(end, sizeof end, " exit=%d\n", x->exit);
    snprintf(where, sizeof where, "cases.txt:%d: %s %s", x->line, x->base, x->cand);
    o.gates = run_file(x->gates);
    const pb_exit e = pb_compare_files(run_file(x->base), run_file(x->cand), &o, capture_begin(&c));
    const char *text = capture_end(&c), *last = last_line(text);
    if ((int)e != x->exit) fail_msg("%s: exit %d, want %d\n%s", where, (int)e, x->exit, text);
    if (!x->counts && *text) fail_msg("%s: an error, and yet output:\n%s", where, text);
    if (x->counts && (!strstr(last, x->counts) || !strstr(last, end) || strncmp(last, "bench: ", 7) != 0))
        fail_msg("%s: want %s%s\n%s", where, x->counts, end, text);
    if (x->text && !strstr(x->counts ? text : pb_error(), x->text))
        fail_msg("%s: nothing says '%s'\n%s%s", where, x->text, text, x->counts ? "" : pb_error());
    if (!x->counts && strchr(pb_error(), '\n')) fail_msg("%s: the error is not one line: %s", where, pb_error());
    if (x->counts && strstr(text, "\n/\n")) fail_msg("%s: a line of a suite without a name:\n%s", where, text);
    check_figures(text);
    free(c.text);
}

/* Makes all comparisons of cases.txt with stored sessions (`against` true) or with runs (false). Returns their
 * number. */
static inline int check_comparisons(bool against)
{
    int n = 0;
    for (int i = 0; i < run_table.ncomparisons; i++)
        if (run_table.comparisons[i].against == against) check_comparison(&run_table.comparisons[i]), n++;
    return n;
}

static inline void make_folder(char *path)
{
    static const char pattern[] = "/tmp/pb_baselines_XXXXXX";
    memcpy(path, pattern, sizeof pattern);
    assert_non_null(mkdtemp(path));
}

static inline pb_exit against_baseline(const char *run, pb_compare_opts o, const char *folder, const char *want)
{
    capture c;
    o.baselines = folder;
    o.gates = run_file("gates");
    pb_exit e = pb_compare_baseline(run, &o, capture_begin(&c));
    if (!strstr(capture_end(&c), want)) fail_msg("nothing says '%s'\n%s", want, c.text);
    free(c.text);
    return e;
}

#endif
