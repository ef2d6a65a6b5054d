/* compare_results.c - reads both sides of a comparison, calls the rule, and prints the result. */
#include "bench/compare/compare_results.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/compare/baseline.h"
#include "bench/compare/compare_render.h"
#include "bench/compare/exact.h"
#include "bench/compare/kept_sessions.h"
#include "bench/compare/soft_differences.h"
#include "bench/compare/stored_rule.h"
#include "bench/machine/machine.h"
#include "bench/text/text.h"

enum { MAX_SUITES = 32 };

/* The base or the candidate: a file and its series. */
typedef struct side {
    pb_table t;
    pb_series_set set;
} side;

static void close_side(side *s)
{
    pb_series_free(&s->set);
    pb_table_free(&s->t);
}

/* Reads rows. machine: the name of the machine for rows that have none; NULL: no name. */
static pb_status read_rows(const char *path, const char *machine, pb_table *out)
{
    PB_TRY(pb_table_read(path, out));
    pb_status s = out->n ? PB_OK : pb_fail(PB_EINVAL, "%s: has a header but no rows", path);
    for (size_t i = 0; i < out->n && s == PB_OK; i++)
        if (out->rows[i].status == PB_ROW_PROFILED)
            s = pb_fail(PB_EINVAL, "%s: the run recorded a trace, so it has no figures to compare", out->path);
    if (s == PB_OK && machine) s = pb_host_name_rows(out, machine);
    if (s != PB_OK) pb_table_free(out);
    return s;
}

static pb_status open_side(const char *path, const char *machine, side *out)
{
    PB_TRY(read_rows(path, machine, &out->t));
    const pb_status s = pb_series_make(&out->t, &out->set);
    if (s != PB_OK) pb_table_free(&out->t);
    return s;
}

/* ---- printing a comparison --------------------------------------------------------------------- */

/* Prints the tables as Markdown, then the notes as preformatted text. */
static pb_status markdown(const pb_comparison *c, FILE *out)
{
    char *text = NULL;
    size_t n = 0;
    FILE *notes = open_memstream(&text, &n);
    if (!notes) return pb_fail(PB_ENOMEM, "compare: out of memory");
    if (c->base) pb_compare_notes(c, notes);
    else if (c->exact) fputs(c->exact, notes);
    pb_status s = fclose(notes) == 0 ? pb_compare_markdown(c, out) : pb_fail(PB_ENOMEM, "compare: out of memory");
    if (s == PB_OK && n) fprintf(out, "\n```\n%s```\n", text);
    free(text);
    return s;
}

/* Every comparison is printed here, in the format that the user asked for. */
pb_status pb_compare_show(pb_comparison *c, const pb_compare_opts *o, FILE *out)
{
    c->mismatch = o->allow_mismatch;
    c->all = o->all;
    c->explain = o->explain && !c->notes; /* a comparison of pairs has explained its verdicts in c->notes */
    switch (pb_format_of(o->format)) {
    case PB_FORMAT_MARKDOWN: return markdown(c, out);
    case PB_FORMAT_JUNIT: return pb_compare_junit(c, out);
    default: return pb_compare_text(c, out);
    }
}

pb_exit pb_compare_exit(const int n[PB_NVERDICTS], const pb_compare_opts *o)
{
    const bool judged = n[PB_VERDICT_REGRESSED] || n[PB_VERDICT_IMPROVED] || n[PB_VERDICT_SAME];
    const bool open = o->strict && (n[PB_VERDICT_SUSPECT] || n[PB_VERDICT_INCONCLUSIVE]);
    pb_exit e = open || (o->need_verdict && !judged) ? PB_EXIT_INCONCLUSIVE : PB_EXIT_OK;
    if (n[PB_VERDICT_REGRESSED]) e = pb_worse_exit(e, PB_EXIT_REGRESSION);
    if (n[PB_VERDICT_FAILED] || n[PB_VERDICT_MISSING] || n[PB_VERDICT_INCOMPARABLE])
        e = pb_worse_exit(e, PB_EXIT_INCOMPARABLE);
    return e;
}

/* True if RUN/again, whose path is written to `path`, is a complete run. */
static bool has_again(const char *run, char *path, size_t n)
{
    char about[PB_PATH_TEXT + 32];
    json_t *o = NULL;
    const int length = snprintf(path, n, "%s/" PB_RUN_AGAIN, run);
    if (length < 0 || (size_t)length >= n) return false;
    snprintf(about, sizeof about, "%s/run.json", path);
    if (access(about, F_OK) != 0 || pb_json_read(about, &o) != PB_OK) return false;
    const bool whole = json_is_false(json_object_get(o, "truncated"));
    json_decref(o);
    return whole;
}

/* Reads the results that measured rows of the candidate again: those in o->confirmed, else those in RUN/again. *out
 * stays unchanged if neither exists. EINVAL: the results are the candidate's own, or of another machine, host or
 * bench_version. */
