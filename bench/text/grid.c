/* grid.c - prints a table of text, split to fit the width of a terminal. */
#include "bench/text/grid.h"

#include <stdlib.h>
#include <string.h>

#include "bench/text/markup.h"

enum { GAP = 2 };

int pb_grid_open(pb_grid *g, pb_strings *text, int rows, int cols, int labels)
{
    *g = (pb_grid){rows, cols, labels, calloc((size_t)rows * (size_t)cols + 1, sizeof *g->cell), text};
    return g->cell != NULL;
}

void pb_grid_close(pb_grid *g) { free(g->cell); }

void pb_grid_set(pb_grid *g, int row, int col, const char *text)
{
    g->cell[(size_t)row * (size_t)g->cols + (size_t)col] = pb_intern(g->text, text, strlen(text));
}

static const char *at(const pb_grid *g, int row, int col)
{
    const char *text = g->cell[(size_t)row * (size_t)g->cols + (size_t)col];
    return text ? text : "";
}

static int width_of(const pb_grid *g, int col)
{
    size_t w = 0;
    for (int r = 0; r < g->rows; r++)
        if (strlen(at(g, r, col)) > w) w = strlen(at(g, r, col));
    return (int)w;
}

static void print_part(const pb_grid *g, int from, int to, FILE *out)
{
    for (int r = 0; r < g->rows; r++) {
        int blanks = 0; /* blanks that are due; they are printed only before text, so that no line ends in blanks */
        for (int c = 0; c < to; c = c + 1 == g->labels && from > c ? from : c + 1) {
            const char *text = at(g, r, c);
            int w = width_of(g, c), n = (int)strlen(text);
            int before = blanks + (c >= g->labels ? w - n : 0);
            if (n) fprintf(out, "%*s%s", before, "", text);
            blanks = n ? GAP + (c < g->labels ? w - n : 0) : blanks + w + GAP;
        }
        fputc('\n', out);
    }
}

void pb_grid_print(const pb_grid *g, FILE *out)
{
    int labels = 0, from = g->labels;
    for (int c = 0; c < g->labels; c++) labels += width_of(g, c) + GAP;
    do {
        int to = from, width = labels;
        while (to < g->cols && (to == from || width + width_of(g, to) <= PB_GRID_WIDTH))
            width += width_of(g, to++) + GAP;
        print_part(g, from, to, out);
        from = to;
    } while (from < g->cols);
}

void pb_grid_print_markdown(const pb_grid *g, FILE *out)
{
    for (int r = 0; r < g->rows; r++) {
        for (int c = 0; c < g->cols; c++) {
            fputs(c ? " | " : "| ", out);
            pb_markdown(out, at(g, r, c), r > 0 && c < g->labels);
        }
        fputs(" |\n", out);
        for (int c = 0; r == 0 && c < g->cols; c++) fputs(c < g->labels ? "|---" : "|--:", out);
        if (r == 0) fputs("|\n", out);
    }
}

void pb_print_wrapped(FILE *out, int indent, const char *text)
{
    int column = 0;
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (column && column + 1 + n > PB_GRID_WIDTH) {
            fputc('\n', out);
            column = 0;
        }
        column += column ? fprintf(out, " %.*s", n, text) : fprintf(out, "%*s%.*s", indent, "", n, text);
        text += n;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}
