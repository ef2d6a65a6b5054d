/* csv_split.c - reads a CSV stream block by block, and passes the blocks to libcsv. */
#include "bench/rows/csv_split.h"

#include <csv.h>
#include <errno.h>
#include <string.h>

enum { BLOCK = 64 << 10 };

static pb_status fail(const pb_csv_split_to *to, pb_status s, const char *what)
{
    return pb_fail(s, "%s:%zu: %s", to->path, *to->line, what);
}

static pb_status feed(FILE *f, struct csv_parser *csv, const pb_csv_split_to *to)
{
    char block[BLOCK];
    for (size_t n; *to->status == PB_OK && (n = fread(block, 1, sizeof block, f)) > 0;)
        if (csv_parse(csv, block, n, to->on_field, to->on_line, to->self) != n)
            return fail(to, PB_EINVAL, "a quote out of place");
    if (*to->status != PB_OK) return PB_OK;
    if (ferror(f)) return pb_fail_errno(errno, "%s: cannot be read", to->path);
    if (csv_fini(csv, to->on_field, to->on_line, to->self)) return fail(to, PB_EINVAL, "a quote out of place");
    return PB_OK;
}

pb_status pb_csv_split(FILE *f, const pb_csv_split_to *to)
{
    struct csv_parser csv;
    if (csv_init(&csv, CSV_STRICT | CSV_STRICT_FINI | CSV_APPEND_NULL))
        return pb_fail(PB_ENOMEM, "%s: out of memory", to->path);
    const pb_status s = feed(f, &csv, to);
    csv_free(&csv);
    return s;
}
