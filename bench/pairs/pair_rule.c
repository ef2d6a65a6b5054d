/* pair_rule.c - applies the rule of pair_rule.h: both looks, the tests and the verdicts. */
#include "bench/pairs/pair_rule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/stats/stats.h"

enum { WORSE, BETTER, DIRECTIONS };

/* The differences of one row and its results at the current look. */
typedef struct judged {
    double d[DIRECTIONS][PB_SIGN_FLIP_MAX]; /* differences; d[WORSE]: positive is worse, d[BETTER] = -d[WORSE] */
    bool figures;                           /* the row has differences */
    bool open;                              /* the row is INCONCLUSIVE so far, so the next look tests it again */
    bool fresh;                             /* the row is tested at the current look */
    bool rejected[DIRECTIONS];              /* at an earlier look: the row has left the family */
    double p[DIRECTIONS];                   /* at the current look */
} judged;

/* The arguments and working memory of one call of pb_pair_judge. */
typedef struct judging {
    const pb_pair_opts *o;
    pb_pair_report *report;
    pb_pair_result *results;
    judged *rows;
    size_t n;
    pb_differences *family; /* [n] the differences of the family of one test */
    double *p;              /* [n] its p-values */
} judging;

/* ---- argument checks --------------------------------------------------------------------------- */

static pb_status check_opts(const pb_pair_opts *o)
{
    if (!(o->min_effect >= 0 && o->min_effect < 10))
        return pb_fail(PB_EINVAL, "pairs: min_effect=%g must be at least 0 and below 10", o->min_effect);
    if (!(o->alpha > 0 && o->alpha < 0.5 && o->alpha_same > 0 && o->alpha_same < 0.5))
        return pb_fail(PB_EINVAL, "pairs: alpha=%g and alpha_same=%g must be above 0 and below 0.5", o->alpha,
                       o->alpha_same);
    if (!(o->power > 0.5 && o->power < 1))
        return pb_fail(PB_EINVAL, "pairs: power=%g must be above 0.5 and below 1", o->power);
    if (!(o->must_find >= 0)) return pb_fail(PB_EINVAL, "pairs: must_find=%g must be at least 0", o->must_find);
    if (o->look[0] < 2 || o->look[1] < o->look[0] || o->look[1] > PB_SIGN_FLIP_MAX)
        return pb_fail(PB_EINVAL, "pairs: looks after %d and %d pairs; need 2 <= first <= last <= %d", o->look[0],
                       o->look[1], PB_SIGN_FLIP_MAX);
    return PB_OK;
}

static int row_order(const void *a, const void *b)
{
    const pb_pair_row *x = *(const pb_pair_row *const *)a, *y = *(const pb_pair_row *const *)b;
    return pb_series_order(x->key, x->metric, y->key, y->metric);
}

static pb_status check_rows(const pb_pair_row *rows, size_t n, const pb_pair_opts *o)
{
    for (size_t i = 0; i < n; i++)
        if (rows[i].n > o->look[1])
            return pb_fail(PB_EINVAL, "%s: %s has %d pairs, but the last look is after %d", rows[i].key, rows[i].metric,
                           rows[i].n, o->look[1]);
    const pb_pair_row **sorted = malloc((n + 1) * sizeof *sorted);
    if (!sorted) return pb_fail(PB_ENOMEM, "pairs: out of memory for %zu rows", n);
    for (size_t i = 0; i < n; i++) sorted[i] = &rows[i];
    qsort(sorted, n, sizeof *sorted, row_order);
    pb_status s = PB_OK;
    for (size_t i = 1; i < n && s == PB_OK; i++)
        if (row_order(&sorted[i - 1], &sorted[i]) == 0)
            s = pb_fail(PB_EINVAL, "%s: the metric %s occurs twice", sorted[i]->key, sorted[i]->metric);
    free(sorted);
    return s;
}

/* ---- the tests of one row ---------------------------------------------------------------------- */

