/* views.c - defines the layout of each suite's tables, and fills and prints the tables. */
#include "bench/report/views.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/report/layout.h"
#include "bench/text/text.h"

/* The columns of a run with --counters: those of its metric group. */
#define COUNTED                                                                                                        \
    {"dram_read_bytes", "DRAM read", false}, {"dram_write_bytes", "DRAM write", false},                                \
        {"dram_rate", "DRAM rate", false}, {"l2_read_sectors", "L2 read", false},                                      \
        {"l2_write_sectors", "L2 write", false}, {"l2_hit_share", "L2 hits", false},                                   \
        {"tensor_instructions", "tensor instr.", false}, {"tensor_busy", "tensor busy", false},                        \
        {"tensor_bf16_flops", "bf16 FLOPs", false}, {"occupancy", "occupancy", false},                                 \
        {"issue_share", "issue", false}, {"blocks_launched", "blocks", false}, {"warps_launched", "warps", false},     \
        {"stall_memory", "memory", false}, {"stall_shared", "shared", false}, {"stall_barrier", "barrier", false},     \
        {"stall_math_pipe", "math pipe", false}, {"stall_wgmma", "wgmma", false}, {"stall_fixed", "fixed", false},     \
        {"stall_not_selected", "not selected", false}, {"stall_none", "none", false}, {"cpu_cycles", "cycles", false}, \
        {"cpu_instructions", "instructions", false}, {"instructions_per_cycle", "per cycle", false},                   \
        {"branch_miss_share", "branch misses", false}, {"cache_misses", "cache misses", false},                        \
        {"cache_miss_share", "missed", false}, {"page_faults", "page faults", false},                                  \
        {"context_switches", "switches", false},                                                                       \
    {                                                                                                                  \
        "cpu_migrations", "migrations", false                                                                          \
    }

static const pb_view views[] = {
    {"backward", .rows = {"model", "tuning", "batch", "seq"},
     .variants = {"mode=eager,graph", "clip=none,sync,fused,multi"},
     .metrics = {{"backward_time", "", true},
                 {"tokens_per_second", "", false},
                 {"kernel_launches", "", false},
                 {"host_syncs", "", false},
                 {"instructions", "", false},
                 {"host_time", "", false},
                 {"break_even", "", false},
                 {"peak_memory", "", false}},
     .ratios = {{"mode", "graph", "eager"}, {"clip", "fused", "sync"}}},
    {"throughput", .rows = {"model", "tuning", "batch", "seq"},
     .metrics = {{"step_time", "step", true},
                 {"forward_time", "forward", false},
                 {"loss_time", "loss", false},
                 {"backward_time", "backward", false},
                 {"clip_time", "clip", false},
                 {"optimizer_time", "optimizer", false},
                 {"scaling_efficiency", "efficiency", false},
                 {"exposed_communication_time", "exposed", false},
                 {"score_imbalance", "imbalance", false},
                 {"tokens_per_second", "tokens", false},
                 {"model_flops", "flops", false},
                 {"mfu", "mfu", false},
                 {"host_time", "host", false},
                 {"peak_memory", "memory", false},
                 {"device_memory", "device", false}}},
    {"kernels", .rows = {"op", "shape", "dtype", "impl"},
     .metrics = {{"kernel_time", "time", true},
                 {"kernel_rate", "bytes", false},
                 {"kernel_flops", "flops", false},
                 {"roofline_fraction", "of roofline", false},
                 {"instructions", "instructions", false},
                 COUNTED,
                 {"error", "error", false}}},
    {"attention", .rows = {"variant", "list", "heads", "seq", "topk"},
     .metrics = {{"kernel_time", "time", true},
                 {"kernel_flops", "valid", false},
                 {"selection_time", "selection", false},
                 {"listed_flops", "listed", false},
                 {"roofline_fraction", "of roofline", false},
                 {"scaling_efficiency", "efficiency", false},
                 {"exposed_communication_time", "exposed", false},
                 {"score_imbalance", "imbalance", false},
                 COUNTED,
                 {"error", "error", false},
                 {"rel_diff", "rel_diff", false}}},
};
static const pb_view plain = {NULL, .rows = {NULL}};

const pb_view *pb_view_of(const char *key)
{
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        if (pb_key_of(key, views[i].suite)) return &views[i];
    return &plain;
}

/* ---- cells and their footnotes ----------------------------------------------------------------- */

/* Returns the number of the footnote with this text, and adds the footnote if the text is new. 0: the list is full. */
static int footnote(pb_report_page *p, const char *text)
{
    const char *note = pb_intern(p->text, text, strlen(text));
    for (int i = 0; i < p->nnotes; i++)
        if (p->notes[i] == note) return i + 1;
    if (!note || p->nnotes == (int)(sizeof p->notes / sizeof *p->notes)) return 0;
    p->notes[p->nnotes++] = note;
    return p->nnotes;
}

