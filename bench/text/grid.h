/* grid.h - a table of text for a terminal: left-aligned labels, right-aligned figures, at most 100 columns
 * wide: figures that do not fit come again below, beside the same labels. */
#ifndef PB_GRID_H
#define PB_GRID_H
#include <stdio.h>

#include "bench/rows/strings.h"

enum { PB_GRID_WIDTH = 100 };

typedef struct pb_grid {
    int rows, cols; /* row 0 is the header */
    int labels;     /* the first columns that are labels */
    const char **cell;
    pb_strings *text; /* borrowed: where the cells live */
} pb_grid;

/* Empty cells. False: out of memory; then, as later, cells that could not be stored stay empty. */
int pb_grid_open(pb_grid *g, pb_strings *text, int rows, int cols, int labels);
void pb_grid_set(pb_grid *g, int row, int col, const char *text);
void pb_grid_print(const pb_grid *g, FILE *out);
/* As a table of Markdown, however wide. */
void pb_grid_print_markdown(const pb_grid *g, FILE *out);
void pb_grid_close(pb_grid *g);
/* A paragraph wrapped at the same width, each line after `indent` blanks. */
void pb_print_wrapped(FILE *out, int indent, const char *text);
#endif
