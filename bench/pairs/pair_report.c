/* pair_report.c - judges the pairs of a folder and passes the verdicts to the renderers of compare_render.h. */
#define _GNU_SOURCE
#include "bench/pairs/pair_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/compare/compare.h"

static bool hopeless(const pb_pair_judgement *j)
{
    size_t gating = 0, open = 0, any = 0;
    for (size_t i = 0; i < j->table.n; i++) {
        const pb_pair_row *r = &j->table.rows[i];
        const bool figures = !r->absent && !r->obstacle && !r->wrong && j->results[i].why != PB_PAIR_NO_RATIO;
        gating += r->gating;
        open += r->gating && figures;
        any += figures;
    }
    return gating ? !open : !any;
}

pb_status pb_pair_judge_folder(const pb_pair_folder *f, const pb_pair_plan *plan, const pb_gates *gates,
                               bool allow_mismatch, pb_pair_judgement *out)
{
    pb_pair_judgement j = {0};
    if (!f->pairs) return pb_fail(PB_EINVAL, "%s: the folder has no complete pair", f->dir);
    PB_TRY(pb_pair_table_read(f->dir, f->pairs, gates, allow_mismatch, &j.table));
    for (size_t i = 0; i < j.table.n; i++)
        if (!strcmp(j.table.rows[i].metric, "kernel_time")) j.table.rows[i].min_effect = plan->kernel_effect;
    j.results = malloc((j.table.n + 1) * sizeof *j.results);
    pb_status s = j.results ? pb_pair_judge(j.table.rows, j.table.n, &plan->rule, j.results, &j.report)
                            : pb_fail(PB_ENOMEM, "pairs: out of memory");
    if (s == PB_OK) {
        j.hopeless = hopeless(&j);
        *out = j;
    } else {
        pb_pair_judgement_free(&j);
    }
    return s;
}

void pb_pair_judgement_free(pb_pair_judgement *j)
{
    pb_pair_table_free(&j->table);
    free(j->results);
    *j = (pb_pair_judgement){0};
}

/* ---- converting the verdicts for the renderers ------------------------------------------------------- */

/* The verdicts in the form that compare_render.h prints, with the gates and texts that they point to. */
typedef struct page {
    pb_verdicts vs;
    pb_gate *gates;            /* [n] one gate per row; its limit is min_effect */
    char (*why)[PB_PAIR_TEXT]; /* [n] one text per row */
} page;

/* Writes a short reason, such as "99 % interval +1.81 to +2.39 %; detectable 0.93 %". */
static void say_briefly(const pb_pair_result *r, const pb_pair_plan *plan, const pb_pair_report *report, char *out)
{
    const bool higher = r->row->higher;
    const double lo = higher ? -r->interval.hi : r->interval.lo, hi = higher ? -r->interval.lo : r->interval.hi;
    const pb_pair_sensitivity sensitivity = pb_pair_sensitivity_of(r, &plan->rule, report);
    if (!r->look || r->why == PB_PAIR_EARLY || !isfinite(r->sd)) {
        pb_pair_explain(r, &plan->rule, report, out);
        return;
    }
    int n = snprintf(out, PB_PAIR_TEXT, "%.3g %% interval %+.2f to %+.2f %%; detectable ",
                     100 * (1 - 2 * plan->rule.alpha / report->looks), 100 * expm1(lo), 100 * expm1(hi));
    if (isfinite(sensitivity.detectable))
        n += snprintf(out + n, PB_PAIR_TEXT - n, "%.2f %%", 100 * expm1(sensitivity.detectable));
    else n += snprintf(out + n, PB_PAIR_TEXT - n, "nothing");
    if (r->why == PB_PAIR_HIDDEN) snprintf(out + n, PB_PAIR_TEXT - n, "; HIDDEN by rows that changed oppositely");
    else if (r->blind) snprintf(out + n, PB_PAIR_TEXT - n, ", above --must-find %g %%", 100 * plan->rule.must_find);
}

static void add(page *p, const pb_pair_judgement *j, size_t i, const pb_pair_plan *plan, bool explain)
{
    const pb_pair_result *r = &j->results[i];
    const bool placeholders = j->table.series[i][0] == j->table.series[i][1];
    pb_gate *g = &p->gates[i];
    *g = (pb_gate){.stored_limit = pb_pair_min_effect(r->row, &plan->rule), .gating = r->row->gating};
    if (explain) pb_pair_explain(r, &plan->rule, &j->report, p->why[i]);
    else say_briefly(r, plan, &j->report, p->why[i]);
    if (placeholders) snprintf(p->why[i], PB_PAIR_TEXT, "gates.csv requires this row, but neither side measured it");
    const double change = exp(r->row->higher ? -r->estimate : r->estimate);
    p->vs.v[p->vs.n++] = (pb_verdict){.base = j->table.series[i][0],
                                      .cand = j->table.series[i][1],
                                      .gate = g,
                                      .id = r->id,
                                      .ratio = r->look ? change : (double)NAN,
                                      .worse = r->look ? exp(r->estimate) : (double)NAN,
                                      .counts = pb_pair_counts(r),
                                      .why = p->why[i]};
}