/* Appends the reference " [N]" to a cell's text, where N is the number of its footnote. An empty note adds nothing. */
static void mark(pb_report_page *p, const char *note, char *out, size_t n)
{
    int number = *note ? footnote(p, note) : 0;
    size_t used = strlen(out);
    if (number) snprintf(out + used, n - used, " [%d]", number);
}

static void figure(const pb_series *s, bool range, char *out, size_t n)
{
    char value[PB_FIGURE_TEXT], ends[PB_FIGURE_TEXT] = "";
    pb_figure(value, s->median, s->unit);
    if (range) pb_figure_range(ends, s->median, s->min, s->max, s->unit);
    snprintf(out, n, "%s%s%s", value, *ends ? " " : "", ends);
}

void pb_view_cell(pb_report_page *p, const char *key, const char *metric, bool range, char *out, size_t n)
{
    const pb_series *s = pb_series_find(p->set, key, metric);
    char fewer[256];
    if (!s) s = pb_series_find(p->set, key, "outcome");
    if (!s) {
        snprintf(out, n, "-");
    } else if (!pb_series_ok(s) && !pb_series_throttled(s)) {
        snprintf(out, n, "%s", pb_row_status_name(s->status));
        mark(p, s->note, out, n);
    } else {
        figure(s, range, out, n);
        mark(p, s->note, out, n);
        if (s->processes == p->processes) return;
        char hot[32] = "";
        const pb_series *why = pb_series_find(p->set, key, "outcome");
        if (s->throttled) snprintf(hot, sizeof hot, ": %d throttled", s->throttled);
        snprintf(fewer, sizeof fewer, "%d of %d processes%s%s%.200s", s->processes, p->processes, hot, why ? ": " : "",
                 why ? why->note : "");
        mark(p, fewer, out, n);
    }
}

/* ---- printing the tables of a suite ------------------------------------------------------------ */

enum { CELL = 160 };

/* Makes a grid with the label columns filled, and `cols` empty columns after them. */
static pb_status open_grid(pb_report_page *p, const pb_layout *l, int cols, pb_grid *g)
{
    if (!pb_grid_open(g, p->text, l->nrows + 1, l->nlabels + cols, l->nlabels))
        return pb_fail(PB_ENOMEM, "report: out of memory");
    for (int k = 0; k < l->nlabels; k++) {
        pb_grid_set(g, 0, k, *l->labels[k] ? l->labels[k] : "case");
        for (int i = 0; i < l->n; i++)
            pb_grid_set(g, l->order[i]->row + 1, k, pb_layout_label(l->order[i], l->labels[k]));
    }
    return PB_OK;
}

static void close_grid(const pb_report_page *p, pb_grid *g)
{
    if (p->markdown) pb_grid_print_markdown(g, p->out);
    else pb_grid_print(g, p->out);
    pb_grid_close(g);
}

/* Prints the title of a table: the metric's name, and whether the cells hold medians, ranges or ratios. */
static void title(const pb_report_page *p, const char *metric, const char *what)
{
    fputc('\n', p->out);
    if (p->markdown) pb_markdown(p->out, metric, true);
    else fputs(metric, p->out);
    fprintf(p->out, p->markdown ? "%s\n\n" : "%s\n", what);
}

static bool has_metric(const pb_report_page *p, const pb_layout *l, const char *metric)
{
    for (int i = 0; i < l->n; i++)
        if (pb_series_find(p->set, l->order[i]->key, metric)) return true;
    return false;
}

/* The largest standard deviation between processes of ln(value), over the cases of a row of the table; -1: not known,
 * because the values are stored ones or of one process. */
static double spread_of(const pb_report_page *p, const pb_layout *l, int row, const char *metric)
{
    double most = -1;
    for (int i = 0; i < l->n; i++) {
        if (l->order[i]->row != row) continue;
        const pb_series *s = pb_series_find(p->set, l->order[i]->key, metric);
        if (s && pb_series_ok(s) && isfinite(s->scatter)) most = fmax(most, sqrt(s->scatter));
    }
    return most;
}

/* True if the spread of any row is known. */
static bool has_spread(const pb_report_page *p, const pb_layout *l, const char *metric)
{
    for (int row = 0; row < l->nrows; row++)
        if (spread_of(p, l, row, metric) >= 0) return true;
    return false;
}

