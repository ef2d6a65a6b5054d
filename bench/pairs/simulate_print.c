/* simulate_print.c - prints the result of a simulation for a terminal. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/compare/compare.h"
#include "bench/pairs/simulate_files.h"

enum { SHOWN = 10 };
#define CONFIDENCE 0.95

/* ---- rates --------------------------------------------------------------------------------------- */

static double share(int k, int n) { return n ? 100.0 * k / n : 0; }

/* Lower confidence bound of the rate k/n: 1 minus the upper bound of (n-k)/n. */
static double at_least(int k, int n) { return 1 - pb_rate_bound(n - k, n, CONFIDENCE); }

/* `of` is appended to the confidence: it says what the bound covers. */
static void print_count(const char *name, const char *of, const pb_sim_count *c, int first_look, FILE *out)
{
    if (!c->comparisons) {
        fprintf(out, "%-9s  no session has enough pairs for a comparison\n", name);
        return;
    }
    fprintf(out,
            "%-9s  %7d A/A comparisons: %d false alarm%s, %.3g %% (below %.3g %% with 95 %% confidence%s), %d false "
            "IMPROVED, %d INCONCLUSIVE; %.0f %% decided after %d pairs\n",
            name, c->comparisons, c->alarms, c->alarms == 1 ? "" : "s", share(c->alarms, c->comparisons),
            100 * pb_rate_bound(c->alarms, c->comparisons, CONFIDENCE), of, c->improvements, c->undecided,
            share(c->early, c->comparisons), first_look);
}

static void print_rates(const pb_sim_opts *o, const pb_simulation *sum, FILE *out)
{
    print_count("recorded", "", &sum->recorded, o->rule.look[0], out);
    print_count("resampled", ", given these recordings", &sum->resampled, o->rule.look[0], out);
    fprintf(out,
            "injected   %7d comparisons with one row %.3g %% worse: %d found, %.4g %% (at least %.4g %% with 95 %% "
            "confidence, given these recordings); %.0f %% after %d pairs\n",
            sum->injected, 100 * o->inject, sum->found, share(sum->found, sum->injected),
            100 * at_least(sum->found, sum->injected), share(sum->early, sum->injected), o->rule.look[0]);
    if (isfinite(sum->detectable))
        fprintf(out, "detectable  %.3g %% in the median row, found in %.0f %% of its comparisons\n",
                100 * expm1(sum->detectable), 100 * o->rule.power);
    else fprintf(out, "detectable  no change in the median row\n");
}

/* ---- emitting rows ------------------------------------------------------------------------------- */

typedef struct ranked {
    double detectable, sd;
    size_t at;
} ranked;

static int by_detectable(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->detectable < y->detectable || x->detectable > y->detectable) return x->detectable < y->detectable ? 1 : -1;
    if (x->sd < y->sd || x->sd > y->sd) return x->sd < y->sd ? 1 : -1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Writes the number of pairs that a t test with this spread needs to find the injected change; "-": more than 1000. */
static void pairs_text(const pb_sim_recorded *r, const pb_sim_opts *o, double sd, char out[16])
{
    const double looks = o->rule.look[1] > o->rule.look[0] ? 2 : 1, family = r->family ? (double)r->n : 1;
    const pb_detector d = {0, sd, o->rule.alpha / looks / family, log(1 + o->rule.min_effect)};
    int n = pb_pairs_needed(&d, log(1 + o->inject), o->rule.power, 1000);
    snprintf(out, 16, n ? "%d" : "-", n);
}

static void print_row(const pb_sim_recorded *r, const pb_sim_opts *o, const pb_sim_found *f, const pb_sim_row *row,
                      const char *label, int width, FILE *out)
{
    char pairs[16], detectable[32] = "none";
    pairs_text(r, o, f->sd, pairs);
    if (isfinite(f->detectable)) snprintf(detectable, sizeof detectable, "%.2f %%", 100 * expm1(f->detectable));
    fprintf(out, "%-*s  %-16s %8.2f %% %7.4g %% %11s %9s\n", width, label, row->metric, 100 * f->sd,
            share(f->found, o->trials), detectable, pairs);
}

