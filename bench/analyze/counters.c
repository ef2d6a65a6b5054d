/* counters.c - implements counters_command.h. */
#include "bench/analyze/counters_command.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/analyze/analyze_job.h"
#include "bench/analyze/step_files.h"
#include "bench/text/text.h"
#include "profiles/groups.h"

enum { LINE = 4096, FIXED = 10, FIELDS = FIXED + PB_GROUP_EVENTS + PB_GROUP_METRICS, NAME = 40 };
static const char fixed[] = "step,rank,group,mode,kind,phase,name,layer,model_flops,model_bytes";

/* The ranges of one name: sums over all files. */
typedef struct counted {
    char mode[8], kind[12], name[NAME];
    double calls, flops, bytes, events[PB_GROUP_EVENTS];
    double seconds; /* per step; set by sort_ops() */
} counted;

typedef struct counts {
    pb_counter_group group;
    char head[LINE]; /* the first line of the first file */
    counted *of;     /* [n], in the order in which they appear */
    size_t n, room;
    int files;
} counts;

/* ---- reading ------------------------------------------------------------------------------------- */

static counted *find(counts *c, const char *mode, const char *kind, const char *name)
{
    for (size_t i = 0; i < c->n; i++) {
        counted *x = &c->of[i];
        if (strcmp(x->name, name) == 0 && strcmp(x->kind, kind) == 0 && strcmp(x->mode, mode) == 0) return x;
    }
    if (c->n == c->room) {
        const size_t room = c->room ? 2 * c->room : 32;
        counted *more = realloc(c->of, room * sizeof *more);
        if (!more) return NULL;
        c->of = more;
        c->room = room;
    }
    counted *x = &c->of[c->n++];
    *x = (counted){0};
    snprintf(x->mode, sizeof x->mode, "%s", mode);
    snprintf(x->kind, sizeof x->kind, "%s", kind);
    snprintf(x->name, sizeof x->name, "%s", name);
    return x;
}

/* A number that fills the field. */
static bool number(const char *text, double *v)
{
    char *end;
    *v = strtod(text, &end);
    return *text && !*end && isfinite(*v) && *v >= 0;
}

static pb_status add_line(counts *c, const char *path, char *line)
{
    char *field[FIELDS] = {0};
    int n = 0;
    double v;
    line[strcspn(line, "\n")] = 0;
    for (char *at = line; at && n < FIELDS;) field[n++] = strsep(&at, ",");
    bool good = n >= FIXED && n == FIXED + c->group.events + c->group.metrics && strcmp(field[2], c->group.name) == 0 &&
                *field[6] && strlen(field[6]) < NAME;
    counted *x = good ? find(c, field[3], field[4], field[6]) : NULL;
    if (good && !x) return pb_fail(PB_ENOMEM, "%s: no memory to analyze it", path);
    if (good) x->calls++;
    if (good && strcmp(field[3], c->of[0].mode) != 0)
        return pb_fail(PB_EINVAL, "%s: its steps ran in mode %s, and those before it in mode %s", path, field[3],
                       c->of[0].mode);
    for (int i = 0; good && i < c->group.events + 2; i++) {
        good = number(field[FIXED - 2 + i], &v);
        if (good) *(i == 0 ? &x->flops : i == 1 ? &x->bytes : &x->events[i - 2]) += v;
    }
    return good ? PB_OK : pb_fail(PB_EINVAL, "%s: not a table of train --profile-counters", path);
}

/* Finds the group that the first row names, and checks that its events and metrics are those of the table. */
static pb_status find_group(counts *c, const char *path, const char *row)
{
    char name[sizeof c->group.name] = "";
    char expected[LINE];
    (void)sscanf(row, "%*[^,],%*[^,],%23[^,]", name);
    PB_TRY(pb_group_find(name, &c->group));
    int n = snprintf(expected, LINE, "%s", fixed);
    for (int i = 0; i < c->group.events && n < LINE; i++)
        n += snprintf(expected + n, (size_t)(LINE - n), ",%s", c->group.event[i].name);
    for (int i = 0; i < c->group.metrics && n < LINE; i++)
        n += snprintf(expected + n, (size_t)(LINE - n), ",%s(%s)", c->group.metric[i].name, c->group.metric[i].unit);
    if (n < LINE - 1) snprintf(expected + n, 2, "\n");
    if (strcmp(expected, c->head) == 0) return PB_OK;
    return pb_fail(PB_EINVAL, "%s: its events are not those of group %s of this program", path, name);
}

