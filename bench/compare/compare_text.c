/* compare_text.c - prints a comparison for a terminal: a table, notes, and a last line for scripts. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/compare/compare_render.h"
#include "bench/compare/soft_differences.h"
#include "bench/compare/stored_rule.h"
#include "bench/rows/rows.h"

enum { NOTES_MAX = 3 };

/* ---- the table --------------------------------------------------------------------------------- */

typedef struct printer {
    FILE *out;
    const pb_comparison *c;
    pb_axes_set axes; /* axes of the keys in the shown rows */
    int label_width, metric_width;
    size_t hidden;
} printer;

static bool shown(const printer *p, const pb_verdict *v) { return pb_verdict_shown(v, p->c->all); }

/* Two passes over the shown rows: the first finds the axes that vary, the second the widths of the columns. */
static void lay_out(printer *p, const pb_verdicts *vs)
{
    char label[PB_LABEL_TEXT];
    for (size_t i = 0; i < vs->n; i++) {
        if (shown(p, &vs->v[i])) pb_verdict_add_axes(&p->axes, &vs->v[i]);
        else p->hidden++;
    }
    for (size_t i = 0; i < vs->n; i++) {
        if (!shown(p, &vs->v[i])) continue;
        pb_verdict_label(&p->axes, &vs->v[i], label, sizeof label);
        int width = (int)strlen(label), metric = (int)strlen(pb_verdict_series(&vs->v[i])->metric);
        if (width > p->label_width) p->label_width = width;
        if (metric > p->metric_width) p->metric_width = metric;
    }
}

/* With --all and --explain: prints the detectable change of a gating row. v NULL: prints the column's heading. */
static void print_detects(const printer *p, const pb_verdict *v)
{
    char text[PB_FIGURE_TEXT] = "-";
    if (v && v->gate->gating && v->evidence.sessions) pb_worsening(text, v->evidence.detects, " ");
    if (p->c->all || p->c->explain) fprintf(p->out, " %8s", v ? text : "detects");
}

static void print_row(printer *p, const pb_verdict *v)
{
    char label[PB_LABEL_TEXT], word[32], why[PB_EXPLAIN_TEXT];
    pb_verdict_cells c;
    pb_verdict_label(&p->axes, v, label, sizeof label);
    pb_verdict_text(v, &c);
    snprintf(word, sizeof word, v->counts ? "%s" : "(%s)", c.name);
    fprintf(p->out, "%-*s  %-*s %13s %13s %9s", p->label_width, label, p->metric_width, pb_verdict_series(v)->metric,
            c.base, c.cand, c.change);
    print_detects(p, v);
    fprintf(p->out, "  %-9s  %s%s%s\n", c.processes, word, *c.why ? ": " : "", c.why);
    if (!p->c->explain) return;
    pb_verdict_explain(v, p->c->vs, why);
    fprintf(p->out, "    %s\n", why);
}

static void print_table(printer *p, const pb_verdicts *vs)
{
    lay_out(p, vs);
    for (int i = 0; i < p->axes.n; i++) pb_axes_print_common(&p->axes.suite[i], p->out);
    if (p->hidden < vs->n) {
        fprintf(p->out, "%-*s  %-*s %13s %13s %9s", p->label_width, "case", p->metric_width, "metric", "base", "cand",
                "change");
        print_detects(p, NULL);
        fprintf(p->out, "  %s  %s\n", "processes", "verdict");
    }
    for (size_t i = 0; i < vs->n; i++)
        if (shown(p, &vs->v[i])) print_row(p, &vs->v[i]);
}

/* ---- notes below the table --------------------------------------------------------------------- */

/* Prints a note on each ceiling that a gate names and that changed by more than 5 %. With several suites a ceiling has
 * several adjacent rows; it gets one note. */
