/* baseline.c - stores runs as sessions of a baseline. */
#include "bench/compare/baseline.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "bench/compare/verdict.h"
#include "bench/rows/rows.h"
#include "os/draft.h"
#include "os/file.h"

enum { MAX_SUITES = 32 };

static const char *folder_of(const pb_baseline_opts *o) { return pb_baseline_folder(o->baselines); }

/* ---- names ------------------------------------------------------------------------------------- */

static bool name_ok(const char *s)
{
    if (!*s || *s == '.') return false;
    for (; *s; s++)
        if (*s <= ' ' || *s == '/' || *s == '\\' || *s == 0x7f) return false;
    return true;
}

pb_status pb_baseline_path(const char *baselines, const char *machine_id, const char *suite, char *out, size_t n)
{
    if (!name_ok(machine_id))
        return pb_fail(PB_EINVAL, "machine_id '%.80s' cannot be used as a folder name", machine_id);
    if (!name_ok(suite)) return pb_fail(PB_EINVAL, "suite '%.80s' cannot be used as a file name", suite);
    int len = snprintf(out, n, "%s/%s/%s.csv", baselines, machine_id, suite);
    return len < 0 || (size_t)len >= n ? pb_fail(PB_EINVAL, "the path is too long (%d characters)", len) : PB_OK;
}

pb_status pb_baseline_gates(const char *baselines, const char *gates, pb_gates *out)
{
    char path[PB_PATH_TEXT];
    snprintf(path, sizeof path, "%s/gates.csv", pb_baseline_folder(baselines));
    return pb_gates_read(gates ? gates : path, out);
}

int pb_baseline_suites(const pb_series_set *set, char (*suites)[PB_AXIS_TEXT], int max)
{
    int n = 0;
    for (size_t i = 0; i < set->n && n < max; i++) {
        const char *key = set->s[i].key;
        size_t len = pb_suite_length(key);
        if (pb_key_of(key, "ceiling") || pb_baseline_derived(key) || (n && pb_key_of(key, suites[n - 1]))) continue;
        memcpy(suites[n], key, len);
        suites[n++][len] = 0;
    }
    bool ceilings = false;
    for (size_t i = 0; i < set->n; i++) ceilings |= pb_key_of(set->s[i].key, "ceiling");
    if (!n && ceilings && max) snprintf(suites[n++], PB_AXIS_TEXT, "ceiling");
    return n;
}

/* ---- writing the file -------------------------------------------------------------------------- */

/* v rounded to four significant digits; a count keeps all digits. */
static double rounded(const char *metric, double v)
{
    char text[32];
    if (pb_exact_find(metric)) return v;
    snprintf(text, sizeof text, "%.4g", v);
    return strtod(text, NULL);
}

/* True if a series is stored in this suite's baseline: its own rows and the ceilings if ok and of a metric that
 * baselines keep or that gates, all requirements with a result, and the crossovers of this suite (key
 * crossover/SUITE). */
static bool belongs(const pb_series *s, const char *suite, const pb_gates *gates)
{
    const size_t n = strlen(suite), prefix = strlen("crossover/");
    if (pb_key_of(s->key, "requirement")) return pb_row_class_of(s->status) == PB_ROW_VERDICT;
    if (pb_key_of(s->key, "crossover") && (strncmp(s->key + prefix, suite, n) != 0 || s->key[prefix + n] != '?'))
        return false;
    const bool ours = pb_key_of(s->key, suite) || pb_key_of(s->key, "ceiling") || pb_key_of(s->key, "crossover");
    const bool kept = pb_metric_stored(s->metric) || pb_gates_find(gates, s->key, s->metric)->gating;
    return ours && kept && pb_series_ok(s);
}

/* Converts a series of the run to a row of the stored session `run_id`. */
static pb_row row_of(const pb_series *s, const char *run_id, const char *reason)
{
    return (pb_row){.bench_version = s->bench_version,
                    .run_id = run_id,
                    .machine_id = s->machine_id,
                    .process = s->processes,
                    .key = s->key,
                    .metric = s->metric,
                    .unit = s->unit,
                    .better = s->better,
                    .value = rounded(s->metric, s->median),
                    .samples = 0,
                    .status = s->status,
                    .note = pb_baseline_derived(s->key) ? s->note : reason};
}