static pb_status open_again(const char *run, const side *cand, const pb_compare_opts *o, side *out)
{
    char found[PB_PATH_TEXT];
    if (!o->confirmed && !has_again(run, found, sizeof found)) return PB_OK;
    PB_TRY(open_side(o->confirmed ? o->confirmed : found, o->machine, out));
    const pb_row *a = cand->t.rows, *b = out->t.rows;
    const char *why = !strcmp(a->run_id, b->run_id)                ? "is the candidate itself"
                      : strcmp(a->machine_id, b->machine_id) != 0  ? "was measured on another machine"
                      : strcmp(a->host, b->host) != 0              ? "was measured on another host"
                      : strcmp(a->bench_version, b->bench_version) ? "is of another bench_version"
                                                                   : NULL;
    if (!why) return PB_OK;
    pb_fail(PB_EINVAL, "--confirmed %s: %s, so it cannot confirm a regression", out->t.path, why);
    close_side(out);
    *out = (side){0};
    return PB_EINVAL;
}

static pb_judge_opts judging_of(const side *cand, const side *again, const pb_compare_opts *o)
{
    return (pb_judge_opts){.allow_mismatch = o->allow_mismatch,
                           .subset = o->subset,
                           .locked_clocks = pb_run_locked_clocks(cand->t.path),
                           .confirmed = again->set.s ? &again->set : NULL};
}

/* ---- the two kinds of comparison --------------------------------------------------------------- */

static pb_status compare_sides(const side *b, const side *c, const side *again, const pb_compare_opts *o, FILE *out,
                               pb_exit *e)
{
    const pb_judge_opts judging = judging_of(c, again, o);
    pb_gates gates;
    pb_verdicts vs = {0};
    pb_exact *exact;
    const char *notes = NULL;
    PB_TRY(pb_baseline_gates(o->baselines, o->gates, &gates));
    PB_TRY(pb_exact_open(o->baselines, &exact));
    pb_status s = pb_judge(&b->set, &c->set, &gates, NULL, &judging, &vs);
    if (s == PB_OK) s = pb_verdicts_decide(&vs);
    if (s == PB_OK) s = pb_exact_two(exact, &b->set, b->t.path, &c->set, c->t.path, &vs);
    if (s == PB_OK) s = pb_exact_finish(exact, &notes);
    if (s == PB_OK) {
        *e = pb_compare_exit(vs.count, o);
        pb_verdicts_sort(&vs);
        s = pb_compare_show(&(pb_comparison){.vs = &vs,
                                             .base = &b->set,
                                             .cand = &c->set,
                                             .base_name = b->t.path,
                                             .cand_name = c->t.path,
                                             .exact = notes,
                                             .counters = pb_exact_compared(exact) > 0,
                                             .exit = *e},
                            o, out);
    }
    pb_exact_close(exact);
    pb_verdicts_free(&vs);
    return s;
}

pb_exit pb_compare_files(const char *base, const char *cand, const pb_compare_opts *o, FILE *out)
{
    side b, c, again = {0};
    pb_exit e = PB_EXIT_OK;
    pb_status s = open_side(base, o->machine, &b);
    if (s != PB_OK) return pb_file_exit(s);
    s = open_side(cand, o->machine, &c);
    if (s == PB_OK) {
        s = open_again(cand, &c, o, &again);
        if (s == PB_OK) s = compare_sides(&b, &c, &again, o, out, &e);
        close_side(&again);
        close_side(&c);
    }
    close_side(&b);
    return s == PB_OK ? e : pb_file_exit(s);
}

/* A run and the baselines of its suites. All files are read and compared before the first line is printed. */
typedef struct against {
    side run, again, base[MAX_SUITES]; /* stay open until the output is printed, as the verdicts point into them */
    const pb_series_set *sessions[MAX_SUITES]; /* stored sessions of each suite of the run; NULL: none */
    int nbase, nmissing;
    bool lacking;                           /* a suite has no baseline, although it may have kept sessions */
    char missing[MAX_SUITES][PB_PATH_TEXT]; /* paths of baselines that do not exist, of suites without any session */
    pb_gates gates;
    pb_verdicts vs;
    pb_exact *exact;
} against;

static pb_status judge_suite(against *a, const char *suite, const pb_compare_opts *o, const pb_series_set **sessions)
{
    char path[PB_PATH_TEXT];
    PB_TRY(pb_baseline_path(pb_baseline_folder(o->baselines), a->run.t.rows[0].machine_id, suite, path, sizeof path));
    side *b = &a->base[a->nbase];
    if (access(path, F_OK) == 0) PB_TRY(read_rows(path, NULL, &b->t));
    else a->lacking = true;
    if (pb_kept_join(&b->t, &a->run.t, &a->run.set, suite) != PB_OK)
        fprintf(stderr, "bench: warning: kept sessions are not used: %s\n", pb_error());
    if (!b->t.n) {
        pb_table_free(&b->t);
        memcpy(a->missing[a->nmissing++], path, sizeof path);
        return PB_OK;
    }
    pb_judge_opts judging = judging_of(&a->run, &a->again, o);
    judging.subset |= pb_run_counted(a->run.t.path); /* it has no times, so stored times are not MISSING */
    a->nbase++;
    PB_TRY(pb_series_make(&b->t, &b->set));
    *sessions = &b->set;
    return pb_judge(&b->set, &a->run.set, &a->gates, suite, &judging, &a->vs);
}

