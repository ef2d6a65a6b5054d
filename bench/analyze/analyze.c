/* analyze.c - implements analyze_command.h: the tables and CSV rows of a profiled job. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/analyze/breakdown.h"
#include "bench/analyze/sheet.h"
#include "bench/stats/stats.h"
#include "bench/text/text.h"

typedef struct job {
    pb_profile_run run;
    pb_breakdown *of; /* [run.n]: of each trace */
} job;

typedef struct output {
    pb_analyze_format format;
    FILE *f;
} output;

/* A part over all traces: means per step. */
typedef struct mean_part {
    const char *name;
    double calls, seconds, least, middle, most; /* least, middle, most: of `own` per step, over the traces */
    int most_rank;
} mean_part;

static void destroy(job *j)
{
    free(j->of);
    pb_profile_run_free(&j->run);
}

static pb_status read_job(const char *folder, job *j)
{
    PB_TRY(pb_profile_run_read(folder, &j->run));
    j->of = calloc(j->run.n + 1, sizeof *j->of);
    if (!j->of) return pb_fail(PB_ENOMEM, "%s: no memory to analyze it", folder);
    for (size_t i = 0; i < j->run.n; i++) PB_TRY(pb_breakdown_make(&j->run.traces[i], &j->of[i]));
    return PB_OK;
}

/* ---- one figure: a CSV row ----------------------------------------------------------------------- */

static void csv_head(const output *o)
{
    if (o->format == PB_ANALYZE_CSV) fprintf(o->f, "part,rank,first_step,name,metric,value,unit\n");
}

/* rank -1: over the ranks. */
static void csv(const output *o, const char *part, int rank, long step, const char *name, const char *metric, double v,
                const char *unit)
{
    if (o->format != PB_ANALYZE_CSV) return;
    fprintf(o->f, "%s,", part);
    if (rank >= 0) fprintf(o->f, "%d,%ld", rank, step);
    else fputc(',', o->f);
    fprintf(o->f, ",%s,%s,%.9g,%s\n", name, metric, v, unit);
}

/* ---- what is there ------------------------------------------------------------------------------- */

static bool has_trace(const job *j, int rank, int64_t step)
{
    for (size_t i = 0; i < j->run.n; i++)
        if (j->run.traces[i].rank == rank && j->run.traces[i].first_step == step) return true;
    return false;
}

/* Prints what is missing. Returns whether something is. */
static bool print_missing(const job *j, const output *o)
{
    bool missing = false;
    for (size_t i = 0; i < j->run.n; i++) {
        const pb_trace *t = &j->run.traces[i];
        if (t->truncated || t->dropped || t->omitted) {
            fprintf(o->f, "rank %d, step %lld: %s%ld ranges lost, %ld events left out\n", t->rank,
                    (long long)t->first_step, t->truncated ? "truncated, " : "", t->dropped, t->omitted);
            missing = missing || t->truncated;
        }
        if (i && t->first_step == j->run.traces[i - 1].first_step) continue;
        for (int r = 0; r < j->run.ranks; r++) {
            if (!j->run.profiled[r] || has_trace(j, r, t->first_step)) continue;
            fprintf(o->f, "rank %d on %s: no trace of step %lld\n", r, j->run.host[r], (long long)t->first_step);
            missing = true;
        }
    }
    if (!j->run.n) fprintf(o->f, "no trace was written\n");
    return missing || !j->run.n;
}

static bool print_head(const job *j, const output *o)
{
    const output to = {o->format, o->format == PB_ANALYZE_CSV ? stderr : o->f};
    if (o->format != PB_ANALYZE_CSV) fprintf(o->f, "%s: %s, topology %s\n", j->run.folder, j->run.why, j->run.topology);
    return print_missing(j, &to);
}

/* ---- ranks --------------------------------------------------------------------------------------- */

static void time_cell(char out[PB_SHEET_CELL], double seconds)
{
    char text[PB_FIGURE_TEXT];
    pb_figure(text, seconds, "s");
    snprintf(out, PB_SHEET_CELL, "%.*s", PB_SHEET_CELL - 1, text);
}

static void share_cell(char out[PB_SHEET_CELL], double part, double whole)
{
    char text[PB_FIGURE_TEXT];
    pb_figure(text, part, "s");
    snprintf(out, PB_SHEET_CELL, "%.30s %5.1f %%", text, whole > 0 ? 100 * part / whole : 0.0);
}

