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
    if (x->confirmed) o.confirmed = run_file(x->confirmed);
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
    if (!o.machine) o.machine = "lab";
    o.gates = run_file("gates");
    pb_exit e = pb_compare_baseline(run, &o, capture_begin(&c));
    if (!strstr(capture_end(&c), want)) fail_msg("nothing says '%s'\n%s", want, c.text);
    free(c.text);
    return e;
}

static inline void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fputs(text, f) >= 0, 1);
    assert_int_equal(fclose(f), 0);
}

static inline char *read_text(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 1 << 16);
    assert_non_null(f);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 16) - 1, f) > 0);
    fclose(f);
    return text;
}

/* Writes a run of one case in three processes. `day` becomes the run_id, `speed` scales the machine (1: normal).
 * Returns the path of the file. */
static inline const char *make_run(const char *folder, int day, double seconds, double speed, const char *version)
{
    static char path[128];
    char text[4096];
    int n = snprintf(text, sizeof text,
                     "bench_version,run_id,machine_id,process,key,metric,unit,better,value,samples,status,note\n");
    for (int process = 0; process < 3; process++)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "%s,202501%02d,m1,%d,ceiling/matmul?backend=cpu,matmul_rate,FLOP/s,higher,%.9g,9,ok,\n"
                      "%s,202501%02d,m1,%d,backward/step?batch=1,backward_time,s,lower,%.9g,9,ok,\n",
                      version, day, process, 1e11 * speed, version, day, process, seconds / speed);
    snprintf(path, sizeof path, "%s/run.csv", folder);
    write_text(path, text);
    return path;
}
#endif
