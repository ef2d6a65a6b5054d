/* plot.h - `bench plot RUN`: a figure of a run, drawn by gnuplot with a script of plots/.
 *
 * The suite names the script: plots/<suite>.gp, which is part of the program; --plots names a folder of others. It is
 * given data, a text file made from results.csv with one line a case (label, then median, least and largest launch of
 * every arm in seconds; NaN where there is none), and the variables data, out, term, arms and heading. The figures
 * "crossover" and "attention" have plots/crossover.gp and plots/attention.gp instead, and data of their own. gnuplot
 * runs in a temporary folder of its own; the picture is then put in its place whole. */
#ifndef PB_PLOT_H
#define PB_PLOT_H
#include <stdio.h>

#include "bench/rows/exits.h"

typedef struct pb_plot_opts {
    const char *figure;  /* "arms", "crossover" or "attention"; NULL: "arms" */
    const char *out;     /* what to write, .svg or .png; NULL: <suite>.svg in the run folder */
    const char *plots;   /* a folder of scripts; NULL: those of the program */
    const char *gnuplot; /* the program; NULL: "gnuplot" */
    const char *runs;    /* where the newest run is looked for; NULL: "runs" */
} pb_plot_opts;

/* `run`: a run folder or a CSV; NULL: the newest. Says on `out` what was written. PB_EXIT_USAGE: the run has
 * nothing to plot, or the ending is neither; PB_EXIT_HARNESS: gnuplot is missing or failed, or the disk is full. */
pb_exit pb_plot(const char *run, const pb_plot_opts *o, FILE *out);
#endif
