/* inference.h - the statistics of comparisons. Pure functions on arrays: no files, clocks or globals.
 *
 * The unit of repetition is the pair: d_i = x_i(candidate) - x_i(base), where x is the median over one process's
 * iterations of ln(seconds). The two processes of a pair run one after the other in random order. Slow drift of the
 * machine then affects both sides of a pair alike, and what remains of it has a random sign. Effects are natural
 * logarithms: +0.01 is 1 % slower.
 *
 * No function returns NaN. Where the data say nothing, the result is the one that claims least: p = 1, the interval
 * -inf to +inf, a detectable change of +inf. This applies to n < 2, where the spread is unknown, and to values that are
 * not finite. If all values are equal, the spread is 0, and p is 0 or 1, or 1/2 if the mean equals the bound. A few
 * equal values are weak evidence, so p = 0 must not decide alone; the sign-flip test shows how weak. */
#ifndef PB_INFERENCE_H
#define PB_INFERENCE_H
#include "os/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct pb_sample {
    int n;
    /* sd^2 = sum (x-mean)^2/(n-1). sd is +inf for n < 2. If a value is not finite, mean is 0 and sd +inf. */
    double mean, sd;
} pb_sample;

typedef struct pb_interval {
    double lo, hi;
} pb_interval;

pb_sample pb_sample_of(const double *x, int n);

/* ---- the value of one process ------------------------------------------------------------------ */

/* *out = the median over iterations k of ln max over ranks r of t[r*n + k], in seconds. The maximum is taken because a
 * step is as slow as its slowest rank. work: room for n doubles. EINVAL: a time is not positive and finite (the message
 * names the iteration), or n < 1 or ranks < 1. */
pb_status pb_log_median(const double *t, int n, int ranks, double *work, double *out);

/* ---- tests on the differences of pairs --------------------------------------------------------- */

/* p-value of Student's one-sided t test of H0: mean <= bound: P(T_{n-1} > (mean-bound)/(sd/sqrt n)) (Student 1908). For
 * H0: mean >= bound, negate the sample's mean and the bound. */
double pb_t_test(const pb_sample *s, double bound);
/* The confidence interval mean -+ t_{1-alpha/2,n-1} sd/sqrt n. It contains the true mean with probability 1-alpha. */
pb_interval pb_t_interval(const pb_sample *s, double alpha);
/* p-value of equivalence, H0: |mean| >= delta, by two one-sided tests (TOST; Schuirmann 1987): the larger of the
 * p-values for mean >= delta and for mean <= -delta. p <= a exactly if pb_t_interval for alpha = 2a lies inside
 * (-delta, delta). */
double pb_tost(const pb_sample *s, double delta);

enum { PB_SIGN_FLIP_MAX = 24 };
/* p-value of the exact one-sided sign-flip (randomisation) test of H0: the differences are symmetric about `bound` or
 * about a lower value (Fisher 1935, The Design of Experiments, section 21). It is the share of the 2^n assignments of
 * signs to |d_i - bound| whose sum is at least the observed sum. Sums that differ only by rounding count as equal. The
 * smallest possible p is 2^-n.
 *
 * If a fair coin chose the order within each pair, the test is valid for any noise: heavy tails, drift, correlated
 * processes. Instead of all 2^n sums, two sorted lists of 2^(n/2) sums are merged (Horowitz and Sahni 1974), which
 * takes about 0.1 ms and 100 KB of stack for n = 24. Returns 1 for n < 1, n > PB_SIGN_FLIP_MAX and values that are not
 * finite. */
double pb_sign_flip(const double *d, int n, double bound);

/* ---- adjustment for several tests -------------------------------------------------------------- */

typedef struct pb_differences {
    const double *d; /* [n] differences of one row; entry i is from pair i of the comparison */
    int n;           /* 0 to PB_SIGN_FLIP_MAX */
} pb_differences;

/* The joint sign-flip test of m rows, in the direction of positive means. A choice of signs flips whole pairs: all rows
 * of a pair together, as the coin did that chose its order. Let T_r(s) be Student's t of row r for the signs s. With
 * the rows sorted by their observed t, the largest first,
 *
 *   p_(k) = share of s with max over j >= k of T_(j)(s) >= T_(k)(observed)
 *   adjusted_(k) = max over j <= k of p_(j)
 *
 * (step-down maxT, Westfall and Young 1993, algorithm 4.1). Rejecting where adjusted <= alpha keeps the probability of
 * any false rejection at or below alpha for any noise and any dependence between rows, if a fair coin chose the order
 * of each pair: the signs of the rows without a difference are then exchangeable. The smallest possible p is 2^-n for
 * the whole family, however many rows it has.
 *
 * Up to 13 pairs all 2^n choices are enumerated. Beyond, s is the observed choice and 20000 drawn ones with a fixed
 * seed, so p = (1 + reached)/20001 (Phipson and Smyth 2010). T is compared as T/sqrt(n-1+T^2), which has the same order
 * for equal n and needs one sum of signed values per row. One row alone is pb_sign_flip.
 *
 * *t: the least t with which one more row would be significant at `level`, given the noise of these rows; +inf: no t,
 * because 2^-n > level; 0 for one row, whose threshold is close to the quantile of Student's t. A row with a value that
 * is not finite has p = 1. EINVAL: more than PB_SIGN_FLIP_MAX pairs.
 * ENOMEM. Takes about 0.1 us per row and thousand choices, and 6 KB per row. */