static void note_machine(const pb_verdicts *vs, FILE *out)
{
    const pb_series *last = NULL;
    char was[PB_FIGURE_TEXT], is[PB_FIGURE_TEXT];
    for (size_t i = 0; i < vs->n; i++) {
        const pb_verdict *v = &vs->v[i];
        if (!v->machine || !v->evidence.sessions || v->cand == last || !(fabs(v->ratio - 1) > 0.05)) continue;
        last = v->cand;
        pb_figure(was, v->base->median, v->base->unit);
        pb_figure(is, v->cand->median, v->cand->unit);
        fprintf(out, "note: a ceiling changed: %s %s -> %s (%+.1f %%); values are compared as measured\n",
                v->cand->metric, was, is, 100 * (v->ratio - 1));
    }
}

/* The value of the candidate's process that differs most from the base's median. */
static double furthest(const pb_series *b, const pb_series *c)
{
    return fabs(c->min - b->median) > fabs(c->max - b->median) ? c->min : c->max;
}

/* Prints a note for each counter that changed and is not exact. These counters have a COUNTER line in metrics.def. */
static void note_counters(const pb_verdicts *vs, FILE *out)
{
    char was[PB_FIGURE_TEXT], is[PB_FIGURE_TEXT];
    int n = 0;
    for (size_t i = 0; i < vs->n; i++) {
        const pb_series *b = vs->v[i].base, *c = vs->v[i].cand;
        if (!b || !c || !b->processes || !c->processes || vs->v[i].all_rows) continue; /* a mean is no counter */
        const double share = pb_counter_share(c->metric);
        if (share < 0) continue;
        const double now = furthest(b, c);
        if (fabs(now - b->median) <= share * fabs(b->median) || n++ >= NOTES_MAX) continue;
        pb_figure(was, b->median, b->unit);
        pb_figure(is, now, c->unit);
        fprintf(out, "note: a counter changed: %s of %s, %s -> %s\n", c->metric, c->key, was, is);
    }
    if (n > NOTES_MAX) fprintf(out, "note: a counter changed: %d more rows\n", n - NOTES_MAX);
}

/* Prints notes on rows that got worse in small steps, each of which passed. */
static void note_creep(const pb_verdicts *vs, FILE *out)
{
    char worse[PB_FIGURE_TEXT];
    int n = 0;
    for (size_t i = 0; i < vs->n; i++) {
        const pb_verdict *v = &vs->v[i];
        if (!pb_verdict_creeps(v) || n++ >= NOTES_MAX) continue;
        pb_worsening(worse, v->evidence.since_oldest, " ");
        fprintf(
            out,
            "note: slow drift: %s of %s is %s worse than in the oldest stored session, though it is not REGRESSED\n",
            v->cand->metric, v->cand->key, worse);
    }
    if (n > NOTES_MAX) fprintf(out, "note: slow drift: %d more rows\n", n - NOTES_MAX);
}

/* Prints a note if the candidate is itself one of the stored sessions. */
static void note_itself(const pb_verdicts *vs, FILE *out)
{
    for (size_t i = 0; i < vs->n; i++) {
        const pb_verdict *v = &vs->v[i];
        for (int k = 0; v->counts && v->evidence.sessions && k < v->base->sessions; k++) {
            if (!pb_stored(v->base->session[k].run_id)) continue;
            if (strcmp(pb_session_name(&v->base->session[k]), v->cand->run_id) != 0) continue;
            fprintf(out, "note: the candidate, %s, is one of the sessions it is compared with\n", v->cand->run_id);
            return;
        }
    }
}

/* Prints a note with the detectable changes and the other conditions of REGRESSED. */
static void note_detects(const pb_verdicts *vs, FILE *out)
{
    char least[PB_FIGURE_TEXT], most[PB_FIGURE_TEXT], sessions[48];
    if (!vs->figures) return;
    snprintf(sessions, sizeof sessions, vs->sessions_least == vs->sessions_most ? "%d" : "%d to %d", vs->sessions_least,
             vs->sessions_most);
    pb_worsening(least, vs->detects_least, " ");
    pb_worsening(most, vs->detects_most, " ");
    fprintf(out, "note: against %s session%s a row is beyond its bound if it is at least %s worse", sessions,
            vs->sessions_most == 1 ? "" : "s", least);
    if (strcmp(least, most) != 0) fprintf(out, ", %s for the noisiest row", most);
    if (vs->sessions_least < PB_STORED_SESSIONS)
        fprintf(out, ". It is then at most SUSPECT: REGRESSED and IMPROVED need %d sessions", PB_STORED_SESSIONS);
    fprintf(out, "; `bench compare BASE CAND` with two executables can detect more\n");
}