static pb_status print_ranks(const job *j, const output *o)
{
    static const char *const titles[] = {
        "rank", "host", "steps", "mean step", "compute", "exposed communication", "other", "hidden communication"};
    enum { COLUMNS = sizeof titles / sizeof *titles };
    pb_sheet t = {0};
    pb_sheet_row(&t, COLUMNS, titles);
    for (size_t i = 0; i < j->run.n; i++) {
        const pb_breakdown *b = &j->of[i];
        const pb_trace *trace = &j->run.traces[i];
        const long first = (long)trace->first_step;
        const double n = b->steps ? (double)b->steps : NAN;
        char cell[COLUMNS][PB_SHEET_CELL];
        const char *cells[COLUMNS];
        for (int c = 0; c < COLUMNS; c++) cells[c] = cell[c];
        snprintf(cell[0], PB_SHEET_CELL, "%d", b->rank);
        snprintf(cell[1], PB_SHEET_CELL, "%s", b->rank < j->run.ranks ? j->run.host[b->rank] : "?");
        snprintf(cell[2], PB_SHEET_CELL, "%ld-%lld", first, (long long)trace->last_step);
        time_cell(cell[3], b->step / n);
        share_cell(cell[4], b->compute / n, b->step / n);
        share_cell(cell[5], b->exposed / n, b->step / n);
        share_cell(cell[6], b->other / n, b->step / n);
        time_cell(cell[7], b->hidden / n);
        pb_sheet_row(&t, COLUMNS, cells);
        csv(o, "rank", b->rank, first, "step", "time", b->step / n, "s");
        csv(o, "rank", b->rank, first, "step", "compute", b->compute / n, "s");
        csv(o, "rank", b->rank, first, "step", "exposed_communication", b->exposed / n, "s");
        csv(o, "rank", b->rank, first, "step", "other", b->other / n, "s");
        csv(o, "rank", b->rank, first, "step", "hidden_communication", b->hidden / n, "s");
        csv(o, "rank", b->rank, first, "step", "lost", (double)(trace->dropped + trace->omitted), "1");
    }
    if (o->format != PB_ANALYZE_CSV) fprintf(o->f, "\n");
    return pb_sheet_print(&t, o->format, o->f);
}

/* ---- phases and ops ------------------------------------------------------------------------------ */

static const pb_part *find(const pb_breakdown *b, bool ops, const char *name)
{
    const pb_part *parts = ops ? b->ops : b->phases;
    for (int i = 0; i < (ops ? b->nops : b->nphases); i++)
        if (strcmp(parts[i].name, name) == 0) return &parts[i];
    return NULL;
}

/* The means over the traces that have steps. `own` is scratch memory for [run.n]. */
static mean_part mean_of(const job *j, bool ops, const char *name, double *own)
{
    mean_part m = {.name = name, .most_rank = -1, .most = -1};
    size_t n = 0;
    for (size_t i = 0; i < j->run.n; i++) {
        const pb_part *p = find(&j->of[i], ops, name);
        if (!j->of[i].steps) continue;
        const double steps = (double)j->of[i].steps;
        m.calls += p ? (double)p->calls / steps : 0;
        m.seconds += p ? p->seconds / steps : 0;
        own[n] = p ? p->own / steps : 0;
        if (own[n] > m.most) m.most = own[n], m.most_rank = j->of[i].rank;
        n++;
    }
    m.calls /= (double)n;
    m.seconds /= (double)n;
    m.middle = pb_median(own, (int)n);
    m.least = own[0];
    for (size_t i = 1; i < n; i++) m.least = own[i] < m.least ? own[i] : m.least;
    return m;
}

static int by_seconds(const void *x, const void *y)
{
    const mean_part *a = x, *b = y;
    return a->seconds > b->seconds ? -1 : a->seconds < b->seconds;
}

