/* pair_rule.c - applies the rule of pair_rule.h: both looks, the tests, Holm's adjustment and the verdicts. */
#include "bench/pairs/pair_rule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORSE, BETTER, DIRECTIONS };

/* The differences of one row and its results at the current look. */
typedef struct judged {
    double d[PB_SIGN_FLIP_MAX]; /* differences; positive is worse */
    bool open;                  /* the row is INCONCLUSIVE so far, so the next look tests it again */
    bool fresh;                 /* the row is tested at the current look */
    double p[DIRECTIONS], adjusted[DIRECTIONS];
} judged;

/* The arguments and working memory of one call of pb_pair_judge. */
typedef struct judging {
    const pb_pair_opts *o;
    pb_pair_report *report;
    pb_pair_result *results;
    judged *rows;
    size_t n;
    double *p, *adjusted;     /* [n] p-values of the gating rows before and after Holm's adjustment */
    int rejected[DIRECTIONS]; /* gating rows rejected at earlier looks: they leave Holm's family */
    double delta;
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

/* ---- one row ----------------------------------------------------------------------------------- */

static void begin(const pb_pair_row *row, judged *j, pb_pair_result *r)
{
    *r = (pb_pair_result){.row = row,
                          .id = PB_VERDICT_INCOMPARABLE,
                          .why = PB_PAIR_NO_RATIO,
                          .sd = HUGE_VAL,
                          .interval = {-HUGE_VAL, HUGE_VAL},
                          .p = 1,
                          .p_adjusted = 1,
                          .sign_p = 1,
                          .same_p = 1};
    *j = (judged){.open = false, .p = {1, 1}, .adjusted = {1, 1}};
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
        for (i = 0; i < row->n; i++) j->d[i] = row->higher ? -row->log_ratio[i] : row->log_ratio[i];
        j->open = true;
        r->id = PB_VERDICT_INCONCLUSIVE;
    }
}

static double sign_flip_both(const judged *j, int n, double delta)
{
    double negated[PB_SIGN_FLIP_MAX];
    for (int i = 0; i < n; i++) negated[i] = -j->d[i];
    return fmax(pb_sign_flip(j->d, n, -delta), pb_sign_flip(negated, n, -delta));
}

/* Runs all tests of one row at one look. Only Holm's adjustment, which needs all rows, is left to adjust(). */
static void test(judged *j, pb_pair_result *r, int pairs, int look, const judging *s)
{
    const pb_sample sample = pb_sample_of(j->d, pairs), negated = {pairs, -sample.mean, sample.sd};
    double flipped[PB_SIGN_FLIP_MAX];
    r->pairs = pairs;
    r->look = look + 1;
    r->estimate = sample.mean;
    r->sd = sample.sd;
    r->interval = pb_t_interval(&sample, 2 * s->o->alpha / s->report->looks);
    j->p[WORSE] = pb_t_test(&sample, 0);
    j->p[BETTER] = pb_t_test(&negated, 0);
    for (int i = 0; i < pairs; i++) flipped[i] = r->estimate < 0 ? -j->d[i] : j->d[i];
    r->sign_p = pb_sign_flip(flipped, pairs, 0);
    r->same_p = pb_tost(&sample, s->delta);
    /* The sign-flip test of equivalence is slow. It runs only if TOST finds equivalence, since both must agree. */
    if (s->report->looks * r->same_p <= s->o->alpha_same)
        r->same_p = fmax(r->same_p, sign_flip_both(j, pairs, s->delta));
    j->fresh = true;
}

static void decide(judged *j, pb_pair_result *r, judging *s)
{
    const int looks = s->report->looks, direction = r->estimate < 0 ? BETTER : WORSE;
    bool confirmed = looks * r->sign_p <= s->o->alpha;
    bool large = fabs(r->estimate) >= s->delta * (1 - 1e-12); /* a change of exactly min_effect counts */
    r->p = j->p[direction];
    r->p_adjusted = fmin(1, looks * j->adjusted[direction]);
    bool significant = r->p_adjusted <= s->o->alpha;
    if (!isfinite(r->sd)) {
        r->why = PB_PAIR_NO_SPREAD;
    } else if (significant && large && confirmed) {
        r->id = direction == WORSE ? PB_VERDICT_REGRESSED : PB_VERDICT_IMPROVED;
        r->why = direction == WORSE ? PB_PAIR_SLOWER : PB_PAIR_FASTER;
        if (r->row->gating) s->rejected[direction]++;
    } else if (looks * r->same_p <= s->o->alpha_same) {
        r->id = PB_VERDICT_SAME;
        r->why = PB_PAIR_EQUIVALENT;
    } else {
        r->why = significant && large ? PB_PAIR_UNPROVEN : significant ? PB_PAIR_SMALL : PB_PAIR_UNCLEAR;
    }
    j->open = r->id == PB_VERDICT_INCONCLUSIVE;
}

