/* read.h - reads results.csv, or a stored baseline, into memory, and applies the processes.csv next to it.
 *
 * The file is read completely or not at all: the first fault fails the read, with a message that names file and line.
 *
 * The header must name every column of columns.def, in any order; a column of type opt may be missing: its values are
 * then empty. Other columns are ignored and counted. Blank lines, CRLF and a byte order mark are accepted. These are
 * faults:
 *   - an empty file, NUL bytes, a last line without a newline (the file was cut off);
 *   - an unclosed or misplaced quote, a wrong number of fields, a field longer than PB_FIELD_MAX bytes;
 *   - text that is not a number, or not finite, in a numeric column; an unknown status or direction; an invalid key;
 *   - a unit or direction that differs from the metric's in metrics.def;
 *   - status ok without a value;
 *   - two rows with equal key, metric, process and run_id. */
#ifndef PB_READ_H
#define PB_READ_H
#include "bench/rows/row.h"
#include "bench/rows/strings.h"

enum { PB_FIELD_MAX = 64 << 10, PB_COLUMNS_MAX = 256, PB_PATH_TEXT = 1024 };

/* The rows of a file, in the file's order. An empty value is NaN. Control characters in a note are replaced by blanks.
 * Strings are interned: within a table, equal strings of one column are the same pointer. */
typedef struct pb_table {
    char path[PB_PATH_TEXT]; /* the file that was read */
    pb_row *rows;
    size_t n;
    size_t kept;                /* number of rows, at the end of `rows`, that are of kept sessions (pb_kept_join) */
    size_t ignored;             /* number of unknown columns */
    pb_strings *strings, *keys; /* own the rows' text; `keys` holds the column `key` */
} pb_table;

/* Reads a CSV file, or results.csv of a run folder. Rows of a throttled process get the status that processes.csv of
 * the folder gives them (pb_processes_apply). EPATH: the file does not exist or cannot be opened; EIO: reading failed;
 * EINVAL: the contents have a fault, or those of processes.csv. On failure *out needs no pb_table_free(). */
pb_status pb_table_read(const char *path, pb_table *out);
/* Parses n bytes in memory as pb_table_read() parses a file, without a processes.csv. `name` is the file name for
 * messages. */
pb_status pb_table_parse(const char *name, const void *bytes, size_t n, pb_table *out);
void pb_table_free(pb_table *t);

/* The exit code of a command that failed to read or write a file. */
static inline pb_exit pb_file_exit(pb_status s) { return (pb_exit)pb_status_exit(s); }

/* Writes the path of the newest run folder in `runs` to out: the one whose results.csv was written last, whatever its
 * name; of several at the same time the last by name. EPATH: no folder of `runs` holds a results.csv. */
pb_status pb_newest_run(const char *runs, char *out, size_t n);
#endif
