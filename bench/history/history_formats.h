/* history_formats.h - writes a history as text, as CSV, as input for Apache Otava, or as pictures; draws sparklines. */
#ifndef PB_HISTORY_FORMATS_H
#define PB_HISTORY_FORMATS_H
#include "bench/history/history_rows.h"

void pb_history_text(const pb_history_rows *h, const pb_history_opts *o, FILE *out);
void pb_history_csv(const pb_history_rows *h, FILE *out);
/* Writes the CSV file for Otava. Rows that lack a value in one of the sessions are left out, because Otava reads no
 * empty fields; a note says how many. EINVAL: the rows are of several machines, or no row remains; ENOMEM. */
pb_status pb_history_otava(const pb_history_rows *h, FILE *out, FILE *notes);
/* Writes Otava's configuration for the CSV file `csv`. */
pb_status pb_history_otava_config(const pb_history_rows *h, const char *csv, FILE *out);
/* Draws a picture for each row into the folder o->out, and prints their names on `out`. */
pb_status pb_history_svg(const pb_history_rows *h, const pb_history_opts *o, FILE *out);

enum { PB_SPARKLINE_MOST = 40, PB_SPARKLINE_TEXT = 3 * PB_SPARKLINE_MOST + 1 };
/* Writes a sparkline: a character for each value, whose height is its place between the least and the greatest one.
 * If n is above PB_SPARKLINE_MOST, consecutive values are averaged into PB_SPARKLINE_MOST bins. Equal values have
 * middle height.
 * ascii: the heights are _ . - ~ = + * #, else eight UTF-8 blocks. */
void pb_sparkline(const pb_history_value *v, int n, bool ascii, char out[PB_SPARKLINE_TEXT]);
#endif
