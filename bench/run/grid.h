/* grid.h - grid lines: how axes and their values are written, and the cases that they stand for. */
#ifndef PB_RUN_GRID_H
#define PB_RUN_GRID_H
#include "bench/rows/rows.h"

enum { PB_GRID_ITEM = 512 }; /* bytes of one item of a grid line, such as "batch=1,2,4" */

/* Splits "name=values" in place and returns the values; NULL: the item has no "=". */
char *pb_grid_values(char *item);

/* Expands a grid line such as "copy tuning=lora batch=1,4" and passes each combination to `add`. `axes` has the same
 * syntax and supplies the values of axes that the line does not name. A value BEGIN..END*FACTOR stands for the whole
 * numbers BEGIN, BEGIN*FACTOR, ... up to END. EINVAL: BEGIN or FACTOR is too small for that. */
typedef pb_status (*pb_case_add)(void *user, const pb_case *c);
pb_status pb_grid_expand(const char *suite, const char *axes, const char *line, pb_case_add add, void *user);
#endif
