/* grid.h - a table of text for a terminal, at most PB_GRID_WIDTH columns wide. Labels are left-aligned, figures
 * right-aligned. Figures that do not fit are printed in further tables below, each with the labels repeated. */
#ifndef PB_GRID_H
#define PB_GRID_H
#include <stdio.h>

#include "bench/rows/rows.h"

enum { PB_GRID_WIDTH = 100 };

typedef struct pb_grid {
    int rows, cols; /* row 0 is the header */
    int labels;     /* number of leading columns that are labels */
    const char **cell;
    pb_strings *text; /* borrowed: owns the text of the cells */
} pb_grid;

/* Makes a grid of empty cells. Returns false if memory is lacking. A later pb_grid_set without memory leaves the cell
 * empty. Free with pb_grid_close. */
int pb_grid_open(pb_grid *g, pb_strings *text, int rows, int cols, int labels);
void pb_grid_set(pb_grid *g, int row, int col, const char *text);
void pb_grid_print(const pb_grid *g, FILE *out);
/* Prints a Markdown table of unlimited width. */
void pb_grid_print_markdown(const pb_grid *g, FILE *out);
void pb_grid_close(pb_grid *g);
/* Prints a paragraph wrapped at PB_GRID_WIDTH, with each line indented by `indent` blanks. */
void pb_print_wrapped(FILE *out, int indent, const char *text);
#endif
