/* analyze_change.c - the tables of what changed from one profiled job to another: the parts of a step, phases,
 * collectives and ops, the largest change of the time per step first. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/analyze/analyze_job.h"
#include "bench/analyze/mean_parts.h"

enum { BEFORE, NOW, RUNS };

/* Seconds per step. */
typedef struct changed {
    char name[PB_SHEET_CELL];
    double in[RUNS];
} changed;

/* The entries of one table. */
typedef struct changes {
    changed *at; /* [n], with room for `room` */
    size_t n, room;
} changes;

static pb_status make_room(changes *c, size_t room)
{
    *c = (changes){.at = malloc((room + 1) * sizeof *c->at), .room = room};
    return c->at ? PB_OK : pb_fail(PB_ENOMEM, "no memory to compare %zu parts of two runs", room);
}

/* Adds to the time of the entry with this name, which is made if it does not exist. */
static void add(changes *c, const char *name, int run, double seconds)
{
    size_t i = 0;
    while (i < c->n && strncmp(c->at[i].name, name, sizeof c->at[i].name - 1) != 0) i++;
    if (i == c->room) return;
    if (i == c->n) {
        c->at[c->n] = (changed){0};
        snprintf(c->at[c->n++].name, sizeof c->at->name, "%s", name);
    }
    c->at[i].in[run] += seconds;
}

static double change_of(const changed *c) { return c->in[NOW] - c->in[BEFORE]; }

static int by_change(const void *x, const void *y)
{
    const double a = fabs(change_of(x)), b = fabs(change_of(y));
    return a > b ? -1 : a < b ? 1 : strcmp(((const changed *)x)->name, ((const changed *)y)->name);
}

/* Sorts, prints and frees the entries. title: of the first column; part: of the rows of CSV; step: the change of the
 * step. */
static pb_status print(changes *c, const char *title, const char *part, double step, const pb_analyze_output *o)
{
    enum { MOST = 25 };
    pb_sheet t = {0};
    if (c->n) qsort(c->at, c->n, sizeof *c->at, by_change);
    pb_sheet_row(&t, 5, (const char *const[]){title, "before", "now", "change", "of the change"});
    for (size_t i = 0; i < c->n; i++) {
        char before[PB_SHEET_CELL], now[PB_SHEET_CELL], change[PB_SHEET_CELL], share[PB_SHEET_CELL] = "";
        const double by = change_of(&c->at[i]);
        pb_time_cell(before, c->at[i].in[BEFORE]);
        pb_time_cell(now, c->at[i].in[NOW]);
        pb_time_cell(change, by);
        if (fabs(step) > 0) snprintf(share, sizeof share, "%.0f %%", round(100 * by / step) + 0.0); /* never -0 */
        if (i < MOST) pb_sheet_row(&t, 5, (const char *const[]){c->at[i].name, before, now, change, share});
        pb_analyze_csv(o, part, -1, 0, c->at[i].name, "time", by, "s");
    }
    if (o->format != PB_ANALYZE_CSV) fprintf(o->f, "\n");
    free(c->at);
    return pb_sheet_print(&t, o->format, o->f);
}

/* ---- the parts of a step ------------------------------------------------------------------------- */

/* Adds the parts of a run, which add up to its mean step. A trace without work of its GPU was idle throughout. */
static void add_parts(changes *c, int run, const pb_analyzed *j, bool gpu)
{
    long steps = 0;
    for (size_t i = 0; i < j->run.n; i++) steps += j->of[i].steps;
    for (size_t i = 0; i < j->run.n && steps; i++) {
        const pb_breakdown *b = &j->of[i];
        const pb_gpu_division *g = &b->gpu;
        const double n = (double)steps;
        add(c, "compute", run, (gpu ? g->compute : b->compute) / n);
        add(c, "exposed communication", run, (gpu ? g->exposed : b->exposed) / n);
        if (gpu) {
            add(c, "memory", run, g->memory / n);
            add(c, "host-bound idle", run, g->host_bound / n);
            add(c, "other idle", run, ((b->has_gpu ? g->idle : b->step) - g->host_bound) / n);
        } else add(c, "other", run, b->other / n);
    }
}