static int file_order(const void *a, const void *b)
{
    const pb_row *x = a, *y = b;
    int by_run = strcmp(x->run_id, y->run_id);
    return by_run ? by_run : pb_series_order(x->key, x->metric, y->key, y->metric);
}

/* Locks the folder, because an update reads a file and writes it again: a concurrent update waits here. Closing *out
 * releases the lock. A file system without locks is used without one. */
static pb_status lock_folder(const char *baselines, int *out)
{
    PB_TRY(pb_make_folder(baselines));
    const int fd = open(baselines, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return pb_fail_errno(errno, "%s", baselines);
    while (flock(fd, LOCK_EX) != 0 && errno == EINTR) {
    }
    *out = fd;
    return PB_OK;
}

static pb_status make_machine_folder(const char *baselines, const char *machine_id)
{
    char *path = NULL;
    PB_TRY(pb_path_join(baselines, machine_id, &path));
    const pb_status s = pb_make_folder(path);
    free(path);
    return s;
}

pb_status pb_baseline_write(const char *baselines, const char *machine_id, const char *path, const pb_row *rows,
                            size_t n)
{
    char *text = NULL;
    size_t length = 0;
    PB_TRY(pb_make_folder(baselines));
    PB_TRY(make_machine_folder(baselines, machine_id));
    FILE *f = open_memstream(&text, &length);
    if (!f) return pb_fail(PB_ENOMEM, "baseline: out of memory");
    pb_csv_header(f);
    for (size_t i = 0; i < n; i++) pb_csv_row(f, &rows[i]);
    const pb_status s =
        fclose(f) == 0 ? pb_file_replace(path, text, length) : pb_fail(PB_ENOMEM, "baseline: out of memory");
    free(text);
    return s;
}

/* ---- checks before a run is stored ---------------------------------------------------------------- */

/* Fails if a run cannot become a session: it is empty or mixed, has a wrong or failed case, or too few processes. */
static pb_status acceptable(const pb_table *t, const pb_series_set *set)
{
    if (!t->n) return pb_fail(PB_EINVAL, "%s: has a header but no rows", t->path);
    const pb_row *first = t->rows; /* strings are interned: equal strings are equal pointers */
    for (const pb_row *r = first; r < first + t->n; r++)
        if (r->run_id != first->run_id || r->machine_id != first->machine_id ||
            r->bench_version != first->bench_version)
            return pb_fail(PB_EINVAL, "%s: cannot become a baseline: it has rows of several runs, machines or versions",
                           t->path);
    for (size_t i = 0; i < set->n; i++) {
        const pb_series *s = &set->s[i];
        if (pb_key_of(s->key, "requirement")) continue;
        if (!pb_series_ok(s) && s->status != PB_ROW_UNSUPPORTED)
            return pb_fail(PB_EINVAL, "%s: cannot become a baseline: %s %s is %s", t->path, s->key, s->metric,
                           pb_row_status_name(s->status));
        if (pb_series_ok(s) && s->processes < PB_ENOUGH_PROCESSES)
            return pb_fail(PB_EINVAL, "%s: cannot become a baseline: %s has %d of the %d processes needed", t->path,
                           s->key, s->processes, PB_ENOUGH_PROCESSES);
    }
    if (pb_stored(first->run_id))
        return pb_fail(PB_EINVAL, "%s: this is a stored baseline; name a run instead", t->path);
    return PB_OK;
}

/* One baseline file that is to be written, with its old and its new contents. */
typedef struct target {
    char suite[PB_AXIS_TEXT], path[PB_PATH_TEXT];
    pb_table old;      /* the rows of the existing file; empty if the file does not exist */
    pb_series_set set; /* the series of `old` */
    pb_row *rows;      /* [n]: rows of the new file */
    size_t n;
    int sessions, dropped; /* sessions in the new file; old sessions that are dropped */
} target;

typedef struct storing {
    const pb_baseline_opts *o;
    bool update;
    pb_table run;
    pb_series_set set;
    char run_id[PB_KEY_TEXT]; /* of the new session, with the prefix "baseline:" */
    pb_gates gates;
    target target[MAX_SUITES];
    int n;           /* number of targets */
    pb_exit refused; /* exit code if the store fails with PB_EINVAL */
    int lock;        /* descriptor that holds the lock on the baselines' folder; -1: not locked */
} storing;

static const pb_verdict *first_of(const pb_verdicts *vs, pb_verdict_id id)
{
    for (size_t i = 0; i < vs->n; i++)
        if (vs->v[i].counts && vs->v[i].id == id) return &vs->v[i];
    return NULL;
}

/* Fails if the verdicts forbid storing the run; see baseline.h. */
static pb_status refuse(storing *s, const target *t, const pb_verdicts *vs)
{
    const int *n = vs->count;
    const pb_verdict *bad = first_of(vs, PB_VERDICT_INCOMPARABLE);
    if (s->update && bad)
        return pb_fail(PB_EINVAL,
                       "%s: %s %s cannot be compared with the stored sessions: %s; `bench baseline save` replaces them",
                       t->path, bad->cand->key, bad->cand->metric, bad->why);
    if (s->o->accept_regression) return PB_OK;
    if ((bad = first_of(vs, PB_VERDICT_REGRESSED))) {
        s->refused = PB_EXIT_REGRESSION;
        return pb_fail(
            PB_EINVAL,
            "%s: not stored: %d row%s REGRESSED, such as %s of %s (%.3g %% worse); --accept-regression stores the run",
            t->path, n[PB_VERDICT_REGRESSED], n[PB_VERDICT_REGRESSED] == 1 ? " is" : "s are", bad->cand->metric,
            bad->cand->key, 100 * (bad->worse - 1));
    }
    if (s->update && (bad = first_of(vs, PB_VERDICT_MISSING))) {
        s->refused = PB_EXIT_INCOMPARABLE;
        return pb_fail(
            PB_EINVAL,
            "%s: not stored: the run lacks %d gating row%s, such as %s of %s; --accept-regression stores the run",
            t->path, n[PB_VERDICT_MISSING], n[PB_VERDICT_MISSING] == 1 ? "" : "s", bad->base->metric, bad->base->key);
    }
    return PB_OK;
}

static pb_status compare_with_stored(storing *s, target *t)
{
    pb_verdicts vs = {0};
    pb_status st = pb_judge(&t->set, &s->set, &s->gates, t->suite, &(pb_judge_opts){false, false}, &vs);
    if (st == PB_OK) st = pb_verdicts_decide(&vs);
    if (st == PB_OK) st = refuse(s, t, &vs);
    pb_verdicts_free(&vs);
    return st;
}

static pb_status read_stored(const storing *s, target *t)
{
    PB_TRY(pb_table_read(t->path, &t->old));
    for (size_t i = 0; i < t->old.n; i++) {
        const pb_row *r = &t->old.rows[i];
        if (!pb_stored(r->run_id))
            return pb_fail(PB_EINVAL, "%s: the file has rows of a run, not of a baseline", t->path);
        if (s->update && strcmp(r->run_id, s->run_id) == 0)
            return pb_fail(PB_EINVAL, "%s: run %s is already a session of this baseline", t->path,
                           s->run_id + strlen(PB_BASELINE_RUN));
    }
    return pb_series_make(&t->old, &t->set);
}

/* ---- the new file --------------------------------------------------------------------------------- */

/* Counts the sessions of sorted rows in *sessions. Returns the index at which the last `keep` sessions begin. */
static size_t kept_from(const pb_row *rows, size_t n, int keep, int *sessions)
{
    size_t from = n;
    *sessions = 0;
    for (size_t i = n; i-- > 0;) {
        *sessions += i + 1 == n || strcmp(rows[i].run_id, rows[i + 1].run_id) != 0;
        if (*sessions <= keep) from = i;
    }
    return from;
}

static pb_status make_rows(const storing *s, target *t)
{
    const int keep = !s->update ? 1 : s->o->sessions > 0 ? s->o->sessions : PB_BASELINE_SESSIONS;
    const char *reason = s->o->reason ? s->o->reason : "";
    size_t n = s->update ? t->old.n : 0;
    t->rows = malloc((n + s->set.n + 1) * sizeof *t->rows);
    if (!t->rows) return pb_fail(PB_ENOMEM, "baseline: out of memory");
    if (n) memcpy(t->rows, t->old.rows, n * sizeof *t->rows);
    for (size_t i = 0; i < s->set.n; i++)
        if (belongs(&s->set.s[i], t->suite, &s->gates)) t->rows[n++] = row_of(&s->set.s[i], s->run_id, reason);
    qsort(t->rows, n, sizeof *t->rows, file_order);
    size_t from = kept_from(t->rows, n, keep, &t->sessions);
    t->dropped = t->sessions > keep ? t->sessions - keep : 0;
    t->sessions -= t->dropped;
    t->n = n - from;
    memmove(t->rows, t->rows + from, t->n * sizeof *t->rows);
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->rows[i].run_id, s->run_id) == 0) return PB_OK;
    return pb_fail(PB_EINVAL, "%s: not stored: run %s is older than the %d sessions that the baseline keeps", t->path,
                   s->run_id + strlen(PB_BASELINE_RUN), keep);
}