static void begin(const pb_pair_row *row, judged *j, pb_pair_result *r)
{
    *r = (pb_pair_result){.row = row,
                          .id = PB_VERDICT_INCOMPARABLE,
                          .why = PB_PAIR_NO_RATIO,
                          .sd = HUGE_VAL,
                          .interval = {-HUGE_VAL, HUGE_VAL},
                          .p_adjusted = 1,
                          .same_p = 1};
    *j = (judged){.p = {1, 1}};
    if (row->wrong) {
        r->id = PB_VERDICT_FAILED;
        r->why = PB_PAIR_WRONG;
    } else if (row->absent) {
        r->id = PB_VERDICT_MISSING;
        r->why = PB_PAIR_ABSENT;
    } else if (row->obstacle) {
        r->why = PB_PAIR_OBSTACLE;
    } else {
        int i = 0;
        while (i < row->n && isfinite(row->log_ratio[i])) i++;
        r->bad_pair = i;
        if (row->n < 1 || i < row->n) return;
        for (i = 0; i < row->n; i++) {
            j->d[WORSE][i] = row->higher ? -row->log_ratio[i] : row->log_ratio[i];
            j->d[BETTER][i] = -j->d[WORSE][i];
        }
        j->figures = j->open = true;
        r->id = PB_VERDICT_INCONCLUSIVE;
    }
}

double pb_pair_min_effect(const pb_pair_row *row, const pb_pair_opts *o)
{
    return row->min_effect > 0 ? row->min_effect : o->min_effect;
}

static double delta_of(const pb_pair_row *row, const pb_pair_opts *o) { return log(1 + pb_pair_min_effect(row, o)); }

/* The p-value of equivalence: both tests must agree. The sign-flip test is slow, so it runs only if the t test finds
 * equivalence. */
static double same_p(const judged *j, const pb_sample *sample, double delta, const judging *s)
{
    const double p = pb_tost(sample, delta);
    if (s->report->looks * p > s->o->alpha_same) return p;
    const double above = pb_sign_flip(j->d[WORSE], sample->n, -delta);
    return fmax(p, fmax(above, pb_sign_flip(j->d[BETTER], sample->n, -delta)));
}

/* Computes the figures of one row at one look. Leaves the test of a gating row to test_family(), because it needs all
 * gating rows. */
static void test(judged *j, pb_pair_result *r, int pairs, int look, const judging *s)
{
    const pb_sample sample = pb_sample_of(j->d[WORSE], pairs);
    r->pairs = pairs;
    r->look = look + 1;
    r->estimate = sample.mean;
    r->sd = sample.sd;
    r->interval = pb_t_interval(&sample, 2 * s->o->alpha / s->report->looks);
    j->fresh = true;
    if (pairs < s->o->look[0]) return;
    r->same_p = same_p(j, &sample, delta_of(r->row, s->o), s);
    for (int d = 0; d < DIRECTIONS; d++) j->p[d] = r->row->gating ? 1 : pb_sign_flip(j->d[d], pairs, 0);
}

static void decide(judged *j, pb_pair_result *r, judging *s)
{
    const int looks = s->report->looks, direction = r->estimate < 0 ? BETTER : WORSE;
    const bool early = r->pairs < s->o->look[0];
    bool large = fabs(r->estimate) >= delta_of(r->row, s->o) * (1 - 1e-12); /* exactly the minimum effect counts */
    r->p_adjusted = early ? 1 : fmin(1, looks * j->p[direction]);
    const bool significant = r->p_adjusted <= s->o->alpha;
    if (early) {
        r->why = PB_PAIR_EARLY;
    } else if (!isfinite(r->sd)) {
        r->why = PB_PAIR_NO_SPREAD;
    } else if (significant && large) {
        r->id = direction == WORSE ? PB_VERDICT_REGRESSED : PB_VERDICT_IMPROVED;
        r->why = direction == WORSE ? PB_PAIR_SLOWER : PB_PAIR_FASTER;
        j->rejected[direction] = true;
    } else if (looks * r->same_p <= s->o->alpha_same) {
        r->id = PB_VERDICT_SAME;
        r->why = PB_PAIR_EQUIVALENT;
    } else {
        r->why = r->pairs < pb_pair_least(s->o) ? PB_PAIR_FEW : significant ? PB_PAIR_SMALL : PB_PAIR_UNCLEAR;
    }
    j->open = r->id == PB_VERDICT_INCONCLUSIVE;
}

/* ---- one look at all rows ---------------------------------------------------------------------- */

/* The family of a direction is every gating row with figures except those already rejected in this direction at an
 * earlier look. Rows decided otherwise (SAME, or in the other direction) remain in it. */
static bool in_family(const judged *j, const pb_pair_result *r, int direction)
{
    return r->row->gating && j->figures && !j->rejected[direction];
}

/* Tests the family in one direction. */
static pb_status test_family(judging *s, int direction, int look)
{
    size_t m = 0;
    double t;
    for (size_t i = 0; i < s->n; i++) {
        const int n = s->results[i].row->n, planned = s->o->look[look];
        if (in_family(&s->rows[i], &s->results[i], direction))
            s->family[m++] = (pb_differences){s->rows[i].d[direction], n < planned ? n : planned};
    }
    PB_TRY(pb_joint_flip(s->family, m, s->o->alpha / s->report->looks, s->p, &t));
    m = 0;
    for (size_t i = 0; i < s->n; i++)
        if (in_family(&s->rows[i], &s->results[i], direction)) s->rows[i].p[direction] = s->p[m++];
    if (direction == WORSE) s->report->t[look] = t;
    return PB_OK;
}

