/* changepoint.c - E-divisive in windows with a permutation test, and the merge step of Hunter. */
#include "bench/stats/changepoint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/stats/distributions.h"
#include "bench/stats/inference.h"
#include "kernels/engine/bind.h"

/* ---- the energy statistic ---------------------------------------------------------------------- */

/* w[s (n+1) + e] = sum of |x_i - x_k| over s <= i < k < e. */
static void pair_sums(const double *x, int n, double *w)
{
    const size_t stride = (size_t)n + 1;
    for (size_t s = stride; s-- > 0;) {
        double of_s = 0; /* sum of |x_s - x_k| over s < k < e */
        w[s * stride + s] = 0;
        for (size_t e = s + 1; e < stride; e++) {
            of_s += fabs(x[s] - x[e - 1]);
            w[s * stride + e] = w[(s + 1) * stride + e] + of_s;
        }
    }
}

/* Q of [0, t) and [t, k), each with at least two values, from the sums of pair_sums(). */
static double energy(const double *w, size_t stride, size_t t, size_t k)
{
    const double n = (double)t, m = (double)(k - t), left = w[t], right = w[t * stride + k];
    const double between = w[k] - left - right;
    return 2 / (m + n) * between - 2 * m / ((m + n) * (n - 1)) * left - 2 * n / ((m + n) * (m - 1)) * right;
}

int pb_change_candidate(const double *x, int a, int b, double *work, double *q)
{
    const size_t n = (size_t)(b - a);
    int at = -1;
    *q = 0;
    if (b - a < 2 * PB_CHANGE_SIDE) return at;
    pair_sums(x + a, b - a, work);
    for (size_t t = PB_CHANGE_SIDE; t + PB_CHANGE_SIDE <= n; t++)
        for (size_t k = t + PB_CHANGE_SIDE; k <= n; k++) {
            const double here = energy(work, n + 1, t, k);
            if (at < 0 || here > *q) at = a + (int)t, *q = here;
        }
    return at;
}

/* ---- E-divisive in one window ------------------------------------------------------------------- */

typedef struct window {
    const double *x; /* [n] */
    int n;
    double *shuffled;              /* [n] */
    double *work;                  /* [(n + 1)^2] */
    int cut[PB_CHANGE_WINDOW + 1]; /* [cuts], ascending: 0, the change points found so far, n */
    int cuts;
} window;

/* The candidate of the largest Q among all stretches between change points, of `x`: the window or a shuffled one. */
static int candidate(const window *w, const double *x, double *q)
{
    int at = -1;
    *q = 0;
    for (int c = 0; c + 1 < w->cuts; c++) {
        double here;
        const int t = pb_change_candidate(x, w->cut[c], w->cut[c + 1], w->work, &here);
        if (t >= 0 && (at < 0 || here > *q)) at = t, *q = here;
    }
    return at;
}

/* Shuffles the values between change points (Fisher and Yates). *draw is the number of the next random number. */
static void shuffle(const window *w, uint64_t seed, uint64_t *draw)
{
    memcpy(w->shuffled, w->x, (size_t)w->n * sizeof *w->x);
    for (int c = 0; c + 1 < w->cuts; c++) {
        double *v = w->shuffled + w->cut[c];
        for (int i = w->cut[c + 1] - w->cut[c] - 1; i > 0; i--) {
            const int k = (int)((i + 1) * pb_uniform(seed, (*draw)++));
            const double kept = v[i];
            v[i] = v[k];
            v[k] = kept;
        }
    }
}

/* The p-value of the permutation test, or 1 as soon as it is certain to be above alpha. Values of Q that differ only by
 * rounding count as equal. */
static double permutation_test(const window *w, double q, double alpha)
{
    const double most = alpha * (PB_CHANGE_SHUFFLES + 1) * (1 + 1e-9), least = q - 1e-9 * fabs(q);
    const uint64_t seed = pb_seed_of(w->x, w->n);
    uint64_t draw = 0;
    int reached = 1;
    for (int i = 0; i < PB_CHANGE_SHUFFLES && reached <= most; i++) {
        double other;
        shuffle(w, seed, &draw);
        candidate(w, w->shuffled, &other);
        reached += other >= least;
    }
    return reached <= most ? (double)reached / (PB_CHANGE_SHUFFLES + 1) : 1;
}

static void add_cut(window *w, int at)
{
    int i = w->cuts++;
    for (; w->cut[i - 1] > at; i--) w->cut[i] = w->cut[i - 1];
    w->cut[i] = at;
}

/* ---- the series --------------------------------------------------------------------------------- */

typedef struct search {
    const double *x;
    int n;
    const pb_change_rule *rule;
    pb_change_point *point; /* [count], in time order */
    int count;
} search;

static void add_point(search *s, pb_change_point p)
{
    int i = s->count;
    for (int k = 0; k < s->count; k++)
        if (s->point[k].at == p.at) return; /* found in the previous window */
    for (; i && s->point[i - 1].at > p.at; i--) s->point[i] = s->point[i - 1];
    s->point[i] = p;
    s->count++;
}

