/* trend.c - compares the first third of a process's samples with the last third. */
#include "bench/stats/trend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/stats/median.h"

#define TREND_TEXT "warm-up suspect: first third "

/* The Mann-Whitney statistic in standard deviations: how far the number of pairs with first > last exceeds its
 * expectation for equal distributions. */
static double rank_sum(const double *first, const double *last, int m)
{
    double above = 0;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < m; j++) above += first[i] > last[j] ? 1 : first[i] < last[j] ? 0 : 0.5;
    const double pairs = (double)m * m;
    return (above - pairs / 2) / sqrt(pairs * (2.0 * m + 1) / 12);
}

double pb_trend(const double *seconds, int n)
{
    const double one_percent = 2.3263478740408408; /* the normal quantile of a one-sided test at 0.01 */
    const int m = n / 3;
    if (m < 5 || n > PB_MEDIAN_MOST) return 0;
    const double *last = seconds + n - m, trend = pb_median_of(seconds, m) / pb_median_of(last, m) - 1;
    return trend > PB_TREND_LEAST && rank_sum(seconds, last, m) > one_percent ? trend : 0;
}

void pb_trend_note(const char *note, double trend, char *out, size_t room)
{
    snprintf(out, room, "%s%s" TREND_TEXT "%.2g %% slower than the last", note, *note ? "; " : "", 100 * trend);
}

double pb_trend_of_note(const char *note)
{
    const char *found = strstr(note, TREND_TEXT);
    const double percent = found ? strtod(found + strlen(TREND_TEXT), NULL) : 0;
    /* The note is read from a file and may hold any text, so the figure is checked. */
    return percent > 0 && percent < 1e6 ? percent / 100 : 0;
}
