/* stored_rule.h - the rule that compares a candidate with the stored sessions of a row. Pure: no files, no text.
 *
 * A group is all rows of one suite and metric. Every value is a natural logarithm, negated if higher is better: larger
 * is worse. Variances have the suffix 2. Only u2, c2 and g2 are assumed or measured in other rows; the rest is what the
 * sessions of the row show. The rule holds for every K >= 1; there is no number of sessions at which it changes.
 *
 *   symbol   formula                                            meaning
 *   -------  -------------------------------------------------  --------------------------------------------------
 *   y        median over the candidate's L processes            the candidate's value
 *   x_k      (medians as well), k = 1..K, from H hosts           the sessions' values
 *   d        y - mean over hosts of the mean of their x_k        the change; positive: the candidate is worse
 *   kappa_L  variance of the median of L normal values [1]       0.449 for 3 processes, 0.215 for 6
 *   w2       mean over rows of kappa_L * var(processes)          noise of a value, from the processes of this run
 *   p2       mean over placebo pairs of (ln a - ln b)^2 / 2      the same, from two measurements of the same work;
 *                                                               pairs that a change of this row alone would widen
 *                                                               are left out (placebo.h)
 *   u2       max(w2, p2)
 *   c2       0.05^2, or 0.01^2 on a host of one's own            prior: what all rows of a session share
 *   v        variance of x_k inside the hosts, f = K - H         what the sessions of this row show
 *   v_group  v pooled over the rows of the group
 *   prior2   f < 2: u2 + c2;  f >= 2: max(u2, v_group)
 *   s2       (6 prior2 + f v) / (6 + f)                          variance of one session, shrunk [2]
 *   b        variance between hosts, by moments [3]
 *   g2       (6 max(0.1^2, mean b) + (H - 1) b) / (6 + H - 1)    the same, shrunk; 0 unless the base is a pool
 *   se2      s2 + g2 + (g2 + s2 mean(1/n_h)) / H                 variance of d; one host: s2 (1 + 1/K) [4]
 *   nu       min(5 + K, 10); in a pool min(5 + H, 10)            capped, because the noise has heavy tails
 *   p        P(T > |d| / se), T of Student with nu degrees       [4]
 *   p_Holm   p adjusted over the m gating rows and the rows
 *            `all rows`, separately for each direction [5]
 *
 * A group of two gating rows or more has one row in addition, `all rows`, which finds what slows everything: its value
 * in a session is the mean over the rows, and prior2 is max(c2 + u2/rows, v).
 *
 *   beyond   p_Holm <= 0.01 and |d| >= ln 1.02
 *   enough   K >= 5; in a pool also H >= 3
 *   again    the row was measured again in fresh processes (6), and these alone are beyond at level 0.05
 *
 * The verdict is that of the first line whose conditions hold; L is the gate's stored_limit:
 *
 *   conditions                                     verdict
 *   ---------------------------------------------  ---------------------------------------------------------------
 *   beyond, d > 0, enough, again                   REGRESSED
 *   beyond, d < 0, enough                          IMPROVED
 *   beyond                                         SUSPECT: too few sessions or hosts, or not confirmed
 *   p <= 0.01, |d| >= ln 1.02                      SUSPECT: significant only by itself
 *   P(T > (ln(1 + L) - |d|) / se) <= 0.05          SAME [6]
 *   else                                           INCONCLUSIVE
 *
 * `detects` is the least change that would be beyond: max(t(0.01/(m + 1), nu) se, ln 1.02).
 *
 * [1] David and Nagaraja 2003, Order Statistics, section 3.1 (variance.h). [2] Smyth 2004, empirical Bayes moderated
 * t; 6 degrees of freedom for the prior. [3] Searle, Casella and McCulloch 1992, Variance Components, section 3.6.
 * [4] Prediction of one future value: Hahn and Meeker 1991, Statistical Intervals, section 4.8. [5] Holm 1979. [6] Two
 * one-sided tests at 0.05: Schuirmann 1987.
 *
 * Why a regression needs a confirmation: the sessions show how much runs differ, but a host can be slow for an hour in
 * a way that no stored session met. Why values are not divided by the ceilings of their run: a ceiling is one short
 * measurement by a kernel with limits of its own; its noise would be added to every value of the run.
 * tests/bench/compare/stored_rule_simulation_test.c has the error rates and the power; docs/statistics.md
 * shows them. */
