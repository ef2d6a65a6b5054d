/* sign_flip.c - the exact sign-flip test. It splits the n differences into two halves, and counts with two sorted lists
 * of 2^(n/2) sums instead of visiting all 2^n sums. */
#include <float.h>
#include <math.h>

#include "bench/stats/inference.h"

enum { HALF = 1 << (PB_SIGN_FLIP_MAX / 2) };

/* Writes all 2^n sums of +-x[0] +- ... +- x[n-1] to sums, in ascending order, and returns their number. For each value
 * it merges two copies of the sorted list so far, one with |x[i]| subtracted, one with |x[i]| added. `work`: room for
 * half as many sums. */
static size_t signed_sums(const double *x, int n, double *sums, double *work)
{
    size_t count = 1;
    sums[0] = 0;
    for (int i = 0; i < n; i++) {
        double step = fabs(x[i]);
        size_t down = 0, up = 0;
        for (size_t k = 0; k < count; k++) work[k] = sums[k];
        for (size_t k = 0; k < 2 * count; k++) {
            int take_down = down < count && work[down] - step <= work[up] + step;
            sums[k] = take_down ? work[down++] - step : work[up++] + step;
        }
        count *= 2;
    }
    return count;
}

/* The number of pairs (i, j) with a[i] + b[j] >= least. Both arrays are ascending. */
static size_t pairs_reaching(const double *a, size_t na, const double *b, size_t nb, double least)
{
    size_t reached = 0, j = nb; /* b[j..nb): the elements whose sum with a[i] is at least `least` */
    for (size_t i = 0; i < na; i++) {
        while (j > 0 && a[i] + b[j - 1] >= least) j--;
        reached += nb - j;
    }
    return reached;
}

double pb_sign_flip(const double *d, int n, double bound)
{
    double x[PB_SIGN_FLIP_MAX], low[HALF], high[HALF], work[HALF / 2 + 1] = {0};
    double seen = 0, size = 0;
    if (n < 1 || n > PB_SIGN_FLIP_MAX) return 1;
    for (int i = 0; i < n; i++) {
        x[i] = d[i] - bound;
        seen += x[i];
        size += fabs(x[i]);
    }
    if (!isfinite(size)) return 1;
    size_t a = signed_sums(x, n / 2, low, work), b = signed_sums(x + n / 2, n - n / 2, high, work);
    double rounding = 2 * n * DBL_EPSILON * size; /* bounds the rounding error of the three sums compared */
    return (double)pairs_reaching(low, a, high, b, seen - rounding) / (double)(a * b);
}
