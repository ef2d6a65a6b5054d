/* tables.c - the table of the columns of results.csv, made from columns.def. */
#include "bench/rows/tables.h"

const pb_csv_column pb_columns[] = {
#define COL(type, name, what) {#name, #type, what},
#include "bench/rows/columns.def"
#undef COL
    {0},
};