static void print_rows(const pb_sim_recorded *r, const pb_sim_opts *o, const pb_sim_found *found, size_t shown,
                       const ranked *order, FILE *out)
{
    pb_axes_set axes = {0};
    char label[PB_LABEL_TEXT];
    int width = 4;
    for (size_t i = 0; i < shown; i++)
        pb_axes_add(pb_axes_of(&axes, r->rows[order[i].at].key), r->rows[order[i].at].key);
    for (size_t i = 0; i < shown; i++) {
        pb_axes_set_label(&axes, r->rows[order[i].at].key, label, sizeof label);
        if ((int)strlen(label) > width) width = (int)strlen(label);
    }
    for (int i = 0; i < axes.n; i++) pb_axes_print_common(&axes.suite[i], out);
    fprintf(out, "%-*s  %-16s %10s %9s %11s %9s\n", width, "case", "metric", "sd (pair)", "found", "detectable",
            "pairs");
    for (size_t i = 0; i < shown; i++) {
        const size_t at = order[i].at;
        pb_axes_set_label(&axes, r->rows[at].key, label, sizeof label);
        print_row(r, o, &found[at], &r->rows[at], label, width, out);
    }
    if (shown < r->n)
        fprintf(out, "note: %zu rows with smaller detectable changes are not shown (--all)\n", r->n - shown);
}

static pb_status print_ranked(const pb_sim_recorded *r, const pb_sim_opts *o, const pb_sim_found *found, bool all,
                              FILE *out)
{
    ranked *order = malloc(r->n * sizeof *order);
    if (!order) return pb_fail(PB_ENOMEM, "simulate: out of memory for %zu rows", r->n);
    for (size_t i = 0; i < r->n; i++) order[i] = (ranked){found[i].detectable, found[i].sd, i};
    qsort(order, r->n, sizeof *order, by_detectable);
    print_rows(r, o, found, all || r->n < SHOWN ? r->n : SHOWN, order, out);
    free(order);
    return PB_OK;
}

/* ---- the whole output ---------------------------------------------------------------------------- */

static void print_recorded(const pb_sim_recorded *r, const pb_sim_opts *o, FILE *out)
{
    const pb_pair_opts *rule = &o->rule;
    fprintf(out, "simulate: %d processes of %s in %d session%s, %d pairs\n", r->processes, r->first->machine_id,
            r->nsessions, r->nsessions == 1 ? "" : "s", r->pairs);
    if (r->nsessions > r->paired)
        fprintf(out, "  runs of one program: neighbouring processes are pairs, whose order is drawn at random\n");
    if (r->paired && o->same_code)
        fprintf(out, "  pairs of base and candidate, which are the same code according to --self\n");
    else if (r->paired)
        fprintf(
            out,
            "  pairs of base and candidate: their mean difference in each row and session is subtracted (centred)\n");
    if (r->family) fprintf(out, "  %zu gating rows, one family", r->n);
    else fprintf(out, "  no row gates: each of %zu rows is a comparison of its own", r->n);
    fprintf(out, "; tested after %d%s", rule->look[0], rule->look[1] > rule->look[0] ? " and " : " pairs");
    if (rule->look[1] > rule->look[0]) fprintf(out, "%d pairs", rule->look[1]);
    fprintf(out, "; alpha %g, minimum effect %g %%\n", rule->alpha, 100 * rule->min_effect);
}

static void print_notes(const pb_sim_recorded *r, const pb_sim_opts *o, FILE *out)
{
    if (r->left_out) fprintf(out, "note: rows left out because a process lacks them: %zu\n", r->left_out);
    fprintf(out,
            "note: all rates come from %d processes. recorded uses each of them at most once%s; resampled and injected "
            "draw "
            "blocks of %d pairs from them, %d times, and cannot show effects that were not recorded\n",
            r->processes, r->family ? "" : " per row, and the rows of a session share its processes", PB_SIM_BLOCK,
            o->trials);
}

pb_status pb_sim_print(const pb_sim_recorded *r, const pb_sim_opts *o, const pb_sim_found *found,
                       const pb_simulation *sum, bool all, FILE *out)
{
    print_recorded(r, o, out);
    print_rates(o, sum, out);
    PB_TRY(print_ranked(r, o, found, all, out));
    print_notes(r, o, out);
    const pb_sim_count *a = &sum->recorded, *b = &sum->resampled;
    fprintf(
        out,
        "bench: processes=%d pairs=%d rows=%zu recorded=%d recorded_alarms=%d recorded_undecided=%d recorded_min=%.4g "
        "recorded_max=%.4g resampled=%d resampled_alarms=%d resampled_max=%.4g injected=%d found=%d found_min=%.4g "
        "detectable=",
        r->processes, r->pairs, r->n, a->comparisons, a->alarms, a->undecided, at_least(a->alarms, a->comparisons),
        pb_rate_bound(a->alarms, a->comparisons, CONFIDENCE), b->comparisons, b->alarms,
        pb_rate_bound(b->alarms, b->comparisons, CONFIDENCE), sum->injected, sum->found,
        at_least(sum->found, sum->injected));
    if (isfinite(sum->detectable)) fprintf(out, "%.4g", expm1(sum->detectable));
    fprintf(out, " exit=0\n");
    return PB_OK;
}