static pb_status prepare(storing *s, target *t)
{
    const char *machine = s->set.s[0].machine_id;
    PB_TRY(pb_baseline_path(folder_of(s->o), machine, t->suite, t->path, sizeof t->path));
    if (access(t->path, F_OK) == 0) {
        PB_TRY(read_stored(s, t));
        PB_TRY(compare_with_stored(s, t));
    }
    return make_rows(s, t);
}

/* Reads the gates. Where no baseline is stored yet, there may be no gates.csv either. */
static pb_status read_gates(storing *s)
{
    const pb_status st = pb_baseline_gates(s->o->baselines, s->o->gates, &s->gates);
    if (st != PB_EPATH || s->o->gates) return st;
    s->gates.n = 0;
    return PB_OK;
}

/* Prepares and checks all files before it writes the first one. */
static pb_status store(storing *s, FILE *out)
{
    char suites[MAX_SUITES][PB_AXIS_TEXT];
    PB_TRY(acceptable(&s->run, &s->set));
    PB_TRY(read_gates(s));
    PB_TRY(lock_folder(folder_of(s->o), &s->lock));
    snprintf(s->run_id, sizeof s->run_id, "%s%s", PB_BASELINE_RUN, s->run.rows[0].run_id);
    int n = pb_baseline_suites(&s->set, suites, MAX_SUITES);
    if (!n) return pb_fail(PB_EINVAL, "%s: the run has no suite that a baseline can store", s->run.path);
    for (int i = 0; i < n; i++) {
        memcpy(s->target[i].suite, suites[i], sizeof suites[i]);
        s->n++;
        PB_TRY(prepare(s, &s->target[i]));
    }
    for (int i = 0; i < n; i++) {
        const target *t = &s->target[i];
        PB_TRY(pb_baseline_write(folder_of(s->o), s->set.s[0].machine_id, t->path, t->rows, t->n));
        fprintf(out, "saved %s: %zu rows, %d session%s", t->path, t->n, t->sessions, t->sessions == 1 ? "" : "s");
        if (t->dropped) fprintf(out, " (%d older dropped)", t->dropped);
        fprintf(out, ", the newest from %s\n", s->run.path);
    }
    return PB_OK;
}

