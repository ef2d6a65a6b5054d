/* nan.c - implements nan_command.h. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/analyze/nan_command.h"
#include "bench/analyze/step_files.h"

/* The stages of a step in the order in which it computes them. */
enum { ACTIVATION, ACTIVATION_GRADIENT, GRADIENT, MOMENTUM, MOMENT2, WEIGHT };
enum { LINE = 512, FIELDS = 18 };

typedef struct place {
    long step;
    long micro; /* micro-batch; LONG_MAX for parameters, which are read after the last one */
    int rank, stage;
    long order; /* within the stage: less was computed earlier */
    char tensor[64], layer[16], ops[96];
    char at[3][16]; /* batch row, token, head; "": the tensor has no such axis */
    size_t nans, infs, row, col, rows, cols;
} place;

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

static int stage_of(const char *tensor)
{
    static const char *const ends[] = {[GRADIENT] = ".gradient", ".momentum", ".v", ".weight"};
    for (int i = GRADIENT; i <= WEIGHT; i++)
        if (ends_with(tensor, ends[i])) return i;
    const char *last = strrchr(tensor, '.');
    return strncmp(last ? last + 1 : tensor, "grad_", 5) == 0 ? ACTIVATION_GRADIENT : ACTIVATION;
}

/* The file lists tensors of parameters in the order of the forward pass; the backward pass computes their gradients in
 * the opposite order. Gradients of activations are listed as they are computed. */
static long order_of(int stage, long line) { return stage == GRADIENT ? -line : line; }

/* The file lists activations from the first layer to the last, but from the last to the first if the backward pass has
 * computed them again. Activations of no layer, such as hf, are computed after the last layer. */
static long layer_of(const place *p)
{
    if (p->stage != ACTIVATION) return 0;
    return *p->layer ? strtol(p->layer, NULL, 10) : LONG_MAX;
}

static bool is_before(const place *a, const place *b)
{
    const long at = layer_of(a), other = layer_of(b);
    if (a->step != b->step) return a->step < b->step;
    if (a->micro != b->micro) return a->micro < b->micro;
    if (a->stage != b->stage) return a->stage < b->stage;
    if (at != other) return at < other;
    if (a->order != b->order) return a->order < b->order;
    return a->rank < b->rank;
}

/* Reads a line of the table; false if it is not one. *bad: it has an element that is not finite. */
static bool read_line(char *line, place *p, bool *bad)
{
    char *field[FIELDS];
    int n = 0;
    line[strcspn(line, "\n")] = 0;
    for (char *at = line; at && n < FIELDS;) field[n++] = strsep(&at, ",");
    if (n != FIELDS) return false;
    snprintf(p->tensor, sizeof p->tensor, "%s", field[0]);
    snprintf(p->layer, sizeof p->layer, "%s", field[1]);
    p->rows = strtoul(field[3], NULL, 10);
    p->cols = strtoul(field[4], NULL, 10);
    p->nans = strtoul(field[9], NULL, 10);
    p->infs = strtoul(field[10], NULL, 10);
    p->row = strtoul(field[11], NULL, 10);
    p->col = strtoul(field[12], NULL, 10);
    snprintf(p->ops, sizeof p->ops, "%s", field[13]);
    for (int i = 0; i < 3; i++) snprintf(p->at[i], sizeof p->at[i], "%s", field[14 + i]);
    p->micro = *field[17] ? strtol(field[17], NULL, 10) : LONG_MAX;
    *bad = p->nans + p->infs > 0;
    return p->rows && p->cols && (!*bad || (*field[11] && *field[12]));
}

/* A table: the first place that is not finite, and the first of the weights; their tensors are empty if all are
 * finite. */
typedef struct table {
    place first, weight;
    long micro_batches;
} table;

static void keep_first(place *first, const place *p)
{
    if (!*first->tensor || is_before(p, first)) *first = *p;
}

static pb_status read_file(const char *path, table *out)
{
    char line[LINE];
    FILE *f = fopen(path, "r");
    *out = (table){0};
    const char *name = strrchr(path, '/');
    place p = {0};
    if (!f) return pb_fail(PB_EIO, "%s: cannot be read", path);
    bool good = name && sscanf(name, "/step%ld-rank%d.csv", &p.step, &p.rank) == 2 && fgets(line, LINE, f) &&
                strcmp(line, "tensor,layer,dtype,rows,cols,min,max,rms,zeros,nan,inf,first_row,first_col,"
                             "ops,batch_row,token,head,micro_batch\n") == 0;
    out->first.step = p.step;
    out->first.rank = p.rank;
    for (long i = 0; good && fgets(line, LINE, f); i++) {
        bool bad;
        good = read_line(line, &p, &bad);
        if (p.micro < LONG_MAX && p.micro >= out->micro_batches) out->micro_batches = p.micro + 1;
        p.stage = stage_of(p.tensor);
        p.order = order_of(p.stage, i);
        if (good && bad) keep_first(&out->first, &p);
        if (good && bad && p.stage == WEIGHT) keep_first(&out->weight, &p);
    }
    good = good && !ferror(f);
    fclose(f);
    return good ? PB_OK : pb_fail(PB_EINVAL, "%s: not a table of train --capture-tensors", path);
}

