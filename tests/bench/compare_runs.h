/* compare_runs.h - the runs and comparisons of tests/fixtures/compare/cases.txt, whose first lines describe the format.
 *
 * pb_compare_table_read reads the table, pb_compare_table_write writes each run and file of it as a CSV file. */
#ifndef PB_COMPARE_RUNS_H
#define PB_COMPARE_RUNS_H
#include <stdbool.h>

#include "bench/compare/compare_results.h"

enum { PB_RUN_VALUES = 10 };

/* The value of one process or session. */
typedef struct pb_run_value {
    char text[24]; /* the value as text; "": an empty field; ".": the process has no row */
    const char *status, *note;
} pb_run_value;

/* The rows of one key and metric: one for each process or session. */
typedef struct pb_run_row {
    const char *key; /* in a `file`: the text of one line */
    const char *metric, *unit, *better, *samples;
    const char *process; /* column `process`; NULL: the process index, or 3 in stored sessions */
    int number;          /* the number that replaces the character # in the key */
    bool last;           /* the row is written after all rows whose `last` is false */
    pb_run_value v[PB_RUN_VALUES];
} pb_run_row;

typedef struct pb_made_run {
    const char *name, *machine, *samples; /* samples: default for rows that do not give it */
    const char *ids, *versions, *hosts;   /* comma-separated run_ids, bench_versions and hosts */
    int count;                            /* number of processes, or of sessions */
    bool sessions;                        /* true: a stored baseline; false: a run */
    bool file;                            /* true: a text file instead of a run or baseline; its lines are the rows */
    bool inherits;                        /* the rows start as a copy of another run's rows */
    bool other_layout;                    /* reversed columns, CRLF and a byte order mark */
    int cut;                              /* bytes missing at the end of the file */
    pb_run_row *rows;
    int n;
} pb_made_run;

/* One line of cases.txt that begins with `compare` or `against`. */
typedef struct pb_comparison {
    int line;     /* line number in cases.txt */
    bool against; /* the base is a stored baseline */
    const char *base, *cand;
    const char *gates;     /* name of the file in cases.txt that replaces gates.csv */
    const char *confirmed; /* name of the run that measured rows of the candidate again; NULL: none */
    pb_compare_opts opts;  /* .gates and .confirmed are not set */
    int exit;
    const char *counts; /* text of the last line of the output; NULL: an error is expected */
    const char *text;   /* text in the output or in the error message; NULL: not checked */
} pb_comparison;

typedef struct pb_key_word {
    const char *word, *key;
} pb_key_word;

/* The contents of cases.txt. Owns all memory that its members point to. */
typedef struct pb_compare_table {
    char *bytes; /* the text of cases.txt, with a NUL after each word */
    pb_key_word *keys;
    pb_made_run *runs;
    pb_comparison *comparisons;
    const char *host; /* of the runs below the line that was read last */
    int nkeys, nruns, ncomparisons;
} pb_compare_table;

/* Reads the table; the caller frees it. On failure there is nothing to free. EINVAL: a line that is not of the format,
 * or changes a row that the other run does not have; the message names the line. EPATH, EIO. */
pb_status pb_compare_table_read(const char *path, pb_compare_table *out);
void pb_compare_table_free(pb_compare_table *t);

/* Writes each run and each text file of the table to NAME.csv in an existing folder. EPATH, EIO. */
pb_status pb_compare_table_write(const pb_compare_table *t, const char *folder);
#endif
