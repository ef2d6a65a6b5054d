/* roofline.c - prints what bounds each op: time, bytes and FLOPs, share of the ceiling, what its warps wait for. */
#include "bench/report/roofline.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "bench/suites/suites.h"
#include "bench/text/text.h"

enum { MOST_RUNS = 9, TEXT = 200 };

static double value(const pb_series_set *set, const char *key, const char *metric)
{
    const pb_series *s = pb_series_find(set, key, metric);
    return s && (pb_series_ok(s) || pb_series_throttled(s)) ? s->median : (double)NAN;
}

/* The first value of a metric in the sets of counters. NaN: none has one. */
static double counted(const pb_series_set *const *sets, int n, const char *key, const char *metric)
{
    for (int i = 1; i < n; i++) {
        const double x = value(sets[i], key, metric);
        if (!isnan(x)) return x;
    }
    return (double)NAN;
}

static double matmul_rate(const pb_series_set *set, const char *dtype)
{
    const double f32 = value(set, "ceiling/matmul_f32", "matmul_f32_rate");
    return strcmp(dtype, "f32") == 0 && f32 > 0 ? f32 : value(set, "ceiling/matmul", "matmul_rate");
}

/* Finds the largest reason for which warps wait. */
static void find_wait(const pb_series_set *const *sets, int n, const char *key, pb_roofline_line *out)
{
    out->waits = NULL, out->waiting = 0;
    for (const pb_metric *m = pb_metrics; m->name; m++) {
        if (strncmp(m->name, "stall_", 6) != 0 || strcmp(m->name, "stall_none") == 0) continue;
        const double x = counted(sets, n, key, m->name);
        if (x > out->waiting) out->waits = m->name, out->waiting = x;
    }
}

bool pb_roofline_of(const pb_series_set *const *sets, int n, const char *key, pb_roofline_line *out)
{
    pb_case c;
    pb_cost cost;
    const double seconds = value(sets[0], key, "kernel_time");
    if (!pb_key_of(key, "kernels") || !(seconds > 0)) return false;
    if (pb_case_parse(key, &c) != PB_OK || pb_kernel_case_work(&c, &cost) != PB_OK) return false;
    const char *dtype = pb_case_get(&c, "dtype");
    const double copy = value(sets[0], "ceiling/copy", "copy_rate"), matmul = matmul_rate(sets[0], dtype ? dtype : ""),
                 by_bytes = cost.bytes / copy, by_flops = cost.flops / matmul;
    *out = (pb_roofline_line){.seconds = seconds, .bytes = cost.bytes, .flops = cost.flops};
    out->counted_bytes =
        counted(sets, n, key, "dram_read_bytes") + counted(sets, n, key, "dram_write_bytes"); /* NaN if one is */
    out->counted_flops = counted(sets, n, key, "tensor_bf16_flops");
    out->arithmetic = by_flops > by_bytes;
    out->share = (out->arithmetic ? by_flops : by_bytes) / seconds;
    if (!(copy > 0) || !(matmul > 0)) out->share = (double)NAN;
    find_wait(sets, n, key, out);
    return true;
}

/* ---- the table ---------------------------------------------------------------------------------------- */

typedef struct placed {
    const char *key;
    pb_roofline_line line;
} placed;

static int by_share(const void *x, const void *y)
{
    const placed *a = x, *b = y;
    return (a->line.share > b->line.share) - (a->line.share < b->line.share);
}

static void bound_text(const pb_roofline_line *l, char out[TEXT])
{
    const char *by = l->share < 0.5 ? "neither" : l->arithmetic ? "arithmetic" : "memory";
    if (l->waits) snprintf(out, TEXT, "%s; %s %.0f %%", by, l->waits, 100 * l->waiting);
    else snprintf(out, TEXT, "%s", by);
}

static bool was_counted(const placed *list, int n)
{
    for (int i = 0; i < n; i++)
        if (!isnan(list[i].line.counted_bytes) || !isnan(list[i].line.counted_flops)) return true;
    return false;
}

/* The columns of figures; those of counts are left out where nothing was counted. */
static const struct column {
    const char *title, *unit;
    size_t at; /* in pb_roofline_line */
    bool count;
} columns[] = {
    {"time", "s", offsetof(pb_roofline_line, seconds), false},
    {"bytes", "B", offsetof(pb_roofline_line, bytes), false},
    {"counted", "B", offsetof(pb_roofline_line, counted_bytes), true},
    {"FLOPs", "FLOP", offsetof(pb_roofline_line, flops), false},
    {"counted", "FLOP", offsetof(pb_roofline_line, counted_flops), true},
};
enum { FIGURES = sizeof columns / sizeof *columns, COLUMNS = FIGURES + 4 };

