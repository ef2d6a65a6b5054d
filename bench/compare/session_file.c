/* session_file.c - turns runs into sessions, and writes the files that hold them. */
#include "bench/compare/session_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "bench/compare/baseline.h"
#include "bench/compare/soft_differences.h"
#include "bench/machine/machine.h"
#include "bench/rows/rows.h"
#include "os/draft.h"
#include "os/file.h"

/* ---- the rows of a session -------------------------------------------------------------------------- */

/* Returns v rounded to four significant digits. The value of an exact counter keeps all digits. */
static double rounded(const char *metric, double v)
{
    char text[32];
    if (pb_exact_find(metric)) return v;
    snprintf(text, sizeof text, "%.4g", v);
    return strtod(text, NULL);
}

/* True if baselines store the metric of a series, or it gates. */
static bool is_stored(const pb_series *s, const pb_gates *gates)
{
    return pb_metric_stored(s->metric) || pb_gates_find(gates, s->key, s->metric)->gating;
}

/* True if a series is stored in the baseline of `suite`. These series are: those of the suite and the ceilings, if they
 * are ok and their metric gates or is one that baselines store; requirements with a result; and crossovers of the suite
 * (key crossover/SUITE). */
static bool belongs(const pb_series *s, const char *suite, const pb_gates *gates)
{
    const size_t n = strlen(suite), prefix = strlen("crossover/");
    if (pb_key_of(s->key, "requirement")) return pb_row_class_of(s->status) == PB_ROW_VERDICT;
    if (pb_key_of(s->key, "crossover") && (strncmp(s->key + prefix, suite, n) != 0 || s->key[prefix + n] != '?'))
        return false;
    const bool ours = pb_key_of(s->key, suite) || pb_key_of(s->key, "ceiling") || pb_key_of(s->key, "crossover");
    return ours && is_stored(s, gates) && pb_series_ok(s);
}

/* Converts a series of the run to a row of the stored session. */
static pb_row row_of(const pb_series *s, const pb_new_session *new)
{
    return (pb_row){.bench_version = s->bench_version,
                    .run_id = new->run_id,
                    .machine_id = s->machine_id,
                    .process = s->processes,
                    .key = s->key,
                    .metric = s->metric,
                    .unit = s->unit,
                    .better = s->better,
                    .value = rounded(s->metric, s->median),
                    .samples = 0,
                    .status = s->status,
                    .note = pb_baseline_derived(s->key) ? s->note : new->reason,
                    .commit = new->commit,
                    .host = s->host};
}

static int file_order(const void *a, const void *b)
{
    const pb_row *x = a, *y = b;
    int by_run = strcmp(x->run_id, y->run_id);
    return by_run ? by_run : pb_series_order(x->key, x->metric, y->key, y->metric);
}

pb_status pb_session_rows(const pb_table *old, const pb_new_session *new, pb_row **rows, size_t *n)
{
    *rows = malloc(((old ? old->n : 0) + new->set->n + 1) * sizeof **rows);
    *n = old ? old->n : 0;
    if (!*rows) return pb_fail(PB_ENOMEM, "out of memory for the rows of a session");
    if (*n) memcpy(*rows, old->rows, *n * sizeof **rows);
    for (size_t i = 0; i < new->set->n; i++) {
        const pb_series *s = &new->set->s[i];
        if (belongs(s, new->suite, new->gates)) (*rows)[(*n)++] = row_of(s, new);
    }
    qsort(*rows, *n, sizeof **rows, file_order);
    return PB_OK;
}

static int newest_first(const void *a, const void *b)
{
    const pb_row *const *x = a, *const *y = b;
    const int by_row = pb_series_order((*x)->key, (*x)->metric, (*y)->key, (*y)->metric);
    return by_row ? by_row : strcmp((*y)->run_id, (*x)->run_id);
}

