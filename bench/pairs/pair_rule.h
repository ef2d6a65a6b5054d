/* pair_rule.h - decides the verdict of each row (a key and metric) in a paired comparison. Pure: no files, clock or
 * processes.
 *
 * Notation. A row has n pairs. Pair i gives the difference d_i = x_i(candidate) - x_i(base), where x_i is the logarithm
 * of what one process measured (pb_log_median of its samples). Positive is worse: where a higher value is better, d is
 * negated first. Which side of a pair runs first is drawn at random.
 *
 *   dbar   mean of d
 *   delta  ln(1 + min_effect): the smallest change that matters
 *   L      number of looks at the data: 2, or 1 if look[0] == look[1]
 *
 *   null hypothesis           p-value of the t test     p-value of the exact sign-flip test
 *   mean of d <= 0 (worse?)   p_worse,  Holm-adjusted   s_worse
 *   mean of d >= 0 (better?)  p_better, Holm-adjusted   s_better
 *   |mean of d| >= delta      p_same (TOST)             s_same
 *
 * The rule. The first line that applies decides:
 *
 *   verdict       t test                     sign-flip test             mean
 *   ------------  -------------------------  -------------------------  --------------
 *   FAILED        the candidate's values are wrong
 *   MISSING       the candidate was not measured, or neither side was and a gate requires the row
 *   INCOMPARABLE  units, machines or versions differ, or a pair has no finite ratio
 *   REGRESSED     L * p_worse  <= alpha      L * s_worse  <= alpha      dbar >=  delta
 *   IMPROVED      L * p_better <= alpha      L * s_better <= alpha      dbar <= -delta
 *   SAME          L * p_same <= alpha_same   L * s_same <= alpha_same   any
 *   INCONCLUSIVE  all other rows; pb_pair_report.more says how many pairs to add
 *
 * SAME is a positive finding: failing to find a difference gives INCONCLUSIVE.
 *
 * Looks. Every row is tested after look[0] pairs. Rows that are then INCONCLUSIVE are tested once more after look[1]
 * pairs, or after fewer if the measurement ended early. The factor L divides alpha evenly between the looks, because
 * repeated tests at an unchanged alpha raise the error rate (Armitage, McPherson and Rowe 1969). A verdict reached at
 * the first look is final and keeps the figures of that look.
 *
 * False alarms. The probability of any false REGRESSED, among all gating rows and over both looks, is at most alpha,
 * however rows and looks depend on each other. The reason: let h gating rows be truly not slower. Up to the first false
 * rejection at a look, all h of them are still in Holm's family, so that rejection needs p <= (alpha/L)/h. A union
 * bound over h rows and L looks gives alpha (Holm 1979). Rows rejected at the first look leave the family of the
 * second, which keeps the bound (Maurer and Bretz 2013, Statistics in Biopharmaceutical Research 5:311). Rows that are
 * SAME, MISSING, FAILED or INCOMPARABLE stay in the family, so that the data do not choose its size. IMPROVED has the
 * same bound, separately.
 *
 * The two tests. The t test is exact for normal differences and close for means of heavier-tailed ones. The sign-flip
 * test is exact for any noise if a fair coin chose the order within each pair. So a row whose noise misleads the t test
 * is still falsely REGRESSED with probability at most alpha. SAME is wrong with probability at most alpha_same on each
 * row.
 *
 * The caller must see to two things. The order of each pair is drawn independently; with orders balanced over blocks of
 * pairs, the sign-flip test is only approximate. And whether a comparison ends early must not depend on the values
 * measured.
 *
 * Rows that do not gate are tested without Holm's adjustment. They affect the exit code only if FAILED or
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
    int look[2];       /* number of pairs; 2 <= look[0] <= look[1] <= PB_SIGN_FLIP_MAX; equal: one look */
} pb_pair_opts;
#define PB_PAIR_DEFAULTS ((pb_pair_opts){0.01, 0.01, 0.05, 0.95, {12, 24}})

typedef struct pb_pair_row {
    const char *key, *metric;
    bool higher;             /* a higher value is better */
    bool gating;             /* baselines/gates.csv makes this row gate */
    bool absent;             /* measured for the base, or required by a gate, but not measured for the candidate */
    const char *wrong;       /* why the candidate's values are wrong; NULL: they are not */
    const char *obstacle;    /* why the sides cannot be compared, such as "unit differs"; NULL: they can */
    const double *log_ratio; /* [n] ln(candidate/base) of each pair, in the order measured */
    int n;
} pb_pair_row;

