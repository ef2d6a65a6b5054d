/* rows.h - cases, their keys, and the rows of results.csv. */
#ifndef PB_BENCH_ROWS_H
#define PB_BENCH_ROWS_H
#include <stdbool.h>

#include "bench/rows/exits.h"

#define PB_BENCH_VERSION "1" /* raise it when what a metric means changes */

/* ---- keys and cases (case.c) ------------------------------------------------------------------ */

enum { PB_CASE_AXES = 20, PB_AXIS_TEXT = 64, PB_KEY_TEXT = 512 };

typedef struct pb_axis {
    char name[PB_AXIS_TEXT], value[PB_AXIS_TEXT];
} pb_axis;

/* One point of a suite's grid: every axis of the suite with one value, sorted by name. */
typedef struct pb_case {
    char suite[PB_AXIS_TEXT], name[PB_AXIS_TEXT]; /* "backward", "step" */
    int n;
    pb_axis axes[PB_CASE_AXES];
    char key[PB_KEY_TEXT]; /* suite/name?axis=value&... */
} pb_case;

/* The value of an axis, or NULL. */
const char *pb_case_get(const pb_case *c, const char *axis);
/* Whether the axis is there and has this value. */
bool pb_case_is(const pb_case *c, const char *axis, const char *value);
/* The value as an integer. EINVAL: absent, or not a whole number. */
pb_status pb_case_int(const pb_case *c, const char *axis, long *out);
/* Sets an axis and keeps the order; pb_case_finish then writes the key. */
pb_status pb_case_set(pb_case *c, const char *axis, const char *value);
void pb_case_finish(pb_case *c);
/* The inverse: splits a key. EINVAL when it is none. */
pb_status pb_case_parse(const char *key, pb_case *out);

/* ---- rows (write_csv.c writes them, read.c reads them) ------------------------------------------ */

#define PB_COL_str const char *
#define PB_COL_i64 long long
#define PB_COL_f64 double
typedef struct pb_row {
#define COL(type, name, doc) PB_COL_##type name;
#include "bench/rows/columns.def"
#undef COL
} pb_row;
#endif
