/* compare.c - reads both sides, has them judged, prints the table. */
#include "bench/compare.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/baseline.h"
#include "bench/compare_render.h"
#include "bench/soft_differences.h"
#include "bench/text.h"

enum { MAX_SUITES = 32, MIN_LAUNCHES = 3 };

/* One side: the file and its series. */
typedef struct side {
    pb_table t;
    pb_series_set set;
} side;

static void close_side(side *s)
{
    pb_series_free(&s->set);
    pb_table_free(&s->t);
}

static pb_status open_side(const char *path, side *out)
{
    PB_TRY(pb_table_read(path, &out->t));
    if (!out->t.n) {
        pb_table_free(&out->t);
        return pb_fail(PB_EINVAL, "%s: has a header but no rows", path);
    }
    pb_status s = pb_series_make(&out->t, &out->set);
    if (s != PB_OK) pb_table_free(&out->t);
    return s;
}

/* ---- the table --------------------------------------------------------------------------------- */

typedef struct printer {
    FILE *out;
    bool all;
    pb_axes_set axes; /* of the rows shown */
    int label_width, metric_width;
    size_t hidden;
} printer;

/* Two passes over the rows shown: which axes vary, then how wide the labels are. */
static void lay_out(printer *p, const pb_verdicts *vs)
{
    char label[PB_LABEL_TEXT];
    for (size_t i = 0; i < vs->n; i++) {
        const char *key = pb_verdict_series(&vs->v[i])->key;
        if (pb_verdict_shown(&vs->v[i], p->all)) pb_axes_add(pb_axes_of(&p->axes, key), key);
        else p->hidden++;
    }
    for (size_t i = 0; i < vs->n; i++) {
        if (!pb_verdict_shown(&vs->v[i], p->all)) continue;
        pb_axes_set_label(&p->axes, pb_verdict_series(&vs->v[i])->key, label, sizeof label);
        int width = (int)strlen(label), metric = (int)strlen(pb_verdict_series(&vs->v[i])->metric);
        if (width > p->label_width) p->label_width = width;
        if (metric > p->metric_width) p->metric_width = metric;
    }
}

static void print_row(printer *p, const pb_verdict *v)
{
    char label[PB_LABEL_TEXT], word[32];
    pb_verdict_cells c;
    pb_axes_set_label(&p->axes, pb_verdict_series(v)->key, label, sizeof label);
    pb_verdict_text(v, &c);
    snprintf(word, sizeof word, v->counts ? "%s" : "(%s)", c.name);
    fprintf(p->out, "%-*s  %-*s %13s %13s %9s  %s  %s%s%s\n", p->label_width, label, p->metric_width,
            pb_verdict_series(v)->metric, c.base, c.cand, c.change, c.launches, word, *v->why ? ": " : "", v->why);
}

static void print_table(printer *p, const pb_verdicts *vs)
{
    lay_out(p, vs);
    for (int i = 0; i < p->axes.n; i++) pb_axes_print_common(&p->axes.suite[i], p->out);
    if (p->hidden < vs->n)
        fprintf(p->out, "%-*s  %-*s %13s %13s %9s  %s  %s\n", p->label_width, "case", p->metric_width, "metric", "base",
                "cand", "change", "n/n", "verdict");
    for (size_t i = 0; i < vs->n; i++)
        if (pb_verdict_shown(&vs->v[i], p->all)) print_row(p, &vs->v[i]);
}

/* ---- notes ------------------------------------------------------------------------------------- */

static void note_ceilings(const pb_series_set *base, const pb_series_set *cand, FILE *out)
{
    char was[PB_FIGURE_TEXT], is[PB_FIGURE_TEXT];
    for (size_t i = 0; i < cand->n; i++) {
        const pb_series *c = &cand->s[i];
        if (!pb_key_of(c->key, "ceiling")) continue;
        const pb_series *b = pb_series_find(base, c->key, c->metric);
        if (!b || !(b->median > 0) || !(fabs(c->median / b->median - 1) > 0.05)) continue;
        pb_figure(was, b->median, b->unit);
        pb_figure(is, c->median, c->unit);
        fprintf(out, "note: the machine's %s moved: %s -> %s (%+.1f %%); gates that name it divide it out\n", c->metric,
                was, is, 100 * (c->median / b->median - 1));
    }
}