/* Lists the names of all traces, with their means. Free *out. ENOMEM. */
static pb_status list_parts(const job *j, bool ops, mean_part **out, size_t *n)
{
    double *own = malloc((j->run.n + 1) * sizeof *own);
    mean_part *all = malloc((j->run.n * PB_BREAKDOWN_NAMES + 1) * sizeof *all);
    *n = 0;
    *out = all;
    if (!own || !all) {
        free(own);
        return pb_fail(PB_ENOMEM, "no memory to list the parts of %zu traces", j->run.n);
    }
    for (size_t i = 0; i < j->run.n; i++) {
        const pb_breakdown *b = &j->of[i];
        for (int k = 0; k < (ops ? b->nops : b->nphases); k++) {
            const char *name = ops ? b->ops[k].name : b->phases[k].name;
            size_t seen = 0;
            while (seen < *n && strcmp(all[seen].name, name) != 0) seen++;
            if (seen == *n) all[(*n)++] = mean_of(j, ops, name, own);
        }
    }
    free(own);
    if (ops) qsort(all, *n, sizeof *all, by_seconds);
    return PB_OK;
}

static double mean_step(const job *j)
{
    double sum = 0;
    long n = 0;
    for (size_t i = 0; i < j->run.n; i++) sum += j->of[i].step, n += j->of[i].steps;
    return n ? sum / (double)n : NAN;
}

static pb_status print_phases(const job *j, const output *o)
{
    static const char *const titles[] = {"phase",       "time per step", "own, least",
                                         "own, median", "own, most",     "rank of most"};
    mean_part *parts;
    size_t n;
    pb_sheet t = {0};
    const pb_status s = list_parts(j, false, &parts, &n);
    pb_sheet_row(&t, 6, titles);
    for (size_t i = 0; s == PB_OK && i < n; i++) {
        const mean_part *m = &parts[i];
        char time[PB_SHEET_CELL], least[PB_SHEET_CELL], middle[PB_SHEET_CELL], most[PB_SHEET_CELL], rank[PB_SHEET_CELL];
        time_cell(time, m->seconds);
        time_cell(least, m->least);
        time_cell(middle, m->middle);
        time_cell(most, m->most);
        if (j->run.n > 1 && m->middle > 0)
            snprintf(rank, sizeof rank, "%d, %+.0f %%", m->most_rank, pb_percent(m->most / m->middle, 1));
        else snprintf(rank, sizeof rank, "%d", m->most_rank);
        pb_sheet_row(&t, 6, (const char *const[]){m->name, time, least, middle, most, rank});
        csv(o, "phase", -1, 0, m->name, "time", m->seconds, "s");
        csv(o, "phase", -1, 0, m->name, "own_median", m->middle, "s");
        csv(o, "phase", -1, 0, m->name, "own_most", m->most, "s");
        csv(o, "phase", -1, 0, m->name, "rank_of_most", m->most_rank, "1");
    }
    free(parts);
    if (s == PB_OK && o->format != PB_ANALYZE_CSV) fprintf(o->f, "\n");
    const pb_status printed = pb_sheet_print(&t, o->format, o->f);
    return s != PB_OK ? s : printed;
}

static pb_status print_ops(const job *j, const output *o)
{
    static const char *const titles[] = {"op", "calls per step", "time per step", "of the step"};
    enum { MOST = 25 };
    mean_part *parts;
    size_t n;
    pb_sheet t = {0};
    double rest = 0;
    const double step = mean_step(j);
    const pb_status s = list_parts(j, true, &parts, &n);
    pb_sheet_row(&t, 4, titles);
    for (size_t i = 0; s == PB_OK && i < n; i++) {
        const mean_part *m = &parts[i];
        char calls[PB_SHEET_CELL], time[PB_SHEET_CELL], share[PB_SHEET_CELL];
        csv(o, "op", -1, 0, m->name, "calls", m->calls, "1");
        csv(o, "op", -1, 0, m->name, "time", m->seconds, "s");
        if (i >= MOST) rest += m->seconds;
        snprintf(calls, sizeof calls, "%.4g", m->calls);
        time_cell(time, m->seconds);
        snprintf(share, sizeof share, "%.1f %%", 100 * m->seconds / step);
        if (i < MOST) pb_sheet_row(&t, 4, (const char *const[]){m->name, calls, time, share});
    }
    if (s == PB_OK && n > MOST) {
        char name[PB_SHEET_CELL], time[PB_SHEET_CELL], share[PB_SHEET_CELL];
        snprintf(name, sizeof name, "%zu others", n - MOST);
        time_cell(time, rest);
        snprintf(share, sizeof share, "%.1f %%", 100 * rest / step);
        pb_sheet_row(&t, 4, (const char *const[]){name, "", time, share});
    }
    free(parts);
    if (s == PB_OK && o->format != PB_ANALYZE_CSV) fprintf(o->f, "\n");
    const pb_status printed = pb_sheet_print(&t, o->format, o->f);
    return s != PB_OK ? s : printed;
}

