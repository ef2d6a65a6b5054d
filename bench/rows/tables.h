/* tables.h - the columns of results.csv (columns.def) as an array, for help texts and headers. */
#ifndef PB_TABLES_H
#define PB_TABLES_H
#include "os/status.h"

typedef struct pb_csv_column {
    const char *name, *type, *what;
} pb_csv_column;
extern const pb_csv_column pb_columns[]; /* in the order of columns.def; ends with a NULL name */

#endif