/* Fills column `col` with the spread of each row. */
static void fill_spread(const pb_report_page *p, const pb_layout *l, const char *metric, int col, pb_grid *g)
{
    char text[CELL];
    pb_grid_set(g, 0, col, "spread");
    for (int row = 0; row < l->nrows; row++) {
        const double spread = spread_of(p, l, row, metric);
        snprintf(text, sizeof text, spread < 0 ? "." : "%.2g %%", 100 * spread);
        pb_grid_set(g, row + 1, col, text);
    }
}

/* Prints the table of one metric, with a column per variant, and the spread of the suite's first metric. */
static pb_status print_variants(pb_report_page *p, const pb_layout *l, int metric)
{
    pb_grid g;
    char text[CELL];
    const char *name = l->view->metrics[metric].metric;
    if (!has_metric(p, l, name)) return PB_OK;
    const bool spread = metric == 0 && has_spread(p, l, name);
    PB_TRY(open_grid(p, l, l->nvariants + spread, &g));
    if (spread) fill_spread(p, l, name, l->nlabels + l->nvariants, &g);
    for (int a = 0; a < l->nvariants; a++) {
        pb_variant_title(l->view, l->variant[a], NULL, text, sizeof text);
        pb_grid_set(&g, 0, l->nlabels + a, text);
        for (int row = 1; row <= l->nrows; row++) pb_grid_set(&g, row, l->nlabels + a, ".");
    }
    for (int i = 0; i < l->n; i++) {
        const pb_placed *e = l->order[i];
        pb_view_cell(p, e->key, name, l->view->metrics[metric].range, text, sizeof text);
        if (e->variant >= 0) pb_grid_set(&g, e->row + 1, l->nlabels + e->variant, text);
    }
    title(p, name, l->view->metrics[metric].range ? ": median, least..largest process" : "");
    close_grid(p, &g);
    return PB_OK;
}

typedef struct ratio_column {
    /* ratio: index into view->ratios; over, under: variants of the numerator and the denominator */
    int ratio, over, under;
} ratio_column;

/* Finds the pairs of variants that differ only in the axis of a ratio. Returns their number, at most max. */
static int find_ratios(const pb_layout *l, ratio_column *out, int max)
{
    const pb_view *v = l->view;
    char x[CELL], y[CELL];
    int n = 0;
    for (int r = 0; r < PB_VIEW_RATIOS && v->ratios[r].axis; r++)
        for (int over = 0; over < l->nvariants; over++)
            for (int under = 0; under < l->nvariants && n < max; under++) {
                const char *axis = v->ratios[r].axis;
                if (strcmp(pb_layout_label(l->variant[over], axis), v->ratios[r].over) != 0) continue;
                if (strcmp(pb_layout_label(l->variant[under], axis), v->ratios[r].under) != 0) continue;
                pb_variant_title(v, l->variant[over], axis, x, sizeof x);
                pb_variant_title(v, l->variant[under], axis, y, sizeof y);
                if (!strcmp(x, y)) out[n++] = (ratio_column){r, over, under};
            }
    return n;
}

/* Returns the value of the view's first metric in the case at this row and variant. NaN: no value of status ok. */
static double value_at(const pb_report_page *p, const pb_layout *l, int row, int variant)
{
    for (int i = 0; i < l->n; i++) {
        const pb_placed *e = l->order[i];
        if (e->row != row || e->variant != variant) continue;
        const pb_series *s = pb_series_find(p->set, e->key, l->view->metrics[0].metric);
        return s && pb_series_ok(s) ? s->median : (double)NAN;
    }
    return (double)NAN;
}

/* Prints the ratios of the first metric between variants, if the view has ratios. */
static pb_status print_ratios(pb_report_page *p, const pb_layout *l)
{
    ratio_column column[PB_LAYOUT_VARIANTS];
    pb_grid g;
    char rest[CELL], text[2 * CELL];
    int n = find_ratios(l, column, PB_LAYOUT_VARIANTS);
    if (!n) return PB_OK;
    PB_TRY(open_grid(p, l, n, &g));
    for (int c = 0; c < n; c++) {
        const ratio_column *x = &column[c];
        pb_variant_title(l->view, l->variant[x->over], l->view->ratios[x->ratio].axis, rest, sizeof rest);
        snprintf(text, sizeof text, "%s/%s %s", l->view->ratios[x->ratio].over, l->view->ratios[x->ratio].under, rest);
        pb_grid_set(&g, 0, l->nlabels + c, text);
        for (int row = 0; row < l->nrows; row++) {
            double ratio = value_at(p, l, row, x->over) / value_at(p, l, row, x->under);
            snprintf(text, sizeof text, isfinite(ratio) ? "%.3f" : ".", ratio);
            pb_grid_set(&g, row + 1, l->nlabels + c, text);
        }
    }
    title(p, l->view->metrics[0].metric, ", ratios of medians");
    close_grid(p, &g);
    return PB_OK;
}

