/* distributions.h - tails and quantiles of the normal, Student's t and the beta distribution.
 *
 * These functions are written here because the usual free libraries are under the GPL (GSL, R's nmath) or in C++
 * (Boost). They compute in long double, and a test compares them with a table from scipy and mpmath
 * (tests/fixtures/stats.csv) to a relative error of 1e-12. Tails are not computed as 1 minus something, so a p-value of
 * 1e-200 is as accurate as one of 0.1.
 *
 * Pure functions. For NaN and outside a function's domain, a tail is 1 and a quantile +infinity (1 for the beta
 * distribution). These are the values that claim least: results built on them never show NaN, and never show evidence
 * that does not exist. */
#ifndef PB_DISTRIBUTIONS_H
#define PB_DISTRIBUTIONS_H

/* P(Z > z) for a standard normal Z: erfc(z/sqrt 2)/2. */
double pb_normal_tail(double z);
/* The z with P(Z > z) = q; +inf for q <= 0 and NaN, -inf for q >= 1. */
double pb_normal_quantile(double q);
/* P(T > t) for df > 0 degrees of freedom, which need not be an integer. For t >= 0 it is I_{df/(df+t^2)}(df/2, 1/2)/2
 * (DLMF 8.17; Abramowitz and Stegun 26.7.1). */
double pb_t_tail(double t, double df);
/* The t with P(T > t) = q; +inf for q <= 0 and NaN, -inf for q >= 1. */
double pb_t_quantile(double q, double df);
/* The regularised incomplete beta function I_x(a, b) for a, b > 0 and x in [0,1]; else 1. */
double pb_beta_cdf(double x, double a, double b);
/* The x with I_x(a, b) = p for p in (0,1); 0 for p <= 0; 1 for p >= 1, NaN, and a or b not positive. */
double pb_beta_quantile(double p, double a, double b);

/* Solves f(self, x) = target for x > 0. f must fall: it starts above the target at x = 0 and is below it for large x.
 * Doubles or halves `start` to bracket the root, then uses the Illinois method on ln f (Dowell and Jarratt 1971), which
 * needs about ten calls of f. Returns +inf if f is still above the target at 1e300 * start. */
typedef long double (*pb_falling_fn)(const void *self, long double x);
long double pb_solve_falling(pb_falling_fn f, const void *self, long double target, long double start);
#endif
