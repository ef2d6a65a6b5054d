/* verdict.c - merges two sorted sets of series into rows, and gives a verdict to rows without values to compare.
 * verdict_decide.c gives all other rows their verdicts. */
#include "bench/compare/verdict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/compare/session_hosts.h"
#include "bench/compare/stored_rule.h"
#include "bench/compare/verdict_impl.h"
#include "bench/machine/machine.h"
#include "bench/rows/rows.h"
#include "bench/stats/stats.h"

const char *const pb_verdict_names[PB_NVERDICTS] = {
#define X(id, what) #id,
    PB_VERDICT_MAP(X)
#undef X
};

/* ---- finding the ceiling of a case --------------------------------------------------------------- */

/* The value of an axis in a valid key; it ends at the next '&' or the end of the key. name has n bytes. NULL: the key
 * lacks the axis. */
static const char *value_in(const char *key, const char *name, size_t n)
{
    for (const char *p = strchr(key, '?'); p; p = strchr(p, '&'))
        if (!strncmp(++p, name, n) && p[n] == '=') return p + n + 1;
    return NULL;
}

/* True if the two keys have equal values for every axis that both have. */
static bool axes_agree(const char *key, const char *ceiling)
{
    for (const char *p = strchr(ceiling, '?'); p; p = strchr(p, '&')) {
        const size_t name = strcspn(++p, "="), value = strcspn(p + name + 1, "&");
        const char *other = value_in(key, p, name);
        if (other && (strcspn(other, "&") != value || strncmp(other, p + name + 1, value) != 0)) return false;
    }
    return true;
}

/* The index of the first series whose key is not less than `prefix`, by bisection. With "ceiling/" it is the first
 * ceiling, if the set has one. */
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

/* ---- comparing values ---------------------------------------------------------------------------- */

/* The arguments of one pb_judge(). */
typedef struct judge {
    const pb_series_set *base, *cand;
    const pb_gates *gates;
    const pb_judge_opts *o;
    pb_verdicts *out;
    bool stored;      /* the base is a baseline, which lacks metrics that baselines do not store */
    const char *host; /* the candidate's host */
    size_t from, to;  /* the base's series of the current suite */
} judge;

/* ln(candidate/base) of the ceiling that the gate names. NaN: the gate names no ceiling, or a side lacks it. */
static double ceiling_moved(const judge *j, const pb_verdict *v)
{
    const char *named = v->gate->ceiling;
    const pb_series *b = *named ? pb_ceiling_of(j->base, v->base->key, named) : NULL;
    const pb_series *c = *named ? pb_ceiling_of(j->cand, v->cand->key, named) : NULL;
    return b && c && !strcmp(b->key, c->key) ? log(c->median / b->median) : (double)NAN;
}

double pb_verdict_shared_variance(const pb_series *s, bool locked_clocks)
{
    const size_t n = strlen(s->unit);
    const bool of_speed = !strcmp(s->unit, "s") || (n > 2 && !strcmp(s->unit + n - 2, "/s"));
    const pb_host host = pb_host_parse(s->host);
    const bool own = host.verified && !*host.name; /* the hardware identifies the host: neither virtual nor a pool */
    const double sd = of_speed && !own && !locked_clocks ? PB_STORED_SHARED_VM : PB_STORED_SHARED_OWN;
    return sd * sd;
}

/* Prepares the row for pb_verdicts_decide(), which compares its values with the sessions and gives the verdict. */
static void compare_values(const judge *j, pb_verdict *v)
{
    v->ratio = v->worse = 1;
    if (v->base->median == 0) return; /* both sides are zero: mismatch() rejects a zero on one side only */
    v->evidence.sessions = pb_sessions_used(v->base, j->host, v->reference, NULL);
    v->evidence.again = (double)NAN;
    v->evidence.noise.shared = pb_verdict_shared_variance(v->cand, j->o->locked_clocks);
    v->evidence.ceiling_moved = ceiling_moved(j, v);
}

/* The reason why the values have no logarithms: a negative value, or zeros next to positive values. NULL: all values
 * are positive, or all are zero. */
