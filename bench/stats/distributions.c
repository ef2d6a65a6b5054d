/* distributions.c - the incomplete beta function by its continued fraction, the tails that follow from it, and all
 * quantiles by one root finder. */
#include "bench/stats/distributions.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

/* ---- solving f(x) = target --------------------------------------------------------------------- */

typedef struct bracket {
    long double a, b, fa, fb; /* a < b; fa = ln f(a) - ln target >= 0 >= fb */
} bracket;

static bool find_bracket(pb_falling_fn f, const void *self, long double target, long double start, bracket *k)
{
    long double b = start, fb = f(self, b), limit = start * 1e300L, a, fa;
    if (fb > target) {
        do {
            a = b, fa = fb;
            b = 2 * a, fb = f(self, b);
        } while (fb > target && b < limit);
        if (fb > target) return false;
    } else {
        a = b / 2, fa = f(self, a);
        while (fa <= target && a > start / 1e300L) {
            b = a, fb = fa;
            a = b / 2, fa = f(self, a);
        }
    }
    *k = (bracket){a, b, logl(fa / target), logl(fb / target)};
    return true;
}

long double pb_solve_falling(pb_falling_fn f, const void *self, long double target, long double start)
{
    bracket k;
    if (!find_bracket(f, self, target, start, &k)) return HUGE_VALL;
    long double x = k.a;
    for (int i = 0, side = 0; i < 300 && k.b - k.a > 0x1p-62L * k.b; i++) {
        long double next = isfinite(k.fa) && isfinite(k.fb) && k.fa > k.fb ? (k.a * k.fb - k.b * k.fa) / (k.fb - k.fa)
                                                                           : (k.a + k.b) / 2;
        if (!(next > k.a && next < k.b)) next = (k.a + k.b) / 2;
        bool still = fabsl(next - x) <= 0x1p-62L * next;
        x = next;
        long double fx = logl(f(self, x) / target);
        if (still || fx == 0) break;
        if (fx > 0) {
            k.a = x, k.fa = fx;
            if (side > 0) k.fb /= 2;
            side = 1;
        } else {
            k.b = x, k.fb = fx;
            if (side < 0) k.fa /= 2;
            side = -1;
        }
    }
    return x;
}

/* ---- the incomplete beta function -------------------------------------------------------------- */

/* The continued fraction of DLMF 8.17.22, by the modified Lentz method. It needs about sqrt(max(a,b)) terms. */
static long double beta_fraction(long double a, long double b, long double x)
{
    const long double tiny = 1e-300L;
    long double c = 1, d = 1 - (a + b) * x / (a + 1);
    if (fabsl(d) < tiny) d = tiny;
    d = 1 / d;
    long double h = d;
    for (int m = 1; m < 100000; m++) {
        long double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        long double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)), step = 1;
        for (int k = 0; k < 2; k++) {
            long double term = k ? odd : even;
            d = 1 + term * d;
            c = 1 + term / c;
            if (fabsl(d) < tiny) d = tiny;
            if (fabsl(c) < tiny) c = tiny;
            d = 1 / d;
            step = d * c;
            h *= step;
        }
        if (fabsl(step - 1) < 0x1p-62L) break;
    }
    return h;
}

static long double log_gamma(long double x)
{
    int sign; /* lgammal() would write the global variable signgam, which other threads may use */
    return lgammal_r(x, &sign);
}

/* I_x(a,b) from the continued fraction, with y = 1 - x. Converges fast for x < (a+1)/(a+b+2). */
static long double beta_by_fraction(long double a, long double b, long double x, long double y)
{
    long double front = log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * logl(x) + b * logl(y);
    return expl(front) * beta_fraction(a, b, x) / a;
}

/* I_x(a,b). The caller passes y = 1 - x, because computing it here would lose digits for x near 1. */
static long double beta_regularised(long double a, long double b, long double x, long double y)
{
    if (x <= 0) return 0;
    if (y <= 0) return 1;
    return x < (a + 1) / (a + b + 2) ? beta_by_fraction(a, b, x, y) : 1 - beta_by_fraction(b, a, y, x);
}

double pb_beta_cdf(double x, double a, double b)
{
    if (!(a > 0 && b > 0 && x >= 0 && x <= 1) || isinf(a) || isinf(b)) return 1;
    return (double)beta_regularised(a, b, x, 1 - (long double)x);
}

typedef struct shape {
    long double a, b;
} shape;

static long double beta_upper(const void *self, long double x)
{
    const shape *s = self;
    return x >= 1 ? 0 : beta_regularised(s->b, s->a, 1 - x, x);
}

double pb_beta_quantile(double p, double a, double b)
{
    if (!(a > 0 && b > 0 && p < 1) || isinf(a) || isinf(b)) return 1;
    if (p <= 0) return 0;
    return (double)pb_solve_falling(beta_upper, &(shape){a, b}, 1 - (long double)p, 1);
}

/* ---- the normal distribution and Student's t --------------------------------------------------- */

double pb_normal_tail(double z) { return isnan(z) ? 1 : erfc(z * 0.70710678118654752440) / 2; }

static long double normal_upper(const void *self, long double z)
{
    (void)self;
    return erfcl(z * 0.70710678118654752440084436210485L) / 2;
}

static long double t_upper(const void *self, long double t)
{
    long double df = *(const long double *)self, square = t * t, sum = df + square;
    return beta_regularised(df / 2, 0.5L, df / sum, square / sum) / 2;
}

double pb_t_tail(double t, double df)
{
    if (!(df > 0) || isnan(t)) return 1;
    if (isinf(df)) return pb_normal_tail(t);
    if (isinf(t)) return t > 0 ? 0 : 1;
    const long double nu = df;
    long double upper = t_upper(&nu, fabsl((long double)t));
    return (double)(t < 0 ? 1 - upper : upper);
}

/* The quantile of a distribution symmetric about 0, given its upper tail for positive arguments. */
static double symmetric_quantile(pb_falling_fn tail, const void *self, double q)
{
    if (!(q > 0)) return HUGE_VAL;
    if (q >= 1) return -HUGE_VAL;
    if (q > 0.5) return -(double)pb_solve_falling(tail, self, 1 - (long double)q, 1);
    return q < 0.5 ? (double)pb_solve_falling(tail, self, q, 1) : 0;
}

double pb_normal_quantile(double q) { return symmetric_quantile(normal_upper, NULL, q); }

double pb_t_quantile(double q, double df)
{
    if (!(df > 0)) return HUGE_VAL;
    const long double nu = df;
    return isinf(df) ? pb_normal_quantile(q) : symmetric_quantile(t_upper, &nu, q);
}