/* Prints how far the figures of the candidate can be trusted, as one sentence. */
static void note_outlook(const pb_comparison *c, FILE *out)
{
    char least[PB_FIGURE_TEXT], most[PB_FIGURE_TEXT];
    const pb_outlook *o = c->outlook;
    if (!o || !o->rows) return;
    pb_worsening(least, o->detects_least, " ");
    pb_worsening(most, o->detects_most, " ");
    fprintf(out, "note: between processes, the %s of this run vary by %.2g %% (standard deviation)",
            o->gating ? "gating values" : "times", 100 * o->spread);
    if (!c->vs->figures) {
        fprintf(out, "; a comparison with one more run like it would notice a row that is %s worse", least);
        if (strcmp(least, most) != 0) fprintf(out, ", %s for the noisiest row", most);
    }
    fputc('\n', out);
}

/* Prints a note on the rows that are beyond their bound and not confirmed, with a command that decides. */
static void note_unconfirmed(const pb_verdicts *vs, FILE *out)
{
    const pb_verdict *first = NULL;
    int n = 0;
    for (size_t i = 0; i < vs->n; i++) {
        if (!vs->v[i].unconfirmed) continue;
        if (!n++) first = &vs->v[i];
    }
    if (!n) return;
    fprintf(out, "note: not confirmed: %d row%s beyond %s bound; `scripts/ci-compare main -- --suite %.*s", n,
            n == 1 ? " is" : "s are", n == 1 ? "its" : "their", (int)pb_suite_length(first->cand->key),
            first->cand->key);
    if (!first->all_rows) fprintf(out, " --filter '%s'", first->cand->key);
    fprintf(out, "` compares the two builds\n");
}

/* Prints a note if the base is from another host. */
static void note_reference(const pb_verdicts *vs, FILE *out)
{
    const int n = vs->count[PB_VERDICT_REFERENCE];
    if (n)
        fprintf(out,
                "note: the stored sessions are from another host, or from one that is not identified: %d row%s for "
                "reference only, and cannot fail the comparison (--machine NAME names a host)\n",
                n, n == 1 ? " is" : "s are");
}

static void note_processes(const char *which, int processes, FILE *out)
{
    if (processes < PB_ENOUGH_PROCESSES)
        fprintf(out, "note: the %s has only %d process%s; a verdict needs %d\n", which, processes,
                processes == 1 ? "" : "es", PB_ENOUGH_PROCESSES);
}

/* Prints a note if the base includes kept sessions. */
static void note_kept(const pb_series_set *set, FILE *out)
{
    int most = 0;
    for (size_t i = 0; i < set->n; i++) {
        int n = 0;
        for (int k = 0; k < set->s[i].sessions; k++) n += set->s[i].session[k].kept;
        if (n > most) most = n;
    }
    if (most)
        fprintf(out, "note: %d of the sessions %s kept from earlier runs on this host\n", most,
                most == 1 ? "was" : "were");
}

/* Prints a note if throttled processes were left out of the values. */
static void note_throttled(const char *which, const pb_series_set *set, FILE *out)
{
    int most = 0;
    for (size_t i = 0; i < set->n; i++)
        if (set->s[i].throttled > most) most = set->s[i].throttled;
    if (most)
        fprintf(out, "note: %d throttled process%s of the %s %s not in its values\n", most, most == 1 ? "" : "es",
                which, most == 1 ? "is" : "are");
}