static const char *no_logarithm(const pb_series *b, const pb_series *c)
{
    bool zero = false, above = false;
    for (const pb_series *s = b;; s = c) {
        for (int i = 0; i < s->sessions; i++) {
            if (s->session[i].value < 0) return "a value is negative";
            zero |= s->session[i].value == 0;
            above |= s->session[i].value > 0;
        }
        if (s == c) break;
    }
    return !zero || !above                        ? NULL
           : (b->median == 0) != (c->median == 0) ? "the value is zero on one side"
                                                  : "the value is zero in some sessions";
}

/* The reason why two series cannot be compared; NULL: they can. */
static const char *mismatch(const pb_series *b, const pb_series *c, const pb_judge_opts *o)
{
    if (b->mixed || c->mixed) return "processes of one side differ in machine, version or unit";
    if (strcmp(b->bench_version, c->bench_version) != 0) return "bench_version differs";
    if (strcmp(b->unit, c->unit) != 0) return "unit differs";
    if (strcmp(b->better, c->better) != 0) return "the better direction differs";
    if (!o->allow_mismatch && strcmp(b->machine_id, c->machine_id) != 0) return "machine_id differs";
    return no_logarithm(b, c);
}

/* ---- judging one row ----------------------------------------------------------------------------- */

static bool is_requirement(const pb_series *s) { return pb_key_of(s->key, "requirement"); }
/* True if the series has a value, even if all processes were throttled. */
static bool has_value(const pb_series *s) { return pb_series_ok(s) || pb_series_throttled(s); }
static bool broken(const pb_series *s) { return !has_value(s) && s->status != PB_ROW_UNSUPPORTED; }
static bool has_direction(const pb_series *s) { return strcmp(s->better, "none") != 0; }

/* True if the candidate should have a row that only the base has: the newest session has it. The number of ranks is an
 * option and no axis of a grid. So stored sessions of several ranks are compared with runs of as many ranks only. */
static bool expected(const judge *j, const pb_series *b)
{
    bool measured = !j->stored;
    for (size_t i = 0; i < j->cand->n && !measured; i++)
        measured = !is_requirement(&j->cand->s[i]) && pb_key_same_ranks(j->cand->s[i].key, b->key);
    if (!measured || !b->sessions) return false;
    return b->session[b->sessions - 1].run_id == pb_newest_session(j->base, j->from, j->to, b->key);
}

/* Judges a row that only the base has. Returns false if the row is not worth reporting. */
static bool judge_base(const judge *j, pb_verdict *v)
{
    const pb_series *b = v->base;
    if (is_requirement(b) || (!has_value(b) && !b->refuted) || !has_direction(b) || j->o->subset) return false;
    if (!expected(j, b)) return false;
    const pb_series *outcome =
        pb_series_find(j->cand, b->key, "outcome"); /* gives the reason why the case has no values */
    v->id = PB_VERDICT_MISSING;
    if (outcome) v->why = outcome->note;
    return true;
}

/* Judges a row that only the candidate has. Returns false if the row is not worth reporting. */
static bool judge_cand(const judge *j, pb_verdict *v)
{
    if (is_requirement(v->cand)) return false;
    v->id = broken(v->cand) ? PB_VERDICT_FAILED : PB_VERDICT_NEW;
    if (broken(v->cand)) v->why = v->cand->note;
    if (j->stored && !v->gate->gating && !pb_metric_stored(v->cand->metric)) return broken(v->cand);
    return broken(v->cand) || (has_value(v->cand) && has_direction(v->cand));
}

const char *pb_verdict_wrong(const pb_series *b, const pb_series *c)
{
    if (c->refuted) return c->note;
    const pb_metric_bound *bound = pb_metric_bound_find(c->key, c->metric);
    if (!bound || !bound->relative || !b || !has_value(b) || !has_value(c) || !b->processes || !c->processes)
        return NULL;
    const bool kept =
        pb_metric_bound_keeps(bound, b->median, c->min) && pb_metric_bound_keeps(bound, b->median, c->max);
    return kept ? NULL : bound->text;
}