/* The pairs of a row that a look tests; 0: none, because the row does not reach the look. Before the first look all
 * pairs give figures, but no test. */
static int pairs_at(const judging *s, const pb_pair_row *row, int look)
{
    const int planned = s->o->look[look];
    return row->n >= planned ? planned : look == 0 ? row->n : 0;
}

/* ---- changes that are hidden by changes in the opposite direction ------------------------------ */

/* True if the row changed in this direction: its mean is large, and its own sign flips are significant. */
static bool changed(const judging *s, size_t i, int direction, int look)
{
    const pb_pair_result *r = &s->results[i];
    const int pairs = pairs_at(s, r->row, look);
    if (!r->row->gating || !s->rows[i].figures || pairs < s->o->look[look]) return false;
    const double mean = pb_sample_of(s->rows[i].d[direction], pairs).mean;
    return mean >= delta_of(r->row, s->o) &&
           s->report->looks * pb_sign_flip(s->rows[i].d[direction], pairs, 0) <= s->o->alpha;
}

/* True if row i may be HIDDEN: this look found nothing, and the mean is large in this direction. */
static bool may_be_hidden(const judging *s, size_t i, int direction)
{
    const pb_pair_result *r = &s->results[i];
    return s->rows[i].fresh && r->row->gating && r->why == PB_PAIR_UNCLEAR &&
           (direction == WORSE ? r->estimate : -r->estimate) >= delta_of(r->row, s->o);
}

/* Repeats the joint test of one direction without the rows that changed in the opposite one. It decides no verdict. */
static pb_status find_hidden(judging *s, int direction, int look)
{
    const int opposite = direction == WORSE ? BETTER : WORSE;
    size_t m = 0, left_out = 0, candidates = 0;
    double t;
    for (size_t i = 0; i < s->n; i++) candidates += may_be_hidden(s, i, direction);
    for (size_t i = 0; candidates && i < s->n; i++) {
        if (!in_family(&s->rows[i], &s->results[i], direction)) continue;
        const int n = s->results[i].row->n, planned = s->o->look[look];
        if (changed(s, i, opposite, look)) left_out++;
        else s->family[m++] = (pb_differences){s->rows[i].d[direction], n < planned ? n : planned};
    }
    if (!left_out) return PB_OK;
    PB_TRY(pb_joint_flip(s->family, m, s->o->alpha / s->report->looks, s->p, &t));
    m = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (!in_family(&s->rows[i], &s->results[i], direction) || changed(s, i, opposite, look)) continue;
        if (may_be_hidden(s, i, direction) && s->report->looks * s->p[m] <= s->o->alpha)
            s->results[i].why = PB_PAIR_HIDDEN;
        m++;
    }
    return PB_OK;
}

/* ---- one look, and the report ------------------------------------------------------------------ */

static pb_status take_look(judging *s, int look)
{
    bool reached = false;
    for (size_t i = 0; i < s->n; i++) {
        const int pairs = pairs_at(s, s->results[i].row, look);
        s->rows[i].fresh = false;
        if (s->rows[i].open && pairs) test(&s->rows[i], &s->results[i], pairs, look, s);
        reached |= s->rows[i].fresh && pairs == s->o->look[look];
    }
    for (int d = 0; d < DIRECTIONS && reached; d++) PB_TRY(test_family(s, d, look));
    for (size_t i = 0; i < s->n; i++)
        if (s->rows[i].fresh) decide(&s->rows[i], &s->results[i], s);
    for (int d = 0; d < DIRECTIONS && reached; d++) PB_TRY(find_hidden(s, d, look));
    return PB_OK;
}

bool pb_pair_counts(const pb_pair_result *r)
{
    return r->row->gating || r->id == PB_VERDICT_INCOMPARABLE || r->id == PB_VERDICT_FAILED;
}

static bool is_blind(const pb_pair_result *r, const judging *s)
{
    const bool found = r->id == PB_VERDICT_REGRESSED || r->id == PB_VERDICT_IMPROVED;
    if (!(s->o->must_find > 0) || !r->row->gating || !r->look || r->why == PB_PAIR_EARLY || found) return false;
    if (r->why == PB_PAIR_HIDDEN) return true;
    return !(pb_pair_sensitivity_of(r, s->o, s->report).detectable <= log(1 + s->o->must_find));
}