#ifndef PB_STORED_RULE_H
#define PB_STORED_RULE_H
#include "bench/compare/verdict.h"
#include "bench/stats/stats.h"

#define PB_STORED_ALPHA       0.01 /* level of the test over all gating rows */
#define PB_STORED_ALPHA_AGAIN 0.05 /* level of the confirmation */
#define PB_STORED_ALPHA_SAME  0.05 /* level of each of the two tests for SAME */
#define PB_STORED_MIN_EFFECT  0.02 /* least relative change that can be REGRESSED, IMPROVED or SUSPECT */
/* Standard deviation of what all rows of a session share: on a virtual or unknown machine; on a host of one's own, or a
 * GPU with locked clocks. */
#define PB_STORED_SHARED_VM  0.05
#define PB_STORED_SHARED_OWN 0.01
#define PB_STORED_HOSTS_SD   0.10 /* standard deviation between the hosts of a pool: prior */
enum {
    PB_STORED_PRIOR_DF = 6,          /* degrees of freedom that a prior counts for */
    PB_STORED_MOST_DF = 10,          /* most degrees of freedom of the t distribution */
    PB_STORED_SESSIONS = 5,          /* sessions from which a verdict can be REGRESSED or IMPROVED */
    PB_STORED_HOSTS = 3,             /* in a pool: hosts from which a verdict can be REGRESSED or IMPROVED */
    PB_STORED_CONFIRM_PROCESSES = 6, /* processes that measure a row again */
};

/* The processes of one side of a row. */
typedef struct pb_stored_processes {
    int n;
    double variance; /* variance of the logarithms of the processes' values */
} pb_stored_processes;

/* The part of a row that the rule reads. */
typedef struct pb_stored_row {
    const double *x;   /* [k]: sessions, oldest first */
    const int *host;   /* [k]: the host of each session, a number >= 0; NULL: all are from one host */
    int k;             /* number of sessions, >= 1 */
    double y;          /* the candidate's value */
    bool another_host; /* no session was measured on the candidate's host, so the base is a pool */
} pb_stored_row;

/* w2: the mean over n sides of rows; sides with fewer than PB_ENOUGH_PROCESSES processes are left out. 0: none is left.
 * If the base is a run too (K = 1), both sides of a row are given. */
double pb_stored_w2(const pb_stored_processes *p, int n);
/* p2: half the mean square of n differences ln a - ln b. 0 for n < 1. */
double pb_stored_p2(const double *difference, int n);
/* Fills noise->sessions (v_group) and noise->hosts (mean b) from the n rows of a group. */
void pb_stored_group(const pb_stored_row *rows, int n, pb_stored_noise *noise);
/* Fills the evidence of a row: all members but p_adjusted, which becomes p, detects, again, p_again and ceiling_moved.
 * averaged: the number of rows whose mean this row is; 1 for a row that was measured. */
void pb_stored_weigh(const pb_stored_row *row, const pb_stored_noise *noise, int averaged, pb_evidence *out);
/* The least change with p <= alpha, but at least ln 1.02. t = pb_t_quantile(alpha, e->nu), which is slow and equal for
 * many rows. */
double pb_stored_bound(const pb_evidence *e, double t);
/* True if there are enough sessions, and in a pool hosts, for REGRESSED and IMPROVED. */
bool pb_stored_enough(const pb_evidence *e);
/* True if a change is beyond its bound: p <= alpha and |change| >= ln 1.02. The verdict REGRESSED uses p =
 * e->p_adjusted and alpha = PB_STORED_ALPHA. */
bool pb_stored_beyond(double change, double p, double alpha);
/* The verdict by the table above. e->p_adjusted, e->again and e->p_again must be set; p_again is adjusted over the rows
 * that were measured again. limit: the gate's stored_limit. */
pb_verdict_id pb_stored_verdict(const pb_evidence *e, double limit);
#endif
