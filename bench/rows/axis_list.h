/* axis_list.h - values of axes that a user gives, in place of a suite's defaults. */
#ifndef PB_AXIS_LIST_H
#define PB_AXIS_LIST_H
#include "bench/rows/row.h"
#include "cli/words.h"

typedef struct pb_axis_values {
    char name[PB_AXIS_TEXT];
    const char *values; /* borrowed; comma-separated, such as "1,4" */
} pb_axis_values;
typedef struct pb_axis_list {
    pb_axis_values v[PB_OPTION_LIST];
    int n;
} pb_axis_list;
#endif
