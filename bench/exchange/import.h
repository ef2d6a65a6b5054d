/* import.h - `bench import`: what other tools measured, as rows of a run.
 *
 * Every file is one launch of its tool: the first file that holds a key and metric is launch 0 of it, the second
 * launch 1. Two rows of a key and metric in one file are an error. Columns: bench_version is the tool's name, so that
 * its figures are compared with each other only; machine_id is made from the device that the file names.
 *
 *   nvbench     keys nvbench/BENCHMARK?axis=value&device=ID. A state that was skipped is a row `unsupported` with the
 *               reason. Hidden summaries and those of users are not taken.
 *   nccl-tests  keys nccl-tests/all_reduce?place=in|out&ranks=N&redop=R&root=R&size=BYTES&type=T. Where elements were
 *               wrong the row says so and has no figure.
 *
 * In keys a character that they cannot hold becomes _. Refused, with file and line (or the place inside a JSON
 * document): what is not that format, a file cut short, a number that is none, a word of 64 or more characters. */
#ifndef PB_IMPORT_H
#define PB_IMPORT_H
#include <jansson.h>
#include <stdio.h>

#include "bench/rows/rows.h"
#include "bench/rows/strings.h"

typedef struct pb_import_row {
    const char *key, *metric, *status, *note, *machine; /* machine "": the file does not say */
    double value;                                       /* NaN: none */
    long long samples, launch;
    int file;
    size_t line; /* 0: in a JSON document */
} pb_import_row;

typedef struct pb_import {
    const char *tool; /* as typed: "nccl-tests" */
    pb_strings *text;
    pb_import_row *row;
    size_t n, capacity;
    int nfiles;
    const char *file; /* being read */
    size_t left_out;  /* figures that have no metric here */
} pb_import;

typedef struct pb_import_tool {
    const char *name, *what; /* a NULL name ends the table */
} pb_import_tool;
extern const pb_import_tool pb_import_tools[]; /* imports.def */

/* EINVAL: no such tool, with a hint. */
pb_status pb_import_open(const char *tool, pb_import *out);
/* Adds a file's rows. `name` is for messages and, where the file does not say, names the benchmark. After a failure
 * only pb_import_close may follow. */
pb_status pb_import_bytes(pb_import *im, const char *name, const char *bytes, size_t n);
/* The same from the disk. */
pb_status pb_import_file(pb_import *im, const char *path);
/* Gives every row its launch. EINVAL: two rows of a key and metric in one file; no row at all. */
pb_status pb_import_finish(pb_import *im);
/* The rows as those of results.csv: the header and a line each. A row without a machine gets `machine_id` and a note
 * that says so. */
void pb_import_write(const pb_import *im, const char *run_id, const char *machine_id, FILE *out);
void pb_import_close(pb_import *im);

/* ---- for the readers ------------------------------------------------------------------------------- */

#define IMPORT(name, what) pb_status pb_import_##name(pb_import *im, const char *bytes, size_t n);
#include "bench/exchange/imports.def"
#undef IMPORT

/* Fails with "FILE:LINE: ..." (line 0: without). */
pb_status pb_import_bad(const pb_import *im, size_t line, const char *what, const char *detail);
/* Whether the first character that is no blank is a brace. */
bool pb_import_is_json(const char *bytes, size_t n);
/* The document; EINVAL with file and line when it is not JSON. The caller decref's it. */
pb_status pb_import_json(const pb_import *im, const char *bytes, size_t n, json_t **out);
/* Copies a word into out[PB_AXIS_TEXT] with _ for what a key cannot hold. EINVAL: empty, or too long. */
pb_status pb_import_word(const pb_import *im, size_t line, const char *text, char *out);
/* Sets an axis of the case. EINVAL: it has it already, or it does not fit. */
pb_status pb_import_axis(const pb_import *im, size_t line, pb_case *c, const char *axis, const char *value);
/* "imported-[8x-]nvidia-h200" from the name of a device; "" from "". Interned. */
const char *pb_import_machine(const pb_import *im, int devices, const char *name);
/* A figure, from its text; what is not finite becomes a row `failed`. EINVAL: it is no number. */
pb_status pb_import_figure(pb_import *im, size_t line, const pb_case *c, const char *machine, const char *metric,
                           double scale, const char *text, long long samples, const char *note);
/* A row without a figure. */
pb_status pb_import_outcome(pb_import *im, size_t line, const pb_case *c, const char *machine, const char *metric,
                            const char *status, const char *note);
#endif
