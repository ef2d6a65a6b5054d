/* verdict.c - the rule of verdict.h, and the merge of two sorted sets that applies it. */
#include "bench/verdict.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const pb_verdict_names[PB_NVERDICTS] = {
#define X(id, what) #id,
    PB_VERDICT_MAP(X)
#undef X
};

/* ---- ceilings ---------------------------------------------------------------------------------- */

static bool axes_agree(const char *a, const char *b)
{
    pb_case x, y;
    if (pb_case_parse(a, &x) != PB_OK || pb_case_parse(b, &y) != PB_OK) return false;
    for (int i = 0; i < x.n; i++) {
        const char *other = pb_case_get(&y, x.axes[i].name);
        if (other && strcmp(other, x.axes[i].value) != 0) return false;
    }
    return true;
}

/* The first entry of the suite in a sorted set, by bisection: "ceiling/" sorts before all its keys. */
static size_t first_of(const pb_series_set *set, const char *prefix)
{
    size_t lo = 0, hi = set->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (strcmp(set->s[mid].key, prefix) < 0) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

const pb_series *pb_ceiling_of(const pb_series_set *set, const char *key, const char *ceiling)
{
    for (size_t i = first_of(set, "ceiling/"); i < set->n && pb_key_of(set->s[i].key, "ceiling"); i++) {
        const pb_series *s = &set->s[i];
        if (!strcmp(s->metric, ceiling) && pb_series_ok(s) && s->median > 0 && axes_agree(key, s->key)) return s;
    }
    return NULL;
}

/* cand's ceiling over base's, or 1 where a side has none or its case was another. */
static double ceiling_ratio(const pb_series_set *base, const pb_series_set *cand, const pb_verdict *v, pb_verdicts *out)
{
    if (!*v->gate->ceiling) return 1;
    const pb_series *b = pb_ceiling_of(base, v->base->key, v->gate->ceiling);
    const pb_series *c = pb_ceiling_of(cand, v->cand->key, v->gate->ceiling);
    if (b && c && !strcmp(b->key, c->key)) return c->median / b->median;
    out->unscaled++;
    return 1;
}

/* ---- the rule ---------------------------------------------------------------------------------- */

static pb_verdict_id by_limit(double worse, double limit)
{
    const double slack = 1 + 1e-9; /* a change of exactly the limit is not beyond it, whatever its rounding */
    if (worse > (1 + limit) * slack) return PB_VERDICT_REGRESSED;
    if (worse * slack < 1 / (1 + limit)) return PB_VERDICT_IMPROVED;
    if (worse <= (1 + limit / 3) * slack && worse * slack >= 1 / (1 + limit / 3)) return PB_VERDICT_SAME;
    return PB_VERDICT_SUSPECT;
}

static const char *mismatch(const pb_series *b, const pb_series *c, const pb_judge_opts *o)
{
    if (b->mixed || c->mixed) return "its launches differ in machine, version or unit";
    if (strcmp(b->bench_version, c->bench_version) != 0) return "bench_version differs";
    if (strcmp(b->unit, c->unit) != 0) return "unit differs";
    if (strcmp(b->better, c->better) != 0) return "better differs";
    if (!o->allow_mismatch && strcmp(b->machine_id, c->machine_id) != 0) return "machine_id differs";
    if ((b->median == 0) != (c->median == 0)) return "zero on one side";
    if (b->median < 0 || c->median < 0) return "a negative figure";
    return NULL;
}

static void judge_figures(pb_verdict *v, double ceiling)
{
    bool lower = !strcmp(v->cand->better, "lower");
    v->ratio = v->base->median == 0 ? 1 : v->cand->median / v->base->median;
    v->ratio = lower ? v->ratio * ceiling : v->ratio / ceiling;
    v->worse = lower ? v->ratio : 1 / v->ratio;
    v->id = by_limit(v->worse, v->gate->limit);
}

static bool is_contract(const pb_series *s) { return pb_key_of(s->key, "contract"); }
/* A figure there is, though one of a throttled machine. */
static bool figured(const pb_series *s) { return pb_series_ok(s) || pb_series_throttled(s); }
static bool broken(const pb_series *s) { return !figured(s) && strcmp(s->status, "unsupported") != 0; }
static bool directed(const pb_series *s) { return strcmp(s->better, "none") != 0; }

/* On the base's side only. False: nothing to say. */
static bool judge_base(pb_verdict *v, const pb_series_set *cand, const pb_judge_opts *o)
{
    if (is_contract(v->base) || !figured(v->base) || !directed(v->base) || o->subset) return false;
    const pb_series *outcome = pb_series_find(cand, v->base->key, "outcome"); /* why it gave no figures */
    v->id = PB_VERDICT_MISSING;
    if (outcome) v->why = outcome->note;
    return true;
}

/* On the candidate's side only. */
static bool judge_cand(pb_verdict *v)
{
    if (is_contract(v->cand)) return false;
    v->id = broken(v->cand) ? PB_VERDICT_FAILED : PB_VERDICT_NEW;
    if (broken(v->cand)) v->why = v->cand->note;
    return broken(v->cand) || (figured(v->cand) && directed(v->cand));
}

static void judge_both(pb_verdict *v, const pb_series_set *base, const pb_series_set *cand, const pb_judge_opts *o,
                       pb_verdicts *out)
{
    const pb_series *b = v->base, *c = v->cand;
    v->id = PB_VERDICT_INFO;
    if (is_contract(c) || (!directed(c) && !broken(c))) return;
    if (!figured(c)) {
        if (!figured(b) && (broken(b) || !broken(c))) return;
        v->id = PB_VERDICT_FAILED;
        v->why = c->note;
    } else if (!figured(b)) {
        v->id = PB_VERDICT_NEW;
    } else if ((v->why = mismatch(b, c, o))) {
        v->id = PB_VERDICT_INCOMPARABLE;
    } else {
        v->why = "";
        judge_figures(v, ceiling_ratio(base, cand, v, out));
        if (pb_series_throttled(b) || pb_series_throttled(c)) {
            v->id = PB_VERDICT_INCONCLUSIVE;
            v->why = pb_series_throttled(c) ? c->note : b->note;
        }
    }
}

/* ---- the merge --------------------------------------------------------------------------------- */

static pb_status append(pb_verdicts *out, pb_verdict v)
{
    if (out->n == out->capacity) {
        size_t capacity = out->capacity ? out->capacity * 2 : 256;
        pb_verdict *grown = realloc(out->v, capacity * sizeof *grown);
        if (!grown) return pb_fail(PB_ENOMEM, "compare: out of memory");
        out->v = grown;
        out->capacity = capacity;
    }
    v.counts =
        v.id == PB_VERDICT_FAILED || v.id == PB_VERDICT_INCOMPARABLE || (v.gate->gating && v.id != PB_VERDICT_INFO);
    if (v.counts) out->count[v.id]++;
    if (v.counts && v.base && v.cand && !isnan(v.worse)) {
        if (v.base->launches < out->base_launches) out->base_launches = v.base->launches;
        if (v.cand->launches < out->cand_launches) out->cand_launches = v.cand->launches;
    }
    out->v[out->n++] = v;
    return PB_OK;
}

static bool wanted(const char *key, const char *suite)
{
    return !suite || pb_key_of(key, suite) || pb_key_of(key, "ceiling");
}

pb_status pb_judge(const pb_series_set *base, const pb_series_set *cand, const pb_gates *gates, const char *suite,
                   const pb_judge_opts *o, pb_verdicts *out)
{
    if (!out->n) out->base_launches = out->cand_launches = INT_MAX;
    for (size_t i = 0, j = 0; i < base->n || j < cand->n;) {
        const pb_series *b = i < base->n ? &base->s[i] : NULL, *c = j < cand->n ? &cand->s[j] : NULL;
        int order = !b ? 1 : !c ? -1 : pb_series_order(b->key, b->metric, c->key, c->metric);
        if (order > 0) b = NULL;
        if (order < 0) c = NULL;
        i += b != NULL;
        j += c != NULL;
        const pb_series *s = b ? b : c;
        if (!s || !wanted(s->key, suite)) continue; /* one of the two is there */
        pb_verdict v = {b,     c, pb_gates_find(gates, s->key, s->metric), PB_VERDICT_INFO, (double)NAN, (double)NAN,
                        false, ""};
        bool say = true;
        if (b && c) judge_both(&v, base, cand, o, out);
        else say = b ? judge_base(&v, cand, o) : judge_cand(&v);
        if (say) PB_TRY(append(out, v));
    }
    return PB_OK;
}

void pb_verdicts_free(pb_verdicts *v)
{
    free(v->v);
    *v = (pb_verdicts){0};
}

static int severity_order(const void *a, const void *b)
{
    const pb_verdict *x = a, *y = b;
    const pb_series *s = x->base ? x->base : x->cand, *t = y->base ? y->base : y->cand;
    if (x->counts != y->counts) return x->counts ? -1 : 1;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    bool by_size = x->id == PB_VERDICT_REGRESSED || x->id == PB_VERDICT_SUSPECT;
    if (by_size && (x->worse > y->worse || x->worse < y->worse)) return x->worse > y->worse ? -1 : 1;
    return pb_series_order(s->key, s->metric, t->key, t->metric);
}

void pb_verdicts_sort(pb_verdicts *v)
{
    if (v->n) qsort(v->v, v->n, sizeof *v->v, severity_order);
}

pb_exit pb_counts_exit(const int n[PB_NVERDICTS], bool strict)
{
    pb_exit e = PB_EXIT_OK;
    if (strict && (n[PB_VERDICT_SUSPECT] || n[PB_VERDICT_INCONCLUSIVE])) e = pb_worse_exit(e, PB_EXIT_INCONCLUSIVE);
    if (n[PB_VERDICT_REGRESSED]) e = pb_worse_exit(e, PB_EXIT_REGRESSION);
    if (n[PB_VERDICT_FAILED] || n[PB_VERDICT_MISSING] || n[PB_VERDICT_INCOMPARABLE])
        e = pb_worse_exit(e, PB_EXIT_INCOMPARABLE);
    return e;
}