/* True if the statistics of the step before are there, of the same rank. */
static bool knows_step_before(const table *all, size_t n, const place *p)
{
    for (size_t i = 0; i < n; i++)
        if (all[i].first.step == p->step - 1 && all[i].first.rank == p->rank) return true;
    return false;
}

/* Returns the origin: the first place of all tables, or the weight that spoiled it. The statistics of a step are read
 * after it. A step whose loss or gradient is not finite changes no weight, so a weight that is not finite after such a
 * step was so before it, unless the step before is known to have left it finite. */
static const place *origin(const table *all, size_t n)
{
    const table *found = NULL;
    for (size_t i = 0; i < n; i++)
        if (*all[i].first.tensor && (!found || is_before(&all[i].first, &found->first))) found = &all[i];
    if (!found) return NULL;
    const bool spoiled = found->first.stage < MOMENTUM && *found->weight.tensor;
    return spoiled && !knows_step_before(all, n, &found->first) ? &found->weight : &found->first;
}

static void print(const table *all, size_t n, const place *p, FILE *out)
{
    static const char *const axes[] = {"batch row", "token", "head"};
    int others = 0;
    bool several = false;
    for (size_t i = 0; i < n; i++) several |= all[i].first.step == p->step && all[i].micro_batches > 1;
    fprintf(out, "step %ld, rank %d, ", p->step, p->rank);
    if (several && p->micro < LONG_MAX) fprintf(out, "micro-batch %ld, ", p->micro);
    if (*p->layer) fprintf(out, "layer %s, ", p->layer);
    if (*p->ops) fprintf(out, "op %s, ", p->ops);
    fprintf(out, "%s, ", p->tensor);
    for (int i = 0; i < 3; i++)
        if (*p->at[i]) fprintf(out, "%s %s, ", axes[i], p->at[i]);
    fprintf(out, "%s %zu, column %zu: the first value that is not finite (%zu NaN, %zu infinite of %zu)\n",
            p->stage <= ACTIVATION_GRADIENT ? "row" : "matrix row", p->row, p->col, p->nans, p->infs,
            p->rows * p->cols);
    for (size_t i = 0; i < n; i++) {
        const place *q = p->stage == WEIGHT ? &all[i].weight : &all[i].first;
        if (q == p || q->step != p->step || q->micro != p->micro || strcmp(q->tensor, p->tensor) != 0) continue;
        fprintf(out, "also on rank %d: row %zu, column %zu\n", q->rank, q->row, q->col);
        others++;
    }
    if (others && p->stage == GRADIENT)
        fprintf(out, "gradients are read after their sum over the ranks, so it may come from any of these ranks\n");
    if (knows_step_before(all, n, p)) return;
    if (p->stage == WEIGHT) fprintf(out, "step %ld began with this weight\n", p->step);
    if (p->step > 1)
        fprintf(out,
                "step %ld of rank %d was not captured, so the fault may be older: run again with "
                "--profile-steps %ld:0:0:2:1 --profile-ranks all\n",
                p->step - 1, p->rank, p->step - 2);
}

/* Reads the tables. The caller frees *out. */
static pb_status read_tables(const pb_step_files *files, table **out)
{
    char path[PB_STEP_PATH];
    table *all = calloc((size_t)files->n, sizeof *all);
    pb_status s = all ? PB_OK : pb_fail(PB_ENOMEM, "%.900s: no memory to analyze it", files->folder);
    for (int i = 0; s == PB_OK && i < files->n; i++) {
        pb_step_files_path(files, i, path);
        s = read_file(path, &all[i]);
    }
    *out = all;
    return s;
}

pb_exit pb_analyze_nan(const char *folder, FILE *out)
{
    pb_step_files files;
    table *all = NULL;
    pb_status s = pb_step_files_list(
        folder, "tensors", "no statistics of tensors; run again with train --profile-ranks all --capture-tensors REGEX",
        &files);
    if (s == PB_OK) s = read_tables(&files, &all);
    const place *first = s == PB_OK ? origin(all, (size_t)files.n) : NULL;
    if (first) print(all, (size_t)files.n, first, out);
    else if (s == PB_OK) fprintf(out, "all values of the captured steps are finite (%d files)\n", files.n);
    pb_step_files_free(&files);
    free(all);
    return s == PB_OK ? PB_EXIT_OK : pb_complain(PB_EXIT_USAGE);
}