static void note_launches(const char *which, int launches, FILE *out)
{
    if (launches < MIN_LAUNCHES)
        fprintf(out, "note: only %d launch%s behind the %s: %d are the least to trust a verdict\n", launches,
                launches == 1 ? "" : "es", which, MIN_LAUNCHES);
}

/* A throttled launch is no longer in the figures, but that it was there is worth a line. */
static void note_throttled(const char *which, const pb_series_set *set, FILE *out)
{
    int most = 0;
    for (size_t i = 0; i < set->n; i++)
        if (set->s[i].throttled > most) most = set->s[i].throttled;
    if (most)
        fprintf(out, "note: %d throttled launch%s of the %s %s not in its figures\n", most, most == 1 ? "" : "es",
                which, most == 1 ? "is" : "are");
}

/* What a reader must know before trusting the verdicts, however they are shown. */
static void note_trust(const pb_comparison *c, const pb_compare_opts *o, FILE *out)
{
    const pb_verdicts *vs = c->vs;
    int gated = 0;
    for (int i = 0; i < PB_NVERDICTS; i++) gated += vs->count[i];
    note_launches("base", vs->base_launches, out);
    note_launches("candidate", vs->cand_launches, out);
    note_throttled("base", c->base, out);
    note_throttled("candidate", c->cand, out);
    pb_soft_differences(c->base_name, c->cand_name, out);
    if (vs->unscaled)
        fprintf(out, "note: %d row%s compared as measured: a side lacks the ceiling that the gate names\n",
                vs->unscaled, vs->unscaled == 1 ? "" : "s");
    if (o->allow_mismatch) fprintf(out, "note: machines may differ (--allow-mismatch)\n");
    if (!gated) fprintf(out, "note: nothing here gates: gates.csv has no gating line for a metric of these files\n");
}

static void print_summary(const pb_verdicts *vs, pb_exit e, FILE *out)
{
    const int *n = vs->count;
    fprintf(out,
            "bench: regressed=%d improved=%d same=%d suspect=%d missing=%d incomparable=%d failed=%d new=%d "
            "inconclusive=%d exit=%d\n",
            n[PB_VERDICT_REGRESSED], n[PB_VERDICT_IMPROVED], n[PB_VERDICT_SAME], n[PB_VERDICT_SUSPECT],
            n[PB_VERDICT_MISSING], n[PB_VERDICT_INCOMPARABLE], n[PB_VERDICT_FAILED], n[PB_VERDICT_NEW],
            n[PB_VERDICT_INCONCLUSIVE], (int)e);
}

static pb_status print_all(const pb_comparison *c, const pb_compare_opts *o, FILE *out)
{
    printer *p = calloc(1, sizeof *p); /* too large for a stack */
    if (!p) return pb_fail(PB_ENOMEM, "compare: out of memory");
    p->out = out;
    p->all = o->all;
    print_table(p, c->vs);
    note_trust(c, o, out);
    if (p->hidden) fprintf(out, "note: %zu unchanged rows that do not gate are not shown (--all)\n", p->hidden);
    note_ceilings(c->base, c->cand, out);
    free(p);
    return PB_OK;
}

/* The notes stand below as they are. */
static pb_status markdown(const pb_comparison *c, const pb_compare_opts *o, FILE *out)
{
    char *text = NULL;
    size_t n = 0;
    FILE *notes = open_memstream(&text, &n);
    if (!notes) return pb_fail(PB_ENOMEM, "compare: out of memory");
    if (c->base) note_trust(c, o, notes);
    if (c->base) note_ceilings(c->base, c->cand, notes);
    pb_status s = fclose(notes) == 0 ? pb_compare_markdown(c, out) : pb_fail(PB_ENOMEM, "compare: out of memory");
    if (s == PB_OK && n) fprintf(out, "\n```\n%s```\n", text);
    free(text);
    return s;
}

/* The one place that writes a comparison, in the format asked for. */
static pb_status show(const pb_comparison *c, const pb_compare_opts *o, FILE *out)
{
    if (pb_format_of(o->format) == PB_FORMAT_MARKDOWN) return markdown(c, o, out);
    if (pb_format_of(o->format) == PB_FORMAT_JUNIT) return pb_compare_junit(c, out);
    if (c->base) PB_TRY(print_all(c, o, out));
    for (int i = 0; i < c->nmissing; i++)
        fprintf(out, "NO-BASELINE: there is no %s; save one with `bench baseline save %s`\n", c->missing[i],
                c->cand_name);
    print_summary(c->vs, c->exit, out);
    return PB_OK;
}