static pb_status judge_run(against *a, const pb_compare_opts *o, int *suites_of_run)
{
    char suites[MAX_SUITES][PB_AXIS_TEXT];
    const int n = *suites_of_run = pb_baseline_suites(&a->run.set, suites, MAX_SUITES);
    PB_TRY(pb_baseline_gates(o->baselines, o->gates, &a->gates));
    for (int i = 0; i < n; i++) PB_TRY(judge_suite(a, suites[i], o, &a->sessions[i]));
    PB_TRY(pb_verdicts_decide(&a->vs));
    PB_TRY(pb_exact_open(o->baselines, &a->exact));
    for (int i = 0; i < n; i++)
        PB_TRY(pb_exact_stored(a->exact, suites[i], a->sessions[i], &a->run.set, a->run.t.path, &a->vs));
    return PB_OK;
}

static pb_status show_run(against *a, const pb_compare_opts *o, FILE *out, pb_exit *e)
{
    const char *notes = NULL;
    pb_outlook outlook;
    int n;
    PB_TRY(judge_run(a, o, &n));
    PB_TRY(pb_outlook_of(&a->run.set, &a->gates, pb_run_locked_clocks(a->run.t.path), &outlook));
    PB_TRY(pb_exact_finish(a->exact, &notes));
    bool lacking = o->require_baseline && (a->lacking || !n);
    *e = pb_worse_exit(pb_compare_exit(a->vs.count, o), lacking ? PB_EXIT_INCOMPARABLE : PB_EXIT_OK);
    pb_verdicts_sort(&a->vs);
    return pb_compare_show(&(pb_comparison){.vs = &a->vs,
                                            .base = a->nbase ? &a->base[0].set : pb_exact_base(a->exact),
                                            .cand = &a->run.set,
                                            .base_name = a->nbase ? a->base[0].t.path : "",
                                            .cand_name = a->run.t.path,
                                            .outlook = &outlook,
                                            .exact = notes,
                                            .counters = pb_exact_compared(a->exact) > 0,
                                            .missing = a->missing,
                                            .nmissing = a->nmissing,
                                            .lacking = lacking,
                                            .exit = *e},
                           o, out);
}

static pb_status open_against(const char *run, const pb_compare_opts *o, against **out)
{
    against *a = *out = calloc(1, sizeof *a);
    if (!a) return pb_fail(PB_ENOMEM, "compare: out of memory");
    PB_TRY(open_side(run, o->machine, &a->run));
    return open_again(run, &a->run, o, &a->again);
}

static void close_against(against *a)
{
    if (!a) return;
    close_side(&a->again);
    close_side(&a->run);
    for (int i = 0; i < a->nbase; i++) close_side(&a->base[i]);
    pb_verdicts_free(&a->vs);
    pb_exact_close(a->exact);
    free(a);
}

pb_exit pb_compare_baseline(const char *run, const pb_compare_opts *o, FILE *out)
{
    against *a;
    pb_exit e = PB_EXIT_OK;
    pb_status s = open_against(run, o, &a);
    if (s == PB_OK) s = show_run(a, o, out, &e);
    close_against(a);
    return s == PB_OK ? e : pb_file_exit(s);
}

/* True for a row that a second measurement can make REGRESSED: only the confirmation is missing. */
static bool lacks_confirmation(const pb_verdicts *vs, const pb_verdict *v)
{
    return v->cand && !v->all_rows && v->evidence.sessions && isnan(v->evidence.again) &&
           pb_stored_enough(&v->evidence) && pb_verdict_needs_confirmation(vs, v);
}

pb_status pb_compare_unconfirmed(const char *run, const pb_compare_opts *o, char **keys, int *rows)
{
    against *a;
    size_t length = 0;
    int n;
    *keys = NULL;
    *rows = 0;
    pb_status s = open_against(run, o, &a);
    if (s == PB_OK) s = judge_run(a, o, &n);
    FILE *f = s == PB_OK ? open_memstream(keys, &length) : NULL;
    if (s == PB_OK && !f) s = pb_fail(PB_ENOMEM, "compare: out of memory");
    for (size_t i = 0; f && i < a->vs.n; i++)
        if (lacks_confirmation(&a->vs, &a->vs.v[i])) fprintf(f, "%s\n", a->vs.v[i].cand->key), ++*rows;
    if (f && fclose(f) != 0) s = pb_fail(PB_ENOMEM, "compare: out of memory");
    close_against(a);
    return s;
}