/* ---- the change from another job ----------------------------------------------------------------- */

static int by_change(const void *x, const void *y)
{
    const mean_part *a = x, *b = y; /* calls holds the change */
    return fabs(a->calls) > fabs(b->calls) ? -1 : fabs(a->calls) < fabs(b->calls);
}

static double seconds_in(const mean_part *parts, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(parts[i].name, name) == 0) return parts[i].seconds;
    return 0;
}

/* Prints the ops of `now` and `before`, the largest change of the time per step first. */
static pb_status print_change(const job *now, const job *before, const output *o)
{
    static const char *const titles[] = {"op", "before", "now", "change", "of the change"};
    const double step = mean_step(now), was = mean_step(before);
    mean_part *a = NULL, *b = NULL;
    size_t na = 0, nb = 0;
    pb_sheet t = {0};
    pb_status s = list_parts(now, true, &a, &na);
    if (s == PB_OK) s = list_parts(before, true, &b, &nb);
    mean_part *all = s == PB_OK ? malloc((na + nb + 1) * sizeof *all) : NULL;
    if (s == PB_OK && !all) s = pb_fail(PB_ENOMEM, "no memory to compare %zu ops", na + nb);
    size_t n = 0;
    for (size_t i = 0; s == PB_OK && i < na; i++)
        all[n++] = (mean_part){.name = a[i].name, .seconds = a[i].seconds, .least = seconds_in(b, nb, a[i].name)};
    for (size_t i = 0; s == PB_OK && i < nb; i++)
        if (!(seconds_in(a, na, b[i].name) > 0)) all[n++] = (mean_part){.name = b[i].name, .least = b[i].seconds};
    for (size_t i = 0; i < n; i++) all[i].calls = all[i].seconds - all[i].least;
    if (s == PB_OK && n) qsort(all, n, sizeof *all, by_change);
    pb_sheet_row(&t, 5, titles);
    for (size_t i = 0; i < n; i++) {
        char then[PB_SHEET_CELL], time[PB_SHEET_CELL], change[PB_SHEET_CELL], share[PB_SHEET_CELL] = "";
        time_cell(then, all[i].least);
        time_cell(time, all[i].seconds);
        time_cell(change, all[i].calls);
        if (fabs(step - was) > 0) snprintf(share, sizeof share, "%.0f %%", 100 * all[i].calls / (step - was));
        if (i < 25) pb_sheet_row(&t, 5, (const char *const[]){all[i].name, then, time, change, share});
        csv(o, "change", -1, 0, all[i].name, "time", all[i].calls, "s");
    }
    csv(o, "change", -1, 0, "step", "time", step - was, "s");
    if (s == PB_OK && o->format != PB_ANALYZE_CSV) {
        char then[PB_SHEET_CELL], time[PB_SHEET_CELL];
        time_cell(then, was);
        time_cell(time, step);
        fprintf(o->f, "\nagainst %s: mean step %s, now %s\n", before->run.folder, then, time);
    }
    const pb_status printed = pb_sheet_print(&t, o->format, o->f);
    free(a);
    free(b);
    free(all);
    return s != PB_OK ? s : printed;
}

static pb_status print_all(const job *j, const job *before, const output *o)
{
    csv_head(o);
    PB_TRY(print_ranks(j, o));
    PB_TRY(print_phases(j, o));
    PB_TRY(print_ops(j, o));
    return before ? print_change(j, before, o) : PB_OK;
}

pb_exit pb_analyze(const char *folder, const char *against, pb_analyze_format format, FILE *out)
{
    job j = {0}, before = {0};
    const output o = {format, out};
    bool missing = false;
    pb_status s = read_job(folder, &j);
    if (s == PB_OK && against) s = read_job(against, &before);
    if (s == PB_OK) {
        missing = print_head(&j, &o);
        if (j.run.n) s = print_all(&j, against ? &before : NULL, &o);
    }
    destroy(&j);
    destroy(&before);
    if (s != PB_OK) return pb_complain_of(s);
    return missing ? PB_EXIT_INCOMPARABLE : PB_EXIT_OK;
}
