/* variance.h - variances that a comparison with stored sessions needs: of a median, shrunk towards a prior, and within
 * and between groups. Pure functions on arrays. */
#ifndef PB_VARIANCE_H
#define PB_VARIANCE_H

/* The variance of the median of n values, as a multiple of the variance of one value, for normal noise. n <= 12: the
 * integral over the density of order statistics (David and Nagaraja 2003, section 3.1). n > 12: pi/(2n),
 * its limit, which is at most 4 % too large for odd n and 9 % for even n. 1 for n < 2. */
double pb_median_variance(int n);

/* Shrinks an estimated variance towards a prior one: (prior_df prior + df own)/(prior_df + df). With prior_df + df
 * degrees of freedom, it makes a moderated t statistic (Smyth 2004, Statistical Applications in Genetics and Molecular
 * Biology 3(1), article 3). df = 0: the prior, whatever `own` is. */
double pb_shrunk_variance(double prior, double prior_df, double own, double df);

/* A one-way layout with random groups: sessions of several hosts. */
typedef struct pb_groups {
    int groups;
    double mean;    /* the mean of the groups' means: every group has the same weight */
    double within;  /* pooled variance inside the groups; 0 if within_df = 0 */
    int within_df;  /* values - groups */
    double inverse; /* the mean of 1/n_g over the groups, where n_g is the number of values of a group */
    double spread;  /* variance of the groups' means; 0 for one group */
} pb_groups;

/* Describes n >= 1 values; group[i] >= 0 is the group of x[i]. NULL: all values are of one group. Takes time
 * proportional to n times the number of groups. */
pb_groups pb_groups_of(const double *x, const int *group, int n);
/* The variance between groups by the method of moments: spread - within * inverse, but at least 0 (Searle, Casella and
 * McCulloch 1992, Variance Components, section 3.6). 0 for one group. `within`: the variance inside the groups, which
 * may be a better estimate than g->within. */
double pb_between_variance(const pb_groups *g, double within);
#endif
