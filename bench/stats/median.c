/* median.c - computes the median of an array by sorting it, and a maximum that keeps NaN. */
#include "bench/stats/median.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double pb_median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, ascending);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

double pb_median_of(const double *v, int n)
{
    double sorted[PB_MEDIAN_MOST];
    memcpy(sorted, v, (size_t)n * sizeof *sorted);
    return pb_median(sorted, n);
}

double pb_max_or_nan(double a, double b) { return isnan(a) || isnan(b) ? (double)NAN : a > b ? a : b; }
