/* kept_sessions.c - finds, writes and reads the sessions that are kept in the user's state folder. */
#include "bench/compare/kept_sessions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/compare/baseline.h"
#include "bench/compare/session_file.h"
#include "bench/machine/machine.h"
#include "os/file.h"

enum { MAX_SUITES = 32 };

/* ---- the folders of kept sessions ------------------------------------------------------------------------- */

pb_status pb_kept_root(char *out, size_t n)
{
    const char *state = getenv("PB_STATE"), *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int len;
    if (state) len = snprintf(out, n, "%s", state);
    else if (xdg && *xdg == '/') len = snprintf(out, n, "%s/plumb", xdg); /* XDG: a relative path is ignored */
    else if (home && *home) len = snprintf(out, n, "%s/.local/state/plumb", home);
    else return pb_fail(PB_EINVAL, "neither PB_STATE, XDG_STATE_HOME nor HOME is set");
    return len < 0 || (size_t)len >= n ? pb_fail(PB_EINVAL, "the path is too long (%d characters)", len) : PB_OK;
}

void pb_kept_host(const char *host, char *out, size_t n)
{
    const pb_host h = pb_host_parse(host);
    if (h.verified) snprintf(out, n, "%s", *h.name ? h.name : h.hash);
    else snprintf(out, n, "unverified%s%s", *h.hash ? "-" : "", h.hash);
}

/* Writes the folder in which the run's host has its sessions; "": nothing is kept. */
static pb_status folder_of(const pb_row *run, char *out, size_t n)
{
    char root[PB_PATH_TEXT], host[PB_PATH_TEXT], machine[PB_PATH_TEXT];
    *out = 0;
    PB_TRY(pb_kept_root(root, sizeof root));
    if (!*root) return PB_OK;
    pb_kept_host(run->host, host, sizeof host);
    PB_TRY(pb_baseline_path(root, run->machine_id, "x", machine, sizeof machine)); /* checks the machine_id */
    const int len = snprintf(out, n, "%s/%s/%s", root, run->machine_id, host);
    return len < 0 || (size_t)len >= n ? pb_fail(PB_EINVAL, "the path is too long (%d characters)", len) : PB_OK;
}

/* Creates a folder and its parents. */
static pb_status make_folders(char *path)
{
    pb_status s = PB_OK;
    for (char *p = path + 1; s == PB_OK && (p = strchr(p, '/')); p++) {
        *p = 0;
        s = pb_make_folder(path);
        *p = '/';
    }
    return s == PB_OK ? pb_make_folder(path) : s;
}

/* ---- keeping a run ---------------------------------------------------------------------------------------- */

static bool has_session(const pb_table *t, const char *run_id)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->rows[i].run_id, run_id) == 0) return true;
    return false;
}

/* Adds the session to the rows of the file, which is `old` (NULL: no file). *written: the file was changed. */
static pb_status keep_in(const char *path, const pb_table *old, const pb_new_session *new, bool *written)
{
    pb_row *rows;
    size_t n;
    if (old && has_session(old, new->run_id)) return PB_OK;
    pb_status s = pb_session_rows(old, new, &rows, &n);
    if (s == PB_OK) s = pb_session_limit(rows, &n, PB_BASELINE_SESSIONS);
    if (s == PB_OK) s = pb_session_write(path, rows, n);
    free(rows);
    *written = s == PB_OK;
    return s;
}

static pb_status keep_suite(const char *folder, const pb_new_session *new, char *said, size_t n)
{
    char path[2 * PB_PATH_TEXT];
    pb_table old;
    bool written = false;
    snprintf(path, sizeof path, "%s/%s.csv", folder, new->suite);
    const bool exists = access(path, F_OK) == 0;
    if (exists) PB_TRY(pb_table_read(path, &old));
    const pb_status s = keep_in(path, exists ? &old : NULL, new, &written);
    if (exists) pb_table_free(&old);
    if (written) snprintf(said, n, "%s", path);
    return s;
}

