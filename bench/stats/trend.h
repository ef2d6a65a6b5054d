/* trend.h - whether samples still got faster while they were taken: the sign of a warm-up that was too short.
 *
 * The first third of a launch's samples is held against the last. Pure functions; the row's note is what carries the
 * figure to whoever compares. */
#ifndef PB_TREND_H
#define PB_TREND_H
#include <stddef.h>

/* Half of the least effect that pairs are asked for: a trend beyond it could pass for one. */
#define PB_TREND_LEAST 0.005

/* How much slower the first third is than the last, of n times in order of measurement: the quotient of the medians
 * less 1, but 0 unless it is above PB_TREND_LEAST and no matter of chance (Mann and Whitney 1947: one-sided, at 0.01,
 * by the normal approximation). Fewer than 15 samples never show one. Work: (n/3)^2. */
double pb_trend(const double *seconds, int n);
/* The note with what a trend > 0 adds to it. */
void pb_trend_note(const char *note, double trend, char *out, size_t room);
/* The trend that a row's note tells of; 0: none. */
double pb_trend_of_note(const char *note);
#endif
