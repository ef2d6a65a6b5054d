/* pair_rows.c - makes rows for pair_rule.h, one per key and metric, from the results and samples of both sides. */
#define _GNU_SOURCE
#include "bench/pairs/pair_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/derived/derived.h"
#include "bench/rows/rows.h"

/* ---- one side: a value per series and pair --------------------------------------------------------- */

static double *value_at(pb_pair_table *t, int side, const char *key, const char *metric, long long process)
{
    const pb_series *s = pb_series_find(&t->set[side], key, metric);
    if (!s || process < 0 || process >= t->pairs) return NULL;
    return &t->x[side][(size_t)(s - t->set[side].s) * (size_t)t->pairs + (size_t)process];
}

static void take_values(pb_pair_table *t, int side)
{
    const pb_process_values *v = &t->values[side];
    for (size_t i = 0; i < t->set[side].n * (size_t)t->pairs; i++) t->x[side][i] = (double)NAN;
    for (size_t i = 0; i < v->t.n; i++) {
        const pb_row *r = &v->t.rows[i];
        double *x = r->status == PB_ROW_OK ? value_at(t, side, r->key, r->metric, r->process) : NULL;
        if (x) *x = v->log_value[i];
        if (!x || side == 0 || strcmp(r->metric, "slowdown") != 0) continue;
        if (!(t->slowdown[0] > 0) || r->value < t->slowdown[0]) t->slowdown[0] = r->value;
        if (r->value > t->slowdown[1]) t->slowdown[1] = r->value;
    }
}

static pb_status open_side(pb_pair_table *t, int side, const char *dir)
{
    char path[PB_PATH_TEXT];
    snprintf(path, sizeof path, "%.900s/%s", dir, side ? "cand" : "base");
    PB_TRY(pb_process_values_read(path, true, &t->values[side]));
    PB_TRY(pb_series_make(&t->values[side].t, &t->set[side]));
    t->x[side] = calloc(t->set[side].n * (size_t)t->pairs + 1, sizeof(double));
    if (!t->x[side]) return pb_fail(PB_ENOMEM, "pairs: out of memory");
    take_values(t, side);
    return PB_OK;
}

/* ---- both sides: one row per key and metric ---------------------------------------------------------- */

static int count_values(const pb_pair_table *t, int side, const pb_series *s)
{
    int n = 0;
    for (int p = 0; s && p < t->pairs; p++)
        n += !isnan(t->x[side][(size_t)(s - t->set[side].s) * (size_t)t->pairs + (size_t)p]);
    return n;
}

static const char *obstacle(const pb_pair_table *t, const pb_series *b, const pb_series *c, bool allow_mismatch)
{
    if (b->mixed || c->mixed) return "processes of one side differ in machine, version or unit";
    if (strcmp(b->unit, c->unit) != 0) return "the unit differs";
    if (strcmp(b->bench_version, c->bench_version) != 0) return "bench_version differs";
    if (!allow_mismatch && strcmp(b->machine_id, c->machine_id) != 0) return "machine_id differs (--allow-mismatch)";
    if (b->refuted) return b->note;
    if (count_values(t, 0, b) < t->pairs) return "a process of the base has no value";
    return count_values(t, 1, c) < t->pairs ? "a process of the candidate has no value" : NULL;
}

static void fill_ratios(pb_pair_table *t, const pb_series *b, const pb_series *c, double *out)
{
    const double *x = &t->x[0][(size_t)(b - t->set[0].s) * (size_t)t->pairs];
    const double *y = &t->x[1][(size_t)(c - t->set[1].s) * (size_t)t->pairs];
    for (int p = 0; p < t->pairs; p++)
        out[p] = isinf(x[p]) && isinf(y[p]) ? 0 : y[p] - x[p]; /* both values 0: ratio 1 */
}

/* Adds one key and metric to the table: as a row, as new (`only_cand`) or as information (`undirected`). One of b and c
 * may be NULL. */