/* Adds the change points of x[from..to). Returns the last one; 0: none. */
static int search_window(search *s, int from, int to, double *shuffled, double *work)
{
    window w = {s->x + from, to - from, shuffled, work, {0, to - from}, 2};
    while (w.cuts <= w.n) {
        double q;
        const int at = candidate(&w, w.x, &q);
        const double p = at < 0 ? 1 : permutation_test(&w, q, s->rule->alpha);
        if (at < 0 || !(p <= s->rule->alpha)) break;
        add_point(s, (pb_change_point){.at = from + at, .q = q, .p_shuffle = p});
        add_cut(&w, at);
    }
    return w.cuts > 2 ? from + w.cut[w.cuts - 2] : 0;
}

static void search_windows(search *s, double *shuffled, double *work)
{
    for (int from = 0, to = 0; to < s->n;) {
        to = s->n - from < PB_CHANGE_WINDOW ? s->n : from + PB_CHANGE_WINDOW;
        const int last = search_window(s, from, to, shuffled, work);
        from = last > from + PB_CHANGE_WINDOW / 2 ? last : from + PB_CHANGE_WINDOW / 2;
    }
}

/* ---- the merge step ----------------------------------------------------------------------------- */

/* Student's two-sided t test of equal means with pooled variance. 1: both sides are single values. */
static double t_test(pb_sample a, pb_sample b)
{
    const double df = a.n + b.n - 2, gap = fabs(b.mean - a.mean);
    const double squares = (a.n > 1 ? (a.n - 1) * a.sd * a.sd : 0) + (b.n > 1 ? (b.n - 1) * b.sd * b.sd : 0);
    if (!(df > 0)) return 1;
    const double error = sqrt(squares / df * (1.0 / a.n + 1.0 / b.n));
    return error > 0 ? fmin(1, 2 * pb_t_tail(gap / error, df)) : gap > 0 ? 0 : 1;
}

static double ratio_minus_one(double a, double b)
{
    return b != 0 ? a / b - 1 : a > 0 ? HUGE_VAL : a < 0 ? -HUGE_VAL : 0;
}

static double magnitude(const pb_change_point *p)
{
    return fmax(fabs(p->change), fabs(ratio_minus_one(p->before, p->after)));
}

/* Computes the members of point i that depend on its neighbours. */
static void describe(search *s, int i)
{
    if (i < 0 || i >= s->count) return;
    pb_change_point *p = &s->point[i];
    const int from = i ? s->point[i - 1].at : 0, to = i + 1 < s->count ? s->point[i + 1].at : s->n;
    const pb_sample left = pb_sample_of(s->x + from, p->at - from), right = pb_sample_of(s->x + p->at, to - p->at);
    p->before = left.mean;
    p->after = right.mean;
    p->change = ratio_minus_one(right.mean, left.mean);
    p->p_t = t_test(left, right);
}

/* The point to be removed next: the largest p of the t test if it is above alpha, else the smallest change if it is
 * too small. -1: all points stay. */
static int weakest(const search *s)
{
    int p = 0, m = 0;
    for (int i = 1; i < s->count; i++) {
        if (s->point[i].p_t > s->point[p].p_t) p = i;
        if (magnitude(&s->point[i]) < magnitude(&s->point[m])) m = i;
    }
    if (!s->count) return -1;
    if (!(s->point[p].p_t <= s->rule->alpha)) return p;
    return magnitude(&s->point[m]) < s->rule->min_change ? m : -1;
}

static void merge(search *s)
{
    for (int i = 0; i < s->count; i++) describe(s, i);
    for (int i; (i = weakest(s)) >= 0;) {
        s->count--;
        memmove(&s->point[i], &s->point[i + 1], (size_t)(s->count - i) * sizeof *s->point);
        describe(s, i - 1);
        describe(s, i);
    }
}

int pb_change_fewest(double alpha)
{
    int n = 2 * PB_CHANGE_SIDE;
    for (double orders = 6; 2 / orders > alpha && n < PB_CHANGE_WINDOW; n++) /* C(n + 1, (n + 1)/2) from C(n, n/2) */
        orders *= n % 2 ? 2 : (n + 1) / (n / 2.0 + 1);
    return n;
}

pb_status pb_change_points(const double *x, int n, const pb_change_rule *rule, pb_change_point *out, int *count)
{
    search s = {.x = x, .n = n, .rule = rule, .point = out};
    const size_t side = PB_CHANGE_WINDOW + 1;
    *count = 0;
    for (int i = 0; i < n; i++)
        if (!isfinite(x[i])) return pb_fail(PB_EINVAL, "change points: value %d is not finite", i);
    double *work = malloc((side * side + PB_CHANGE_WINDOW) * sizeof *work);
    if (!work) return pb_fail(PB_ENOMEM, "change points: out of memory");
    search_windows(&s, work + side * side, work);
    free(work);
    merge(&s);
    *count = s.count;
    return PB_OK;
}