/* Prints a table with a row per case and a column per metric. */
static pb_status print_metrics(pb_report_page *p, const pb_layout *l)
{
    int metric[PB_VIEW_METRICS], n = 0;
    pb_grid g;
    char text[CELL];
    for (int m = 0; m < PB_VIEW_METRICS && l->view->metrics[m].metric; m++)
        if (has_metric(p, l, l->view->metrics[m].metric)) metric[n++] = m;
    if (!n) return PB_OK;
    const char *first = l->view->metrics[0].metric;
    const bool spread = metric[0] == 0 && has_spread(p, l, first);
    PB_TRY(open_grid(p, l, n + spread, &g));
    if (spread) fill_spread(p, l, first, l->nlabels + 1, &g);
    for (int c = 0; c < n; c++) {
        const int col = l->nlabels + c + (spread && c > 0); /* the spread is right of the first metric */
        pb_grid_set(&g, 0, col, l->view->metrics[metric[c]].title);
        for (int i = 0; i < l->n; i++) {
            const pb_placed *e = l->order[i];
            pb_view_cell(p, e->key, l->view->metrics[metric[c]].metric, l->view->metrics[metric[c]].range, text,
                         sizeof text);
            pb_grid_set(&g, e->row + 1, col, text);
        }
    }
    fputc('\n', p->out);
    close_grid(p, &g);
    return PB_OK;
}

/* Prints a suite without a view: a line per key and metric. */
static pb_status print_list(pb_report_page *p, const pb_axes *axes, const pb_series *s, size_t n)
{
    static const char *const names[] = {"case", "metric", "median", "least..largest", "spread"};
    enum { COLS = sizeof names / sizeof *names };
    pb_grid g;
    char text[CELL], ends[PB_FIGURE_TEXT];
    bool spread = false; /* stored values, and those of one process, have none */
    for (size_t i = 0; i < n; i++) spread |= pb_series_ok(&s[i]) && s[i].scatter > 0;
    if (!pb_grid_open(&g, p->text, (int)n + 1, COLS - !spread, 2)) return pb_fail(PB_ENOMEM, "report: out of memory");
    for (int c = 0; c < COLS - !spread; c++) pb_grid_set(&g, 0, c, names[c]);
    for (size_t i = 0; i < n; i++) {
        const int row = (int)i + 1;
        pb_axes_label(axes, s[i].key, text, sizeof text);
        pb_grid_set(&g, row, 0, text);
        pb_grid_set(&g, row, 1, s[i].metric);
        pb_view_cell(p, s[i].key, s[i].metric, false, text, sizeof text);
        pb_grid_set(&g, row, 2, text);
        pb_figure_range(ends, s[i].median, s[i].min, s[i].max, s[i].unit);
        pb_grid_set(&g, row, 3, ends);
        snprintf(text, sizeof text, pb_series_ok(&s[i]) && s[i].scatter > 0 ? "%.2g %%" : ".",
                 100 * sqrt(s[i].scatter));
        if (spread) pb_grid_set(&g, row, 4, text);
    }
    close_grid(p, &g);
    return PB_OK;
}

static pb_status print_tables(pb_report_page *p, const pb_layout *l, const pb_series *s, size_t n)
{
    fputs(p->markdown ? "\n```\n" : "\n", p->out);
    pb_axes_print_common(&l->axes, p->out);
    if (p->markdown) fputs("```\n\n", p->out);
    if (!l->view->suite) return print_list(p, &l->axes, s, n);
    if (!l->view->variants[0]) return print_metrics(p, l);
    for (int m = 0; m < PB_VIEW_METRICS && l->view->metrics[m].metric; m++) {
        PB_TRY(print_variants(p, l, m));
        if (m == 0) PB_TRY(print_ratios(p, l));
    }
    return PB_OK;
}

pb_status pb_view_print(pb_report_page *p, size_t from, size_t to)
{
    pb_layout l;
    char text[CELL + 1024];
    const pb_series *s = p->set->s + from;
    p->nnotes = 0;
    pb_status status = pb_layout_make(&l, pb_view_of(s->key), s, to - from);
    if (status == PB_OK) status = print_tables(p, &l, s, to - from);
    pb_layout_free(&l);
    for (int i = 0; i < p->nnotes; i++) {
        snprintf(text, sizeof text, "[%d] %s", i + 1, p->notes[i]);
        if (!p->markdown) pb_print_wrapped(p->out, 4, text);
        else fputs(i ? "- " : "\n- ", p->out), pb_markdown(p->out, text, false), fputc('\n', p->out);
    }
    return status;
}