/* X(enumerator, text): the reason for a verdict. pair_explain.c prints the text after the figures. */
#define PB_PAIR_WHY_MAP(X)                                                                                             \
    X(SLOWER, "significant, and large enough to matter")                                                               \
    X(FASTER, "significant, and large enough to matter")                                                               \
    X(EQUIVALENT, "both tests show that any change is too small to matter")                                            \
    X(SMALL, "significant, but small, and equivalence is not shown")                                                   \
    X(UNPROVEN, "the t test finds a change that the sign-flip test does not confirm")                                  \
    X(UNCLEAR, "neither a change nor equivalence is shown")                                                            \
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
    int pairs, look;     /* pairs used for the figures, and the look they are from (1 or 2); 0: no figures */
    double estimate, sd; /* mean (dbar) and standard deviation of d */
    /* Confidence interval of the mean, of level 1 - 2 alpha/L (99 % by default). It excludes 0 exactly if the
     * unadjusted t test is significant at this look. Each end, taken alone, holds at all looks together with
     * probability 1 - alpha (repeated confidence intervals, Jennison and Turnbull 1989). */
    pb_interval interval;
    /* p-value of the t test, one-sided in the direction of the estimate; p_adjusted is L times its Holm adjustment, to
     * be compared with alpha. */
    double p, p_adjusted;
    double sign_p; /* p-value of the sign-flip test in the same direction; compare L * sign_p with alpha */
    double same_p; /* the larger of p_same and s_same of the table above; compare L * same_p with alpha_same */
    int bad_pair;  /* for NO_RATIO: index of the first pair without a finite ratio, from 0 */
} pb_pair_result;

typedef struct pb_pair_report {
    int count[PB_NVERDICTS]; /* rows per verdict: gating rows, and all FAILED and INCOMPARABLE ones */
    int gating;              /* number of gating rows: the size of Holm's family */
    int looks;               /* L */
    int more;                /* pairs to add to reach the next look, if a gating row is INCONCLUSIVE; else 0 */
} pb_pair_report;

/* Fills results[0..n), in the order of the rows, and *report. Call it when the number of pairs equals a look, or when
 * no more will be measured. The results point to the rows, which must outlive them. EINVAL: an option is out of range,
 * a key and metric occurs twice, or a row has more than look[1] pairs. ENOMEM. Takes about 0.2 ms per row of 24
 * pairs. */
pb_status pb_pair_judge(const pb_pair_row *rows, size_t n, const pb_pair_opts *o, pb_pair_result *results,
                        pb_pair_report *report);

/* True if the row's verdict affects the exit code. */
bool pb_pair_counts(const pb_pair_result *r);

/* The smallest change that a row could have detected, given its standard deviation and Holm's strictest threshold.
 * Computed for the t test alone: with few pairs the sign-flip test can need more of them, since its p-value is at least
 * 2^-n. For a row without figures detectable is +inf and pairs_needed 0. Takes about 0.5 ms. */
typedef struct pb_pair_sensitivity {
    double detectable; /* smallest worsening, as a logarithm, found with probability o->power */
    int pairs_needed;  /* pairs needed to find a worsening of 2 * min_effect; 0: more than 1000 */
} pb_pair_sensitivity;
pb_pair_sensitivity pb_pair_sensitivity_of(const pb_pair_result *r, const pb_pair_opts *o,
                                           const pb_pair_report *report);

/* Iterates over the gates that must fail the comparison because no row was checked against them: the gate has a gating
 * line, its suite occurs among the rows, and its metric does not. Returns the next one, or NULL at the end. Start with
 * *at = 0. */
const pb_gate *pb_pair_unmatched(const pb_gates *gates, const pb_pair_row *rows, size_t n, int *at);

enum { PB_PAIR_TEXT = 768 };
/* Writes one line for --explain: the figures, the tests, the reason for the verdict and, if it is INCONCLUSIVE, what
 * could be done (pair_explain.c). */
void pb_pair_explain(const pb_pair_result *r, const pb_pair_opts *o, const pb_pair_report *report,
                     char out[PB_PAIR_TEXT]);
#endif
