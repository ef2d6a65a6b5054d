/* tables.h - columns.def as a table that code can walk, and lists in text. */
#ifndef PB_TABLES_H
#define PB_TABLES_H
#include "bench/bench.h"

typedef struct pb_column {
    const char *name, *type, *what;
} pb_column;
extern const pb_column pb_columns[]; /* columns.def, ended by a NULL name */

/* Next item of a list such as "batch=1 clip=fused" or "1,4": copies it to out[n] and returns what follows,
 * or NULL at the end. Empty items are skipped; one that does not fit comes out cut. */
const char *pb_next_item(const char *list, char separator, char *out, size_t n);
#endif
