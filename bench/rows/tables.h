/* tables.h - columns.def as a table that code can walk. */
#ifndef PB_TABLES_H
#define PB_TABLES_H
#include "os/status.h"

typedef struct pb_column {
    const char *name, *type, *what;
} pb_column;
extern const pb_column pb_columns[]; /* columns.def, ended by a NULL name */

#endif
