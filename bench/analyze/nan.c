/* nan.c - implements nan_command.h. */
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "bench/analyze/nan_command.h"

/* The stages of a step in the order in which it computes them. */
enum { ACTIVATION, GRADIENT, MOMENTUM, MOMENT2, WEIGHT };
enum { LINE = 512, FIELDS = 13 };

typedef struct place {
    long step;
    int rank, stage;
    long order; /* within the stage: less was computed earlier */
    char tensor[64], layer[16];
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
    return ACTIVATION;
}

/* The file lists tensors in the order of the forward pass; the backward pass computes gradients in the opposite order. */
static long order_of(int stage, long line) { return stage == GRADIENT ? -line : line; }

static bool is_before(const place *a, const place *b)
{
    if (a->step != b->step) return a->step < b->step;
    if (a->stage != b->stage) return a->stage < b->stage;
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
    *bad = p->nans + p->infs > 0;
    return p->rows && p->cols && (!*bad || (*field[11] && *field[12]));
}

/* Sets *first to the first place of a file that is not finite; its tensor stays empty if all are finite. */
static pb_status read_file(const char *path, place *first)
{
    char line[LINE];
    FILE *f = fopen(path, "r");
    *first = (place){0};
    const char *name = strrchr(path, '/');
    place p = {0};
    if (!f) return pb_fail(PB_EIO, "%s: cannot be read", path);
    bool good = name && sscanf(name, "/step%ld-rank%d.csv", &p.step, &p.rank) == 2 && fgets(line, LINE, f) &&
                strcmp(line, "tensor,layer,dtype,rows,cols,min,max,rms,zeros,nan,inf,first_row,first_col\n") == 0;
    first->step = p.step;
    first->rank = p.rank;
    for (long i = 0; good && fgets(line, LINE, f); i++) {
        bool bad;
        good = read_line(line, &p, &bad);
        p.stage = stage_of(p.tensor);
        p.order = order_of(p.stage, i);
        if (good && bad && (!*first->tensor || is_before(&p, first))) *first = p;
    }
    good = good && !ferror(f);
    fclose(f);
    return good ? PB_OK : pb_fail(PB_EINVAL, "%s: not a table of train --capture-tensors", path);
}

static void print(const place *all, size_t n, const place *p, FILE *out)
{
    bool before = p->step == 1;
    fprintf(out, "step %ld, rank %d, ", p->step, p->rank);
    if (*p->layer) fprintf(out, "layer %s, ", p->layer);
    fprintf(out, "%s, %s %zu, column %zu: the first value that is not finite (%zu NaN, %zu infinite of %zu)\n",
            p->tensor, p->stage == ACTIVATION ? "token row" : "matrix row", p->row, p->col, p->nans, p->infs,
            p->rows * p->cols);
    for (size_t i = 0; i < n; i++) {
        before = before || (all[i].step == p->step - 1 && all[i].rank == p->rank);
        if (&all[i] != p && all[i].step == p->step && strcmp(all[i].tensor, p->tensor) == 0)
            fprintf(out, "also on rank %d: row %zu, column %zu\n", all[i].rank, all[i].row, all[i].col);
    }
    if (!before)
        fprintf(out,
                "step %ld of rank %d was not captured, so the fault may be older: run again with "
                "--profile-steps 0:0:0:%ld:1 --profile-ranks all\n",
                p->step - 1, p->rank, p->step);
}

pb_exit pb_analyze_nan(const char *folder, FILE *out)
{
    char pattern[1024];
    glob_t files = {0};
    const place *first = NULL;
    if (snprintf(pattern, sizeof pattern, "%s/tensors/step*-rank*.csv", folder) >= (int)sizeof pattern) {
        pb_fail(PB_EINVAL, "analyze nan: the path of the folder is too long");
        return pb_complain(PB_EXIT_USAGE);
    }
    if (glob(pattern, 0, NULL, &files) != 0) {
        pb_fail(PB_EINVAL,
                "%s: no statistics of tensors; run again with train --profile-ranks all --capture-tensors REGEX",
                folder);
        return pb_complain(PB_EXIT_USAGE);
    }
    place *all = calloc(files.gl_pathc, sizeof *all);
    pb_status s = all ? PB_OK : pb_fail(PB_ENOMEM, "%s: no memory to analyze it", folder);
    for (size_t i = 0; s == PB_OK && i < files.gl_pathc; i++) {
        s = read_file(files.gl_pathv[i], &all[i]);
        if (*all[i].tensor && (!first || is_before(&all[i], first))) first = &all[i];
    }
    if (s == PB_OK && first) print(all, files.gl_pathc, first, out);
    else if (s == PB_OK) fprintf(out, "all values of the captured steps are finite (%zu files)\n", files.gl_pathc);
    free(all);
    globfree(&files);
    return s == PB_OK ? PB_EXIT_OK : pb_complain(PB_EXIT_USAGE);
}
