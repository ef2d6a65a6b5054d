/* history_command.h - `bench history`: how metrics developed over the sessions of a machine, and where they changed.
 *
 * The sessions are those of stored baselines, or the run folders of a folder; a session's value is the median over its
 * processes. A row is one machine, key and metric; its sessions are in the order of their run_ids, which begin with the
 * time. Its change points are those of bench/stats/changepoint.h.
 *
 * Left out are cases that are wrong or have no value, requirements, and values of another bench_version than that of
 * the row's newest session, whose number a note gives.
 *
 *   text    a line for each row, with a sparkline of its values, and a line for each change point: when, how much,
 *           p (the larger one of both tests), and the commits between the session before and the first one after
 *   csv     a line for each row and session; the columns from `change` on are filled where a change point is
 *   svg     a picture for each row, drawn by gnuplot (plots/history.gp)
 *   otava   for Apache Otava: a line for each session, a column for each row; with `out` also Otava's configuration */
#ifndef PB_HISTORY_COMMAND_H
#define PB_HISTORY_COMMAND_H
#include <stdbool.h>
#include <stdio.h>

#include "bench/rows/rows.h"
#include "bench/stats/stats.h"

typedef struct pb_history_opts {
    const char *baselines;   /* folder of the baselines; NULL: "baselines" */
    const char *runs;        /* folder whose run folders are the sessions; NULL: the stored baselines are */
    const char *gates;       /* path; NULL: gates.csv in `baselines` */
    const char *const *keys; /* [nkeys]: shows only keys that match one of these (pb_key_matches); 0: all */
    int nkeys;
    const char *machine; /* shows only machine ids that match it; NULL: all */
    const char *metric;  /* shows only this metric; NULL: the metrics that gate */
    bool all;            /* shows all metrics */
    bool ascii;          /* sparklines of ASCII characters */
    const char *format;  /* "text" (also NULL), "csv", "svg" or "otava" */
    const char *out;     /* text, csv, otava: the file to write, NULL: the stream; svg: the folder, NULL: "history" */
    const char *gnuplot; /* gnuplot's program; NULL: "gnuplot" */
    pb_change_rule rule;
} pb_history_opts;

/* Writes the history to `out` or o->out, and notes to `notes`. PB_EXIT_USAGE: a file cannot be read or is wrong, two
 * folders hold the same run, or no row remains; PB_EXIT_HARNESS: gnuplot or the machine failed. pb_error() has the
 * message. */
pb_exit pb_history(const pb_history_opts *o, FILE *out, FILE *notes);
#endif
