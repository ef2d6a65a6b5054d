/* sheet.c - implements sheet.h. */
#include "bench/analyze/sheet.h"

#include <stdlib.h>
#include <string.h>

#include "bench/text/text.h"

void pb_sheet_row(pb_sheet *t, int columns, const char *const *cells)
{
    if (t->rows < 0) return;
    if (t->rows == t->room) {
        const int room = t->room ? 2 * t->room : 16;
        void *more = realloc(t->cells, (size_t)room * sizeof *t->cells);
        if (!more) {
            free(t->cells);
            *t = (pb_sheet){.rows = -1};
            return;
        }
        t->cells = more;
        t->room = room;
    }
    memset(t->cells[t->rows], 0, sizeof t->cells[0]);
    if (columns > PB_SHEET_COLUMNS) columns = PB_SHEET_COLUMNS;
    for (int i = 0; i < columns; i++) snprintf(t->cells[t->rows][i], PB_SHEET_CELL, "%s", cells[i]);
    if (columns > t->columns) t->columns = columns;
    t->rows++;
}

static void print_text(const pb_sheet *t, FILE *out)
{
    int width[PB_SHEET_COLUMNS] = {0};
    for (int r = 0; r < t->rows; r++)
        for (int c = 0; c < t->columns; c++)
            if ((int)strlen(t->cells[r][c]) > width[c]) width[c] = (int)strlen(t->cells[r][c]);
    for (int r = 0; r < t->rows; r++)
        for (int c = 0; c < t->columns; c++)
            fprintf(out, "%*s%s", c ? width[c] + 2 : -width[c], t->cells[r][c], c + 1 == t->columns ? "\n" : "");
}

static void print_markdown(const pb_sheet *t, FILE *out)
{
    for (int r = 0; r < t->rows; r++) {
        for (int c = 0; c < t->columns; c++) {
            fputs(c ? " | " : "| ", out);
            pb_markdown(out, t->cells[r][c], false);
        }
        fputs(" |\n", out);
        for (int c = 0; r == 0 && c < t->columns; c++) fputs(c ? "---:|" : "|---|", out);
        if (r == 0) fputc('\n', out);
    }
}

pb_status pb_sheet_print(pb_sheet *t, pb_analyze_format format, FILE *out)
{
    if (t->rows < 0) return pb_fail(PB_ENOMEM, "no memory for a table");
    if (format == PB_ANALYZE_TEXT) print_text(t, out);
    if (format == PB_ANALYZE_MARKDOWN) print_markdown(t, out);
    free(t->cells);
    *t = (pb_sheet){0};
    return PB_OK;
}
