/* manifest.c - implements manifest.h. */
#include "trace/manifest.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/draft.h"
#include "ranks/socket.h"

pb_status pb_profile_folder(const pb_disk *d, const char *path)
{
    if (d->mkdir(d->self, path) == 0 || errno == EEXIST) return PB_OK;
    return pb_fail_errno(errno, "profile: the folder %s cannot be made", path);
}

pb_status pb_profile_json(const pb_disk *d, const char *out, const char *name, json_t *o)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", out, name);
    char *text = o ? json_dumps(o, JSON_INDENT(2)) : NULL;
    json_decref(o);
    if (!text) return pb_fail(PB_ENOMEM, "%s: no memory to write it", path);
    pb_draft draft;
    pb_status s = pb_draft_open(d, path, &draft);
    if (s == PB_OK) {
        s = pb_draft_put(&draft, text, strlen(text));
        if (s == PB_OK) s = pb_draft_put(&draft, "\n", 1);
        if (s == PB_OK) s = pb_draft_keep(&draft);
        else pb_draft_drop(&draft);
    }
    free(text);
    return s;
}

/* How far the clocks of other ranks were from this one's. Rank 0 only. */
static json_t *list_clocks(const pb_clock_report *reports, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        const pb_clock_report *r = &reports[i];
        json_t *o = json_pack("{s:i, s:I, s:s}", "rank", r->rank, "first_step", (json_int_t)r->tag, "at",
                              r->slot ? "end" : "begin");
        if (r->offset.known) {
            json_object_set_new(o, "offset_ns", json_integer(r->offset.offset_ns));
            json_object_set_new(o, "uncertainty_ns", json_integer(r->offset.uncertainty_ns));
        } else json_object_set_new(o, "unknown", json_string(r->offset.why));
        json_array_append_new(list, o);
    }
    return list;
}

static double median_of(const json_t *file, const char *kind)
{
    return json_number_value(json_object_get(json_object_get(json_object_get(file, "step_times"), kind), "median_s"));
}

/* Adds up the windows of a rank's file. */
static json_t *totals(const json_t *file, int rank)
{
    json_int_t events = 0, dropped = 0, omitted = 0, truncated = 0, samples = 0, lost = 0;
    bool sampled = false;
    const json_t *windows = json_object_get(file, "windows"), *w;
    size_t i;
    json_array_foreach(windows, i, w)
    {
        events += json_integer_value(json_object_get(w, "events"));
        dropped += json_integer_value(json_object_get(w, "dropped")) +
                   json_integer_value(json_object_get(json_object_get(w, "gpu"), "dropped"));
        omitted += json_integer_value(json_object_get(w, "omitted"));
        truncated += json_is_true(json_object_get(w, "truncated"));
        const json_t *sampling = json_object_get(w, "sampling");
        sampled = sampled || sampling;
        samples += json_integer_value(json_object_get(sampling, "samples"));
        lost += json_integer_value(json_object_get(sampling, "lost"));
    }
    json_t *o =
        json_pack("{s:i, s:I, s:I, s:I, s:I, s:I}", "rank", rank, "windows", (json_int_t)json_array_size(windows),
                  "events", events, "dropped", dropped, "omitted", omitted, "truncated", truncated);
    if (sampled) json_object_set_new(o, "samples", json_integer(samples));
    if (sampled) json_object_set_new(o, "samples_lost", json_integer(lost));
    const double recorded = median_of(file, "recorded"), off = median_of(file, "off");
    if (recorded > 0 && off > 0) json_object_set_new(o, "recorded_over_off", json_real(recorded / off));
    return o;
}

/* Reads a rank's file; waits until it is there, or until `deadline` (of pb_seconds()). NULL: it is not. */
static json_t *read_rank(const pb_manifest *m, int rank, double deadline)
{
    static const struct timespec pause = {0, 10000000};
    char path[PATH_MAX];
    json_t *file;
    snprintf(path, sizeof path, "%s/ranks/rank%d.json", m->out, rank);
    while (!(file = json_load_file(path, 0, NULL)) && pb_seconds() < deadline) (void)nanosleep(&pause, NULL);
    return file;
}

/* Lists what each rank recorded, from its file. A rank that was killed, or writes its file later, is named as unknown.
 */
static json_t *list_recorded(const pb_manifest *m)
{
    const double deadline = pb_seconds() + PB_MANIFEST_WAIT;
    json_t *list = json_array();
    for (int i = 0; i < m->chosen->ranks; i++) {
        json_t *file = read_rank(m, i, deadline);
        json_array_append_new(
            list, file ? totals(file, i)
                       : json_pack("{s:i, s:s}", "rank", i, "unknown", "its file could not be read when rank 0 ended"));
        json_decref(file);
    }
    return list;
}

pb_status pb_manifest_write(const pb_manifest *m, bool ended, const pb_clock_report *reports, size_t n)
{
    json_t *chosen = json_array(), *hosts = json_array();
    for (int i = 0; i < m->chosen->ranks; i++) {
        if (m->chosen->rank[i]) json_array_append_new(chosen, json_integer(i));
        json_array_append_new(hosts, json_string(m->host ? m->host[i] : "?"));
    }
    return pb_profile_json(
        m->disk, m->out, "manifest.json",
        json_pack("{s:i, s:s, s:s, s:s?, s:i, s:s, s:o, s:s, s:o, s:{s:I, s:I, s:I, s:I, s:I}, s:I, s:s?, s:o?, s:o?}",
                  "format", 1, "program", m->program, "version", m->version, "libraries", m->libraries, "ranks",
                  m->chosen->ranks, "topology", m->topology, "profiled", chosen, "why", m->chosen->why, "hosts", hosts,
                  "steps", "skip", (json_int_t)m->steps->skip, "wait", (json_int_t)m->steps->wait, "warmup",
                  (json_int_t)m->steps->warmup, "active", (json_int_t)m->steps->active, "repeat",
                  (json_int_t)m->steps->repeat, "begun", (json_int_t)m->begun, "trigger", m->trigger, "clocks",
                  ended ? list_clocks(reports, n) : NULL, "recorded", ended ? list_recorded(m) : NULL));
}
