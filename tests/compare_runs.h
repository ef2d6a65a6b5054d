/* compare_runs.h - the runs and comparisons of tests/fixtures/compare/cases.txt, whose first lines describe the format.
 *
 * pb_compare_table_read reads the table, pb_compare_table_write writes each run and file of it as a CSV file. */
#ifndef PB_COMPARE_RUNS_H
#define PB_COMPARE_RUNS_H
#include <stdbool.h>

#include "bench/compare/compare.h"

enum { PB_RUN_VALUES = 10 };

/* The value of one process or session. */
typedef struct pb_run_value {
    char text[24]; /* as it is written; "": an empty field; ".": no row */
    const char *status, *note;
} pb_run_value;

/* The rows of one key and metric: one for each process or session. */
typedef struct pb_run_row {
    const char *key; /* of a file: one of its lines */
    const char *metric, *unit, *better, *samples;
    const char *process; /* NULL: the number of the process; of sessions: 3 */
    int number;          /* replaces the # of the key */
    bool last;           /* comes after all rows that are not `last` */
    pb_run_value v[PB_RUN_VALUES];
} pb_run_row;

typedef struct pb_made_run {
    const char *name, *machine, *samples; /* samples: of a row that names none */
    const char *ids, *versions;           /* lists with commas */
    int count;                            /* processes or sessions */
    bool sessions;                        /* the values are those of stored sessions */
    bool file;                            /* a file of lines */
    bool inherits;                        /* its rows change those of another run */
    bool other_layout;
    int cut; /* bytes missing at the end of the file */
    pb_run_row *rows;
    int n;
} pb_made_run;

/* One line `compare` or `against`. */
typedef struct pb_comparison {
    int line;     /* of cases.txt */
    bool against; /* the base is stored sessions */
    const char *base, *cand;
    const char *gates;    /* name of a file of gates */
    pb_compare_opts opts; /* without .gates */
    int exit;
    const char *counts; /* text of the last line of the output; NULL: an error is expected */
    const char *text;   /* text in the output or in the error message; NULL: not checked */
} pb_comparison;

typedef struct pb_key_word {
    const char *word, *key;
} pb_key_word;

/* Owns everything that it points to. */
typedef struct pb_compare_table {
    char *bytes; /* of cases.txt, cut into words */
    pb_key_word *keys;
    pb_made_run *runs;
    pb_comparison *comparisons;
    int nkeys, nruns, ncomparisons;
} pb_compare_table;

/* Reads the table; the caller frees it. On failure there is nothing to free. EINVAL: a line that is not of the format, or
 * changes a row that the other run does not have; the message names the line. EPATH, EIO. */
pb_status pb_compare_table_read(const char *path, pb_compare_table *out);
void pb_compare_table_free(pb_compare_table *t);

/* Writes every run and file as NAME.csv into an existing folder. EPATH, EIO. */
pb_status pb_compare_table_write(const pb_compare_table *t, const char *folder);
#endif
