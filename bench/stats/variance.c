/* variance.c - variances for comparisons with stored sessions. */
#include "bench/stats/variance.h"

#include <math.h>
#include <stdbool.h>

double pb_median_variance(int n)
{
    static const double exact[] = {1,
                                   1,
                                   0.5,
                                   0.44867110457820797,
                                   0.29819961843521003,
                                   0.28683366160587648,
                                   0.21474266658151347,
                                   0.21044686153530739,
                                   0.1681808551594336,
                                   0.1661012813587194,
                                   0.13832643583621368,
                                   0.1371624335476323,
                                   0.11751618711883334};
    const int known = sizeof exact / sizeof *exact;
    return n < 2 ? 1 : n < known ? exact[n] : 1.57079632679489662 / n;
}

double pb_shrunk_variance(double prior, double prior_df, double own, double df)
{
    return df > 0 ? (prior_df * prior + df * own) / (prior_df + df) : prior;
}

/* True if no value before x[i] is of its group. */
static bool begins_group(const int *group, int i)
{
    for (int k = 0; k < i; k++)
        if (!group || group[k] == group[i]) return false;
    return true;
}

/* The mean of the values of the group of x[first], their number in *size, and their squared deviations in *squares. */
static double group_mean(const double *x, const int *group, int n, int first, int *size, double *squares)
{
    long double sum = 0, deviations = 0;
    *size = 0;
    for (int i = first; i < n; i++)
        if (!group || group[i] == group[first]) sum += x[i], ++*size;
    const long double mean = sum / *size;
    for (int i = first; i < n; i++)
        if (!group || group[i] == group[first]) deviations += (x[i] - mean) * (x[i] - mean);
    *squares = (double)deviations;
    return (double)mean;
}

pb_groups pb_groups_of(const double *x, const int *group, int n)
{
    pb_groups g = {0};
    double inside = 0, deviations = 0;
    for (int i = 0; i < n; i++) {
        int size;
        double squares;
        if (!begins_group(group, i)) continue;
        const double mean = group_mean(x, group, n, i, &size, &squares), from = mean - g.mean;
        g.groups++;
        g.mean += from / g.groups; /* Welford's recurrence */
        deviations += from * (mean - g.mean);
        g.inverse += (1.0 / size - g.inverse) / g.groups;
        inside += squares;
    }
    g.within_df = n - g.groups;
    g.within = g.within_df ? inside / g.within_df : 0;
    g.spread = g.groups > 1 ? deviations / (g.groups - 1) : 0;
    return g;
}

double pb_between_variance(const pb_groups *g, double within)
{
    return g->groups > 1 ? fmax(0, g->spread - within * g->inverse) : 0;
}
