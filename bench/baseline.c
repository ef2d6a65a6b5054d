/* baseline.c - saves and lists stored baselines. */
#include "bench/baseline.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/results.h"

enum { MAX_SUITES = 32 };

static const char *folder_of(const pb_baseline_opts *o) { return o->baselines ? o->baselines : "baselines"; }

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
    if (!name_ok(machine_id)) return pb_fail(PB_EINVAL, "machine_id '%.80s' cannot name a folder", machine_id);
    if (!name_ok(suite)) return pb_fail(PB_EINVAL, "suite '%.80s' cannot name a file", suite);
    int len = snprintf(out, n, "%s/%s/%s.csv", baselines, machine_id, suite);
    return len < 0 || (size_t)len >= n ? pb_fail(PB_EINVAL, "a path of %d characters", len) : PB_OK;
}

/* Rows that follow from those of a suite, and are stored with them. */
static bool derived(const char *key) { return pb_key_of(key, "contract") || pb_key_of(key, "crossover"); }

int pb_baseline_suites(const pb_series_set *set, char (*suites)[PB_AXIS_TEXT], int max)
{
    int n = 0;
    for (size_t i = 0; i < set->n && n < max; i++) {
        const char *key = set->s[i].key;
        size_t len = pb_suite_length(key);
        if (pb_key_of(key, "ceiling") || derived(key) || (n && pb_key_of(key, suites[n - 1]))) continue;
        memcpy(suites[n], key, len);
        suites[n++][len] = 0;
    }
    bool ceilings = false;
    for (size_t i = 0; i < set->n; i++) ceilings |= pb_key_of(set->s[i].key, "ceiling");
    if (!n && ceilings && max) snprintf(suites[n++], PB_AXIS_TEXT, "ceiling");
    return n;
}

/* ---- writing ----------------------------------------------------------------------------------- */

/* To four digits. */
static double rounded(double v)
{
    char text[32];
    snprintf(text, sizeof text, "%.4g", v);
    return strtod(text, NULL);
}

/* Figures, and verdicts of contracts. A crossover names the suite it is of: crossover/SUITE. */
static bool belongs(const pb_series *s, const char *suite)
{
    const size_t n = strlen(suite), prefix = strlen("crossover/");
    if (pb_key_of(s->key, "contract")) return strcmp(s->status, "pass") == 0 || strcmp(s->status, "fail") == 0;
    if (pb_key_of(s->key, "crossover") && (strncmp(s->key + prefix, suite, n) != 0 || s->key[prefix + n] != '?'))
        return false;
    const bool ours = pb_key_of(s->key, suite) || pb_key_of(s->key, "ceiling") || pb_key_of(s->key, "crossover");
    return ours && pb_series_ok(s);
}

static int write_rows(FILE *f, const pb_series_set *set, const char *suite, const char *reason)
{
    int n = 0;
    pb_csv_header(f);
    for (size_t i = 0; i < set->n; i++) {
        const pb_series *s = &set->s[i];
        char run_id[PB_KEY_TEXT];
        if (!belongs(s, suite)) continue;
        snprintf(run_id, sizeof run_id, "%s%s", PB_BASELINE_RUN, s->run_id);
        pb_csv_row(f, &(pb_row){.bench_version = s->bench_version,
                                .run_id = run_id,
                                .machine_id = s->machine_id,
                                .launch = s->launches,
                                .key = s->key,
                                .metric = s->metric,
                                .unit = s->unit,
                                .better = s->better,
                                .value = rounded(s->median),
                                .samples = 0,
                                .status = s->status,
                                .note = derived(s->key) ? s->note : reason});
        n++;
    }
    return n;
}

static pb_status make_folders(const char *baselines, const char *machine_id)
{
    char path[PB_PATH_TEXT];
    snprintf(path, sizeof path, "%s/%s", baselines, machine_id);
    if (mkdir(baselines, 0777) != 0 && errno != EEXIST) return pb_fail(PB_EIO, "%s: %s", baselines, strerror(errno));
    if (mkdir(path, 0777) != 0 && errno != EEXIST) return pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
    return PB_OK;
}

/* A reader sees the old file or the new one, never half of one. */
static pb_status replace(const char *path, const pb_series_set *set, const char *suite, const char *reason, int *rows)
{
    char temporary[PB_PATH_TEXT + 8];
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    FILE *f = fopen(temporary, "wb");
    if (!f) return pb_fail(PB_EIO, "%s: %s", temporary, strerror(errno));
    *rows = write_rows(f, set, suite, reason);
    bool ok = fflush(f) == 0 && !ferror(f) && fsync(fileno(f)) == 0;
    ok = fclose(f) == 0 && ok;
    if (ok && rename(temporary, path) == 0) return PB_OK;
    pb_status s = pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
    unlink(temporary);
    return s;
}

/* ---- saving ------------------------------------------------------------------------------------ */