static pb_status fill(page *p, const pb_pair_judgement *j, const pb_pair_plan *plan, bool explain)
{
    static const pb_gate none = {.stored_limit = PB_DEFAULT_LIMIT};
    const size_t n = j->table.n, all = n + j->table.only_cand_n + j->table.undirected_n;
    *p = (page){.vs = {.v = malloc((all + 1) * sizeof *p->vs.v)}};
    p->gates = malloc((n + 1) * sizeof *p->gates);
    p->why = malloc((n + 1) * sizeof *p->why);
    if (!p->vs.v || !p->gates || !p->why) return pb_fail(PB_ENOMEM, "pairs: out of memory for %zu rows", all);
    for (size_t i = 0; i < n; i++) add(p, j, i, plan, explain);
    for (size_t i = 0; i < j->table.only_cand_n; i++)
        p->vs.v[p->vs.n++] = (pb_verdict){.cand = j->table.only_cand[i],
                                          .gate = &none,
                                          .id = PB_VERDICT_NEW,
                                          .ratio = (double)NAN,
                                          .worse = (double)NAN,
                                          .why = ""};
    for (size_t i = 0; i < j->table.undirected_n; i++)
        p->vs.v[p->vs.n++] = (pb_verdict){.base = j->table.undirected[i][0],
                                          .cand = j->table.undirected[i][1],
                                          .gate = &none,
                                          .id = PB_VERDICT_INFO,
                                          .ratio = (double)NAN,
                                          .worse = (double)NAN,
                                          .why = ""};
    memcpy(p->vs.count, j->report.count, sizeof p->vs.count);
    pb_verdicts_sort(&p->vs);
    return PB_OK;
}

/* Adds the exact counters that changed. *exact owns the notes; the caller closes it. */
static pb_status add_counters(page *p, const pb_pair_judgement *j, const pb_pair_folder *f,
                              const pb_pair_report_opts *o, pb_exact **exact, const char **notes)
{
    char side[2][PB_PATH_TEXT + 64];
    for (int i = 0; i < 2; i++) snprintf(side[i], sizeof side[i], "%s/%s", f->dir, pb_side_names[i]);
    PB_TRY(pb_exact_open(o->compare->baselines, exact));
    PB_TRY(pb_exact_two(*exact, &j->table.set[0], side[0], &j->table.set[1], side[1], &p->vs));
    pb_verdicts_sort(&p->vs);
    return pb_exact_finish(*exact, notes);
}

static void page_free(page *p)
{
    pb_verdicts_free(&p->vs);
    free(p->gates);
    free(p->why);
}

/* ---- notes below the table ----------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Prints the median and the range of the detectable change over the gating rows. */
static pb_status note_sensitivity(const pb_pair_judgement *j, const pb_pair_plan *plan, FILE *out)
{
    double *d = malloc((j->table.n + 1) * sizeof *d);
    size_t n = 0;
    if (!d) return pb_fail(PB_ENOMEM, "pairs: out of memory");
    for (size_t i = 0; i < j->table.n; i++)
        if (j->table.rows[i].gating && j->results[i].look && isfinite(j->results[i].sd) && !j->report.early)
            d[n++] = 100 * expm1(pb_pair_sensitivity_of(&j->results[i], &plan->rule, &j->report).detectable);
    qsort(d, n, sizeof *d, by_size);
    if (n && isinf(d[n / 2])) fprintf(out, "note: detectable change: none in the median of %zu gating rows\n", n);
    else if (n)
        fprintf(out,
                "note: detectable change, found with probability %g: %.2f %% (median of %zu gating rows; %.2f to %.2f "
                "%%)\n",
                plan->rule.power, d[n / 2], n, d[0], d[n - 1]);
    else if (!j->report.gating)
        fprintf(out, "note: no row gates: gates.csv has no gating line for a metric of this suite\n");
    free(d);
    return PB_OK;
}

static void note_pairs(const pb_pair_judgement *j, const pb_pair_folder *f, const pb_pair_plan *plan, FILE *out)
{
    const pb_pair_opts *r = &plan->rule;
    fprintf(out, "note: %d pair%s of fresh processes, seed %llu; tested after %d", f->pairs, f->pairs == 1 ? "" : "s",
            (unsigned long long)plan->seed, r->look[0]);
    if (r->look[1] > r->look[0]) fprintf(out, " and %d", r->look[1]);
    fprintf(out, " pairs; alpha %g, minimum effect %g %%", r->alpha, 100 * r->min_effect);
    if (plan->kernel_effect > 0) fprintf(out, " (kernel_time: %g %%)", 100 * plan->kernel_effect);
    fprintf(out, "; folder %s\n", f->dir);
    if (f->retries)
        fprintf(out, "note: %d attempt%s at a pair failed and %s repeated; see pairs.csv\n", f->retries,
                f->retries == 1 ? "" : "s", f->retries == 1 ? "was" : "were");
    if (f->kept)
        fprintf(
            out,
            "note: the candidate's process failed in %d pair%s, %d of which %s measured more than once; see cand.log\n",
            f->kept, f->kept == 1 ? "" : "s", f->kept_again, f->kept_again == 1 ? "was" : "were");
    if (plan->slowdown > 0)
        fprintf(out, "note: a delay of %g %% was injected into the candidate; %.2f to %.2f %% was achieved\n",
                100 * plan->slowdown, 100 * j->table.slowdown[0], 100 * j->table.slowdown[1]);
}

