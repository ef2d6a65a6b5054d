/* sheet.h - a small table of text cells, printed aligned, as Markdown, or not at all (CSV has rows of its own). */
#ifndef PB_ANALYZE_SHEET_H
#define PB_ANALYZE_SHEET_H
#include <stdio.h>

#include "bench/analyze/analyze_command.h"

enum { PB_SHEET_COLUMNS = 12, PB_SHEET_CELL = 48 };

typedef struct pb_sheet {
    int columns, rows, room;
    char (*cells)[PB_SHEET_COLUMNS][PB_SHEET_CELL]; /* [rows]; row 0: the titles */
} pb_sheet;

/* Adds a row of `columns` texts; the first row are the titles. A cell holds 47 bytes; more is cut. Without memory the
 * table is freed and later rows are ignored: pb_sheet_print() then fails with ENOMEM. */
void pb_sheet_row(pb_sheet *t, int columns, const char *const *cells);
/* Prints and frees the table. The first column is aligned left, the others right. */
pb_status pb_sheet_print(pb_sheet *t, pb_analyze_format format, FILE *out);
#endif
