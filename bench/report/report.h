/* report.h - the public header of bench/report: shows a run to people. It reads result files only.
 *
 *   run_report.h  `bench report`: the tables of a run
 *   plot.h        `bench plot`: a figure of a run, drawn with gnuplot */
#ifndef PB_BENCH_REPORT_H
#define PB_BENCH_REPORT_H
#include "bench/report/plot.h"
#include "bench/report/run_report.h"
#endif