/* ---- one look at all rows ---------------------------------------------------------------------- */

/* Adjusts the p-values of one direction by Holm's method. The family is every gating row except those already rejected
 * in this direction at an earlier look. Rows that are not tested at this look (SAME, MISSING, no new pairs) remain in
 * the family with p = 1. */
static pb_status adjust(judging *s, int direction)
{
    size_t tested = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->rows[i].fresh && s->results[i].row->gating) s->p[tested++] = s->rows[i].p[direction];
    PB_TRY(pb_holm(s->p, tested, (size_t)(s->report->gating - s->rejected[direction]), s->adjusted));
    for (size_t i = 0, k = 0; i < s->n; i++) {
        judged *j = &s->rows[i];
        if (j->fresh) j->adjusted[direction] = s->results[i].row->gating ? s->adjusted[k++] : j->p[direction];
    }
    return PB_OK;
}

static pb_status take_look(judging *s, int look)
{
    for (size_t i = 0; i < s->n; i++) {
        const pb_pair_row *row = s->results[i].row;
        s->rows[i].fresh = false;
        int pairs = look == 0 && row->n > s->o->look[0] ? s->o->look[0] : row->n;
        bool again = look > 0 && row->n <= s->o->look[0]; /* no new pairs since the first look */
        if (s->rows[i].open && !again) test(&s->rows[i], &s->results[i], pairs, look, s);
    }
    for (int d = 0; d < DIRECTIONS; d++) PB_TRY(adjust(s, d));
    for (size_t i = 0; i < s->n; i++)
        if (s->rows[i].fresh) decide(&s->rows[i], &s->results[i], s);
    return PB_OK;
}

bool pb_pair_counts(const pb_pair_result *r)
{
    return r->row->gating || r->id == PB_VERDICT_INCOMPARABLE || r->id == PB_VERDICT_FAILED;
}

static void conclude(judging *s)
{
    int most = 0;
    bool undecided = false;
    for (size_t i = 0; i < s->n; i++) {
        pb_pair_result *r = &s->results[i];
        if (r->row->n > most) most = r->row->n;
        undecided |= r->row->gating && r->id == PB_VERDICT_INCONCLUSIVE;
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
    s.adjusted = malloc((n + 1) * sizeof *s.adjusted);
    s.delta = log(1 + o->min_effect);
    pb_status status = PB_ENOMEM;
    if (s.results && s.rows && s.p && s.adjusted) status = judge_all(&s, rows);
    else pb_fail(PB_ENOMEM, "pairs: out of memory for %zu rows", n);
    if (status == PB_OK) {
        if (n) memcpy(results, s.results, n * sizeof *results);
        *report = r;
    }
    free(s.results);
    free(s.rows);
    free(s.p);
    free(s.adjusted);
    return status;
}

pb_pair_sensitivity pb_pair_sensitivity_of(const pb_pair_result *r, const pb_pair_opts *o, const pb_pair_report *report)
{
    int family = r->row->gating ? report->gating : 1;
    const pb_detector d = {r->pairs, r->sd, o->alpha / report->looks / family, log(1 + o->min_effect)};
    return (pb_pair_sensitivity){pb_detectable(&d, o->power),
                                 pb_pairs_needed(&d, log(1 + 2 * o->min_effect), o->power, 1000)};
}

/* ---- gates without a row ----------------------------------------------------------------------- */

const pb_gate *pb_pair_unmatched(const pb_gates *gates, const pb_pair_row *rows, size_t n, int *at)
{
    while (*at < gates->n) {
        const pb_gate *g = &gates->gate[(*at)++];
        bool measured = false, matched = false;
        for (size_t i = 0; i < n && g->gating && !matched; i++) {
            bool ours = pb_key_of(rows[i].key, g->suite);
            measured |= ours;
            matched = ours && !strcmp(rows[i].metric, g->metric);
        }
        if (measured && !matched) return g;
    }
    return NULL;
}
