/* read.h - results.csv, and a stored baseline, into memory: all of it, or one line that says what is
 * wrong and where.
 *
 * The header holds the names of columns.def in any order; further columns are ignored and counted. Blank
 * lines, CRLF and a byte order mark are accepted. Refused, with file and line: an empty file, a last line
 * without its newline, an open or misplaced quote, a wrong number of fields, a number that is none or not
 * finite, NUL bytes, a field longer than PB_FIELD_MAX, a key that is none, a word that a column cannot
 * hold, a unit or direction that is not the metric's (metrics.def), status ok without a value, and two
 * rows of the same key, metric, launch and run. */
#ifndef PB_READ_H
#define PB_READ_H
#include "bench/rows/rows.h"
#include "bench/rows/strings.h"

enum { PB_FIELD_MAX = 64 << 10, PB_COLUMNS_MAX = 256, PB_PATH_TEXT = 1024 };

/* Rows in the file's order. An empty value is NaN; a control character of a note became a blank. Equal
 * strings are equal pointers within a table. */
typedef struct pb_table {
    char path[PB_PATH_TEXT]; /* the file that was read */
    pb_row *rows;
    size_t n;
    size_t ignored; /* unknown columns */
    pb_strings *strings, *keys;
} pb_table;

/* `path`: a CSV, or a run folder that holds results.csv. EPATH: no file to read; EIO: it cannot be read; EINVAL: what it
 * holds is wrong. On failure *out holds nothing that needs freeing. */
pb_status pb_table_read(const char *path, pb_table *out);
/* The same from memory; `name` stands for the file in messages. */
pb_status pb_table_parse(const char *name, const void *bytes, size_t n, pb_table *out);
void pb_table_free(pb_table *t);

/* What a command ends with that failed so. */
static inline pb_exit pb_file_exit(pb_status s) { return (pb_exit)pb_status_exit(s); }

/* Writes the newest run folder inside `runs` (their names begin with the time). EPATH: there is none. */
pb_status pb_newest_run(const char *runs, char *out, size_t n);
#endif
