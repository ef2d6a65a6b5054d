/* paired.c - statistics of paired differences (t test, confidence interval, equivalence test), Holm's adjustment, and
 * bounds of rates. */
#include <math.h>
#include <stdlib.h>

#include "bench/stats/distributions.h"
#include "bench/stats/inference.h"
#include "bench/stats/median.h"

pb_sample pb_sample_of(const double *x, int n)
{
    long double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        if (!isfinite(x[i])) return (pb_sample){n, 0, HUGE_VAL};
        sum += x[i];
    }
    if (n < 1) return (pb_sample){n, 0, HUGE_VAL};
    long double mean = sum / n;
    for (int i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    return (pb_sample){n, (double)mean, n < 2 ? HUGE_VAL : (double)sqrtl(squares / (n - 1))};
}

pb_status pb_log_median(const double *t, int n, int ranks, double *work, double *out)
{
    if (n < 1 || ranks < 1)
        return pb_fail(PB_EINVAL, "log median: %d iterations and %d ranks, need at least 1 of each", n, ranks);
    for (int k = 0; k < n; k++) {
        double slowest = t[k];
        for (int r = 0; r < ranks; r++) {
            double s = t[(size_t)r * (size_t)n + (size_t)k];
            if (!(s > 0) || isinf(s)) return pb_fail(PB_EINVAL, "log median: iteration %d took %g s", k, s);
            if (s > slowest) slowest = s;
        }
        work[k] = log(slowest); /* `slowest` is positive: every time was checked to be */
    }
    *out = pb_median(work, n);
    return PB_OK;
}

double pb_t_test(const pb_sample *s, double bound)
{
    if (s->n < 2 || !isfinite(s->sd) || !isfinite(bound)) return 1;
    double excess = s->mean - bound;
    if (s->sd > 0) return pb_t_tail(excess / s->sd * sqrt(s->n), s->n - 1);
    return excess > 0 ? 0 : excess < 0 ? 1 : 0.5;
}

pb_interval pb_t_interval(const pb_sample *s, double alpha)
{
    if (s->n < 2 || !isfinite(s->sd) || !(alpha > 0)) return (pb_interval){-HUGE_VAL, HUGE_VAL};
    double half = alpha < 1 ? pb_t_quantile(alpha / 2, s->n - 1) * (s->sd / sqrt(s->n)) : 0;
    return (pb_interval){s->mean - half, s->mean + half};
}

double pb_tost(const pb_sample *s, double delta)
{
    const pb_sample negated = {s->n, -s->mean, s->sd};
    double above = pb_t_test(s, -delta), below = pb_t_test(&negated, -delta);
    return above > below ? above : below;
}

/* ---- Holm's adjustment for several tests ------------------------------------------------------- */

typedef struct ranked {
    double p;
    size_t at;
} ranked;

static int by_p(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->p < y->p || x->p > y->p) return x->p < y->p ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

pb_status pb_holm(const double *p, size_t n, size_t m, double *adjusted)
{
    ranked *r = malloc((n + 1) * sizeof *r);
    if (!r) return pb_fail(PB_ENOMEM, "Holm: out of memory for %zu tests", n);
    for (size_t i = 0; i < n; i++) r[i] = (ranked){isnan(p[i]) ? 1 : p[i], i};
    qsort(r, n, sizeof *r, by_p);
    double worst = 0;
    for (size_t k = 0; k < n; k++) {
        double a = fmin(1, (double)(m > k ? m - k : 1) * r[k].p);
        worst = fmax(worst, a);
        adjusted[r[k].at] = worst;
    }
    free(r);
    return PB_OK;
}

/* ---- bounds for rates ---------------------------------------------------------------------------- */

double pb_rate_bound(int k, int n, double confidence)
{
    if (n < 1 || k >= n) return 1;
    return pb_beta_quantile(confidence, (k > 0 ? k : 0) + 1, n - (k > 0 ? k : 0));
}
