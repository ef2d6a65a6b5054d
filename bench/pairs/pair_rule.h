/* pair_rule.h - the verdict on each key and metric of a paired comparison. Pure: no files, no clock, no launches.
 *
 * A row has one difference a pair, d_i = x_i(cand) - x_i(base) with x = pb_log_median of a fresh launch, the order
 * within each pair drawn at random; worse is positive below (a metric whose better is `higher` is negated first). With
 * delta = ln(1 + min_effect), dbar = mean(d), n pairs, L looks (2, or 1 where both sizes are the same):
 *
 *   REGRESSED     L p+ <= alpha, p+ the t test's p of H0: mean <= 0, adjusted by Holm over the gating rows; and
 *                 dbar >= delta; and L q+ <= alpha, q+ the exact sign-flip test's own p
 *   IMPROVED      the same of -d
 *   SAME          L p <= alpha_same for TOST's p of H0: |mean| >= delta, and likewise for the sign-flip test of both
 *                 bounds. That nothing was found is never SAME
 *   INCONCLUSIVE  else: `more` says how many pairs would be looked at next
 *   MISSING       the candidate (or both sides) has no such row
 *   FAILED        the candidate's figures are wrong
 *   INCOMPARABLE  units, machines or versions differ, or a pair has no ratio
 *
 * False alarms. The rows are looked at after look[0] pairs and once more after look[1], or however many there are when
 * no more will come; each look spends alpha/L. A row decided at the first look is decided: its figures are those of
 * that look. A chance below alpha of any false REGRESSED among all gating rows and both looks follows from two sums of
 * probabilities, whatever the dependence of rows and looks: let h rows not be slower. The first false rejection of a
 * look happens while those h are all still in Holm's family, so at a p below (alpha/L)/h; there are h rows and L looks
 * (Holm 1979; Maurer and Bretz 2013, Statistics in Biopharmaceutical Research 5:311, who show that rows rejected at an
 * earlier look may leave the family, as they do here; looking again at an unchanged alpha is what inflates: Armitage,
 * McPherson and Rowe 1969). SAME and what is missing or not comparable stay in the family: the gating set is declared,
 * not chosen by the data. The same holds for IMPROVED by itself. p+ is exact for normal differences and near it for the
 * mean of heavier tails; q+ is exact whatever the noise when orders were drawn by a fair coin, so that a row whose t
 * test is misled by its noise still passes at most alpha. SAME is wrong for at most alpha_same of the rows.
 * Two things are the caller's: the order within each pair is a coin of its own (one balanced over blocks leaves q+ only
 * nearly exact), and when a comparison ends early, by a budget, that does not depend on its figures.
 *
 * Rows that do not gate are judged uncorrected, and count for nothing but INCOMPARABLE and FAILED, as in verdict.h. */
#ifndef PB_PAIR_RULE_H
#define PB_PAIR_RULE_H
#include "bench/compare/verdict.h"
#include "bench/stats/stats.h"

typedef struct pb_pair_opts {
    double min_effect; /* 0.01: a change of less than 1 % is neither REGRESSED nor IMPROVED */
    double alpha;      /* of REGRESSED, over the family and all looks; of IMPROVED as much again */
    double alpha_same; /* of SAME, each row, over all looks */
    double power;      /* at which the minimum detectable effect is stated */
    int look[2];       /* pairs; 2 <= look[0] <= look[1] <= PB_SIGN_FLIP_MAX. Equal: one look */
} pb_pair_opts;
#define PB_PAIR_DEFAULTS ((pb_pair_opts){0.01, 0.01, 0.05, 0.95, {12, 24}})

typedef struct pb_pair_row {
    const char *key, *metric;
    bool higher;             /* more is better */
    bool gating;             /* what baselines/gates.csv says of it */
    bool absent;             /* measured for the base (or demanded by a gate) and not for the candidate */
    const char *wrong;       /* why the candidate's figures are wrong: no comparison then; NULL: they are not */
    const char *obstacle;    /* why the sides cannot be compared: "unit differs"; NULL: they can */
    const double *log_ratio; /* [n] ln(cand/base) of each pair, in order of measurement */
    int n;
} pb_pair_row;

