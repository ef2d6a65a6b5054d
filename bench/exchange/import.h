/* import.h - `bench import`: converts results of other tools to rows of a run.
 *
 * A file holds the results of one process. The first file with a given key and metric becomes process 0 of that row,
 * the second process 1, and so on. Two rows with one key and metric in a file are an error. bench_version is the tool's
 * name, so that its values are compared with its own values only. machine_id is made from the device that the file
 * names.
 *
 *   nvbench     Keys: nvbench/BENCHMARK?axis=value&device=ID. A skipped state becomes a row with status unsupported and
 *               the reason. Hidden and user-defined summaries are not imported.
 *   nccl-tests  Keys: nccl-tests/all_reduce?place=in|out&ranks=N&redop=R&root=R&size=BYTES&type=T, with hosts=N first
 *               if the ranks are on several hosts. A result with wrong elements becomes a row with status wrong and no
 *               value.
 *
 * In keys, '_' replaces characters that a key cannot hold. These are errors, reported with file and line (or the
 * position in the JSON document): another format, a truncated file, text in place of a number, a word of 64 or more
 * characters. */
#ifndef PB_IMPORT_H
#define PB_IMPORT_H
#include <jansson.h>
#include <stdio.h>

#include "bench/rows/rows.h"

typedef struct pb_import_row {
    const char *key, *metric, *note, *machine; /* machine "": the file names no device */
    pb_row_status status;
    double value;               /* NaN: no value */
    long long samples, process; /* process: process index, set by pb_import_finish() */
    int file;                   /* index of the file, from 0 */
    size_t line;                /* 0: in a JSON document */
} pb_import_row;

typedef struct pb_import {
    const char *tool; /* the tool's name on the command line, such as "nccl-tests" */
    pb_strings *text; /* owns the text of the rows */
    pb_import_row *row;
    size_t n, capacity;
    int nfiles;       /* files read */
    const char *file; /* name of the file being read */
    size_t left_out;  /* values that were not imported because metrics.def has no metric for them */
} pb_import;

typedef struct pb_import_tool {
    const char *name, *what; /* a NULL name ends the table */
} pb_import_tool;
extern const pb_import_tool pb_import_tools[]; /* imports.def */

/* Begins an import; end it with pb_import_close(). EINVAL: unknown tool; the message suggests a similar name. */
pb_status pb_import_open(const char *tool, pb_import *out);
/* Adds the rows of a file that is in memory. `name` is the file name for messages; nccl-tests also takes the collective
 * from it if the file does not name one. After a failure only pb_import_close() may be called. */
pb_status pb_import_bytes(pb_import *im, const char *name, const char *bytes, size_t n);
/* Reads a file and adds its rows with pb_import_bytes(). */
pb_status pb_import_file(pb_import *im, const char *path);
/* Gives every row its process index. EINVAL: a file has two rows with one key and metric, or no row was imported. */
pb_status pb_import_finish(pb_import *im);
/* Writes a results.csv: the header and a line per row. A row without a machine gets `machine_id`, and a note that says
 * so. */
void pb_import_write(const pb_import *im, const char *run_id, const char *machine_id, FILE *out);
void pb_import_close(pb_import *im);

/* ---- functions for the readers of the tools' formats --------------------------------------------- */

#define IMPORT(name, what) pb_status pb_import_##name(pb_import *im, const char *bytes, size_t n);
#include "bench/exchange/imports.def"
#undef IMPORT

/* Fails with EINVAL and the message "FILE:LINE: WHAT DETAIL" (line 0: without the line). */
pb_status pb_import_bad(const pb_import *im, size_t line, const char *what, const char *detail);
/* True if the first character that is not white space is '{'. */
bool pb_import_is_json(const char *bytes, size_t n);
/* Parses a JSON document, which the caller decrefs. EINVAL, with file and line: not JSON. */
pb_status pb_import_json(const pb_import *im, const char *bytes, size_t n, json_t **out);
/* Copies text to out[PB_AXIS_TEXT], with '_' in place of characters that a key cannot hold. EINVAL: empty or too
 * long. */
pb_status pb_import_word(const pb_import *im, size_t line, const char *text, char *out);
/* Adds an axis to a case. EINVAL: the case has it already, or the key becomes too long. */
pb_status pb_import_axis(const pb_import *im, size_t line, pb_case *c, const char *axis, const char *value);
/* Makes a machine_id such as imported-nvidia-h200, or imported-8x-nvidia-h200 for 8 devices, from a device's name.
 * Interned; "" for an empty name; NULL: out of memory. */
const char *pb_import_machine(const pb_import *im, int devices, const char *name);
/* Adds a row with the value scale * text, in the metric's unit. A value that is not finite becomes a row with status
 * failed. EINVAL: the text is not a number. */
pb_status pb_import_figure(pb_import *im, size_t line, const pb_case *c, const char *machine, const char *metric,
                           double scale, const char *text, long long samples, const char *note);
/* Adds a row without a value. */
pb_status pb_import_outcome(pb_import *im, size_t line, const pb_case *c, const char *machine, const char *metric,
                            pb_row_status status, const char *note);
#endif
