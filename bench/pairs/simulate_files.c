/* simulate_files.c - reads recorded sessions into rows of differences for simulate.h. */
#include "bench/pairs/simulate_files.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the logarithms that each process contributes ------------------------------------------------ */

typedef struct figure {
    const pb_row *row;
    double log_value;
    int pair, side; /* pair: index over all sessions; the difference of a pair is side 1 minus side 0 */
} figure;

typedef struct figures {
    figure *v;
    size_t n, room;
} figures;

static pb_status add_figure(figures *f, figure v)
{
    if (f->n == f->room) {
        size_t room = f->room ? 2 * f->room : 1024;
        figure *more = realloc(f->v, room * sizeof *more);
        if (!more) return pb_fail(PB_ENOMEM, "simulate: out of memory for %zu rows", room);
        f->v = more;
        f->room = room;
    }
    f->v[f->n++] = v;
    return PB_OK;
}

static int figure_order(const void *a, const void *b)
{
    const figure *x = a, *y = b;
    int by_series = pb_series_order(x->row->key, x->row->metric, y->row->key, y->row->metric);
    if (by_series) return by_series;
    if (x->pair != y->pair) return x->pair < y->pair ? -1 : 1;
    return x->side - y->side;
}

/* ---- reading one session ------------------------------------------------------------------------- */

typedef struct process_list {
    long long *v; /* ascending, without duplicates */
    int n;
} process_list;

static int process_order(const void *a, const void *b)
{
    long long x = *(const long long *)a, y = *(const long long *)b;
    return (x > y) - (x < y);
}

static pb_status processes_of(const pb_table *t, process_list *out)
{
    *out = (process_list){malloc((t->n + 1) * sizeof *out->v), 0};
    if (!out->v) return pb_fail(PB_ENOMEM, "%s: out of memory", t->path);
    for (size_t i = 0; i < t->n; i++) out->v[i] = t->rows[i].process;
    qsort(out->v, t->n, sizeof *out->v, process_order);
    for (size_t i = 0; i < t->n; i++)
        if (!i || out->v[i] != out->v[out->n - 1]) out->v[out->n++] = out->v[i];
    return PB_OK;
}

static int position(const process_list *l, long long process)
{
    const long long *at = bsearch(&process, l->v, (size_t)l->n, sizeof *l->v, process_order);
    return at ? (int)(at - l->v) : -1;
}

/* Fails if a row of the table is of another machine or version than the first row read. */
static pb_status check_rows(const pb_table *t, pb_sim_recorded *r)
{
    if (!t->n) return pb_fail(PB_EINVAL, "%s: has a header but no rows", t->path);
    if (!r->first) {
        r->first = t->rows;
        r->first_path = t->path;
    }
    for (const pb_row *row = t->rows; row < t->rows + t->n; row++)
        if (strcmp(row->machine_id, r->first->machine_id) != 0 ||
            strcmp(row->bench_version, r->first->bench_version) != 0)
            return pb_fail(PB_EINVAL, "%s: the machine or bench_version differs from that of %s", t->path,
                           r->first_path);
    return PB_OK;
}

static pb_status open_file(const char *path, pb_sim_recorded *r)
{
    pb_process_values *f = &r->file[r->nfiles];
    PB_TRY(pb_process_values_read(path, false, f));
    r->nfiles++;
    PB_TRY(check_rows(&f->t, r));
    for (size_t i = 0; i < f->t.n; i++)
        if (strcmp(f->t.rows[i].run_id, f->t.rows[0].run_id) != 0)
            return pb_fail(PB_EINVAL, "%s: the file has several runs; give each run as its own session", f->t.path);
    return PB_OK;
}

static pb_status add_session(pb_sim_recorded *r, int pairs, bool paired)
{
    const size_t n = (size_t)r->nsessions + 1;
    pb_sim_session *more = realloc(r->sessions, n * sizeof *more);
    if (!more) return pb_fail(PB_ENOMEM, "simulate: out of memory for %zu sessions", n);
    r->sessions = more;
    r->sessions[r->nsessions++] = (pb_sim_session){pairs, paired};
    r->paired += paired;
    r->pairs += pairs;
    r->processes += 2 * pairs;
    return PB_OK;
}

/* Reads a run of one program. Processes 2i and 2i+1, counted from 0 in ascending order, are pair i. */
static pb_status read_run(const char *path, pb_sim_recorded *r, figures *all)
{
    process_list l;
    PB_TRY(open_file(path, r));
    const pb_process_values *f = &r->file[r->nfiles - 1];
    PB_TRY(processes_of(&f->t, &l));
    pb_status s = l.n < 2 ? pb_fail(PB_EINVAL, "%s: the run has only one process; a pair needs two", f->t.path) : PB_OK;
    for (size_t i = 0; i < f->t.n && s == PB_OK; i++) {
        int at = position(&l, f->t.rows[i].process);
        if (at / 2 < l.n / 2) s = add_figure(all, (figure){&f->t.rows[i], f->log_value[i], r->pairs + at / 2, at % 2});
    }
    if (s == PB_OK) s = add_session(r, l.n / 2, false);
    free(l.v);
    return s;
}

