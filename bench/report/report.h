/* report.h - the public header of bench/report: shows a run to people. It reads result files only.
 *
 *   run_report.h  `bench report`: the tables of a run
 *   roofline.h    `bench report --roofline`: what bounds each op
 *   gnuplot.h     draws figures with gnuplot: their data, the scripts, and the call of the program
 *   plot.h        `bench plot`: a figure of a run, drawn with gnuplot */
#ifndef PB_BENCH_REPORT_H
#define PB_BENCH_REPORT_H
#include "bench/report/gnuplot.h"
#include "bench/report/plot.h"
#include "bench/report/roofline.h"
#include "bench/report/run_report.h"
#endif