static pb_status read_lines(counts *c, const char *path, FILE *f)
{
    char line[LINE];
    pb_status s = PB_OK;
    if (!fgets(line, LINE, f) || strncmp(line, fixed, sizeof fixed - 1) != 0)
        return pb_fail(PB_EINVAL, "%s: not a table of train --profile-counters", path);
    if (!*c->head) snprintf(c->head, LINE, "%s", line);
    else if (strcmp(c->head, line) != 0)
        return pb_fail(PB_EINVAL, "%s: other events than in the files before it", path);
    long rows = 0;
    for (; s == PB_OK && fgets(line, LINE, f); rows++) {
        if (!c->group.events) s = find_group(c, path, line);
        if (s == PB_OK) s = add_line(c, path, line);
    }
    if (s == PB_OK && ferror(f)) s = pb_fail(PB_EIO, "%s: cannot be read", path);
    return s == PB_OK && !rows ? pb_fail(PB_EINVAL, "%s: it has no rows", path) : s;
}

static pb_status read_counts(const char *folder, counts *c)
{
    char path[PB_STEP_PATH];
    pb_step_files files;
    pb_status s = pb_step_files_list(
        folder, "counters", "no counters; run again with train --profile-ranks auto --profile-counters STEP", &files);
    for (int i = 0; s == PB_OK && i < files.n; i++) {
        pb_step_files_path(&files, i, path);
        FILE *f = fopen(path, "r");
        s = f ? read_lines(c, path, f) : pb_fail(PB_EIO, "%s: cannot be read", path);
        if (f) fclose(f);
    }
    c->files = files.n;
    pb_step_files_free(&files);
    return s;
}

/* ---- printing ------------------------------------------------------------------------------------ */

/* The metric's number in the group; -1: it has none of this name. */
static int metric_of(const pb_counter_group *g, const char *name)
{
    for (int i = 0; i < g->metrics; i++)
        if (strcmp(g->metric[i].name, name) == 0) return i;
    return -1;
}

/* Metric i of a mean step: sums become means, and quotients of sums stay. */
static double metric(const counts *c, const counted *x, int i)
{
    double mean[PB_GROUP_EVENTS];
    if (i < 0) return (double)NAN;
    for (int k = 0; k < c->group.events; k++) mean[k] = x->events[k] / c->files;
    return pb_group_value(&c->group, i, mean);
}

static int by_time(const void *x, const void *y)
{
    const counted *a = x, *b = y;
    return a->seconds > b->seconds ? -1 : a->seconds < b->seconds;
}

/* Orders ops by the time that they took; steps and phases stay in the order in which they run. */
static void sort_ops(counts *c)
{
    const int time = metric_of(&c->group, "counted_time");
    if (!c->n || strcmp(c->of[0].kind, "op") != 0 || time < 0) return;
    for (size_t i = 0; i < c->n; i++) c->of[i].seconds = metric(c, &c->of[i], time);
    qsort(c->of, c->n, sizeof *c->of, by_time);
}

static void figure_cell(char out[PB_SHEET_CELL], double v, const char *unit)
{
    char text[PB_FIGURE_TEXT] = "";
    if (isfinite(v) && strcmp(unit, "1") == 0) snprintf(text, sizeof text, "%.4g", v);
    else if (isfinite(v)) pb_figure(text, v, unit);
    snprintf(out, PB_SHEET_CELL, "%.*s", PB_SHEET_CELL - 1, text);
}

static pb_status print_metrics(const counts *c, const pb_analyze_output *o)
{
    enum { LEFT = 2, MOST = PB_SHEET_COLUMNS - LEFT };
    const char *cells[PB_SHEET_COLUMNS] = {c->of[0].kind, "calls"};
    char cell[PB_SHEET_COLUMNS][PB_SHEET_CELL];
    pb_sheet t = {0};
    const int shown = c->group.metrics < MOST ? c->group.metrics : MOST; /* CSV has all */
    for (int i = 0; i < shown; i++) cells[LEFT + i] = c->group.metric[i].name;
    pb_sheet_row(&t, LEFT + shown, cells);
    for (int i = 0; i < PB_SHEET_COLUMNS; i++) cells[i] = cell[i];
    for (size_t r = 0; r < c->n; r++) {
        const counted *x = &c->of[r];
        snprintf(cell[0], PB_SHEET_CELL, "%s", x->name);
        snprintf(cell[1], PB_SHEET_CELL, "%.6g", x->calls / c->files);
        for (int i = 0; i < c->group.metrics; i++) {
            const double v = metric(c, x, i);
            if (i < shown) figure_cell(cell[LEFT + i], v, c->group.metric[i].unit);
            if (isfinite(v))
                pb_analyze_csv(o, "counters", -1, 0, x->name, c->group.metric[i].name, v, c->group.metric[i].unit);
        }
        pb_sheet_row(&t, LEFT + shown, cells);
    }
    return pb_sheet_print(&t, o->format, o->f);
}