void pb_compare_notes(const pb_comparison *c, FILE *out)
{
    const pb_verdicts *vs = c->vs;
    int gated = 0;
    if (c->notes) {
        fputs(c->notes, out);
        if (c->exact) fputs(c->exact, out);
        note_counters(vs, out);
        return;
    }
    for (int i = 0; i < PB_NVERDICTS; i++) gated += vs->count[i];
    note_reference(vs, out);
    note_outlook(c, out);
    note_detects(vs, out);
    note_unconfirmed(vs, out);
    note_itself(vs, out);
    note_processes("base", vs->base_processes, out);
    note_processes("candidate", vs->cand_processes, out);
    note_kept(c->base, out);
    note_throttled("base", c->base, out);
    note_throttled("candidate", c->cand, out);
    pb_soft_differences(c->base_name, c->cand_name, out);
    if (c->mismatch) fprintf(out, "note: the sides may be from different machines (--allow-mismatch)\n");
    if (c->exact) fputs(c->exact, out);
    if (!gated && !c->counters)
        fprintf(out, "note: no row gates: gates.csv has no gating line for a metric of these files\n");
    note_machine(vs, out);
    note_counters(vs, out);
    note_creep(vs, out);
}

static void print_pairs_summary(const pb_verdicts *vs, pb_exit e, FILE *out)
{
    const int *n = vs->count;
    fprintf(out,
            "bench: regressed=%d improved=%d same=%d inconclusive=%d missing=%d incomparable=%d failed=%d exit=%d\n",
            n[PB_VERDICT_REGRESSED], n[PB_VERDICT_IMPROVED], n[PB_VERDICT_SAME], n[PB_VERDICT_INCONCLUSIVE],
            n[PB_VERDICT_MISSING], n[PB_VERDICT_INCOMPARABLE], n[PB_VERDICT_FAILED], (int)e);
}

static void print_summary(const pb_verdicts *vs, const pb_outlook *outlook, pb_exit e, FILE *out)
{
    const int *n = vs->count;
    char detects[2 * PB_FIGURE_TEXT + 4];
    pb_detects_text(vs, outlook, detects, sizeof detects);
    fprintf(out,
            "bench: regressed=%d improved=%d same=%d suspect=%d missing=%d incomparable=%d failed=%d new=%d "
            "inconclusive=%d reference=%d detects=%s exit=%d\n",
            n[PB_VERDICT_REGRESSED], n[PB_VERDICT_IMPROVED], n[PB_VERDICT_SAME], n[PB_VERDICT_SUSPECT],
            n[PB_VERDICT_MISSING], n[PB_VERDICT_INCOMPARABLE], n[PB_VERDICT_FAILED], n[PB_VERDICT_NEW],
            n[PB_VERDICT_INCONCLUSIVE], n[PB_VERDICT_REFERENCE], detects, (int)e);
}

static pb_status print_all(const pb_comparison *c, FILE *out)
{
    printer *p = calloc(1, sizeof *p); /* too large for the stack */
    if (!p) return pb_fail(PB_ENOMEM, "compare: out of memory");
    p->out = out;
    p->c = c;
    print_table(p, c->vs);
    pb_compare_notes(c, out);
    if (p->hidden)
        fprintf(out, "note: %zu unchanged row%s not shown, as %s not gate (--all)\n", p->hidden,
                p->hidden == 1 ? " is" : "s are", p->hidden == 1 ? "it does" : "they do");
    free(p);
    return PB_OK;
}

pb_status pb_compare_text(const pb_comparison *c, FILE *out)
{
    if (c->base) PB_TRY(print_all(c, out));
    else {
        note_outlook(c, out);
        if (c->exact) fputs(c->exact, out);
    }
    for (int i = 0; i < c->nmissing; i++)
        fprintf(out, "NO-BASELINE: %s does not exist; create it with `bench baseline save %s`\n", c->missing[i],
                c->cand_name);
    if (c->notes) print_pairs_summary(c->vs, c->exit, out);
    else print_summary(c->vs, c->outlook, c->exit, out);
    return PB_OK;
}
