/* median.h - the median of an array, and a maximum of two numbers that is NaN if either of them is NaN. */
#ifndef PB_MEDIAN_H
#define PB_MEDIAN_H

enum { PB_MEDIAN_MOST = 1024 };
/* The median of n >= 1 values; for even n the mean of the middle two. Sorts v. */
double pb_median(double *v, int n);
/* The median of n <= PB_MEDIAN_MOST values, n >= 1; leaves v unchanged. */
double pb_median_of(const double *v, int n);
/* The larger of a and b; NaN if either is NaN. A running maximum that is updated with it stays NaN once it has met one,
 * so that a later finite value cannot hide a wrong result. */
double pb_max_or_nan(double a, double b);
#endif
