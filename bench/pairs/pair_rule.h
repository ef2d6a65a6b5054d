/* pair_rule.h - decides the verdict of each row (a key and metric) in a paired comparison. Pure: no files, clock or
 * processes.
 *
 * Notation. A row has n pairs. Pair i gives the difference d_i = x_i(candidate) - x_i(base), where x_i is the logarithm
 * of what one process measured (pb_log_median of its samples). Positive is worse: where a higher value is better, d is
 * negated first. Which side of a pair runs first is drawn at random.
 *
 *   dbar   mean of d
 *   delta  ln(1 + minimum effect of the row): the smallest change that matters
 *   L      number of looks at the data: 2, or 1 if look[0] == look[1]
 *
 *   null hypothesis           p-value
 *   mean of d <= 0 (worse?)   p_worse:  joint sign flips of all gating rows, step-down (pb_joint_flip)
 *   mean of d >= 0 (better?)  p_better: joint sign flips with -d in place of d
 *   |mean of d| >= delta      p_same: the larger one of the t test (TOST) and of the row's own sign-flip test
 *
 * The rule. The first line that applies decides:
 *
 *   verdict       evidence                   mean
 *   ------------  -------------------------  --------------
 *   FAILED        the candidate's values are wrong
 *   MISSING       the candidate was not measured, or neither side was and a gate requires the row
 *   INCOMPARABLE  units, machines or versions differ, or a pair has no finite ratio
 *   INCONCLUSIVE  fewer than look[0] pairs: not judged yet
 *   REGRESSED     L * p_worse  <= alpha      dbar >=  delta
 *   IMPROVED      L * p_better <= alpha      dbar <= -delta
 *   SAME          L * p_same <= alpha_same   any
 *   INCONCLUSIVE  all other rows; pb_pair_report.more says how many pairs to add
 *
 * SAME is a positive finding: failing to find a difference gives INCONCLUSIVE.
 *
 * Looks. Every row is tested after look[0] pairs. Rows that are then INCONCLUSIVE are tested once more after look[1]
 * pairs. The factor L divides alpha evenly between the looks, because repeated tests at an unchanged alpha raise the
 * error rate (Armitage, McPherson and Rowe 1969). A verdict reached at the first look is final and keeps the figures of
 * that look. Any other number of pairs is not a look: pairs beyond the last look that was reached are not used, so that
 * a comparison that ended early or is resumed is never tested more often than planned. With one look, that look spends
 * all of alpha.
 *
 * False alarms. The probability of any false REGRESSED, among all gating rows and over both looks, is at most alpha,
 * for any noise and however rows depend on each other. The reason: let h be the set of gating rows that are truly not
 * slower. A fair coin chose the order of each pair, so for the rows of h swapping the sides of a pair changes nothing
 * but the sign of all their differences together. Up to the first false rejection at a look, all of h is still in the
 * family, so that rejection needs the largest statistic of h to be among the largest alpha/L of all choices of signs
 * (Westfall and Young 1993). The looks add up. Rows rejected at the first look leave the family of the second; all
 * other rows with figures stay in it, so that the data do not choose its size. IMPROVED has the same bound, separately.
 * SAME is wrong with probability at most alpha_same on each row.
 *
 * Few pairs. The smallest p-value of n pairs is 2^-n for the whole family. pb_pair_least() is the number of pairs below
 * which no change can be found: 7 for one look at alpha 0.01, 8 for the first of two.
 *
 * The caller must see to two things. The order of each pair is drawn independently; with orders balanced over blocks of
 * pairs, the sign-flip test is only approximate. And how many pairs are planned, and whether a comparison ends early,
 * must not depend on the differences measured; it may depend on how long the pairs took.
 *
 * Hidden changes. A large change of one row weakens the joint test of changes in the opposite direction: where half of
 * the signs or more are flipped, its statistic is large. With 7 pairs, where only the observed choice of signs may
 * reach the observed statistic, a row that became much faster can keep all slower rows from being REGRESSED. Such a row
 * stays INCONCLUSIVE, because a family chosen by the data would break the bound, but the reason HIDDEN says so: its
 * mean is beyond delta, and the joint test is significant without the gating rows whose mean is beyond delta in the
 * opposite direction and significant by their own sign flips. What to do: measure more pairs, or this row alone.
 *
 * Rows that do not gate are tested alone, each as a family of one. They affect the exit code only if FAILED or
 * INCOMPARABLE. */