/* Fills a row; p NULL: the titles. */
static void fill_row(pb_grid *g, int row, const placed *p, bool counts)
{
    char text[TEXT];
    int col = 0;
    pb_grid_set(g, row, col++, p ? p->key + sizeof "kernels" : "case");
    for (int i = 0; i < FIGURES; i++) {
        if (columns[i].count && !counts) continue;
        double x = 0;
        if (p) memcpy(&x, (const char *)&p->line + columns[i].at, sizeof x);
        pb_figure(text, x, columns[i].unit);
        pb_grid_set(g, row, col++, p ? text : columns[i].title);
    }
    if (p && p->line.bytes > 0) snprintf(text, sizeof text, "%.3g", p->line.flops / p->line.bytes);
    else snprintf(text, sizeof text, "%s", p ? "-" : "FLOP/B");
    pb_grid_set(g, row, col++, text);
    if (p) snprintf(text, sizeof text, "%.1f %%", 100 * p->line.share);
    pb_grid_set(g, row, col++, p ? text : "share");
    if (p) bound_text(&p->line, text);
    pb_grid_set(g, row, col, p ? text : "bound by");
}

static pb_status print_table(placed *list, int n, bool markdown, FILE *out)
{
    const bool counts = was_counted(list, n);
    pb_strings *text = pb_strings_new();
    pb_grid g;
    if (!text || !pb_grid_open(&g, text, n + 1, counts ? COLUMNS : COLUMNS - 2, 1)) {
        pb_strings_free(text);
        return pb_fail(PB_ENOMEM, "roofline: no memory for a table");
    }
    qsort(list, (size_t)n, sizeof *list, by_share);
    fill_row(&g, 0, NULL, counts);
    for (int i = 0; i < n; i++) fill_row(&g, i + 1, &list[i], counts);
    (markdown ? pb_grid_print_markdown : pb_grid_print)(&g, out);
    pb_grid_close(&g);
    pb_strings_free(text);
    return PB_OK;
}

static pb_status print_sets(const pb_series_set *const *sets, int n, const char *run, bool markdown, FILE *out)
{
    int lines = 0;
    char copy[PB_FIGURE_TEXT], matmul[PB_FIGURE_TEXT];
    const double rate = value(sets[0], "ceiling/copy", "copy_rate"),
                 flops = value(sets[0], "ceiling/matmul", "matmul_rate");
    if (!(rate > 0) || !(flops > 0))
        return pb_fail(PB_EINVAL, "%s: it has no ceilings copy_rate and matmul_rate: measure it with --ceilings yes",
                       run);
    placed *list = calloc(sets[0]->n + 1, sizeof *list);
    if (!list) return pb_fail(PB_ENOMEM, "roofline: no memory for a table");
    for (size_t i = 0; i < sets[0]->n; i++)
        if (strcmp(sets[0]->s[i].metric, "kernel_time") == 0 &&
            pb_roofline_of(sets, n, sets[0]->s[i].key, &list[lines].line))
            list[lines++].key = sets[0]->s[i].key;
    pb_figure(copy, rate, "B/s");
    pb_figure(matmul, flops, "FLOP/s");
    if (lines) fprintf(out, "ceilings: copy_rate %s, matmul_rate %s\n\n", copy, matmul);
    const pb_status s = lines ? print_table(list, lines, markdown, out)
                              : pb_fail(PB_EINVAL, "%s: it has no kernel_time of suite kernels", run);
    free(list);
    return s;
}

pb_status pb_roofline(const char *run, const pb_words *counted_runs, bool markdown, FILE *out)
{
    pb_table tables[MOST_RUNS];
    pb_series_set sets[MOST_RUNS];
    const pb_series_set *each[MOST_RUNS];
    int n = 0;
    pb_status s = PB_OK;
    if (counted_runs->n >= MOST_RUNS) return pb_fail(PB_EINVAL, "--counted: at most %d runs", MOST_RUNS - 1);
    while (s == PB_OK && n <= counted_runs->n) {
        s = pb_table_read(n ? counted_runs->v[n - 1] : run, &tables[n]);
        if (s != PB_OK) break;
        s = pb_series_make(&tables[n], &sets[n]);
        if (s != PB_OK) pb_table_free(&tables[n]);
        else each[n] = &sets[n], n++;
    }
    if (s == PB_OK && n > 0) s = print_sets(each, n, run, markdown, out);
    while (n-- > 0) pb_series_free(&sets[n]), pb_table_free(&tables[n]);
    return s;
}