/* Whether a run may become what later ones are measured against. */
static pb_status acceptable(const pb_table *t, const pb_series_set *set)
{
    if (!t->n) return pb_fail(PB_EINVAL, "%s: has a header but no rows", t->path);
    const pb_row *first = t->rows; /* equal strings of a table are equal pointers */
    for (const pb_row *r = first; r < first + t->n; r++)
        if (r->run_id != first->run_id || r->machine_id != first->machine_id ||
            r->bench_version != first->bench_version)
            return pb_fail(PB_EINVAL, "%s: no baseline from it: rows of several runs, machines or versions", t->path);
    for (size_t i = 0; i < set->n; i++) {
        const pb_series *s = &set->s[i];
        if (pb_key_of(s->key, "contract")) continue;
        if (!pb_series_ok(s) && strcmp(s->status, "unsupported") != 0)
            return pb_fail(PB_EINVAL, "%s: no baseline from this run: %s %s is %s", t->path, s->key, s->metric,
                           s->status);
        if (pb_series_ok(s) && s->launches < PB_BASELINE_LAUNCHES)
            return pb_fail(PB_EINVAL, "%s: no baseline from this run: %d launches of %s, need %d", t->path, s->launches,
                           s->key, PB_BASELINE_LAUNCHES);
    }
    if (!strncmp(first->run_id, PB_BASELINE_RUN, strlen(PB_BASELINE_RUN)))
        return pb_fail(PB_EINVAL, "%s: is a baseline already", t->path);
    return PB_OK;
}

static pb_status save(const pb_table *t, const pb_series_set *set, const pb_baseline_opts *o, FILE *out)
{
    char suites[MAX_SUITES][PB_AXIS_TEXT], path[PB_PATH_TEXT];
    int rows = 0, n = pb_baseline_suites(set, suites, MAX_SUITES);
    PB_TRY(acceptable(t, set));
    if (!n) return pb_fail(PB_EINVAL, "%s: no suite to save", t->path);
    for (int i = 0; i < n; i++) {
        PB_TRY(pb_baseline_path(folder_of(o), set->s[0].machine_id, suites[i], path, sizeof path));
        PB_TRY(make_folders(folder_of(o), set->s[0].machine_id));
        PB_TRY(replace(path, set, suites[i], o->reason ? o->reason : "", &rows));
        fprintf(out, "saved %s: %d rows from %s\n", path, rows, t->path);
    }
    return PB_OK;
}

pb_exit pb_baseline_save(const char *run, const pb_baseline_opts *o, FILE *out)
{
    char newest[PB_PATH_TEXT];
    pb_table t;
    pb_series_set set = {NULL, 0};
    pb_status s = run ? PB_OK : pb_newest_run(o->runs ? o->runs : "runs", newest, sizeof newest);
    if (s == PB_OK) s = pb_table_read(run ? run : newest, &t);
    if (s != PB_OK) return pb_file_exit(s);
    s = pb_series_make(&t, &set);
    if (s == PB_OK) s = save(&t, &set, o, out);
    pb_series_free(&set);
    pb_table_free(&t);
    return pb_file_exit(s);
}

/* ---- showing ----------------------------------------------------------------------------------- */

static int not_hidden(const struct dirent *e) { return e->d_name[0] != '.'; }

static pb_status show_file(const char *machine_id, const char *path, const char *name, FILE *out)
{
    pb_table t;
    PB_TRY(pb_table_read(path, &t));
    if (t.n) {
        const pb_row *r = &t.rows[0];
        bool stored = !strncmp(r->run_id, PB_BASELINE_RUN, strlen(PB_BASELINE_RUN));
        const char *run = stored ? r->run_id + strlen(PB_BASELINE_RUN) : r->run_id;
        long long least = r->launch;
        for (size_t i = 1; i < t.n; i++)
            if (t.rows[i].launch < least && !derived(t.rows[i].key)) least = t.rows[i].launch;
        fprintf(out, "%s %.*s: %zu rows, %lld launches, bench_version %s, from %s%s%s\n", machine_id,
                (int)strcspn(name, "."), name, t.n, least, r->bench_version, run, *r->note ? ": " : "", r->note);
    }
    pb_table_free(&t);
    return PB_OK;
}

static pb_status show_machine(const char *baselines, const char *machine_id, FILE *out, int *shown)
{
    char folder[PB_PATH_TEXT], path[2 * PB_PATH_TEXT];
    struct dirent **files;
    pb_status s = PB_OK;
    snprintf(folder, sizeof folder, "%s/%s", baselines, machine_id);
    int n = scandir(folder, &files, not_hidden, alphasort);
    for (int i = 0; i < n; i++) {
        const char *name = files[i]->d_name, *dot = strrchr(name, '.');
        snprintf(path, sizeof path, "%s/%s", folder, name);
        if (s == PB_OK && dot && !strcmp(dot, ".csv")) {
            s = show_file(machine_id, path, name, out);
            ++*shown;
        }
        free(files[i]);
    }
    if (n >= 0) free(files);
    return s;
}

pb_exit pb_baseline_show(const char *machine_id, const pb_baseline_opts *o, FILE *out)
{
    struct dirent **machines;
    pb_status s = PB_OK;
    int shown = 0, n = scandir(folder_of(o), &machines, not_hidden, alphasort);
    if (n < 0) {
        pb_fail(PB_EIO, "%s: %s", folder_of(o), strerror(errno));
        return PB_EXIT_USAGE;
    }
    for (int i = 0; i < n; i++) {
        if (s == PB_OK && (!machine_id || !strcmp(machine_id, machines[i]->d_name)))
            s = show_machine(folder_of(o), machines[i]->d_name, out, &shown);
        free(machines[i]);
    }
    free(machines);
    if (s == PB_OK && !shown)
        s = pb_fail(PB_EINVAL, "%s: no baseline%s%s; save one with `bench baseline save`", folder_of(o),
                    machine_id ? " of " : "", machine_id ? machine_id : "");
    return pb_file_exit(s);
}
