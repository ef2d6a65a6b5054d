/* compare_render.c - formats the cells of a comparison, and prints it as Markdown and JUnit XML. */
#include "bench/compare/compare_render.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/compare/stored_rule.h"
#include "bench/stats/stats.h"

/* ---- emitting rows -------------------------------------------------------------------------------- */

const pb_series *pb_verdict_series(const pb_verdict *v) { return v->cand ? v->cand : v->base; }

void pb_verdict_label(pb_axes_set *axes, const pb_verdict *v, char *out, size_t n)
{
    const char *key = pb_verdict_series(v)->key;
    const int suite = axes->n > 1 ? (int)pb_suite_length(key) : 0;
    if (v->all_rows) snprintf(out, n, "%.*s%sall rows", suite, key, suite ? ": " : "");
    else pb_axes_set_label(axes, key, out, n);
}

void pb_verdict_add_axes(pb_axes_set *axes, const pb_verdict *v)
{
    const char *key = pb_verdict_series(v)->key;
    if (!v->all_rows) pb_axes_add(pb_axes_of(axes, key), key);
}

bool pb_verdict_shown(const pb_verdict *v, bool all)
{
    if (all || v->counts) return true;
    if (v->id == PB_VERDICT_SAME) return false;
    /* A gating row of these verdicts that does not count is an exact counter that could not be compared. */
    if (v->id == PB_VERDICT_REFERENCE || v->id == PB_VERDICT_INCONCLUSIVE) return v->gate->gating && *v->why;
    if (v->id != PB_VERDICT_INFO || !v->base || !v->cand) return true;
    if (v->base->status != v->cand->status) return true;
    return !pb_key_of(v->cand->key, "requirement") && isfinite(v->base->median) && isfinite(v->cand->median) &&
           fabs(v->cand->median - v->base->median) > PB_DEFAULT_LIMIT / 3 * fabs(v->base->median);
}

static void side_text(char out[PB_FIGURE_TEXT], const pb_series *s)
{
    if (s && !isfinite(s->median) && !pb_series_ok(s))
        snprintf(out, PB_FIGURE_TEXT, "%s", pb_row_status_name(s->status));
    else pb_figure(out, s ? s->median : (double)NAN, s ? s->unit : "1");
}

/* The interval of the ratio, which is the inverse of exp(change) if higher is better. */
static void interval_text(const pb_verdict *v, char *out, size_t n)
{
    const pb_evidence *e = &v->evidence;
    const double half = pb_t_quantile(PB_STORED_ALPHA_SAME, e->nu) * e->se;
    const double change = strcmp(v->cand->better, "lower") ? -e->change : e->change;
    snprintf(out, n, "90 %% interval %+.3g %% to %+.3g %%", 100 * expm1(fmin(change - half, 600)),
             100 * expm1(fmin(change + half, 600)));
}

void pb_verdict_text(const pb_verdict *v, pb_verdict_cells *out)
{
    side_text(out->base, v->base);
    side_text(out->cand, v->cand);
    snprintf(out->change, sizeof out->change, "-");
    if (v->ratio >= 10 || v->ratio <= 0.1) snprintf(out->change, sizeof out->change, "x %.3g", v->ratio);
    else if (isfinite(v->ratio)) snprintf(out->change, sizeof out->change, "%+.1f %%", pb_percent(v->ratio, 0.1));
    snprintf(out->processes, sizeof out->processes, "%d/%d", v->base ? v->base->processes : 0,
             v->cand ? v->cand->processes : 0);
    *out->interval = 0;
    if (v->id == PB_VERDICT_REFERENCE && !*v->why) interval_text(v, out->interval, sizeof out->interval);
    out->why = *out->interval ? out->interval : v->why;
    out->name = v->id == PB_VERDICT_INFO ? "info" : pb_verdict_names[v->id];
}

/* ---- Markdown --------------------------------------------------------------------------------------- */