static void share_cell(char out[PB_SHEET_CELL], double share)
{
    *out = 0;
    if (share > 0) snprintf(out, PB_SHEET_CELL, "%.1f %%", 100 * share);
}

static pb_status print_roofline(const counts *c, const pb_analyze_output *o)
{
    static const char *const titles[] = {"",       "GPU time", "model FLOPs",    "model bytes",    "DRAM bytes",
                                         "FLOP/s", "DRAM B/s", "of the ceiling", "with DRAM bytes"};
    enum { COLUMNS = sizeof titles / sizeof *titles };
    const int time = metric_of(&c->group, "counted_time"), moved = metric_of(&c->group, "dram_bytes");
    const char *cells[COLUMNS];
    char cell[COLUMNS][PB_SHEET_CELL];
    pb_sheet t = {0};
    if (time < 0 || moved < 0) return PB_OK;
    for (int i = 0; i < COLUMNS; i++) cells[i] = i ? titles[i] : c->of[0].kind;
    pb_sheet_row(&t, COLUMNS, cells);
    for (int i = 0; i < COLUMNS; i++) cells[i] = cell[i];
    for (size_t r = 0; r < c->n; r++) {
        const counted *x = &c->of[r];
        const double seconds = metric(c, x, time), bytes = metric(c, x, moved), flops = x->flops / c->files;
        const double least = x->bytes / c->files, share = pb_ceilings_share(o->ceilings, flops, least, seconds),
                     counted_share = pb_ceilings_share(o->ceilings, flops, bytes, seconds);
        snprintf(cell[0], PB_SHEET_CELL, "%s", x->name);
        figure_cell(cell[1], seconds, "s");
        figure_cell(cell[2], flops > 0 ? flops : (double)NAN, "FLOP");
        figure_cell(cell[3], least > 0 ? least : (double)NAN, "B");
        figure_cell(cell[4], bytes, "B");
        figure_cell(cell[5], flops > 0 ? flops / seconds : (double)NAN, "FLOP/s");
        figure_cell(cell[6], bytes / seconds, "B/s");
        share_cell(cell[7], flops > 0 || least > 0 ? share : 0);
        share_cell(cell[8], counted_share);
        pb_sheet_row(&t, COLUMNS, cells);
        pb_analyze_csv(o, "counters", -1, 0, x->name, "model_flops", flops, "FLOP");
        pb_analyze_csv(o, "counters", -1, 0, x->name, "model_bytes", least, "B");
        if (share > 0) pb_analyze_csv(o, "counters", -1, 0, x->name, "ceiling_share", share, "1");
        if (counted_share > 0)
            pb_analyze_csv(o, "counters", -1, 0, x->name, "ceiling_share_by_dram_bytes", counted_share, "1");
    }
    if (o->format != PB_ANALYZE_CSV) fprintf(o->f, "\n");
    return pb_sheet_print(&t, o->format, o->f);
}

static pb_status print_all(counts *c, const char *folder, const pb_analyze_output *o)
{
    sort_ops(c);
    if (o->format == PB_ANALYZE_CSV) pb_analyze_csv_head(o);
    else
        fprintf(o->f, "%s: group %s (%s), mode %s, means per step of %d files (a step of a rank each)\n\n", folder,
                c->group.name, c->group.summary, c->of[0].mode, c->files);
    PB_TRY(print_metrics(c, o));
    return print_roofline(c, o);
}

pb_exit pb_analyze_counters(const char *folder, const char *ceilings, pb_analyze_format format, FILE *out)
{
    counts *c = calloc(1, sizeof *c);
    pb_ceilings of;
    const pb_analyze_output o = {format, out, ceilings ? &of : NULL};
    pb_status s = c ? read_counts(folder, c) : pb_fail(PB_ENOMEM, "%s: no memory to analyze it", folder);
    if (s == PB_OK && ceilings) s = pb_ceilings_read(ceilings, true, &of);
    if (s == PB_OK && c->n) s = print_all(c, folder, &o); /* each file has a row */
    if (c) free(c->of);
    free(c);
    return s == PB_OK ? PB_EXIT_OK : pb_complain_of(s);
}
