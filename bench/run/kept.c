/* kept.c - finds the sizes of results.csv and samples.csv, checks both files, and truncates them, for a run that is
 * resumed. */
#include "bench/run/kept.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/rows/rows.h"
#include "os/append.h"
#include "os/file.h"

static pb_status size_of(const char *dir, const char *name, long long *out)
{
    char *path;
    struct stat st;
    PB_TRY(pb_path_join(dir, name, &path));
    const pb_status s = stat(path, &st) == 0 ? PB_OK : pb_fail_errno(errno, "%s", path);
    if (s == PB_OK) *out = st.st_size;
    free(path);
    return s;
}

pb_status pb_kept_sizes(const char *dir, pb_kept *out)
{
    PB_TRY(size_of(dir, "results.csv", &out->results));
    return size_of(dir, "samples.csv", &out->samples);
}

static pb_status check_end(const char *path, const pb_map *m, long long length)
{
    if (length < 1 || (unsigned long long)length > m->n)
        return pb_fail(PB_EINVAL, "%s: the file has %zu bytes; progress.csv says that the first %lld are complete",
                       path, m->n, length);
    return m->p[length - 1] == '\n' ? PB_OK : pb_fail(PB_EINVAL, "%s: no line ends at byte %lld", path, length);
}

static pb_status check_rows(const char *path, const pb_map *m, long long length, int processes)
{
    pb_table t;
    pb_status s = PB_OK;
    PB_TRY(pb_table_parse(path, m->p, (size_t)length, &t));
    if (!pb_csv_has_header((const char *)m->p,
                           (size_t)length)) /* rows are appended in the order of this program's columns */
        s = pb_fail(PB_EINVAL, "%s: its columns are not those that this program writes, so it cannot be continued",
                    path);
    for (size_t i = 0; i < t.n && s == PB_OK; i++)
        if (t.rows[i].process < 0 || t.rows[i].process >= processes)
            s = pb_fail(PB_EINVAL, "%s: a row of process %lld is among the rows of processes before %d", path,
                        t.rows[i].process, processes);
    pb_table_free(&t);
    return s;
}

static pb_status check_header(const char *path, const pb_map *m, long long length, int processes)
{
    const size_t n = strlen(PB_SAMPLES_HEADER);
    (void)processes;
    if ((size_t)length >= n && memcmp(m->p, PB_SAMPLES_HEADER, n) == 0) return PB_OK;
    return pb_fail(PB_EINVAL, "%s: the header line is missing", path);
}

static pb_status check(const char *dir, const char *name, long long length, int processes,
                       pb_status (*contents)(const char *path, const pb_map *m, long long length, int processes))
{
    char *path;
    pb_map m = {0};
    PB_TRY(pb_path_join(dir, name, &path));
    pb_status s = pb_map_open(path, &m);
    if (s == PB_OK) s = check_end(path, &m, length);
    if (s == PB_OK) s = contents(path, &m, length, processes);
    pb_map_close(&m);
    free(path);
    return s;
}

pb_status pb_kept_check(const char *dir, const pb_kept *k, int processes)
{
    PB_TRY(check(dir, "results.csv", k->results, processes, check_rows));
    return check(dir, "samples.csv", k->samples, processes, check_header);
}

pb_status pb_kept_cut_file(const char *dir, const char *name, long long length)
{
    char *path;
    PB_TRY(pb_path_join(dir, name, &path));
    const pb_status s = pb_append_cut(path, length);
    free(path);
    return s;
}

pb_status pb_kept_cut(const char *dir, const pb_kept *k)
{
    PB_TRY(pb_kept_cut_file(dir, "results.csv", k->results));
    return pb_kept_cut_file(dir, "samples.csv", k->samples);
}
