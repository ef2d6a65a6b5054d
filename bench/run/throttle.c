/* throttle.c - decides which processes are measured again, and marks the rows of throttled ones. */
#include "bench/run/throttle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/rows/read.h"
#include "bench/rows/rows.h"
#include "bench/rows/write_csv.h"
#include "bench/run/process_state.h"
#include "bench/run/run_json.h"
#include "kernels/engine/op.h"
#include "os/interrupt.h"

enum { WHY = 200 };

/* ---- which processes are measured again ------------------------------------------------------------- */

static const json_t *state_of(const json_t *about, int process)
{
    const json_t *entry, *found = NULL;
    size_t i;
    json_array_foreach(json_object_get(about, "process_state"), i,
                       entry) if (json_integer_value(json_object_get(entry, "process")) == process) found = entry;
    return found;
}

/* Returns the number of earlier attempts of this measurement: the length of the process's chain of retry_of. */
static int attempts(const json_t *about, int process)
{
    int n = 0;
    for (const json_t *s = state_of(about, process); s && json_is_integer(json_object_get(s, "retry_of")); n++) {
        const int earlier = (int)json_integer_value(json_object_get(s, "retry_of"));
        /* A valid chain leads to smaller numbers. The check prevents an endless loop when the file was edited. */
        if (earlier >= process) break;
        process = earlier;
        s = state_of(about, process);
    }
    return n;
}

static bool again(const json_t *about, int process, const pb_options *o)
{
    char why[WHY];
    const json_t *s = state_of(about, process);
    return s && pb_process_throttled(s, why, sizeof why) && attempts(about, process) < o->throttle_retries;
}

long pb_throttle_processes(const json_t *about, const pb_options *o)
{
    long all = o->processes;
    const json_t *entry;
    size_t i;
    json_array_foreach(json_object_get(about, "process_state"), i, entry) all +=
        again(about, (int)json_integer_value(json_object_get(entry, "process")), o);
    return all;
}

/* Returns the process that process number `process` repeats; -1: `process` is no retry. The k-th process beyond those
 * requested repeats the k-th process that was throttled and may be measured again. */
static int retry_of(const json_t *about, const pb_options *o, int process)
{
    long k = process - o->processes;
    for (int i = 0; k >= 0 && i < process; i++)
        if (again(about, i, o) && k-- == 0) return i;
    return -1;
}

/* ---- marking rows ----------------------------------------------------------------------------------- */

static bool measured(const pb_row *r) { return strcmp(r->status, "ok") == 0; }

/* Formats all rows of the process as CSV text, marked as throttled. */
static pb_status marked_rows(const pb_table *t, int process, const char *note, char **text, size_t *n)
{
    char both[1024];
    FILE *f = open_memstream(text, n);
    if (!f) return pb_fail(PB_ENOMEM, "no memory for the rows of a process");
    for (size_t i = 0; i < t->n; i++) {
        pb_row r = t->rows[i];
        if (r.process != process) continue;
        const bool verdict = strcmp(r.status, "pass") == 0 || strcmp(r.status, "fail") == 0;
        if (measured(&r) || (verdict && !strstr(r.note, note))) {
            snprintf(both, sizeof both, "%s%s%s", note, *r.note ? "; " : "", r.note);
            r.note = both;
        }
        if (measured(&r)) r.status = "throttled";
        pb_csv_row(f, &r);
    }
    return fclose(f) == 0 ? PB_OK : pb_fail(PB_ENOMEM, "no memory for the rows of a process");
}

/* The rows of the process are the last ones of results.csv. They are cut off and appended again with the mark.
 * progress.csv is truncated first: after a kill in between, --resume measures the whole process again. */
static pb_status mark(const char *dir, int process, const char *note)
{
    char *text = NULL;
    size_t n = 0;
    pb_table t;
    PB_TRY(pb_table_read(dir, &t));
    pb_status s = marked_rows(&t, process, note, &text, &n);
    pb_table_free(&t);
    if (s == PB_OK) s = pb_progress_rewind(dir, process);
    if (s == PB_OK) s = pb_results_append(dir, text, n);
    if (s == PB_OK) s = pb_progress_mark(dir, (pb_place){process + 1, 0});
    free(text);
    return s;
}

/* Writes the note for the rows of a throttled process. False: the process was not throttled. */
static bool verdict_on(const json_t *about, const pb_options *o, int process, char *note, size_t n)
{
    char why[WHY];
    const json_t *s = state_of(about, process);
    if (!s || !pb_process_throttled(s, why, sizeof why)) return false;
    if (again(about, process, o)) snprintf(note, n, "throttled: %s (measured again)", why);
    else snprintf(note, n, "throttled: %s (after %d retries)", why, attempts(about, process));
    return true;
}

pb_status pb_throttle_settle(const char *dir, const json_t *about, const pb_options *o, pb_place next)
{
    char note[WHY + 64];
    const bool due = next.process > 0 && next.next == 0 && verdict_on(about, o, next.process - 1, note, sizeof note);
    return due ? mark(dir, next.process - 1, note) : PB_OK;
}

/* ---- a watched process ------------------------------------------------------------------------------ */

/* Stores the state in run.json. When a process number was measured again after a kill, its new entry replaces the old
 * one. */
static pb_status keep_state(json_t *about, json_t *state, int process)
{
    json_t *list = json_object_get(about, "process_state");
    if (!list && json_object_set_new(about, "process_state", list = json_array()) != 0) list = NULL;
    for (size_t i = json_array_size(list); i-- > 0;)
        if (json_integer_value(json_object_get(json_array_get(list, i), "process")) == process)
            json_array_remove(list, i);
    return list && json_array_append_new(list, state) == 0 ? PB_OK : pb_fail(PB_ENOMEM, "out of memory for run.json");
}

static pb_status conclude(const pb_process *l, json_t *about, bool whole)
{
    char note[WHY + 64];
    PB_TRY(pb_run_json_write(l->dir, about, true));
    if (!whole || !verdict_on(about, l->options, l->number, note, sizeof note)) return PB_OK;
    fprintf(stderr, "bench: process %d was %s\n", l->number, note);
    return mark(l->dir, l->number, note);
}

pb_status pb_throttle_run(pb_process *l, json_t *about, pb_exit *code, bool *stopped)
{
    pb_backend_id device;
    pb_process_watch *w;
    json_t *state;
    PB_TRY(pb_backend_find(l->options->device, &device));
    PB_TRY(pb_process_watch_begin(device, &w));
    const pb_status ran = pb_process_run(l, code, stopped);
    PB_TRY(pb_process_watch_end(w, l->number, retry_of(about, l->options, l->number), &state));
    PB_TRY(keep_state(about, state, l->number));
    PB_TRY(ran);
    const bool whole = *code != PB_EXIT_HARNESS && *code != PB_EXIT_USAGE && !pb_interrupted() && !*stopped;
    return conclude(l, about, whole);
}
