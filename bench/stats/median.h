/* median.h - the median of an array. */
#ifndef PB_MEDIAN_H
#define PB_MEDIAN_H

enum { PB_MEDIAN_MOST = 1024 };
/* The median of n >= 1 values; the mean of the middle two when n is even. Sorts the array. */
double pb_median(double *v, int n);
/* The same for at most PB_MEDIAN_MOST values, which keep their order. */
double pb_median_of(const double *v, int n);
#endif