pb_status pb_joint_flip(const pb_differences *rows, size_t m, double level, double *adjusted, double *t);

/* Holm's step-down adjustment (1979): adjusted_(k) = max over j <= k of min(1, (m-j+1) p_(j)), where p_(1) <= p_(2) <=
 * ... are the sorted p-values. The family has m >= n tests; those not in p count as p = 1. Rejecting where adjusted <=
 * alpha keeps the probability of any false rejection at or below alpha, however the tests depend on each other. NaN in
 * p counts as 1. ENOMEM. */
pb_status pb_holm(const double *p, size_t n, size_t m, double *adjusted);

/* ---- detectable changes (power.c) -------------------------------------------------------------- */

/* A test that reports a change if its one-sided p is <= alpha and the mean is >= min_effect. */
typedef struct pb_detector {
    int n;     /* number of pairs */
    double sd; /* standard deviation of the differences, treated as known */
    /* One-sided level of this single test, < 1/2: the overall alpha divided by the looks and by the family's size. */
    double alpha;
    double min_effect; /* natural logarithm, >= 0 */
} pb_detector;

/* The probability that the test finds a true change `effect`: E[Phi((effect - max(t s/sqrt n, min_effect)) sqrt n/sd)]
 * over s = sd sqrt(chi^2_{n-1}/(n-1)), with t = t_{1-alpha,n-1}. For min_effect = 0 this is the noncentral t
 * distribution (Owen 1968). Computed by tanh-sinh quadrature (Takahasi and Mori 1974); exact for normal differences.
 * Returns 0 for n < 2 and for an sd that is not finite. */
double pb_power(const pb_detector *t, double effect);
/* The detectable change: the smallest effect found with probability `power`, 1/2 <= power < 1. +inf: no change is
 * found. Takes about 0.3 ms. */
double pb_detectable(const pb_detector *t, double power);
/* The smallest effect for which a sign-flip test of n pairs at `level` can reach significance with probability `power`:
 * each negative difference, flipped, gives a larger sum than the observed one, so j of them give at least 2^j choices
 * of signs at or above it, and at most j = log2(level 2^n) may be negative. A bound from below, for normal differences;
 * +inf: 2^-n > level. */
double pb_flip_detectable(int n, double sd, double level, double power);
/* The smallest n in [2, max] that finds `effect` with probability `power`; 0: no such n. Ignores t->n. */
int pb_pairs_needed(const pb_detector *t, double effect, double power, int max);

/* ---- rates -------------------------------------------------------------------------------------- */

/* Upper confidence bound of a rate after k events in n trials (Clopper and Pearson 1934, one-sided): the rate r with
 * P(Binomial(n, r) <= k) = 1 - confidence, which is the quantile `confidence` of Beta(k+1, n-k). Example: 0 alarms in
 * 299 trials bound the rate below 1 % with confidence 0.95. Returns 1 for k >= n and for n < 1. The lower bound of a
 * detection rate is 1 minus the upper bound of the rate of misses. */
double pb_rate_bound(int k, int n, double confidence);

/* ---- bootstrap intervals ----------------------------------------------------------------------- */

/* A seed derived from the data: the FNV-1a hash of the values' bits. */
uint64_t pb_seed_of(const double *x, int n);

/* Computes a statistic of n values and may reorder them, such as pb_median. */
typedef double (*pb_statistic)(double *x, int n);
/* The bias-corrected and accelerated bootstrap interval (BCa) of level 1-alpha (Efron 1987; Efron and Tibshirani 1993,
 * chapter 14). Resamples are drawn by pb_uniform(pb_seed_of(x, n), i), so the same data give the same interval. Use it
 * for tables and figures only, not for verdicts: with fewer than 10 values it is too narrow. Gives -inf to +inf for n <
 * 2 and for values that are not finite. EINVAL: resamples < 100, or alpha outside (0,1). ENOMEM. */
pb_status pb_bootstrap(const double *x, int n, pb_statistic f, int resamples, double alpha, pb_interval *out);
#endif
