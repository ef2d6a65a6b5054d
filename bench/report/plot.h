/* plot.h - `bench plot RUN`: draws a figure of a run with gnuplot.
 *
 * The figure "variants" draws a suite with the script plots/<suite>.gp; the figures "crossover", "attention" and
 * "roofline" use the scripts of their names. The scripts are compiled into the program; --plots names a folder with
 * other scripts. A script gets these gnuplot variables:
 *
 *   data     the data file. "variants": a line per case: a label, then for each variant the median, least and greatest
 *            value of its processes, in seconds (NaN: no value). For the other figures see gnuplot.h
 *   out      the file to write
 *   term     "svg" or "png"
 *   variants the number of variants, or of lines
 *   heading  the run and its machine
 *
 * gnuplot runs in a temporary folder; the finished picture then replaces the output file atomically. */
#ifndef PB_PLOT_H
#define PB_PLOT_H
#include <stdio.h>

#include "bench/rows/rows.h"

typedef struct pb_plot_opts {
    const char *figure;  /* "variants", "crossover", "attention" or "roofline"; NULL: "variants" */
    const char *out;     /* file to write, .svg or .png; NULL: <suite or figure>.svg in the run folder */
    const char *plots;   /* folder with scripts; NULL: the scripts compiled into the program */
    const char *gnuplot; /* gnuplot's program; NULL: "gnuplot" */
    const char *runs;    /* folder in which the newest run is looked up; NULL: "runs" */
} pb_plot_opts;

/* Draws a run (a run folder or a CSV file; NULL: the newest run), and prints the name of the written file on `out`.
 * PB_EXIT_USAGE: the run has nothing to plot, or the output file ends in neither .svg nor .png; PB_EXIT_HARNESS:
 * gnuplot is missing or failed, or the disk is full. */
pb_exit pb_plot(const char *run, const pb_plot_opts *o, FILE *out);
#endif
