/* baseline.c - stores runs as sessions of a baseline. */
#include "bench/compare/baseline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/compare/session_file.h"
#include "bench/compare/verdict.h"
#include "bench/machine/machine.h"
#include "bench/rows/rows.h"
#include "os/draft.h"
#include "os/file.h"
#include "os/text.h"

enum { MAX_SUITES = 32, VERDICTS = 256 };

static const char *folder_of(const pb_baseline_opts *o) { return pb_baseline_folder(o->baselines); }

/* ---- paths and suites of baselines ---------------------------------------------------------------- */

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
    PB_TRY(make_machine_folder(baselines, machine_id));
    return pb_session_write(path, rows, n);
}

/* ---- checks before a run is stored ---------------------------------------------------------------- */

/* One baseline file that is to be written, with its old and its new contents. */
typedef struct target {
    char suite[PB_AXIS_TEXT], path[PB_PATH_TEXT];
    pb_table old;      /* the rows of the existing file; empty if the file does not exist */
    pb_series_set set; /* the series of `old` */
    pb_row *rows;      /* [n]: rows of the new file */
    size_t n;
    int sessions, dropped;   /* sessions in the new file; old sessions of which no row is left */
    char verdicts[VERDICTS]; /* of the run against the old sessions; "": no old session, or no row gates */
} target;

typedef struct storing {
    const pb_baseline_opts *o;
    bool update;
    pb_table run;
    pb_series_set set;
    char run_id[PB_KEY_TEXT]; /* run_id of the new session, with the prefix "baseline:" */
    pb_gates gates;
    target target[MAX_SUITES];
    int n;           /* number of targets */
    pb_exit refused; /* exit code if the store fails with PB_EINVAL */
    int lock;        /* descriptor that holds the lock on the baselines' folder; -1: not locked */
} storing;

/* The first row with this verdict that gates or counts; *n: the number of such rows. NULL: none. */
static const pb_verdict *first_of(const pb_verdicts *vs, pb_verdict_id id, int *n)
{
    const pb_verdict *first = NULL;
    *n = 0;
    for (size_t i = 0; i < vs->n; i++) {
        const pb_verdict *v = &vs->v[i];
        if (v->id != id || !(v->counts || v->gate->gating)) continue;
        if (!(*n)++) first = v;
    }
    return first;
}

/* Fails if the verdicts forbid storing the run; see baseline.h. */
static pb_status refuse(storing *s, const target *t, const pb_verdicts *vs)
{
    int n;
    const pb_verdict *bad = first_of(vs, PB_VERDICT_INCOMPARABLE, &n);
    if (s->update && bad)
        return pb_fail(PB_EINVAL,
                       "%s: %s %s cannot be compared with the stored sessions: %s; `bench baseline save` replaces them",
                       t->path, bad->cand->key, bad->cand->metric, bad->why);
    if (!s->update || s->o->subset) return PB_OK;
    if ((bad = first_of(vs, PB_VERDICT_MISSING, &n))) {
        s->refused = PB_EXIT_INCOMPARABLE;
        return pb_fail(
            PB_EINVAL,
            "%s: not stored: the run lacks %d gating row%s, such as %s of %s; --subset stores it nevertheless", t->path,
            n, n == 1 ? "" : "s", bad->base->metric, bad->base->key);
    }
    return PB_OK;
}

/* Writes how many gating rows have which verdict, such as "1 REGRESSED, 2 SAME". */
static void count_verdicts(const pb_verdicts *vs, char out[VERDICTS])
{
    size_t used = 0;
    *out = 0;
    for (int id = 0; id < PB_NVERDICTS && used < VERDICTS; id++)
        if (vs->count[id])
            used += (size_t)snprintf(out + used, VERDICTS - used, "%s%d %s", used ? ", " : "", vs->count[id],
                                     pb_verdict_names[id]);
}

static pb_status compare_with_stored(storing *s, target *t)
{
    pb_verdicts vs = {0};
    pb_status st = pb_judge(&t->set, &s->set, &s->gates, t->suite, &(pb_judge_opts){false, false}, &vs);
    if (st == PB_OK) st = pb_verdicts_decide(&vs);
    if (st == PB_OK) st = refuse(s, t, &vs);
    if (st == PB_OK) count_verdicts(&vs, t->verdicts);
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

/* ---- making and writing the new files ------------------------------------------------------------- */

/* Returns the number of sessions in rows that are sorted as in a file. */
static int sessions_in(const pb_row *rows, size_t n)
{
    int sessions = 0;
    for (size_t i = 0; i < n; i++) sessions += i == 0 || strcmp(rows[i].run_id, rows[i - 1].run_id) != 0;
    return sessions;
}

static pb_status make_rows(const storing *s, target *t)
{
    const int keep = !s->update ? 1 : s->o->sessions > 0 ? s->o->sessions : PB_BASELINE_SESSIONS;
    const pb_new_session new = {
        &s->set, t->suite, s->run_id, s->o->reason ? s->o->reason : "", &s->gates, s->run.rows[0].commit};
    PB_TRY(pb_session_rows(s->update ? &t->old : NULL, &new, &t->rows, &t->n));
    t->dropped = sessions_in(t->rows, t->n);
    PB_TRY(pb_session_limit(t->rows, &t->n, keep));
    t->sessions = sessions_in(t->rows, t->n);
    t->dropped -= t->sessions;
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->rows[i].run_id, s->run_id) == 0) return PB_OK;
    return pb_fail(PB_EINVAL,
                   "%s: not stored: the baseline keeps the newest %d values of each row, and run %s is older", t->path,
                   keep, s->run_id + strlen(PB_BASELINE_RUN));
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

/* Reads the gates. A missing gates.csv is no error unless the user named it: before the first baseline it may not
 * exist. */
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
    PB_TRY(read_gates(s));
    PB_TRY(pb_session_check(&s->run, &s->set, &s->gates));
    PB_TRY(pb_session_lock(folder_of(s->o), &s->lock));
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
        if (*t->verdicts) fprintf(out, "against the sessions before: %s\n", t->verdicts);
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
    if (update && (!o->reason || !o->reason[strspn(o->reason, " ")]))
        return pb_file_exit(pb_fail(PB_EINVAL, "baseline update: a reason is required: --reason TEXT"));
    if (o->reason && !pb_is_printable(o->reason))
        return pb_file_exit(pb_fail(PB_EINVAL, "baseline: --reason: need a text without control characters"));
    storing *s = calloc(1, sizeof *s);
    if (!s) return pb_file_exit(pb_fail(PB_ENOMEM, "baseline: out of memory"));
    s->o = o;
    s->update = update;
    s->refused = PB_EXIT_USAGE;
    s->lock = -1;
    pb_status st = run ? PB_OK : pb_newest_run(o->runs ? o->runs : "runs", newest, sizeof newest);
    if (st == PB_OK) st = pb_table_read(run ? run : newest, &s->run);
    if (st == PB_OK && o->machine) st = pb_host_name_rows(&s->run, o->machine);
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
