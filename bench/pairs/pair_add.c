/* pair_add.c - appends the results of one process to the files of its side. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "bench/pairs/pair_folder.h"
#include "bench/rows/rows.h"
#include "bench/run/run.h"
#include "bench/text/text.h"
#include "os/append.h"
#include "os/file.h"
#include "os/page.h"

enum { PATH = PB_PATH_TEXT + 64 };

/* Adds the rows of the last attempt: a run of one process has more if the process was throttled and measured again.
 * *last: its process number. */
static pb_status add_rows(const char *to, const char *process, const char *run_id, int pair, long long *last)
{
    pb_table t;
    pb_page p;
    PB_TRY(pb_table_read(process, &t));
    pb_status s = pb_page_open(&p);
    *last = 0;
    for (size_t i = 0; i < t.n; i++)
        if (t.rows[i].process > *last) *last = t.rows[i].process;
    for (size_t i = 0; s == PB_OK && i < t.n; i++) {
        if (t.rows[i].process != *last) continue;
        t.rows[i].run_id = run_id;
        t.rows[i].process = pair;
        pb_csv_row(p.f, &t.rows[i]);
    }
    if (s == PB_OK) s = pb_page_save(&p, PB_OK, pb_append, to);
    pb_table_free(&t);
    return s;
}

/* Writes the rest of a line of samples.csv, ",key,metric,index,value\n", with the current names of key and metric.
 * Returns false if the line has another form. */
static bool put_renamed(FILE *out, const char *rest)
{
    char was[PB_KEY_TEXT], metric[PB_AXIS_TEXT], key[PB_KEY_TEXT];
    int at = 0;
    if (sscanf(rest, ",%511[^,\n],%63[^,\n]%n", was, metric, &at) != 2) return false;
    return pb_renamed_key(was, key) == PB_OK && fprintf(out, ",%s,%s%s", key, pb_renamed_metric(metric), rest + at) > 0;
}

/* Copies the lines of process `last`, and replaces their first two fields (run id, process). They are never
 * quoted, so strchr() finds their commas. Names of bench_version 1 are replaced by the current ones (renames.h). */
static pb_status copy_samples(FILE *in, FILE *out, const char *run_id, int pair, long long last)
{
    char *line = NULL;
    size_t room = 0;
    bool ok = getline(&line, &room, in) > 0; /* the header */
    const bool renamed = ok && strcmp(line, PB_SAMPLES_HEADER) != 0;
    while (ok && getline(&line, &room, in) > 0) {
        const char *process = strchr(line, ','), *rest = process ? strchr(process + 1, ',') : NULL;
        ok = rest && strchr(rest, '\n');
        if (!ok || strtoll(process + 1, NULL, 10) != last) continue;
        ok = fprintf(out, "%s,%d", run_id, pair) > 0 && (renamed ? put_renamed(out, rest) : fputs(rest, out) >= 0);
    }
    free(line);
    return ok && !ferror(in) ? PB_OK : pb_fail(PB_EINVAL, "samples.csv of a process is cut off or cannot be copied");
}

static pb_status add_samples(const char *to, const char *process, const char *run_id, int pair, long long last)
{
    char from[PATH];
    FILE *in;
    pb_page p;
    snprintf(from, sizeof from, "%s/samples.csv", process);
    PB_TRY(pb_file_read(from, &in));
    pb_status s = pb_page_open(&p);
    if (s == PB_OK) s = pb_page_save(&p, copy_samples(in, p.f, run_id, pair, last), pb_append, to);
    fclose(in);
    return s;
}

/* Adds the run.json of one process to that of its side. The first process provides the side's run.json; its array
 * `runs` receives the run.json of every process. */
static pb_status add_run(pb_pair_folder *f, pb_side side, const char *dir, const char *process, const char *run_id)
{
    char path[PATH];
    json_t *one, **run = &f->run[side];
    snprintf(path, sizeof path, "%s/run.json", process);
    PB_TRY(pb_json_read(path, &one));
    if (!*run) {
        *run = json_deep_copy(one);
        json_object_set_new(*run, "run_id", json_string(run_id));
        json_object_set_new(*run, "order", json_array());
        json_object_set_new(*run, "runs", json_array());
    }
    json_array_append(json_object_get(*run, "order"), json_array_get(json_object_get(one, "order"), 0));
    json_object_del(one, "order");
    const bool ok = json_array_append_new(json_object_get(*run, "runs"), one) == 0 &&
                    json_object_set_new(*run, "processes", json_integer(f->pairs + 1)) == 0;
    return ok ? pb_run_json_write(dir, *run, true) : pb_fail(PB_ENOMEM, "out of memory for run.json");
}

pb_status pb_pair_folder_add(pb_pair_folder *f, pb_side side, const char *process, const char *run_id)
{
    char dir[PATH], path[PATH + 16];
    long long last;
    snprintf(dir, sizeof dir, "%s/%s", f->dir, pb_side_names[side]);
    snprintf(path, sizeof path, "%s/results.csv", dir);
    PB_TRY(add_rows(path, process, run_id, f->pairs, &last));
    snprintf(path, sizeof path, "%s/samples.csv", dir);
    PB_TRY(add_samples(path, process, run_id, f->pairs, last));
    return add_run(f, side, dir, process, run_id);
}