static void conclude(judging *s)
{
    int most = 0;
    bool undecided = false;
    for (size_t i = 0; i < s->n; i++) {
        pb_pair_result *r = &s->results[i];
        if (r->row->n > most) most = r->row->n;
        undecided |= r->row->gating && r->id == PB_VERDICT_INCONCLUSIVE;
        s->report->early |= r->why == PB_PAIR_EARLY;
        r->blind = is_blind(r, s);
        s->report->blind += r->blind;
        s->report->hidden += r->why == PB_PAIR_HIDDEN;
        if (pb_pair_counts(r)) s->report->count[r->id]++;
    }
    if (undecided) s->report->more = (most < s->o->look[0] ? s->o->look[0] : s->o->look[1]) - most;
}

static pb_status judge_all(judging *s, const pb_pair_row *rows)
{
    for (size_t i = 0; i < s->n; i++) {
        begin(&rows[i], &s->rows[i], &s->results[i]);
        s->report->gating += rows[i].gating;
    }
    for (int look = 0; look < s->report->looks; look++) PB_TRY(take_look(s, look));
    conclude(s);
    return PB_OK;
}

pb_status pb_pair_judge(const pb_pair_row *rows, size_t n, const pb_pair_opts *o, pb_pair_result *results,
                        pb_pair_report *report)
{
    PB_TRY(check_opts(o));
    PB_TRY(check_rows(rows, n, o));
    pb_pair_report r = {.looks = o->look[1] > o->look[0] ? 2 : 1};
    judging s = {.o = o, .report = &r, .results = malloc((n + 1) * sizeof *results), .n = n};
    s.rows = malloc((n + 1) * sizeof *s.rows);
    s.p = malloc((n + 1) * sizeof *s.p);
    s.family = malloc((n + 1) * sizeof *s.family);
    pb_status status = PB_ENOMEM;
    if (s.results && s.rows && s.p && s.family) status = judge_all(&s, rows);
    else pb_fail(PB_ENOMEM, "pairs: out of memory for %zu rows", n);
    if (status == PB_OK) {
        if (n) memcpy(results, s.results, n * sizeof *results);
        *report = r;
    }
    free(s.results);
    free(s.rows);
    free(s.p);
    free(s.family);
    return status;
}

/* ---- the detectable change of a row ------------------------------------------------------------ */

int pb_pair_least(const pb_pair_opts *o)
{
    const int looks = o->look[1] > o->look[0] ? 2 : 1;
    return (int)ceil(log2(looks / o->alpha) - 1e-12);
}

/* The level of a t test of this row alone that asks for as large a t as the joint sign flips did. */
static double level_of(const pb_pair_result *r, const pb_pair_opts *o, const pb_pair_report *report)
{
    if (r->row->gating && r->look && r->pairs >= 2 && r->why != PB_PAIR_EARLY)
        return fmin(o->alpha / report->looks, pb_t_tail(report->t[r->look - 1], r->pairs - 1));
    return o->alpha / report->looks;
}

pb_pair_sensitivity pb_pair_sensitivity_of(const pb_pair_result *r, const pb_pair_opts *o, const pb_pair_report *report)
{
    const double delta = delta_of(r->row, o), level = o->alpha / report->looks;
    const pb_detector d = {r->pairs, r->sd, level_of(r, o, report), delta};
    const double flips = pb_flip_detectable(r->pairs, r->sd, level, o->power);
    const int needed = pb_pairs_needed(&d, log(1 + 2 * pb_pair_min_effect(r->row, o)), o->power, 1000);
    const int least = pb_pair_least(o);
    return (pb_pair_sensitivity){fmax(pb_detectable(&d, o->power), flips), needed && needed < least ? least : needed};
}

/* ---- gates without a row ----------------------------------------------------------------------- */

const pb_gate *pb_pair_unmatched(const pb_gates *gates, const pb_pair_row *rows, size_t n, int *at)
{
    while (*at < gates->n) {
        const pb_gate *g = &gates->gate[(*at)++];
        const bool of_ranks = pb_metric_of_ranks(g->metric);
        bool measured = false, matched = false;
        for (size_t i = 0; i < n && g->gating && !matched; i++) {
            bool ours = pb_key_of(rows[i].key, g->suite);
            measured |= ours && (!of_ranks || pb_key_has_ranks(rows[i].key));
            matched = ours && !strcmp(rows[i].metric, g->metric);
        }
        if (measured && !matched) return g;
    }
    return NULL;
}