/* Reads a folder of pairs. A pair that only one side has is ignored: an interrupted comparison can end with one. */
static pb_status read_pairs(const char *base, const char *cand, pb_sim_recorded *r, figures *all)
{
    process_list side[2] = {0}, both = {0};
    PB_TRY(open_file(base, r));
    PB_TRY(open_file(cand, r));
    const pb_process_values *f = &r->file[r->nfiles - 2];
    pb_status s = processes_of(&f[0].t, &side[0]);
    if (s == PB_OK) s = processes_of(&f[1].t, &side[1]);
    both = side[0]; /* filtered in place */
    both.n = 0;
    for (int i = 0; i < side[0].n && s == PB_OK; i++)
        if (position(&side[1], side[0].v[i]) >= 0) both.v[both.n++] = side[0].v[i];
    if (s == PB_OK && !both.n) s = pb_fail(PB_EINVAL, "%s: no pair has results of both sides", f[0].t.path);
    for (int k = 0; k < 2 && s == PB_OK; k++)
        for (size_t i = 0; i < f[k].t.n && s == PB_OK; i++) {
            int at = position(&both, f[k].t.rows[i].process);
            if (at >= 0) s = add_figure(all, (figure){&f[k].t.rows[i], f[k].log_value[i], r->pairs + at, k});
        }
    if (s == PB_OK) s = add_session(r, both.n, true);
    free(side[0].v);
    free(side[1].v);
    return s;
}

/* Adds the rows [from, to) of one stored session. Only ln(candidate/base) is stored, so the base's logarithm is set to
 * 0. */
static pb_status add_stored_session(const pb_stored_pairs *s, size_t from, size_t to, pb_sim_recorded *r, figures *all)
{
    int pairs = 0;
    for (size_t i = from; i < to; i++) {
        const pb_row *row = &s->t.rows[i];
        if (row->process > pairs) pairs = (int)row->process;
        for (int p = 0; p < row->process; p++) {
            PB_TRY(add_figure(all, (figure){row, 0, r->pairs + p, 0}));
            PB_TRY(add_figure(all, (figure){row, s->log_ratio[i][p], r->pairs + p, 1}));
        }
    }
    return add_session(r, pairs, true);
}

static pb_status read_stored(const char *path, pb_sim_recorded *r, figures *all)
{
    pb_stored_pairs *s = &r->stored[r->nstored];
    PB_TRY(pb_stored_pairs_read(path, s));
    r->nstored++;
    PB_TRY(check_rows(&s->t, r));
    for (size_t from = 0, to; from < s->t.n; from = to) {
        for (to = from + 1; to < s->t.n && !strcmp(s->t.rows[to].run_id, s->t.rows[from].run_id);) to++;
        PB_TRY(add_stored_session(s, from, to, r, all));
    }
    return PB_OK;
}

static pb_status read_session(const char *path, pb_sim_recorded *r, figures *all)
{
    char base[PB_PATH_TEXT], cand[PB_PATH_TEXT];
    struct stat st;
    if (snprintf(base, sizeof base, "%s/base", path) >= (int)sizeof base)
        return pb_fail(PB_EINVAL, "%.60s...: the path is too long", path);
    snprintf(cand, sizeof cand, "%s/cand", path);
    if (pb_stored_pairs_are(path)) return read_stored(path, r, all);
    return stat(base, &st) == 0 ? read_pairs(base, cand, r, all) : read_run(path, r, all);
}

/* ---- making the rows of differences -------------------------------------------------------------- */

static bool wanted(const figure *f, const pb_gates *gates, bool family)
{
    if (!strcmp(f->row->better, "none")) return false;
    return family ? pb_gates_find(gates, f->row->key, f->row->metric)->gating : f->row->samples > 1;
}

static size_t series_end(const figures *f, size_t from)
{
    size_t to = from + 1;
    while (to < f->n &&
           pb_series_order(f->v[to].row->key, f->v[to].row->metric, f->v[from].row->key, f->v[from].row->metric) == 0)
        to++;
    return to;
}

/* Computes the differences of one series. Returns false if a pair has no finite difference. */
static bool differences(const figure *f, size_t n, int pairs, double *d)
{
    int complete = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        if (f[i].pair != f[i + 1].pair || f[i].side == f[i + 1].side) continue;
        d[f[i].pair] = f[i + 1].log_value - f[i].log_value;
        complete += isfinite(d[f[i].pair]);
    }
    return complete == pairs;
}

static void fill_rows(const figures *f, const pb_gates *gates, pb_sim_recorded *r)
{
    for (size_t i = 0, end; i < f->n; i = end) {
        end = series_end(f, i);
        if (!wanted(&f->v[i], gates, r->family)) continue;
        double *d = r->log_ratio + r->n * (size_t)r->pairs;
        const pb_row *row = f->v[i].row;
        if (differences(f->v + i, end - i, r->pairs, d))
            r->rows[r->n++] = (pb_sim_row){row->key, row->metric, !strcmp(row->better, "higher"), d};
        else r->left_out++;
    }
}

