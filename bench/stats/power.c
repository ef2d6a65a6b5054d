/* power.c - the probability that a test finds a change, and its inverses: the detectable change and the pairs
 * needed. */
#include <float.h>
#include <math.h>

#include "bench/stats/distributions.h"
#include "bench/stats/inference.h"

/* The tanh-sinh quadrature rule on [-1, 1]. Its nodes are x = tanh(pi/2 sinh y) for y = -SIDE h .. SIDE h. gap[] holds
 * 1 - |x|, which stays accurate where x rounds to 1. */
enum { SIDE = 52, NODES = 2 * SIDE + 1 };
typedef struct expectation {
    double gap[NODES], weight[NODES];
    /* df: degrees of freedom; t: the critical value; least: the minimum effect in standard errors of the mean. */
    double df, t, least;
    /* ln c of the density of u = s/sd, c u^(df-1) exp(-df u^2/2), where c = 2 (df/2)^(df/2)/Gamma(df/2). */
    double log_scale;
} expectation;

static void prepare(expectation *e, const pb_detector *d)
{
    const double h = 1.0 / 16, half_pi = 1.57079632679489661923;
    int sign;
    e->df = d->n - 1;
    e->t = pb_t_quantile(d->alpha, e->df);
    e->least = d->min_effect * sqrt(d->n) / d->sd;
    e->log_scale = e->df / 2 * log(e->df / 2) - (double)lgammal_r((long double)e->df / 2, &sign) + log(2.0);
    for (int k = 0; k < NODES; k++) {
        double y = (k - SIDE) * h, s = half_pi * sinh(y), c = cosh(s);
        e->gap[k] = exp(-fabs(s)) / c;
        e->weight[k] = h * half_pi * cosh(y) / (c * c);
    }
}

/* The integral over lo <= u <= hi of density(u) * P(u), where P(u) is the probability that the test finds (side -1) or
 * misses (side 1) a change of x standard errors. */
static double piece(const expectation *e, double lo, double hi, double x, int side)
{
    double half = (hi - lo) / 2, sum = 0;
    if (!(half > 0)) return 0;
    for (int k = 0; k < NODES; k++) {
        double u = k < SIDE ? lo + half * e->gap[k] : hi - half * e->gap[k];
        if (!(u > 0)) continue;
        double density = exp(e->log_scale + (e->df - 1) * log(u) - e->df * u * u / 2);
        sum += e->weight[k] * density * pb_normal_tail(side * (x - fmax(e->t * u, e->least)));
    }
    return half * sum;
}

/* Integrates piece by piece over the range where the density of u matters. The cuts are at three kinds of points:
 *   least/t         kink of the integrand: below it the minimum effect decides, above it significance
 *   1               centre of the density
 *   x/t, (x+-9)/t   the integrand falls from 1 to 0 around x/t, in a near-step when few pairs make t large */
static double expected(const expectation *e, double x, int side)
{
    const double width = 1 / sqrt(e->df), lo = fmax(0, 1 - 7 * width), hi = 1 + 8 * width;
    double cut[] = {e->least / e->t, (x - 9) / e->t, x / e->t, (x + 9) / e->t, 1};
    enum { CUTS = sizeof cut / sizeof *cut };
    double sum = 0, from = lo;
    while (from < hi) {
        double to = hi;
        for (int i = 0; i < CUTS; i++)
            if (cut[i] > from && cut[i] < to) to = cut[i];
        sum += piece(e, from, to, x, side);
        from = to;
    }
    return sum;
}

static long double missed(const void *self, long double x) { return expected(self, (double)x, 1); }

static int can_find(const pb_detector *d)
{
    return d->n >= 2 && d->sd >= 0 && isfinite(d->sd) && d->alpha > 0 && d->alpha < 0.5 && d->min_effect >= 0 &&
           isfinite(d->min_effect);
}

double pb_power(const pb_detector *d, double effect)
{
    if (!can_find(d) || isnan(effect) || effect == -HUGE_VAL) return 0;
    if (d->sd < DBL_MIN) return effect > 0 && effect >= d->min_effect;
    if (effect == HUGE_VAL) return 1;
    expectation e;
    prepare(&e, d);
    /* Not computed as 1 minus the missed share, which would lose the digits of small powers. */
    return fmin(1, expected(&e, effect * sqrt(d->n) / d->sd, -1));
}

double pb_detectable(const pb_detector *d, double power)
{
    if (!can_find(d) || !(power >= 0.5 && power < 1)) return HUGE_VAL;
    if (d->sd < DBL_MIN) return d->min_effect;
    expectation e;
    prepare(&e, d);
    return (double)pb_solve_falling(missed, &e, 1 - (long double)power, 1) * d->sd / sqrt(d->n);
}

double pb_flip_detectable(int n, double sd, double level, double power)
{
    const double negative = floor(log2(level) + n + 1e-12);
    if (n < 1 || !(sd >= 0) || !isfinite(sd) || !(level > 0) || !(power > 0 && power < 1) || negative < 0)
        return HUGE_VAL;
    if (negative >= n) return 0;
    return sd * fmax(0, pb_normal_quantile(pb_beta_quantile(1 - power, negative + 1, n - negative)));
}

int pb_pairs_needed(const pb_detector *d, double effect, double power, int max)
{
    pb_detector t = *d;
    t.n = max;
    if (max < 2 || !(pb_power(&t, effect) >= power)) return 0;
    int lo = 1, hi = max; /* invariant: lo pairs are too few, hi are enough */
    while (hi - lo > 1) {
        t.n = lo + (hi - lo) / 2;
        if (pb_power(&t, effect) >= power) hi = t.n;
        else lo = t.n;
    }
    return hi;
}