/* ---- the two doors ----------------------------------------------------------------------------- */

static const char *baselines_of(const pb_compare_opts *o) { return o->baselines ? o->baselines : "baselines"; }

static pb_status read_gates(const pb_compare_opts *o, pb_gates *out)
{
    char path[PB_PATH_TEXT];
    snprintf(path, sizeof path, "%s/gates.csv", baselines_of(o));
    return pb_gates_read(o->gates ? o->gates : path, out);
}

static pb_status compare_sides(const side *b, const side *c, const pb_compare_opts *o, FILE *out, pb_exit *e)
{
    pb_gates gates;
    pb_verdicts vs = {0};
    PB_TRY(read_gates(o, &gates));
    pb_status s = pb_judge(&b->set, &c->set, &gates, NULL, &(pb_judge_opts){o->allow_mismatch, o->subset}, &vs);
    if (s == PB_OK) {
        *e = pb_counts_exit(vs.count, o->strict);
        pb_verdicts_sort(&vs);
        s = show(&(pb_comparison){&vs, &b->set, &c->set, b->t.path, c->t.path, NULL, 0, false, *e}, o, out);
    }
    pb_verdicts_free(&vs);
    return s;
}

pb_exit pb_compare_files(const char *base, const char *cand, const pb_compare_opts *o, FILE *out)
{
    side b, c;
    pb_exit e = PB_EXIT_OK;
    pb_status s = open_side(base, &b);
    if (s != PB_OK) return pb_file_exit(s);
    s = open_side(cand, &c);
    if (s == PB_OK) {
        s = compare_sides(&b, &c, o, out, &e);
        close_side(&c);
    }
    close_side(&b);
    return s == PB_OK ? e : pb_file_exit(s);
}

/* The run's suites against their baselines. Everything is read and judged before the first line is printed. */
typedef struct against {
    side run, base[MAX_SUITES]; /* open until all is printed */
    int nbase, nmissing;
    char missing[MAX_SUITES][PB_PATH_TEXT]; /* baselines that there are not */
    pb_gates gates;
    pb_verdicts vs;
} against;

static pb_status judge_suite(against *a, const char *suite, const pb_compare_opts *o)
{
    char path[PB_PATH_TEXT];
    PB_TRY(pb_baseline_path(baselines_of(o), a->run.t.rows[0].machine_id, suite, path, sizeof path));
    if (access(path, F_OK) != 0) {
        memcpy(a->missing[a->nmissing++], path, sizeof path);
        return PB_OK;
    }
    side *b = &a->base[a->nbase];
    PB_TRY(open_side(path, b));
    a->nbase++;
    return pb_judge(&b->set, &a->run.set, &a->gates, suite, &(pb_judge_opts){o->allow_mismatch, o->subset}, &a->vs);
}

static pb_status judge_run(against *a, const pb_compare_opts *o, FILE *out, pb_exit *e)
{
    char suites[MAX_SUITES][PB_AXIS_TEXT];
    int n = pb_baseline_suites(&a->run.set, suites, MAX_SUITES);
    PB_TRY(read_gates(o, &a->gates));
    for (int i = 0; i < n; i++) PB_TRY(judge_suite(a, suites[i], o));
    bool lacking = o->require_baseline && (a->nmissing || !n);
    *e = pb_worse_exit(pb_counts_exit(a->vs.count, o->strict), lacking ? PB_EXIT_INCOMPARABLE : PB_EXIT_OK);
    pb_verdicts_sort(&a->vs);
    return show(&(pb_comparison){&a->vs, a->nbase ? &a->base[0].set : NULL, &a->run.set,
                                 a->nbase ? a->base[0].t.path : "", a->run.t.path, a->missing, a->nmissing, lacking,
                                 *e},
                o, out);
}

pb_exit pb_compare_baseline(const char *run, const pb_compare_opts *o, FILE *out)
{
    against *a = calloc(1, sizeof *a);
    pb_exit e = PB_EXIT_OK;
    pb_status s = a ? open_side(run, &a->run) : pb_fail(PB_ENOMEM, "compare: out of memory");
    if (s == PB_OK) {
        s = judge_run(a, o, out, &e);
        close_side(&a->run);
    }
    for (int i = 0; a && i < a->nbase; i++) close_side(&a->base[i]);
    if (a) pb_verdicts_free(&a->vs);
    free(a);
    return s == PB_OK ? e : pb_file_exit(s);
}