static void join(pb_pair_table *t, const pb_series *b, const pb_series *c, const pb_gates *gates, bool allow_mismatch)
{
    const pb_series *s = b ? b : c;
    const int base_values = count_values(t, 0, b), cand_values = count_values(t, 1, c);
    const char *wrong = c ? pb_verdict_wrong(b, c) : NULL;
    if (!s || pb_key_of(s->key, "requirement") || (!base_values && !cand_values && !wrong)) return;
    if (strcmp(s->better, "none") == 0 && !wrong) {
        if (b && c) t->undirected[t->undirected_n][0] = b, t->undirected[t->undirected_n++][1] = c;
        return;
    }
    if (!base_values && !wrong && !(b && b->refuted)) {
        t->only_cand[t->only_cand_n++] = c;
        return;
    }
    double *ratio = &t->log_ratio[t->n * (size_t)t->pairs];
    pb_pair_row *r = &t->rows[t->n];
    *r = (pb_pair_row){.key = s->key,
                       .metric = s->metric,
                       .higher = strcmp(s->better, "higher") == 0,
                       .gating = pb_gates_find(gates, s->key, s->metric)->gating,
                       .absent = !cand_values,
                       .wrong = wrong,
                       .log_ratio = ratio,
                       .n = t->pairs};
    if (cand_values && b && c) {
        r->obstacle = obstacle(t, b, c, allow_mismatch);
        fill_ratios(t, b, c, ratio);
    }
    t->series[t->n][0] = b;
    t->series[t->n++][1] = c;
}

/* Adds an absent row for each gating line of gates.csv whose metric neither side has measured. Ratios are excepted:
 * no side has them where --filter or an axis leaves out one of their two cases. */
static void add_required_rows(pb_pair_table *t, const pb_gates *gates)
{
    const size_t n = t->n;
    const pb_gate *g;
    for (int at = 0; (g = pb_pair_unmatched(gates, t->rows, n, &at));) {
        if (pb_is_ratio(g->metric)) continue;
        pb_series *s = &t->placeholders[t->n - n];
        const pb_metric *m = pb_metric_find(g->metric);
        char key[PB_AXIS_TEXT + 8];
        const int length = snprintf(key, sizeof key, "%s/any", g->suite);
        *s = (pb_series){.key = pb_intern(t->values[0].t.strings, key, (size_t)length),
                         .metric = g->metric,
                         .unit = m ? m->unit : "1",
                         .better = m ? m->better : "none",
                         .status = PB_ROW_FAILED,
                         .note = "",
                         .median = (double)NAN,
                         .min = (double)NAN,
                         .max = (double)NAN};
        if (!s->key) continue;
        t->rows[t->n] = (pb_pair_row){.key = s->key, .metric = s->metric, .gating = true, .absent = true};
        t->series[t->n][0] = t->series[t->n][1] = s;
        t->n++;
    }
}

static pb_status join_all(pb_pair_table *t, const pb_gates *gates, bool allow_mismatch)
{
    const pb_series_set *base = &t->set[0], *cand = &t->set[1];
    const size_t room = base->n + cand->n + PB_MAX_GATES;
    t->rows = malloc(room * sizeof *t->rows);
    t->series = malloc(room * sizeof *t->series);
    t->only_cand = malloc((cand->n + 1) * sizeof *t->only_cand);
    t->undirected = malloc((cand->n + 1) * sizeof *t->undirected);
    t->log_ratio = malloc(room * (size_t)(t->pairs + 1) * sizeof *t->log_ratio);
    t->placeholders = malloc(PB_MAX_GATES * sizeof *t->placeholders);
    if (!t->rows || !t->series || !t->only_cand || !t->undirected || !t->log_ratio || !t->placeholders)
        return pb_fail(PB_ENOMEM, "pairs: out of memory for %zu rows", room);
    for (size_t i = 0, j = 0; i < base->n || j < cand->n;) {
        const pb_series *b = i < base->n ? &base->s[i] : NULL, *c = j < cand->n ? &cand->s[j] : NULL;
        const int order = !b ? 1 : !c ? -1 : pb_series_order(b->key, b->metric, c->key, c->metric);
        if (order > 0) b = NULL;
        if (order < 0) c = NULL;
        i += b != NULL;
        j += c != NULL;
        join(t, b, c, gates, allow_mismatch);
    }
    add_required_rows(t, gates);
    return PB_OK;
}

pb_status pb_pair_table_read(const char *dir, int pairs, const pb_gates *gates, bool allow_mismatch, pb_pair_table *out)
{
    pb_pair_table t = {.pairs = pairs};
    pb_status s = open_side(&t, 0, dir);
    if (s == PB_OK) s = open_side(&t, 1, dir);
    if (s == PB_OK) s = join_all(&t, gates, allow_mismatch);
    if (s == PB_OK) *out = t;
    else pb_pair_table_free(&t);
    return s;
}

void pb_pair_table_free(pb_pair_table *t)
{
    for (int i = 0; i < 2; i++) {
        pb_series_free(&t->set[i]);
        pb_process_values_free(&t->values[i]);
        free(t->x[i]);
    }
    free(t->rows);
    free(t->series);
    free(t->only_cand);
    free(t->undirected);
    free(t->log_ratio);
    free(t->placeholders);
    *t = (pb_pair_table){0};
}
