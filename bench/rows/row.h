/* row.h - cases, the keys that identify them, and the rows of results.csv. */
#ifndef PB_ROW_H
#define PB_ROW_H
#include <stdbool.h>

#include "bench/rows/exits.h"
#include "bench/rows/row_status.h"

/* Increment it when a metric changes its meaning: rows of older versions are then not compared. Version 2 changed names
 * only; rows of version 1 are translated when they are read (renames.h). */
#define PB_BENCH_VERSION "2"

/* ---- keys and cases (case.c) ------------------------------------------------------------------ */

/* PB_CASE_AXES: maximum number of axes of a case; PB_AXIS_TEXT: bytes of a name or value; PB_KEY_TEXT: bytes of a key;
 * both include the final NUL. */
enum { PB_CASE_AXES = 20, PB_AXIS_TEXT = 64, PB_KEY_TEXT = 512 };

typedef struct pb_axis {
    char name[PB_AXIS_TEXT], value[PB_AXIS_TEXT];
} pb_axis;

/* One point of a suite's grid: a value for every axis of the suite. */
typedef struct pb_case {
    char suite[PB_AXIS_TEXT], name[PB_AXIS_TEXT]; /* for example "backward" and "step" */
    int n;                                        /* axes in use */
    pb_axis axes[PB_CASE_AXES];                   /* sorted by name */
    char key[PB_KEY_TEXT];                        /* suite/name?axis=value&...; written by pb_case_finish() */
    /* The model and data that the user names (bench/suites/own_input.h), borrowed from the plan; NULL: the case uses
     * those that its axes name, or it was read from a key. */
    struct pb_own_input *own;
} pb_case;

/* The value of an axis. NULL: the case does not have this axis. */
const char *pb_case_get(const pb_case *c, const char *axis);
/* True if the case has this axis with this value. */
bool pb_case_is(const pb_case *c, const char *axis, const char *value);
/* Reads the value of an axis as a decimal integer. EINVAL: the case lacks the axis, or the value is not an integer. */
pb_status pb_case_int(const pb_case *c, const char *axis, long *out);
/* Adds an axis, or replaces its value. EINVAL: a character that keys cannot hold, too many axes, or a key that becomes
 * too long. Call pb_case_finish() after the last axis. */
pb_status pb_case_set(pb_case *c, const char *axis, const char *value);
/* Removes an axis, if the case has it. Call pb_case_finish() after the last axis. */
void pb_case_drop(pb_case *c, const char *axis);
/* Writes c->key from the suite, the name and the axes. */
void pb_case_finish(pb_case *c);
/* Splits a key into a case. EINVAL: not a key as pb_case_finish() writes it, for example with unsorted axes. */
pb_status pb_case_parse(const char *key, pb_case *out);
/* The axis that marks the rows of control cases, copies of cases that each process measures (bench/suites/controls.h),
 * and its values. */
#define PB_CONTROL_AXIS   "control"
#define PB_CONTROL_FIRST  "first"
#define PB_CONTROL_SECOND "second"
/* True if the key is that of a control case. */
bool pb_key_is_control(const char *key);
/* True if both keys are of as many ranks: equal values of axis `ranks`, or none. */
bool pb_key_same_ranks(const char *a, const char *b);
bool pb_key_has_ranks(const char *key); /* the key is of several ranks */
/* True if the key matches a pattern of the command line: a glob that matches the whole key, or a word without *, ? and
 * [ that the key contains. */
bool pb_key_matches(const char *pattern, const char *key);

/* ---- rows (write_csv.c writes them, read.c reads them) ------------------------------------------ */

#define PB_COL_str    const char *
#define PB_COL_i64    long long
#define PB_COL_f64    double
#define PB_COL_opt    const char *
#define PB_COL_status pb_row_status
/* One line of results.csv: a member for each line of columns.def. The row does not own its strings. */
typedef struct pb_row {
#define COL(type, name, doc) PB_COL_##type name;
#include "bench/rows/columns.def"
#undef COL
} pb_row;
#endif
