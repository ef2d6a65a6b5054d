/* analyze_collectives.c - the tables of collectives of a profiled job: exposed communication by collective and group,
 * and what the traces of several ranks say of the same call. */
#include <stdlib.h>
#include <string.h>

#include "bench/analyze/analyze_job.h"
#include "bench/stats/stats.h"
#include "bench/text/text.h"

/* A call in one trace; `again`: how many calls with its group and number the trace had before. */
typedef struct call {
    const char *group;
    int64_t first_step, number, again;
    double begin, end; /* seconds since the Epoch, from the begin of the earliest window */
} call;

static int by_call(const void *x, const void *y)
{
    const call *a = x, *b = y;
    const int group = strcmp(a->group, b->group);
    if (group) return group;
    if (a->first_step != b->first_step) return a->first_step < b->first_step ? -1 : 1;
    if (a->number != b->number) return a->number < b->number ? -1 : 1;
    return a->again < b->again ? -1 : a->again > b->again;
}

/* The calls of all traces. Returns how many. */
static size_t list_calls(const pb_analyzed *j, call *out)
{
    size_t n = 0;
    for (size_t i = 0; i < j->run.n; i++) {
        const pb_trace *t = &j->run.traces[i];
        const double shift = 1e-9 * (double)(t->begin_ns - j->run.traces[0].begin_ns);
        const size_t from = n;
        for (size_t k = 0; k < t->ncollectives; k++) {
            const pb_trace_collective *c = &t->collectives[k];
            if (!c->first && n > from) {
                if (c->end + shift > out[n - 1].end) out[n - 1].end = c->end + shift;
                continue;
            }
            const bool more = n > from && strcmp(out[n - 1].group, c->group) == 0 && out[n - 1].number == c->number;
            out[n] = (call){c->group,         t->first_step, c->number, more ? out[n - 1].again + 1 : 0,
                            c->begin + shift, c->end + shift};
            n++;
        }
    }
    return n;
}

static void print_agreement(const pb_analyze_output *o, double *late, double *apart, int n)
{
    char a[PB_FIGURE_TEXT], b[PB_FIGURE_TEXT], c[PB_FIGURE_TEXT];
    double most = 0;
    if (!n) return;
    for (int i = 0; i < n; i++) most = apart[i] > most ? apart[i] : most;
    const double wait = pb_median(late, n), middle = pb_median(apart, n);
    pb_analyze_csv(o, "collectives", -1, 0, "all", "same_calls", n, "1");
    pb_analyze_csv(o, "collectives", -1, 0, "all", "arrivals_apart_median", wait, "s");
    pb_analyze_csv(o, "collectives", -1, 0, "all", "ends_apart_median", middle, "s");
    pb_analyze_csv(o, "collectives", -1, 0, "all", "ends_apart_most", most, "s");
    if (o->format == PB_ANALYZE_CSV) return;
    pb_figure(a, wait, "s");
    pb_figure(b, middle, "s");
    pb_figure(c, most, "s");
    fprintf(
        o->f,
        "\n%d collectives are in the traces of several ranks: the last rank begins %s after the first (median); the "
        "ends, which clocks that agree show together, are %s apart (median), at most %s\n",
        n, a, b, c);
}

/* How far apart the ranks begin and end the same call: a check of the clocks. */
static pb_status compare_calls(const pb_analyzed *j, const pb_analyze_output *o)
{
    size_t room = 1;
    for (size_t i = 0; i < j->run.n; i++) room += j->run.traces[i].ncollectives;
    call *all = malloc(room * sizeof *all);
    double *late = malloc(room * sizeof *late), *apart = malloc(room * sizeof *apart);
    const bool ok = all && late && apart;
    const size_t n = ok ? list_calls(j, all) : 0;
    int found = 0;
    if (n) qsort(all, n, sizeof *all, by_call);
    for (size_t i = 0, next; i < n; i = next) {
        double begin[2] = {all[i].begin, all[i].begin}, end[2] = {all[i].end, all[i].end};
        for (next = i + 1; next < n && by_call(&all[i], &all[next]) == 0; next++) {
            if (all[next].begin < begin[0]) begin[0] = all[next].begin;
            if (all[next].begin > begin[1]) begin[1] = all[next].begin;
            if (all[next].end < end[0]) end[0] = all[next].end;
            if (all[next].end > end[1]) end[1] = all[next].end;
        }
        if (next == i + 1) continue;
        late[found] = begin[1] - begin[0];
        apart[found++] = end[1] - end[0];
    }
    if (ok) print_agreement(o, late, apart, found);
    free(all);
    free(late);
    free(apart);
    return ok ? PB_OK : pb_fail(PB_ENOMEM, "no memory to compare %zu collectives", room);
}

/* One line for each rank, collective, group and dtype; means per step. */
pb_status pb_analyze_collectives(const pb_analyzed *j, const pb_analyze_output *o)
{
    static const char *const titles[] = {"collective",     "group",          "ranks",         "dtype",  "rank",
                                         "calls per step", "bytes per call", "time per step", "exposed"};
    enum { COLUMNS = sizeof titles / sizeof *titles };
    pb_sheet t = {0};
    pb_sheet_row(&t, COLUMNS, titles);
    for (size_t i = 0; i < j->run.n; i++) {
        const pb_breakdown *b = &j->of[i];
        const double steps = (double)b->steps;
        const long first = (long)j->run.traces[i].first_step;
        for (int k = 0; k < b->ncollectives && b->steps; k++) {
            const pb_collective_part *p = &b->collectives[k];
            char cell[COLUMNS][PB_SHEET_CELL], name[PB_SHEET_CELL], text[PB_FIGURE_TEXT];
            const char *cells[COLUMNS] = {p->name, p->group, cell[2], p->dtype};
            if (!p->calls) continue;
            for (int c = 4; c < COLUMNS; c++) cells[c] = cell[c];
            pb_figure(text, p->bytes / (double)p->calls, "B");
            snprintf(cell[2], PB_SHEET_CELL, "%d", p->ranks);
            snprintf(cell[4], PB_SHEET_CELL, "%d", b->rank);
            snprintf(cell[5], PB_SHEET_CELL, "%.4g", (double)p->calls / steps);
            snprintf(cell[6], PB_SHEET_CELL, "%.40s", text);
            pb_time_cell(cell[7], p->seconds / steps);
            pb_share_cell(cell[8], p->exposed / steps, b->step / steps);
            pb_sheet_row(&t, COLUMNS, cells);
            snprintf(name, sizeof name, "%.16s %.16s %.8s", p->name, p->group, p->dtype);
            pb_analyze_csv(o, "collective", b->rank, first, name, "calls", (double)p->calls / steps, "1");
            pb_analyze_csv(o, "collective", b->rank, first, name, "bytes", p->bytes / steps, "B");
            pb_analyze_csv(o, "collective", b->rank, first, name, "time", p->seconds / steps, "s");
            pb_analyze_csv(o, "collective", b->rank, first, name, "exposed", p->exposed / steps, "s");
        }
    }
    if (o->format != PB_ANALYZE_CSV) fprintf(o->f, "\n");
    const pb_status s = pb_sheet_print(&t, o->format, o->f);
    return s == PB_OK ? compare_calls(j, o) : s;
}