pb_status pb_kept_add(const pb_table *run, const pb_series_set *set, const pb_gates *gates, char *said, size_t n)
{
    char folder[PB_PATH_TEXT], run_id[PB_KEY_TEXT], suites[MAX_SUITES][PB_AXIS_TEXT];
    int lock;
    *said = 0;
    if (run->n) PB_TRY(folder_of(run->rows, folder, sizeof folder));
    if (run->n && !*folder) return PB_OK;
    PB_TRY(pb_session_check(run, set, gates));
    PB_TRY(make_folders(folder));
    PB_TRY(pb_session_lock(folder, &lock));
    snprintf(run_id, sizeof run_id, "%s%s", PB_BASELINE_RUN, run->rows->run_id);
    const int most = pb_baseline_suites(set, suites, MAX_SUITES);
    pb_status s = PB_OK;
    for (int i = 0; i < most && s == PB_OK; i++)
        s = keep_suite(folder, &(pb_new_session){set, suites[i], run_id, "", gates, run->rows[0].commit}, said, n);
    close(lock);
    return s;
}

/* ---- adding kept sessions to a baseline ------------------------------------------------------------------------ */

static const char *copy(pb_strings *s, const char *text) { return pb_intern(s, text, strlen(text)); }

/* Copies a row into *t, which has room for it. */
static pb_status add_row(pb_table *t, const pb_row *r)
{
    const pb_row now = {.bench_version = copy(t->strings, r->bench_version),
                        .run_id = copy(t->strings, r->run_id),
                        .machine_id = copy(t->strings, r->machine_id),
                        .process = r->process,
                        .key = copy(t->keys, r->key),
                        .metric = copy(t->strings, r->metric),
                        .unit = copy(t->strings, r->unit),
                        .better = copy(t->strings, r->better),
                        .value = r->value,
                        .samples = r->samples,
                        .status = r->status,
                        .note = copy(t->strings, r->note),
                        .host = copy(t->strings, r->host)};
    if (!now.bench_version || !now.run_id || !now.machine_id || !now.key || !now.metric || !now.unit || !now.better ||
        !now.note || !now.host)
        return pb_fail(PB_ENOMEM, "%s: out of memory", t->path);
    t->rows[t->n++] = now;
    t->kept++;
    return PB_OK;
}

/* Adds the rows of `kept` to *t that satisfy the conditions in kept_sessions.h (pb_kept_join). */
static pb_status join_rows(pb_table *t, const pb_table *kept, const pb_table *run, const pb_series_set *set)
{
    const size_t before = t->n;
    pb_row *rows = realloc(t->rows, (t->n + kept->n + 1) * sizeof *rows);
    if (!rows) return pb_fail(PB_ENOMEM, "%s: out of memory", t->path);
    t->rows = rows;
    const pb_table own = {.rows = rows, .n = before};
    for (size_t i = 0; i < kept->n; i++) {
        const pb_row *r = &kept->rows[i];
        const bool itself = pb_stored(r->run_id) && strcmp(r->run_id + strlen(PB_BASELINE_RUN), run->rows->run_id) == 0;
        if (pb_exact_find(r->metric)) continue;
        if (itself || !pb_stored(r->run_id) || strcmp(r->bench_version, run->rows->bench_version) != 0 ||
            has_session(&own, r->run_id) || !pb_series_find(set, r->key, r->metric))
            continue;
        PB_TRY(add_row(t, r));
    }
    return PB_OK;
}

/* Makes *t a table without rows if it is all zero. */
static pb_status begin_table(pb_table *t, const char *path)
{
    if (t->strings) return PB_OK;
    snprintf(t->path, sizeof t->path, "%.*s", PB_PATH_TEXT - 1, path);
    t->strings = pb_strings_new();
    t->keys = pb_strings_new();
    return t->strings && t->keys ? PB_OK : pb_fail(PB_ENOMEM, "%s: out of memory", path);
}

pb_status pb_kept_join(pb_table *t, const pb_table *run, const pb_series_set *set, const char *suite)
{
    char folder[PB_PATH_TEXT], path[2 * PB_PATH_TEXT];
    pb_table kept;
    PB_TRY(folder_of(run->rows, folder, sizeof folder));
    if (!*folder) return PB_OK;
    snprintf(path, sizeof path, "%s/%s.csv", folder, suite);
    if (access(path, F_OK) != 0) return PB_OK;
    PB_TRY(begin_table(t, path));
    PB_TRY(pb_table_read(path, &kept));
    const pb_status s = join_rows(t, &kept, run, set);
    pb_table_free(&kept);
    return s;
}