static void headline(const pb_comparison *c, FILE *out)
{
    static const pb_verdict_id severe[] = {PB_VERDICT_REGRESSED,    PB_VERDICT_FAILED,  PB_VERDICT_MISSING,
                                           PB_VERDICT_INCOMPARABLE, PB_VERDICT_SUSPECT, PB_VERDICT_INCONCLUSIVE};
    int all = 0;
    const char *comma = "";
    for (int i = 0; i < PB_NVERDICTS; i++) all += c->vs->count[i];
    fputs("### bench: ", out);
    for (int i = 0; i < (int)(sizeof severe / sizeof *severe); i++) {
        if (!c->vs->count[severe[i]]) continue;
        fprintf(out, "%s%d %s", comma, c->vs->count[severe[i]], pb_verdict_names[severe[i]]);
        comma = ", ";
    }
    if (!*comma && all && all == c->vs->count[PB_VERDICT_REFERENCE])
        fprintf(out, "%d row%s of another host, for reference only", all, all == 1 ? "" : "s");
    else if (!*comma && all) fprintf(out, "no regression in %d gating row%s", all, all == 1 ? "" : "s");
    else if (!*comma && c->counters) fputs("no exact counter is worse", out);
    else if (!*comma) fputs(c->nmissing ? "no baseline to compare with" : "no row gates", out);
    fprintf(out, " (exit %d)\n\n", (int)c->exit);
    for (int i = 0; i < PB_NVERDICTS; i++) {
        if (i == PB_VERDICT_INFO) continue;
        fprintf(out, "%s%d %s", i ? ", " : "", c->vs->count[i], pb_verdict_names[i]);
    }
    fputs(".\n", out);
}

static void print_row(pb_axes_set *axes, const pb_verdict *v, FILE *out)
{
    char label[PB_LABEL_TEXT];
    pb_verdict_cells cells;
    pb_verdict_label(axes, v, label, sizeof label);
    pb_verdict_text(v, &cells);
    fputs("| ", out), pb_markdown(out, label, true);
    fputs(" | ", out), pb_markdown(out, pb_verdict_series(v)->metric, true);
    fprintf(out, " | %s | %s | %s | %s | %s%s%s%s", cells.base, cells.cand, cells.change, cells.processes,
            v->counts ? "**" : "", cells.name, v->counts ? "**" : "", *cells.why ? ": " : "");
    pb_markdown(out, cells.why, false);
    fputs(" |\n", out);
}

/* Prints a table of the rows whose `counts` is as given and that --all is not needed for, at most PB_MARKDOWN_ROWS of
 * them. Returns the number of such rows, printed or not. */
static size_t print_table(const pb_comparison *c, bool counts, pb_axes_set *axes, FILE *out)
{
    size_t n = 0;
    memset(axes, 0, sizeof *axes);
    for (size_t i = 0; i < c->vs->n; i++) {
        const pb_verdict *v = &c->vs->v[i];
        if (v->counts == counts && pb_verdict_shown(v, false) && n++ < PB_MARKDOWN_ROWS) pb_verdict_add_axes(axes, v);
    }
    if (!n) return 0;
    fputs("\n```\n", out);
    for (int i = 0; i < axes->n; i++) pb_axes_print_common(&axes->suite[i], out);
    fputs("```\n\n| case | metric | base | candidate | change | processes | verdict |\n"
          "|---|---|--:|--:|--:|:-:|---|\n",
          out);
    size_t left = n < PB_MARKDOWN_ROWS ? n : PB_MARKDOWN_ROWS;
    for (size_t i = 0; left && i < c->vs->n; i++) {
        const pb_verdict *v = &c->vs->v[i];
        if (v->counts != counts || !pb_verdict_shown(v, false)) continue;
        print_row(axes, v, out);
        left--;
    }
    if (n > PB_MARKDOWN_ROWS) fprintf(out, "\n%zu more rows are not shown.\n", n - PB_MARKDOWN_ROWS);
    return n;
}