/* X(enumerator, meaning): what decided. pair_explain.c says it with the figures. */
#define PB_PAIR_WHY_MAP(X)                                                                                             \
    X(SLOWER, "significant, and at least the minimum effect")                                                          \
    X(FASTER, "significant, and at least the minimum effect")                                                          \
    X(EQUIVALENT, "within the minimum effect, shown by both tests")                                                    \
    X(SMALL, "significant, but not shown to be on one side of the minimum effect")                                     \
    X(UNPROVEN, "the t test finds it, the sign-flip test does not")                                                    \
    X(UNCLEAR, "neither different nor the same")                                                                       \
    X(NO_SPREAD, "too few pairs for a spread, or a spread that is not finite")                                         \
    X(WRONG, "the candidate is wrong")                                                                                 \
    X(ABSENT, "one side was not measured")                                                                             \
    X(OBSTACLE, "the sides cannot be compared")                                                                        \
    X(NO_RATIO, "a pair without a finite ratio, or no pairs")
typedef enum pb_pair_why {
#define X(id, what) PB_PAIR_##id,
    PB_PAIR_WHY_MAP(X)
#undef X
} pb_pair_why;

/* Figures are natural logs, worse positive; without figures (WRONG, ABSENT, OBSTACLE, NO_RATIO) estimate is 0, the interval
 * endless and p 1. */
typedef struct pb_pair_result {
    const pb_pair_row *row;
    pb_verdict_id id; /* one of the seven of above */
    pb_pair_why why;
    int pairs, look;      /* behind the figures; the look at which they were taken, from 1; 0: none */
    double estimate, sd;  /* dbar and the standard deviation of d */
    pb_interval interval; /* of level 1 - 2 alpha/L, 99 %: an end beyond 0 is a p that is significant by itself, and at
                             all looks each end holds with 1 - alpha (repeated intervals, Jennison and Turnbull 1989) */
    double p, p_adjusted; /* one-sided, in the direction of the estimate; times L and Holm: to be held against alpha */
    double sign_p;        /* of the sign-flip test, same direction; L times it is held against alpha */
    double same_p; /* the larger of TOST's p and that of its sign-flip counterpart; likewise, against alpha_same */
    int bad_pair;  /* of NO_RATIO: the first pair without a ratio, from 0 */
} pb_pair_result;

typedef struct pb_pair_report {
    int count
        [PB_NVERDICTS]; /* of rows that gate, and every INCOMPARABLE and FAILED; pb_compare_exit makes the exit code of it */
    int gating;         /* the size of the family */
    int looks;          /* L */
    int more;           /* further pairs wanted: up to the next look while a gating row is INCONCLUSIVE; else 0 */
} pb_pair_report;

/* Fills results[0..n), in the order of the rows, and *report. Call it when as many pairs are there as a look has, or
 * when no more will come. The rows must outlive the results. EINVAL: an option out of range, a key and metric that
 * stand there twice, more pairs than look[1]. ENOMEM. Some 0.2 ms a row of 24 pairs. */
pb_status pb_pair_judge(const pb_pair_row *rows, size_t n, const pb_pair_opts *o, pb_pair_result *results,
                        pb_pair_report *report);

/* Whether the row counts for the exit code. */
bool pb_pair_counts(const pb_pair_result *r);

/* What a row with figures could have shown, at its spread and at Holm's first step; endless and 0 without figures. By
 * the t test: with few pairs the sign-flip test's floor of 2^-n may ask for more. Some 0.5 ms. */
typedef struct pb_pair_outlook {
    double detectable; /* the least worsening found with chance o->power by as many pairs */
    int pairs_needed;  /* to find one of twice the minimum effect with that chance; 0: more than 1000 */
} pb_pair_outlook;
pb_pair_outlook pb_pair_look_out(const pb_pair_result *r, const pb_pair_opts *o, const pb_pair_report *report);

/* The next gate that gates, from *at on, whose suite is among the rows and whose metric is in none of them: a gate that
 * nothing was held against must not pass. NULL: no more. *at begins with 0. */
const pb_gate *pb_pair_unmatched(const pb_gates *gates, const pb_pair_row *rows, size_t n, int *at);

enum { PB_PAIR_TEXT = 768 };
/* One line for --explain: the figures, the tests, what decided, and for INCONCLUSIVE what would help (pair_explain.c).
 */
void pb_pair_explain(const pb_pair_result *r, const pb_pair_opts *o, const pb_pair_report *report,
                     char out[PB_PAIR_TEXT]);
#endif