#ifndef PB_PAIR_RULE_H
#define PB_PAIR_RULE_H
#include "bench/compare/compare.h"
#include "bench/stats/stats.h"

typedef struct pb_pair_opts {
    /* Smallest change that matters, as a share: 0.01 is 1 %. A smaller estimate is never REGRESSED or IMPROVED. */
    double min_effect;
    /* Probability of any false REGRESSED over all gating rows and looks; separately, the same limit for IMPROVED. */
    double alpha;
    double alpha_same; /* probability of a false SAME on one row, over all looks */
    double power;      /* probability of detection for which the detectable change is stated */
    /* A gating row that is neither REGRESSED nor IMPROVED is blind if its detectable change is above this share, or if
     * its change is hidden (PB_PAIR_HIDDEN); such rows are counted in pb_pair_report.blind. 0: not asked for. */
    double must_find;
    int look[2]; /* number of pairs; 2 <= look[0] <= look[1] <= PB_SIGN_FLIP_MAX; equal: one look */
} pb_pair_opts;
#define PB_PAIR_DEFAULTS ((pb_pair_opts){0.01, 0.01, 0.05, 0.95, 0, {12, 24}})

typedef struct pb_pair_row {
    const char *key, *metric;
    bool higher;             /* a higher value is better */
    bool gating;             /* baselines/gates.csv makes this row gate */
    bool absent;             /* measured for the base, or required by a gate, but not measured for the candidate */
    const char *wrong;       /* why the candidate's values are wrong; NULL: they are not */
    const char *obstacle;    /* why the sides cannot be compared, such as "unit differs"; NULL: they can */
    double min_effect;       /* smallest change that matters in this row; 0: pb_pair_opts.min_effect */
    const double *log_ratio; /* [n] ln(candidate/base) of each pair, in the order measured */
    int n;
} pb_pair_row;

/* X(enumerator, text): the reason for a verdict. pair_explain.c prints the text after the figures. */
#define PB_PAIR_WHY_MAP(X)                                                                                             \
    X(SLOWER, "significant, and large enough to matter")                                                               \
    X(FASTER, "significant, and large enough to matter")                                                               \
    X(EQUIVALENT, "both tests show that any change is too small to matter")                                            \
    X(SMALL, "significant, but small, and equivalence is not shown")                                                   \
    X(UNCLEAR, "neither a change nor equivalence is shown")                                                            \
    X(HIDDEN, "HIDDEN: significant if the rows that changed in the opposite direction are left out")                   \
    X(FEW, "so few pairs cannot show a change")                                                                        \
    X(EARLY, "not judged yet")                                                                                         \
    X(NO_SPREAD, "too few pairs to estimate the noise, or a noise that is not finite")                                 \
    X(WRONG, "the candidate's values are wrong")                                                                       \
    X(ABSENT, "the candidate has no value")                                                                            \
    X(OBSTACLE, "the sides cannot be compared")                                                                        \
    X(NO_RATIO, "a pair has no finite ratio, or there are no pairs")
typedef enum pb_pair_why {
#define X(id, what) PB_PAIR_##id,
    PB_PAIR_WHY_MAP(X)
#undef X
} pb_pair_why;

/* The verdict of one row and the figures it rests on. estimate, sd and interval are natural logarithms; positive is
 * worse. Rows without figures (WRONG, ABSENT, OBSTACLE, NO_RATIO) have estimate 0, sd +inf, interval -inf to +inf, and
 * every p is 1. */