static size_t others(const pb_comparison *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->vs->n; i++) n += !c->vs->v[i].counts && pb_verdict_shown(&c->vs->v[i], false);
    return n;
}

pb_status pb_compare_markdown(const pb_comparison *c, FILE *out)
{
    pb_axes_set *axes = malloc(sizeof *axes);
    if (!axes) return pb_fail(PB_ENOMEM, "compare: out of memory");
    size_t rest = others(c);
    headline(c, out);
    print_table(c, true, axes, out);
    for (int i = 0; i < c->nmissing; i++) {
        fputs("\nNO-BASELINE: ", out), pb_markdown(out, c->missing[i], true);
        fputs(" does not exist\n", out);
    }
    if (rest) {
        fprintf(out, "\n<details><summary>%zu other row%s changed; none of them gates</summary>\n", rest,
                rest == 1 ? "" : "s");
        print_table(c, false, axes, out);
        fputs("\n</details>\n", out);
    }
    fputs("\nbase ", out), pb_markdown(out, c->base ? c->base_name : "none", true);
    fputs(", candidate ", out), pb_markdown(out, c->cand_name, true);
    fputs("\n", out);
    free(axes);
    return PB_OK;
}

/* ---- JUnit ------------------------------------------------------------------------------------------ */

static void junit_verdict(const pb_verdict *v, pb_junit_case *out)
{
    static const pb_junit_outcome outcomes[PB_NVERDICTS] = {
        [PB_VERDICT_REGRESSED] = PB_JUNIT_FAILURE, [PB_VERDICT_FAILED] = PB_JUNIT_ERROR,
        [PB_VERDICT_MISSING] = PB_JUNIT_ERROR,     [PB_VERDICT_INCOMPARABLE] = PB_JUNIT_ERROR,
        [PB_VERDICT_IMPROVED] = PB_JUNIT_PASSED,   [PB_VERDICT_SAME] = PB_JUNIT_PASSED,
    };
    const pb_series *s = pb_verdict_series(v);
    pb_verdict_cells cells;
    size_t suite = pb_suite_length(s->key);
    pb_verdict_text(v, &cells);
    out->outcome = outcomes[v->id];
    snprintf(out->classname, sizeof out->classname, "bench.%.*s", (int)suite, s->key);
    snprintf(out->name, sizeof out->name, "%s %s", s->key + suite + 1, s->metric);
    snprintf(out->type, sizeof out->type, "%s", cells.name);
    char least[PB_FIGURE_TEXT], detects[2 * PB_FIGURE_TEXT] = "";
    pb_worsening(least, v->evidence.detects, " ");
    if (v->evidence.sessions && isfinite(v->evidence.detects))
        snprintf(detects, sizeof detects, ", detectable change %s", least);
    snprintf(out->message, sizeof out->message, "%s: base %s, candidate %s (%s)%s, processes %s%s%.300s", cells.name,
             cells.base, cells.cand, cells.change, detects, cells.processes, *cells.why ? ": " : "", cells.why);
}

static bool junit_case(void *user, size_t i, pb_junit_case *out)
{
    const pb_comparison *c = user;
    if (i < c->vs->n) {
        if (c->vs->v[i].counts) junit_verdict(&c->vs->v[i], out);
        return c->vs->v[i].counts;
    }
    out->outcome = c->lacking ? PB_JUNIT_ERROR : PB_JUNIT_SKIPPED;
    snprintf(out->classname, sizeof out->classname, "bench.baseline");
    snprintf(out->name, sizeof out->name, "%.600s", c->missing[i - c->vs->n]);
    snprintf(out->type, sizeof out->type, "NO-BASELINE");
    snprintf(out->message, sizeof out->message, "NO-BASELINE: create one with bench baseline save %.500s",
             c->cand_name);
    return true;
}

pb_status pb_compare_junit(const pb_comparison *c, FILE *out)
{
    pb_junit(out, "bench compare", c->vs->n + (size_t)c->nmissing, junit_case, (void *)c);
    return PB_OK;
}
