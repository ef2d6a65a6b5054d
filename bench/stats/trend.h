/* trend.h - detects that samples still became faster while they were taken, which means that the warm-up was too short.
 *
 * Compares the first third of a process's samples with the last third. Pure functions. The result is stored in the note
 * of the row, from which comparisons read it. */
#ifndef PB_TREND_H
#define PB_TREND_H
#include <stddef.h>

/* Smallest trend reported, as a share: half of the default min_effect of paired comparisons. A larger trend could be
 * mistaken for a change. */
#define PB_TREND_LEAST 0.005

/* Returns by how much the median of the first third exceeds that of the last, as a share; `seconds` holds n samples in
 * the order measured. Returns 0 if it is below PB_TREND_LEAST, or not significant (one-sided Mann-Whitney test of 1947,
 * at 0.01, with the normal approximation), or if n < 15 or n > PB_MEDIAN_MOST. Takes time proportional to n^2. */
double pb_trend(const double *seconds, int n);
/* Writes `note`, followed by a text that reports the trend, which must be > 0. `room`: bytes in `out`. */
void pb_trend_note(const char *note, double trend, char *out, size_t room);
/* Reads the trend from a note that pb_trend_note has written; 0: the note reports none. */
double pb_trend_of_note(const char *note);
#endif
