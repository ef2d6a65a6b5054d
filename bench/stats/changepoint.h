/* changepoint.h - finds the points at which the mean of a series changes: E-divisive with a permutation test, then the
 * merge step of Hunter. Pure functions.
 *
 * E-divisive (Matteson and James 2014, "A nonparametric approach for multiple change point analysis of multivariate
 * data", JASA 109) splits a series where the energy statistic with exponent alpha = 1 is largest. For X of n values,
 * followed by Y of m values (their equation 5, multiplied by mn/(m+n)):
 *
 *   Q(X, Y) = 2/(m+n) sum_ij |X_i - Y_j|  -  2m/((m+n)(n-1)) sum_{i<k} |X_i - X_k|
 *                                         -  2n/((m+n)(m-1)) sum_{j<k} |Y_j - Y_k|
 *
 * Between two change points [a, b), X = [a, t) and Y = [t, k) for all t and k <= b that leave n >= 2 and m >= 2; the
 * candidate is the t of the largest Q of all these. It is a change point if the permutation test rejects: the values
 * between change points are shuffled, and p = (1 + number of R shuffled series whose largest Q is at least the
 * observed one)/(R + 1) <= alpha. The search ends with the first candidate that is not.
 *
 * Hunter (Fleming, Kolaczkowski, Kumar et al., "Hunter: Using change point detection to hunt for performance
 * regressions", ICPE 2023; its successor is Apache Otava) adds three rules:
 *
 *   windows    The search runs in windows of PB_CHANGE_WINDOW values. The next window begins half a window later, or
 *              at the last change point of this one if that is later. The last window ends with the series. A large
 *              change far away then does not hide a small one.
 *   t test     Each change point is tested again with all values up to its neighbours, by Student's two-sided t test
 *              with pooled variance. As long as a p is above alpha, the point with the largest p is removed, and its
 *              neighbours are tested again.
 *   magnitude  Then small changes are removed: the point with the smallest max(|after/before - 1|, |before/after - 1|)
 *              is removed, as long as that is below min_change.
 *
 * Hunter uses the t test in place of the permutation test. Here both must reject: the t test takes no account of the
 * choice of the largest Q, so on noise alone it rejects far too often. With both, a window without any change has a
 * change point with probability alpha or less, if its values are exchangeable (independent, with one distribution). */
#ifndef PB_CHANGEPOINT_H
#define PB_CHANGEPOINT_H
#include "os/status.h"

enum {
    PB_CHANGE_WINDOW = 50,
    PB_CHANGE_SHUFFLES = 999,
    PB_CHANGE_SIDE = 2 /* the fewest values on each side of a change point: Q is not defined for one */
};

typedef struct pb_change_rule {
    double alpha;      /* level of both tests; at least 1/(PB_CHANGE_SHUFFLES + 1) for a point to be found */
    double min_change; /* the smallest change of the mean, as a share */
} pb_change_rule;

typedef struct pb_change_point {
    int at;               /* index of the first value after the change: 2 <= at <= n - 2 */
    double before, after; /* means of the values up to the previous and to the next change point */
    double change;        /* after/before - 1; +-inf for before = 0 */
    double q;             /* the energy statistic Q at which the point was found */
    double p_shuffle;     /* p-value of the permutation test */
    double p_t;           /* p-value of the t test */
} pb_change_point;

/* Finds the change points of x[0..n), in time order; out has room for n. Shuffles are drawn by pb_uniform() from a seed
 * that follows from the data (pb_seed_of), so the same data give the same points. Takes time proportional to n plus the
 * number of points: one permutation test for each window of PB_CHANGE_WINDOW values, and one for each point found in
 * it. EINVAL: a value is not finite; ENOMEM. */
pb_status pb_change_points(const double *x, int n, const pb_change_rule *rule, pb_change_point *out, int *count);

/* The fewest values that can have a change point at level alpha: the smallest n with 2/C(n, n/2) <= alpha. If the lower
 * half of all values comes before the upper half, or after it, Q is largest; all other splits are less rare. */
int pb_change_fewest(double alpha);

/* Returns the candidate of x[a..b), the t with the largest Q, and sets *q to that Q. Among equal Q the smallest t is
 * chosen. work: room for (b - a + 1)^2 doubles. Returns -1 for fewer than 2 PB_CHANGE_SIDE values. */
int pb_change_candidate(const double *x, int a, int b, double *work, double *q);
#endif