static void judge_both(const judge *j, pb_verdict *v)
{
    const pb_series *b = v->base, *c = v->cand;
    const char *why = pb_verdict_wrong(b, c);
    v->id = PB_VERDICT_INFO;
    if (is_requirement(c) || (!has_direction(c) && !broken(c) && !why)) return;
    if (why || !has_value(c)) {
        if (!why && !has_value(b) && (broken(b) || !broken(c))) return;
        v->id = PB_VERDICT_FAILED;
        v->why = why ? why : c->note;
    } else if (b->refuted) {
        v->id = PB_VERDICT_INCOMPARABLE;
        v->why = b->note;
    } else if (!has_value(b)) {
        v->id = PB_VERDICT_NEW;
    } else if ((v->why = mismatch(b, c, j->o))) {
        v->id = PB_VERDICT_INCOMPARABLE;
    } else {
        v->why = "";
        v->id = PB_VERDICT_SAME; /* preliminary: pb_verdicts_decide() decides */
        compare_values(j, v);
    }
}

/* ---- the merge --------------------------------------------------------------------------------- */

pb_status pb_verdicts_append(pb_verdicts *out, pb_verdict v)
{
    if (out->n == out->capacity) {
        size_t capacity = out->capacity ? out->capacity * 2 : 256;
        pb_verdict *grown = realloc(out->v, capacity * sizeof *grown);
        if (!grown) return pb_fail(PB_ENOMEM, "compare: out of memory");
        out->v = grown;
        out->capacity = capacity;
    }
    out->v[out->n++] = v;
    return PB_OK;
}

static bool wanted(const char *key, const char *suite)
{
    return !suite || pb_key_of(key, suite) || pb_key_of(key, "ceiling");
}

/* Appends the row with the key and metric of s. b or c is NULL if that side lacks the row. */
static pb_status judge_row(const judge *j, const pb_series *s, const pb_series *b, const pb_series *c)
{
    pb_verdict v = {.base = b, .cand = c, .gate = pb_gates_find(j->gates, s->key, s->metric), .why = ""};
    v.id = PB_VERDICT_INFO;
    v.ratio = v.worse = (double)NAN;
    v.machine = !v.gate->gating && pb_key_of(s->key, "ceiling") && pb_gates_name(j->gates, s->metric);
    v.reference = b && pb_sessions_foreign(b, j->host);
    bool say = true;
    if (b && c) judge_both(j, &v);
    else say = b ? judge_base(j, &v) : judge_cand(j, &v);
    return say ? pb_verdicts_append(j->out, v) : PB_OK;
}

/* Walks both sorted sets in step, and judges every key and metric that either of them has. */
static pb_status judge_rows(judge *j, const char *suite)
{
    const pb_series_set *base = j->base, *cand = j->cand;
    for (size_t i = 0, k = 0; i < base->n || k < cand->n;) {
        const pb_series *b = i < base->n ? &base->s[i] : NULL, *c = k < cand->n ? &cand->s[k] : NULL;
        if (b && i >= j->to) j->from = i, j->to = pb_suite_end(base, i);
        int order = !b ? 1 : !c ? -1 : pb_series_order(b->key, b->metric, c->key, c->metric);
        if (order > 0) b = NULL;
        if (order < 0) c = NULL;
        i += b != NULL;
        k += c != NULL;
        const pb_series *s = b ? b : c;
        if (s && wanted(s->key, suite)) PB_TRY(judge_row(j, s, b, c));
    }
    return PB_OK;
}

pb_status pb_judge(const pb_series_set *base, const pb_series_set *cand, const pb_gates *gates, const char *suite,
                   const pb_judge_opts *o, pb_verdicts *out)
{
    judge j = {.base = base,
               .cand = cand,
               .gates = gates,
               .o = o,
               .out = out,
               .stored = base->n && base->s->sessions && pb_stored(base->s->session->run_id),
               .host = cand->n ? cand->s->host : ""};
    out->cand = cand;
    out->confirmed = o->confirmed;
    return judge_rows(&j, suite);
}

void pb_verdicts_free(pb_verdicts *v)
{
    pb_all_rows_free(v->all_rows);
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
    const double size_x = rint(x->evidence.change * 1e9), size_y = rint(y->evidence.change * 1e9);
    if (by_size && (size_x > size_y || size_x < size_y)) return size_x > size_y ? -1 : 1;
    return pb_series_order(s->key, s->metric, t->key, t->metric);
}

void pb_verdicts_sort(pb_verdicts *v)
{
    if (v->n) qsort(v->v, v->n, sizeof *v->v, severity_order);
}