/* True if no row has a value on either side. */
static bool nothing(const pb_pair_judgement *j) { return !j->table.n && !j->table.only_cand_n; }

/* Says why the exit code is at least 3 although no row is REGRESSED. */
static void note_open(const pb_pair_judgement *j, const pb_pair_folder *f, const pb_pair_plan *plan, FILE *out)
{
    const pb_pair_opts *r = &plan->rule;
    if (j->report.early) fprintf(out, "note: not judged yet: %d of %d pairs are measured\n", f->pairs, r->look[0]);
    if (j->report.blind)
        fprintf(out, "note: %d gating row%s could hide a change of %g %% (--must-find): the exit code is at least 3\n",
                j->report.blind, j->report.blind == 1 ? "" : "s", 100 * r->must_find);
    if (j->report.hidden)
        fprintf(out,
                "note: HIDDEN: %d row%s would be significant without the rows that changed in the opposite direction; "
                "measure more pairs (--pairs, --max-pairs), or %s alone (--filter)\n",
                j->report.hidden, j->report.hidden == 1 ? "" : "s", j->report.hidden == 1 ? "this row" : "these rows");
    if (r->must_find > 0 && !j->report.gating)
        fprintf(out, "note: no row gates, so no change could be found (--must-find): the exit code is at least 3\n");
    if (nothing(j)) fprintf(out, "note: no row has a value: every process was throttled, or measured no case\n");
}

/* The exit code of the verdicts, raised to PB_EXIT_INCONCLUSIVE if the rows were not judged, or not sharply enough. */
static pb_exit exit_of(const page *p, const pb_pair_judgement *j, const pb_pair_folder *f, const pb_pair_plan *plan,
                       const pb_compare_opts *o)
{
    pb_exit e = pb_compare_exit(p->vs.count, o);
    if (f->kept) e = pb_worse_exit(e, PB_EXIT_INCOMPARABLE);
    const bool vain = plan->rule.must_find > 0 && (j->report.blind || !j->report.gating);
    return j->report.early || vain || nothing(j) ? pb_worse_exit(e, PB_EXIT_INCONCLUSIVE) : e;
}

static pb_status notes_of(const pb_pair_judgement *j, const pb_pair_folder *f, const pb_pair_plan *plan,
                          const pb_pair_report_opts *o, char **text)
{
    size_t n = 0;
    FILE *out = open_memstream(text, &n);
    if (!out) return pb_fail(PB_ENOMEM, "pairs: out of memory");
    note_pairs(j, f, plan, out);
    note_open(j, f, plan, out);
    pb_status s = note_sensitivity(j, plan, out);
    if (o->compare->allow_mismatch) fprintf(out, "note: the sides may be from different machines (--allow-mismatch)\n");
    if (o->note) fprintf(out, "note: %s\n", o->note);
    return fclose(out) == 0 ? s : pb_fail(PB_ENOMEM, "pairs: out of memory");
}

pb_status pb_pair_report_show(const pb_pair_judgement *j, const pb_pair_folder *f, const pb_pair_plan *plan,
                              const pb_pair_report_opts *o, FILE *out, pb_exit *code)
{
    page p;
    char *notes = NULL;
    const char *counters = NULL;
    pb_exact *exact = NULL;
    pb_exit e = PB_EXIT_OK;
    pb_status s = fill(&p, j, plan, o->explain);
    if (s == PB_OK) s = add_counters(&p, j, f, o, &exact, &counters);
    if (s == PB_OK) s = notes_of(j, f, plan, o, &notes);
    if (s == PB_OK) {
        e = exit_of(&p, j, f, plan, o->compare);
        s = pb_compare_show(&(pb_comparison){.vs = &p.vs,
                                             .base = &j->table.set[0],
                                             .cand = &j->table.set[1],
                                             .base_name = plan->path[0],
                                             .cand_name = plan->path[1],
                                             .exit = e,
                                             .exact = counters,
                                             .counters = counters && *counters,
                                             .notes = notes},
                            o->compare, out);
    }
    if (s == PB_OK) *code = e;
    pb_exact_close(exact);
    free(notes);
    page_free(&p);
    return s;
}
