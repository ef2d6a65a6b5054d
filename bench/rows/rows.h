/* rows.h - the public header of bench/rows: the rows of results.csv, and how they are written, read and joined.
 *
 *   row.h         cases, the keys that identify them, and the row, with a member for each column
 *   axis_list.h   values of axes that the user gives
 *   row_status.h  what became of a row: the values of the column status
 *   metric.h      unit, better direction and bounds of every metric
 *   write_csv.h   creates results.csv and samples.csv, and appends rows
 *   read.h        reads results.csv or a stored baseline into a table
 *   processes.h   processes.csv: what became of each process of a run
 *   series.h      joins the rows of a table over processes and sessions, one series per key and metric
 *   renames.h     translates names of older result files
 *   tables.h      the columns of results.csv as an array, for help texts
 *   csv_split.h   splits other CSV files into fields
 *   strings.h     interned strings
 *   exits.h       the exit codes of bench */
#ifndef PB_BENCH_ROWS_H
#define PB_BENCH_ROWS_H
#include "bench/rows/axis_list.h"
#include "bench/rows/csv_split.h"
#include "bench/rows/exits.h"
#include "bench/rows/metric.h"
#include "bench/rows/processes.h"
#include "bench/rows/read.h"
#include "bench/rows/renames.h"
#include "bench/rows/row.h"
#include "bench/rows/row_status.h"
#include "bench/rows/series.h"
#include "bench/rows/strings.h"
#include "bench/rows/tables.h"
#include "bench/rows/write_csv.h"
#endif
