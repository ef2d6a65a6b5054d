/* format.h - formats values for people, with SI prefix, three digits and unit, and shortens the keys of cases to the
 * axes that differ. Also hashes text. */
#ifndef PB_FORMAT_H
#define PB_FORMAT_H
#include <stdio.h>

#include "bench/rows/rows.h"

enum { PB_FIGURE_TEXT = 64 };

/* Formats a value: "12.3 ms", "1.23 GFLOP/s", "1.23 k/s"; a plain number for unit "1", eight
 * hexadecimal digits for unit "hash"; "-" if not finite. */
void pb_figure(char out[PB_FIGURE_TEXT], double v, const char *unit);
/* Formats a range as "12.0..12.9", with the prefix that pb_figure chooses for v. Writes "" if both ends look the same,
 * or one is not finite. */
void pb_figure_range(char out[PB_FIGURE_TEXT], double v, double min, double max, const char *unit);
/* Returns the change 100 * (ratio - 1) in percent. `digit` is the value of the last digit printed, such as 0.1; a
 * change that rounds to 0 there becomes 0, so that "-0.0" is never printed. */
double pb_percent(double ratio, double digit);
/* Formats a change for the worse, given as a natural logarithm: "15 %", "x 12"; "none" for +inf. `space` is printed
 * between figure and unit. */
void pb_worsening(char out[PB_FIGURE_TEXT], double change, const char *space);

/* The 32-bit FNV-1a hash of a text. */
unsigned pb_text_hash(const char *text);

/* The axes of a suite's cases, and which of them vary. Keys must have the form that the reader of results.csv accepts.
 * Axes in excess of PB_AXES_SEEN count as varying. */
enum { PB_AXES_SEEN = 48 };
typedef struct pb_axes {
    char suite[PB_AXIS_TEXT], name[PB_AXIS_TEXT]; /* suite and name of the first case */
    bool names_vary;                              /* the cases differ in name */
    size_t cases;
    int n;
    struct pb_axis_seen {
        pb_axis axis; /* the axis with its value in the first case that has it */
        size_t cases; /* number of cases that have it */
        bool varies;
    } seen[PB_AXES_SEEN];
} pb_axes;

void pb_axes_add(pb_axes *a, const char *key);
bool pb_axes_vary(const pb_axes *a, const char *axis); /* false if no case has the axis */
/* Prints suite, name and axes that all cases share, such as "backward/step model=tiny seq=128", wrapped at 100
 * columns. */
void pb_axes_print_common(const pb_axes *a, FILE *out);
/* The axes of several suites, one entry per suite. pb_axes_of returns the entry of the key's suite; suites in excess of
 * PB_AXES_SUITES share the last entry. */
enum { PB_AXES_SUITES = 32 };
typedef struct pb_axes_set {
    int n;
    pb_axes suite[PB_AXES_SUITES];
} pb_axes_set;
pb_axes *pb_axes_of(pb_axes_set *s, const char *key);
/* Writes the label of pb_axes_label, prefixed with "suite: " if there are several suites. */
void pb_axes_set_label(pb_axes_set *s, const char *key, char *out, size_t n);
/* Writes the name of a case, if names differ, and its axes that vary, such as "step batch=4 clip=sync"; only the name
 * if no axis varies. Writes at most n bytes, with the final NUL. */
void pb_axes_label(const pb_axes *a, const char *key, char *out, size_t n);
#endif
