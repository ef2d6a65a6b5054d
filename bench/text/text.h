/* text.h - figures for people: SI prefixes, three digits, units; and keys without what all have in common. */
#ifndef PB_TEXT_H
#define PB_TEXT_H
#include <stdio.h>

#include "bench/rows/rows.h"

enum { PB_FIGURE_TEXT = 64 };

/* "12.3 ms", "1.23 GFLOP/s", "1.23 k/s"; a plain number for unit "1"; "-" for what is not finite. */
void pb_figure(char out[PB_FIGURE_TEXT], double v, const char *unit);
/* "12.0..12.9" in the prefix that pb_figure gives v; empty when both ends show the same. */
void pb_figure_range(char out[PB_FIGURE_TEXT], double v, double min, double max, const char *unit);
/* The change in percent; what would print as 0 at this last digit is 0, without a sign of its rounding. */
double pb_percent(double ratio, double digit);
/* The logarithm of a change for the worse: "15 %", "x 12"; "none" for +inf. What stands between figure and unit:
 * `space`. */
void pb_worsening(char out[PB_FIGURE_TEXT], double change, const char *space);

/* The axes of a suite's cases: which of them vary. These functions walk keys that the reader has let in.
 * Axes beyond the limit count as varying. */
enum { PB_AXES_SEEN = 48 };
typedef struct pb_axes {
    char suite[PB_AXIS_TEXT], name[PB_AXIS_TEXT]; /* of the first case */
    bool names_vary;
    size_t cases;
    int n;
    struct pb_axis_seen {
        pb_axis axis; /* with its first value */
        size_t cases; /* that have it */
        bool varies;
    } seen[PB_AXES_SEEN];
} pb_axes;

void pb_axes_add(pb_axes *a, const char *key);
bool pb_axes_vary(const pb_axes *a, const char *axis); /* false for an axis that no case has */
/* "backward/step model=tiny seq=128": what every case shares, wrapped at 100 columns. */
void pb_axes_print_common(const pb_axes *a, FILE *out);
/* Several suites together: the axes of a key's suite, those of the last one when there is no more room. */
enum { PB_AXES_SUITES = 32 };
typedef struct pb_axes_set {
    int n;
    pb_axes suite[PB_AXES_SUITES];
} pb_axes_set;
pb_axes *pb_axes_of(pb_axes_set *s, const char *key);
/* As pb_axes_label below, with "suite: " in front when there are several. */
void pb_axes_set_label(pb_axes_set *s, const char *key, char *out, size_t n);
/* "step batch=4 clip=sync": the rest of one case. Writes at most n bytes. */
void pb_axes_label(const pb_axes *a, const char *key, char *out, size_t n);
#endif
