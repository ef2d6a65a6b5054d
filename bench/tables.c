/* tables.c - columns.def as a table, and walking text lists. */
#include "bench/tables.h"

#include <string.h>

const pb_column pb_columns[] = {
#define COL(type, name, what) {#name, #type, what},
#include "bench/columns.def"
#undef COL
    {0},
};

const char *pb_next_item(const char *list, char separator, char *out, size_t n)
{
    while (list && *list == separator) list++;
    if (!list || !*list) return NULL;
    const char *end = strchr(list, separator);
    size_t len = end ? (size_t)(end - list) : strlen(list);
    if (len >= n) len = n - 1;
    memcpy(out, list, len);
    out[len] = 0;
    return end ? end : list + strlen(list);
}