typedef struct pb_pair_result {
    const pb_pair_row *row;
    pb_verdict_id id; /* one of the seven verdicts in the table at the top of this file */
    pb_pair_why why;
    int pairs, look;     /* pairs used for the figures, and the look they are from (1 or 2; EARLY: 1); 0: no figures */
    double estimate, sd; /* mean (dbar) and standard deviation of d */
    /* Confidence interval of the mean by Student's t, of level 1 - 2 alpha/L (99 % by default). Each end, taken alone,
     * holds at all looks together with probability 1 - alpha (repeated confidence intervals, Jennison and Turnbull
     * 1989). */
    pb_interval interval;
    /* L times the p-value in the direction of the estimate, to be compared with alpha: of the joint sign flips for a
     * gating row, of the row's own sign flips for another. */
    double p_adjusted;
    double same_p; /* p_same above; compare L * same_p with alpha_same */
    int bad_pair;  /* for NO_RATIO: index of the first pair without a finite ratio, from 0 */
    bool blind;    /* pb_pair_opts.must_find */
} pb_pair_result;

typedef struct pb_pair_report {
    int count[PB_NVERDICTS]; /* rows per verdict: gating rows, and all FAILED and INCOMPARABLE ones */
    int gating;              /* number of gating rows */
    int looks;               /* L */
    int more;                /* pairs to add to reach the next look, if a gating row is INCONCLUSIVE; else 0 */
    bool early;              /* a row has fewer than look[0] pairs, so that it is not judged yet */
    int blind;               /* number of blind rows (pb_pair_opts.must_find) */
    int hidden;              /* number of rows whose change is hidden by rows that changed in the opposite direction */
    double t[2];             /* for each look: the t that a gating row needed to be REGRESSED (pb_joint_flip) */
} pb_pair_report;

/* Fills results[0..n), in the order of the rows, and *report. Call it when the number of pairs equals a look, or when
 * no more will be measured. The results point to the rows, which must outlive them. EINVAL: an option is out of range,
 * a key and metric occurs twice, or a row has more than look[1] pairs. ENOMEM. Takes about 0.3 ms per row of 24 pairs,
 * and 0.8 ms more per gating row with must_find. */
pb_status pb_pair_judge(const pb_pair_row *rows, size_t n, const pb_pair_opts *o, pb_pair_result *results,
                        pb_pair_report *report);

/* True if the row's verdict affects the exit code. */
bool pb_pair_counts(const pb_pair_result *r);

/* The minimum effect of a row, as a share. */
double pb_pair_min_effect(const pb_pair_row *row, const pb_pair_opts *o);

/* The smallest number of pairs with which a look can find a change: the least n with L * 2^-n <= alpha. */
int pb_pair_least(const pb_pair_opts *o);

/* The smallest change that a row could have detected, given its standard deviation: the larger one of what the t that
 * the joint sign flips asked for would find, and of pb_flip_detectable. For a row without figures, and with too few
 * pairs to find anything, detectable is +inf; without figures pairs_needed is 0. Takes about 0.8 ms. */
typedef struct pb_pair_sensitivity {
    double detectable; /* smallest worsening, as a logarithm, found with probability o->power */
    int pairs_needed;  /* pairs needed to find a worsening of 2 * min_effect; 0: more than 1000 */
} pb_pair_sensitivity;
pb_pair_sensitivity pb_pair_sensitivity_of(const pb_pair_result *r, const pb_pair_opts *o,
                                           const pb_pair_report *report);

/* Iterates over the gates that must fail the comparison because no row was checked against them: the gate has a gating
 * line, its suite occurs among the rows (for a metric of several ranks, in a row of several ranks), and its metric does
 * not. Returns the next one, or NULL at the end. Start with *at = 0. */
const pb_gate *pb_pair_unmatched(const pb_gates *gates, const pb_pair_row *rows, size_t n, int *at);

enum { PB_PAIR_TEXT = 768 };
/* Writes one line for --explain, without the verdict's name: the figures, the tests, the reason for the verdict and, if
 * it is INCONCLUSIVE, what could be done (pair_explain.c). */
void pb_pair_explain(const pb_pair_result *r, const pb_pair_opts *o, const pb_pair_report *report,
                     char out[PB_PAIR_TEXT]);
#endif
