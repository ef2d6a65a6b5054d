/* write_csv.h - writes the rows of results.csv, and creates results.csv and samples.csv.
 *
 * A row is appended by one write(2). If the disk is full, an incompletely written row is removed again. Whole
 * numbers below 2^53 have all digits, others 9 significant digits; a number that is not finite is an empty field. */
#ifndef PB_WRITE_CSV_H
#define PB_WRITE_CSV_H
#include <stdbool.h>
#include <stdio.h>

#include "bench/rows/row.h"
#include "os/page.h" /* rows are collected in a page and appended by one write */

/* Print the header line and one row of results.csv. Fields are quoted where RFC 4180 requires it. */
void pb_csv_header(FILE *f);
void pb_csv_row(FILE *f, const pb_row *r);
/* True if the n bytes of text begin with the line that pb_csv_header() prints. */
bool pb_csv_has_header(const char *text, size_t n);
/* Print one text field (quoted where needed; NULL prints nothing) and one number (nothing if it is not finite). */
void pb_csv_text(FILE *f, const char *s);
void pb_csv_number(FILE *f, double v);

#define PB_SAMPLES_HEADER "run_id,process,key,metric,index,value\n"
/* Creates dir/results.csv and dir/samples.csv with their header lines. On failure it leaves neither file. EPATH: a file
 * exists already or cannot be created; EIO: the disk is full. */
pb_status pb_results_create(const char *dir);
/* Appends n bytes of complete rows to dir/results.csv: all of them, or none on failure (EPATH, EIO). */
pb_status pb_results_append(const char *dir, const char *rows, size_t n);
#endif