pb_status pb_session_limit(pb_row *rows, size_t *n, int most)
{
    const pb_row **sorted = malloc((*n + 1) * sizeof *sorted);
    size_t kept = 0;
    int count = 0;
    if (!sorted) return pb_fail(PB_ENOMEM, "out of memory for the rows of sessions");
    for (size_t i = 0; i < *n; i++) sorted[i] = &rows[i];
    qsort(sorted, *n, sizeof *sorted, newest_first);
    for (size_t i = 0; i < *n; i++) {
        const bool same =
            i && pb_series_order(sorted[i]->key, sorted[i]->metric, sorted[i - 1]->key, sorted[i - 1]->metric) == 0;
        count = same ? count + 1 : 1;
        if (count > most) rows[sorted[i] - rows].run_id = NULL;
    }
    free(sorted);
    for (size_t i = 0; i < *n; i++)
        if (rows[i].run_id) rows[kept++] = rows[i];
    *n = kept;
    return PB_OK;
}

/* Fails if run.json next to the results says that the program was built such that its times are not comparable. */
static pb_status check_build(const char *results)
{
    json_t *fingerprint = pb_run_fingerprint(results);
    const char *flags = json_string_value(json_object_get(json_object_get(fingerprint, "soft"), "flags"));
    const char *how = flags ? pb_build_slow(flags) : NULL;
    json_decref(fingerprint);
    return how ? pb_fail(PB_EINVAL, "%s: cannot become a session: it was measured by a program built %s", results, how)
               : PB_OK;
}

pb_status pb_session_check(const pb_table *t, const pb_series_set *set, const pb_gates *gates)
{
    if (!t->n) return pb_fail(PB_EINVAL, "%s: has a header but no rows", t->path);
    const pb_row *first = t->rows; /* strings are interned: equal strings are equal pointers */
    for (const pb_row *r = first; r < first + t->n; r++)
        if (r->run_id != first->run_id || r->machine_id != first->machine_id ||
            r->bench_version != first->bench_version)
            return pb_fail(PB_EINVAL, "%s: cannot become a session: it has rows of several runs, machines or versions",
                           t->path);
    for (size_t i = 0; i < set->n; i++) {
        const pb_series *s = &set->s[i];
        if (pb_key_of(s->key, "requirement")) continue;
        if (!pb_series_ok(s) && s->status != PB_ROW_UNSUPPORTED)
            return pb_fail(PB_EINVAL, "%s: cannot become a session: %s %s is %s", t->path, s->key, s->metric,
                           pb_row_status_name(s->status));
        if (pb_series_ok(s) && is_stored(s, gates) && s->processes < PB_ENOUGH_PROCESSES)
            return pb_fail(PB_EINVAL, "%s: cannot become a session: %s has %d of the %d processes needed", t->path,
                           s->key, s->processes, PB_ENOUGH_PROCESSES);
    }
    if (pb_stored(first->run_id))
        return pb_fail(PB_EINVAL, "%s: this is a stored baseline; name a run instead", t->path);
    return check_build(t->path);
}

/* ---- the file ------------------------------------------------------------------------------------------ */

pb_status pb_session_lock(const char *folder, int *out)
{
    PB_TRY(pb_make_folder(folder));
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return pb_fail_errno(errno, "%s", folder);
    int failed;
    while ((failed = flock(fd, LOCK_EX)) != 0 && errno == EINTR) {
    }
    if (failed) {
        const pb_status s = pb_fail(PB_EIO, "%s: the folder cannot be locked: %s", folder, strerror(errno));
        close(fd);
        return s;
    }
    *out = fd;
    return PB_OK;
}

pb_status pb_session_write(const char *path, const pb_row *rows, size_t n)
{
    char *text = NULL;
    size_t length = 0;
    FILE *f = open_memstream(&text, &length);
    if (!f) return pb_fail(PB_ENOMEM, "baseline: out of memory");
    pb_csv_header(f);
    for (size_t i = 0; i < n; i++) pb_csv_row(f, &rows[i]);
    const pb_status s =
        fclose(f) == 0 ? pb_file_replace(path, text, length) : pb_fail(PB_ENOMEM, "baseline: out of memory");
    free(text);
    return s;
}