static pb_status make_rows(figures *f, const pb_gates *gates, pb_sim_recorded *r)
{
    size_t most = 0;
    if (!f->n) return pb_fail(PB_EINVAL, "simulate: the sessions have no rows");
    qsort(f->v, f->n, sizeof *f->v, figure_order);
    for (size_t i = 0; i < f->n; i++) r->family |= wanted(&f->v[i], gates, true);
    for (size_t i = 0; i < f->n; i = series_end(f, i)) most += wanted(&f->v[i], gates, r->family);
    r->rows = malloc((most + 1) * sizeof *r->rows);
    r->log_ratio = malloc((most + 1) * (size_t)r->pairs * sizeof *r->log_ratio);
    if (!r->rows || !r->log_ratio) return pb_fail(PB_ENOMEM, "simulate: out of memory for %zu rows", most);
    fill_rows(f, gates, r);
    if (!r->n)
        return pb_fail(PB_EINVAL, "%s: no row has a value in every process of every session (%zu rows lack one)",
                       r->first_path, r->left_out);
    return PB_OK;
}

pb_status pb_sim_read(const char *const *paths, int n, const pb_gates *gates, pb_sim_recorded *out)
{
    figures all = {0};
    *out = (pb_sim_recorded){.file = calloc(2 * (size_t)n + 1, sizeof *out->file),
                             .stored = calloc((size_t)n + 1, sizeof *out->stored)};
    pb_status s = out->file && out->stored ? PB_OK : pb_fail(PB_ENOMEM, "simulate: out of memory");
    for (int i = 0; i < n && s == PB_OK; i++) s = read_session(paths[i], out, &all);
    if (s == PB_OK) s = make_rows(&all, gates, out);
    free(all.v);
    if (s != PB_OK) pb_sim_free(out);
    return s;
}

void pb_sim_free(pb_sim_recorded *r)
{
    for (int i = 0; i < r->nfiles; i++) pb_process_values_free(&r->file[i]);
    for (int i = 0; i < r->nstored; i++) pb_stored_pairs_free(&r->stored[i]);
    free(r->file);
    free(r->stored);
    free(r->sessions);
    free(r->rows);
    free(r->log_ratio);
    *r = (pb_sim_recorded){0};
}

/* ---- entry point --------------------------------------------------------------------------------- */

static pb_status options_of(const pb_simulate_opts *o, pb_sim_opts *out)
{
    *out = (pb_sim_opts){.rule = PB_PAIR_DEFAULTS, .same_code = o->same_code, .inject = 0.02};
    if (o->inject >= 0) out->inject = o->inject;
    if (!(out->inject > 0 && out->inject < 10))
        return pb_fail(PB_EINVAL, "--inject-slowdown %g: --simulate needs a share between 0 and 10", out->inject);
    const long first = o->pairs > 0 ? o->pairs : out->rule.look[0], last = o->max_pairs > 0 ? o->max_pairs : 2 * first;
    if (first < 2 || first > last || last > PB_SIGN_FLIP_MAX)
        return pb_fail(PB_EINVAL, "--pairs %ld --max-pairs %ld: need 2 <= pairs <= max-pairs <= %d", first, last,
                       PB_SIGN_FLIP_MAX);
    if (o->trials > 100000) return pb_fail(PB_EINVAL, "--trials %ld: at most 100000", o->trials);
    out->rule.look[0] = (int)first;
    out->rule.look[1] = (int)last;
    out->trials = (int)o->trials;
    return PB_OK;
}

static pb_status simulate(const char *const *paths, int n, const pb_simulate_opts *asked, FILE *out)
{
    pb_sim_opts o;
    pb_gates gates;
    pb_sim_recorded r;
    pb_simulation sum;
    char path[PB_PATH_TEXT];
    if (!n) return pb_fail(PB_EINVAL, "--simulate: name at least one run folder or folder of recorded pairs");
    PB_TRY(options_of(asked, &o));
    snprintf(path, sizeof path, "%s/gates.csv", asked->baselines ? asked->baselines : "baselines");
    PB_TRY(pb_gates_read_for_pairs(asked->gates ? asked->gates : path, &gates));
    PB_TRY(pb_sim_read(paths, n, &gates, &r));
    o.family = r.family;
    pb_sim_found *found = malloc(r.n * sizeof *found);
    pb_status s = PB_ENOMEM;
    if (!found) pb_fail(s, "simulate: out of memory for %zu rows", r.n);
    else if (r.pairs < o.rule.look[0])
        s = pb_fail(PB_EINVAL,
                    "--simulate: %d processes were recorded, which are %d pairs; the first look needs %d pairs",
                    r.processes, r.pairs, o.rule.look[0]);
    else s = pb_simulate(r.rows, r.n, r.sessions, r.nsessions, &o, found, &sum);
    if (s == PB_OK) s = pb_sim_print(&r, &o, found, &sum, asked->all, out);
    free(found);
    pb_sim_free(&r);
    return s;
}

pb_exit pb_simulate_files(const char *const *paths, int n, const pb_simulate_opts *o, FILE *out)
{
    return pb_file_exit(simulate(paths, n, o, out));
}