static pb_status print_parts(const pb_analyzed *const run[RUNS], bool gpu, double step, const pb_analyze_output *o)
{
    changes c;
    PB_TRY(make_room(&c, 8));
    for (int r = 0; r < RUNS; r++) add_parts(&c, r, run[r], gpu);
    return print(&c, gpu ? "part of the GPU's step" : "part of the step", "change_part", step, o);
}

/* ---- collectives --------------------------------------------------------------------------------- */

static size_t count_collectives(const pb_analyzed *j)
{
    size_t n = 0;
    for (size_t i = 0; i < j->run.n; i++) n += (size_t)j->of[i].ncollectives;
    return n;
}

/* Means over all steps of all traces, so that on a GPU they add up to the exposed communication. */
static void add_collectives(changes *c, int run, const pb_analyzed *j)
{
    long steps = 0;
    for (size_t i = 0; i < j->run.n; i++) steps += j->of[i].steps;
    for (size_t i = 0; i < j->run.n && steps; i++)
        for (int k = 0; k < j->of[i].ncollectives; k++) {
            const pb_collective_part *p = &j->of[i].collectives[k];
            char name[PB_SHEET_CELL];
            snprintf(name, sizeof name, "%.16s %.16s %.8s", p->name, p->group, p->dtype);
            add(c, name, run, p->exposed / (double)steps);
        }
}

static pb_status print_collectives(const pb_analyzed *const run[RUNS], double step, const pb_analyze_output *o)
{
    changes c;
    const size_t n = count_collectives(run[BEFORE]) + count_collectives(run[NOW]);
    if (!n) return PB_OK;
    PB_TRY(make_room(&c, n));
    for (int r = 0; r < RUNS; r++) add_collectives(&c, r, run[r]);
    return print(&c, "exposed time of collective", "change_collective", step, o);
}

/* ---- phases and ops ------------------------------------------------------------------------------ */

static pb_status print_named(const pb_analyzed *const run[RUNS], bool ops, double step, const pb_analyze_output *o)
{
    pb_mean_part *parts[RUNS] = {NULL};
    size_t n[RUNS] = {0};
    changes c = {0};
    pb_status s = pb_mean_parts_list(run[NOW], ops, &parts[NOW], &n[NOW]);
    if (s == PB_OK) s = pb_mean_parts_list(run[BEFORE], ops, &parts[BEFORE], &n[BEFORE]);
    if (s == PB_OK) s = make_room(&c, n[NOW] + n[BEFORE]);
    for (int r = 0; s == PB_OK && r < RUNS; r++)
        for (size_t i = 0; i < n[r]; i++) add(&c, parts[r][i].name, r, pb_mean_cost(&parts[r][i]));
    for (int r = 0; r < RUNS; r++) free(parts[r]);
    if (s != PB_OK) return s;
    return print(&c, ops ? "op" : "phase", ops ? "change" : "change_phase", step, o);
}

pb_status pb_analyze_change(const pb_analyzed *now, const pb_analyzed *before, const pb_analyze_output *o)
{
    const pb_analyzed *const run[RUNS] = {[BEFORE] = before, [NOW] = now};
    const bool gpu = pb_analyzed_has_gpu(now) && pb_analyzed_has_gpu(before),
               alike = pb_analyzed_has_gpu(now) == pb_analyzed_has_gpu(before);
    const double step = pb_mean_step(now), was = pb_mean_step(before);
    if (o->format != PB_ANALYZE_CSV) {
        char then[PB_SHEET_CELL], time[PB_SHEET_CELL];
        pb_time_cell(then, was);
        pb_time_cell(time, step);
        fprintf(o->f, "\nagainst %s: mean step %s, now %s\n", before->run.folder, then, time);
    }
    if (!alike)
        fprintf(
            o->format == PB_ANALYZE_CSV ? stderr : o->f,
            "only one of the two runs has work of a GPU: the parts are those of the training threads; phases and ops "
            "have the time of kernels in one run, of ranges in the other; collectives are left out\n");
    pb_analyze_csv(o, "change", -1, 0, "step", "time", step - was, "s");
    PB_TRY(print_parts(run, gpu, step - was, o));
    PB_TRY(print_named(run, false, step - was, o));
    if (alike) PB_TRY(print_collectives(run, step - was, o));
    return print_named(run, true, step - was, o);
}
