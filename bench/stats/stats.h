/* stats.h - the statistics of comparisons: pure functions on arrays, no files, no clocks, no globals.
 *
 * The unit of inference is the pair: d_i = x_i(candidate) - x_i(base), where x = median over iterations of ln(seconds)
 * of one fresh launch, and the two launches of a pair follow each other in random order. Drift is then common to both
 * sides of a pair, and what is left of it changes sign at random. Effects are natural logarithms: +0.01 is 1 % slower.
 *
 * Nothing here returns NaN. What cannot be known is said by the answer that claims nothing: p = 1, an interval from
 * -inf to +inf, a detectable effect of +inf. So are treated n < 2, where there is no spread, and any value that is not
 * finite. No spread at all (all values equal) is a spread of 0: p is 0 or 1, or 1/2 where the mean is the bound itself;
 * that this is no proof for few values is what the sign-flip test says. */
#ifndef PB_STATS_H
#define PB_STATS_H
#include "os/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct pb_sample {
    int n;
    double mean, sd; /* sd^2 = sum (x-mean)^2/(n-1); sd = +inf for n < 2; mean 0, sd +inf when a value is not finite */
} pb_sample;

typedef struct pb_interval {
    double lo, hi;
} pb_interval;

pb_sample pb_sample_of(const double *x, int n);

/* ---- one launch -------------------------------------------------------------------------------- */

/* *out = the median over iterations k of ln max over ranks r of t[r*n + k] (seconds): a step is as slow as its slowest
 * rank. work: n doubles. EINVAL, with the iteration, where a time is not a positive finite number, and for n < 1. */
pb_status pb_log_median(const double *t, int n, int ranks, double *work, double *out);

/* ---- pairs ------------------------------------------------------------------------------------- */

/* One-sided p of Student's t test for H0: mean <= bound, P(T_{n-1} > (mean-bound)/(sd/sqrt n)) (Student 1908). The
 * other side, H0: mean >= bound, is that of the negated sample. */
double pb_t_test(const pb_sample *s, double bound);
/* mean -+ t_{1-alpha/2,n-1} sd/sqrt n: holds the mean in a share 1-alpha of the samples. */
pb_interval pb_t_interval(const pb_sample *s, double alpha);
/* Two one-sided tests (Schuirmann 1987): p for H0: |mean| >= delta, the larger of those for mean >= delta and for
 * mean <= -delta. p <= a is the same as the interval of alpha = 2a lying inside (-delta, delta). */
double pb_tost(const pb_sample *s, double delta);

enum { PB_SIGN_FLIP_MAX = 24 };
/* One-sided exact sign-flip (randomisation) test of H0: the differences are symmetric about `bound` or below (Fisher
 * 1935, The Design of Experiments, section 21): the share of the 2^n assignments of signs to |d_i - bound| whose sum
 * reaches the one that was seen. When the order in every pair was drawn by a fair coin and sides do not differ, it
 * holds whatever the noise: heavy tails, drift, correlated launches. Its least value is 2^-n. Sums that differ by their
 * rounding only count as reached. Two halves of 2^(n/2) sums each, both sorted, are walked against each other
 * (Horowitz and Sahni 1974): O(2^(n/2)), some 0.1 ms at n = 24, 100 KB of stack.
 * 1 for n < 1, n > PB_SIGN_FLIP_MAX, and values that are not finite. */
double pb_sign_flip(const double *d, int n, double bound);

/* ---- many tests -------------------------------------------------------------------------------- */

/* Holm's step-down (1979), adjusted: adjusted_(k) = max over j <= k of min(1, (m-j+1) p_(j)), p sorted ascending, with
 * m >= n tests in the family: those that are not in p count as p = 1. Rejecting where adjusted <= alpha keeps the
 * chance of any false rejection below alpha, however the tests depend on each other. NaN in p is 1. ENOMEM. */
pb_status pb_holm(const double *p, size_t n, size_t m, double *adjusted);

/* ---- what could have been found (power.c) ------------------------------------------------------ */

/* A test that finds a change when its one-sided p is <= alpha and the mean at least min_effect (natural logs). */
typedef struct pb_detector {
    int n;             /* pairs */
    double sd;         /* of the differences, taken as known */
    double alpha;      /* one-sided, below 1/2, of this one test: divided by looks and by the size of the family */
    double min_effect; /* >= 0 */
} pb_detector;

/* The chance of finding a true change `effect`: E[Phi((effect - max(t s/sqrt n, min_effect)) sqrt n/sd)] over
 * s = sd sqrt(chi^2_{n-1}/(n-1)), t = t_{1-alpha,n-1}; with min_effect = 0 the noncentral t (Owen 1968). Exact for
 * normal differences, by tanh-sinh quadrature (Takahasi and Mori 1974). 0 where nothing can be found: n < 2, sd not
 * finite. */
double pb_power(const pb_detector *t, double effect);
/* The least effect found with chance `power`, from 1/2 up: the minimum detectable effect. +inf where there is none.
 * Some 0.3 ms. */
double pb_detectable(const pb_detector *t, double power);
/* The least n in [2, max] with which `effect` is found with chance `power`; 0: none. t->n is not read. */
int pb_pairs_needed(const pb_detector *t, double effect, double power, int max);

/* ---- rates and stored sessions ----------------------------------------------------------------- */

/* The upper bound of Clopper and Pearson (1934), one-sided: the rate r with P(Binomial(n, r) <= k) = 1-confidence, the
 * quantile `confidence` of Beta(k+1, n-k). 0 alarms in 299: below 1 % with confidence 0.95. 1 for k >= n and n < 1. The
 * lower bound of a detection rate is 1 less the bound of its misses. */
double pb_rate_bound(int k, int n, double confidence);

enum { PB_MIN_SESSIONS = 10 };
/* What one new session of unchanged code exceeds with chance alpha: mean + t_{1-alpha,K-1} sd sqrt(1 + 1/K) over K =
 * s->n stored sessions (Hahn and Meeker 1991, section 4.8). +inf for K < PB_MIN_SESSIONS: too few to say. */
double pb_prediction_bound(const pb_sample *s, double alpha);
/* The alpha whose bound `value` is: the one-sided p of a new session, P(T_{K-1} > (value-mean)/(sd sqrt(1 + 1/K))). 1
 * for K < PB_MIN_SESSIONS. */
double pb_prediction_test(const pb_sample *s, double value);

/* ---- bootstrap --------------------------------------------------------------------------------- */

/* The FNV-1a hash of the values' bits: a seed that follows from the data. */
uint64_t pb_seed_of(const double *x, int n);

/* A statistic of n values, which it may reorder: pb_median. */
typedef double (*pb_statistic)(double *x, int n);
/* The bias-corrected and accelerated bootstrap interval (BCa; Efron 1987; Efron and Tibshirani 1993, chapter 14) of
 * level 1-alpha. The resamples are drawn by pb_uniform(pb_seed_of(x, n), i): the same data
 * give the same interval. For tables and figures, never for a verdict: under 10 values it covers too little. -inf..+inf
 * for n < 2 and values that are not finite. EINVAL: resamples < 100 or alpha outside (0,1); ENOMEM. */
pb_status pb_bootstrap(const double *x, int n, pb_statistic f, int resamples, double alpha, pb_interval *out);
#endif
