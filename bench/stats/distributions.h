/* distributions.h - tails and quantiles of the normal, Student's t and the beta distribution.
 *
 * The field's free libraries with these functions are under the GPL (GSL, R's nmath) or in C++ (Boost), so they are
 * written here, in long double, and held to a table made by scipy and mpmath (tests/fixtures/stats.csv) within 1e-12 of
 * the value. Tails are computed as tails: a p-value of 1e-200 is as exact as one of 0.1.
 *
 * Pure functions. Outside a function's domain, and for NaN, the answer is the one that claims nothing: a tail is 1, a
 * quantile +infinity, so that whatever is built on them never shows NaN and never shows evidence that is not there. */
#ifndef PB_DISTRIBUTIONS_H
#define PB_DISTRIBUTIONS_H

/* P(Z > z), Z standard normal: erfc(z/sqrt 2)/2. */
double pb_normal_tail(double z);
/* z with P(Z > z) = q; +inf for q <= 0 and NaN, -inf for q >= 1. */
double pb_normal_quantile(double q);
/* P(T > t) with df > 0 degrees of freedom: I_{df/(df+t^2)}(df/2, 1/2)/2 for t >= 0 (DLMF 8.17; Abramowitz and
 * Stegun 26.7.1). df need not be whole. */
double pb_t_tail(double t, double df);
/* t with P(T > t) = q; +inf for q <= 0 and NaN, -inf for q >= 1. */
double pb_t_quantile(double q, double df);
/* The regularised incomplete beta function I_x(a, b), a, b > 0, x within [0,1]. Elsewhere 1. */
double pb_beta_cdf(double x, double a, double b);
/* x with I_x(a, b) = p, for p within (0,1); 0 and 1 at its ends; 1 outside and for NaN. */
double pb_beta_quantile(double p, double a, double b);

/* x > 0 with f(self, x) = target, for f that falls from above the target at 0 and is below it from some x on: brackets
 * by doubling or halving `start`, then the Illinois method on ln f (Dowell and Jarratt 1971), which needs some ten
 * calls. +inf where f is still above the target at 1e300 start. */
typedef long double (*pb_falling_fn)(const void *self, long double x);
long double pb_solve_falling(pb_falling_fn f, const void *self, long double target, long double start);
#endif