static void close_storing(storing *s)
{
    for (int i = 0; i < s->n; i++) {
        pb_series_free(&s->target[i].set);
        pb_table_free(&s->target[i].old);
        free(s->target[i].rows);
    }
    pb_series_free(&s->set);
    pb_table_free(&s->run);
    if (s->lock >= 0) close(s->lock);
    free(s);
}

static pb_exit baseline(const char *run, const pb_baseline_opts *o, bool update, FILE *out)
{
    char newest[PB_PATH_TEXT];
    if ((update || o->accept_regression) && (!o->reason || !*o->reason))
        return pb_file_exit(
            pb_fail(PB_EINVAL, "baseline %s: a reason is required: --reason TEXT", update ? "update" : "save"));
    storing *s = calloc(1, sizeof *s);
    if (!s) return pb_file_exit(pb_fail(PB_ENOMEM, "baseline: out of memory"));
    s->o = o;
    s->update = update;
    s->refused = PB_EXIT_USAGE;
    s->lock = -1;
    pb_status st = run ? PB_OK : pb_newest_run(o->runs ? o->runs : "runs", newest, sizeof newest);
    if (st == PB_OK) st = pb_table_read(run ? run : newest, &s->run);
    if (st == PB_OK) st = pb_series_make(&s->run, &s->set);
    if (st == PB_OK) st = store(s, out);
    pb_exit e = st == PB_EINVAL ? s->refused : pb_file_exit(st);
    close_storing(s);
    return e;
}

pb_exit pb_baseline_save(const char *run, const pb_baseline_opts *o, FILE *out) { return baseline(run, o, false, out); }

pb_exit pb_baseline_update(const char *run, const pb_baseline_opts *o, FILE *out)
{
    return baseline(run, o, true, out);
}
