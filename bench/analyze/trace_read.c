/* trace_read.c - implements trace_read.h with jansson and zlib. */
#define _GNU_SOURCE
#include "bench/analyze/trace_read.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "bench/analyze/trace_samples.h"

static const size_t most_bytes = (size_t)4 << 30;

/* Reads a file, decompressed if it is compressed, into *text, which the caller frees. */
static pb_status read_packed(const char *path, char **text, size_t *n)
{
    size_t room = (size_t)1 << 20;
    int got = 0;
    *text = NULL;
    *n = 0;
    gzFile f = gzopen(path, "rb");
    if (!f) return pb_fail_errno(errno, "%s", path);
    char *all = malloc(room);
    while (all && (got = gzread(f, all + *n, (unsigned)(room - *n < 1u << 30 ? room - *n : 1u << 30))) > 0) {
        *n += (size_t)got;
        if (*n < room) continue;
        char *more = room < most_bytes ? realloc(all, room *= 2) : NULL;
        if (!more) free(all);
        all = more;
    }
    int error;
    const char *why = gzerror(f, &error);
    pb_status s = PB_OK;
    if (!all) s = pb_fail(PB_ENOMEM, "%s: no memory to read it", path);
    else if (got < 0 || error == Z_BUF_ERROR)
        s = pb_fail(PB_EINVAL, "%s: the file is cut off or damaged (%s)", path, why);
    (void)gzclose(f);
    if (s == PB_OK) *text = all;
    else free(all);
    return s;
}

static pb_status read_json(const char *path, json_t **out)
{
    char *text;
    size_t n;
    json_error_t e;
    PB_TRY(read_packed(path, &text, &n));
    *out = json_loadb(text, n, 0, &e);
    free(text);
    if (*out) return PB_OK;
    return pb_fail(PB_EINVAL, "%s: not complete JSON: %s in line %d", path, e.text, e.line);
}

static double number(const json_t *o, const char *key) { return json_number_value(json_object_get(o, key)); }

/* A whole number; 0: it is none, or none that an int64_t holds. */
static int64_t whole(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    const double x = json_number_value(v);
    return json_is_integer(v) ? json_integer_value(v) : x > -9e18 && x < 9e18 ? (int64_t)x : 0;
}

static int compare_events(const void *x, const void *y)
{
    const pb_trace_event *a = x, *b = y;
    if (a->tid != b->tid) return a->tid < b->tid ? -1 : 1;
    if (a->begin < b->begin || a->begin > b->begin) return a->begin < b->begin ? -1 : 1;
    return a->end > b->end ? -1 : a->end < b->end;
}

static pb_range_kind kind_of(const json_t *args)
{
    const char *word = json_string_value(json_object_get(args, "kind"));
    for (int k = 0; word && k < PB_RANGE_KINDS; k++)
        if (strcmp(word, pb_range_kinds[k]) == 0) return (pb_range_kind)k;
    return PB_RANGE_work;
}

static bool is_gpu_work(const char *cat)
{
    return cat && (strcmp(cat, "kernel") == 0 || strcmp(cat, "cuda_graph") == 0 || strcmp(cat, "gpu_memcpy") == 0 ||
                   strcmp(cat, "gpu_memset") == 0);
}

static pb_gpu_span gpu_span(const char *name, const char *cat, const json_t *args, double begin, double end)
{
    const bool copy = strncmp(cat, "gpu_mem", 7) == 0;
    return (pb_gpu_span){.name = name,
                         .op = json_string_value(json_object_get(args, "op")),
                         .phase = json_string_value(json_object_get(args, "phase")),
                         .graph = strcmp(cat, "cuda_graph") == 0,
                         .what = json_object_get(args, "Collective name") ? PB_WORK_COMMUNICATION /* also of copies */
                                 : copy                                   ? PB_WORK_MEMORY
                                 : strncmp(name, "nccl", 4) == 0          ? PB_WORK_COMMUNICATION
                                                                          : PB_WORK_KERNEL,
                         .copy = copy,
                         .begin = begin,
                         .end = end,
                         .correlation = whole(args, "correlation"),
                         .enqueued = (double)NAN,
                         .flops = number(args, "op_flops"),
                         .bytes = number(args, "op_bytes"),
                         .moved = copy ? number(args, "bytes") : 0};
}

/* A call of the host that enqueues work. */
typedef struct host_call {
    int64_t correlation;
    double end;
} host_call;

static int by_correlation(const void *x, const void *y)
{
    const host_call *a = x, *b = y;
    return a->correlation < b->correlation ? -1 : a->correlation > b->correlation;
}

/* Finds when each piece of the GPU's work had been enqueued. Sorts the calls. */
static void find_enqueued(pb_trace *t, host_call *call, size_t n)
{
    if (n) qsort(call, n, sizeof *call, by_correlation);
    for (size_t i = 0; i < t->ngpu; i++) {
        const host_call key = {.correlation = t->gpu[i].correlation};
        const host_call *found = key.correlation && n ? bsearch(&key, call, n, sizeof *call, by_correlation) : NULL;
        if (found) t->gpu[i].enqueued = found->end;
    }
}

static pb_trace_collective collective(const json_t *args, double begin, double end)
{
    const char *dtype = json_string_value(json_object_get(args, "dtype"));
    return (pb_trace_collective){
        .name = json_string_value(json_object_get(args, "Collective name")),
        .group = json_string_value(json_object_get(args, "Process Group Name")),
        .dtype = dtype ? dtype : "?",
        .ranks = (int)whole(args, "Group size"),
        .number = whole(args, "Seq"),
        .launch = json_object_get(args, "graph node") ? whole(args, "correlation") : 0,
        .kernel = !json_object_get(args, "kind"),
        .begin = begin,
        .end = end,
        .bytes = number(args, json_object_get(args, "collective bytes") ? "collective bytes" : "bytes")};
}

static int by_number(const void *x, const void *y)
{
    const pb_trace_collective *a = x, *b = y;
    const int group = strcmp(a->group, b->group);
    if (group) return group;
    if (a->number != b->number) return a->number < b->number ? -1 : 1;
    if (a->launch != b->launch) return a->launch < b->launch ? -1 : 1;
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

/* Keeps the kernels and copies if there are some, because on a GPU the ranges only enqueue them, and finds the first of
 * each call. */
static void sort_collectives(pb_trace *t, bool kernels)
{
    size_t n = 0;
    for (size_t i = 0; i < t->ncollectives; i++)
        if (t->collectives[i].kernel == kernels) t->collectives[n++] = t->collectives[i];
    t->ncollectives = n;
    if (n) qsort(t->collectives, n, sizeof *t->collectives, by_number);
    for (size_t i = 0; i < n; i++) {
        pb_trace_collective *c = &t->collectives[i];
        c->first = !i || strcmp(c->group, c[-1].group) != 0 || c->number != c[-1].number || c->launch != c[-1].launch;
    }
}

/* `call` is scratch memory for as many calls as there are events. */
static pb_status read_events(const char *path, const json_t *events, int64_t begin_ns, pb_trace *t, host_call *call)
{
    size_t i, calls = 0;
    json_t *e;
    bool kernels = false;
    t->events = calloc(json_array_size(events) + 1, sizeof *t->events);
    t->gpu = calloc(json_array_size(events) + 1, sizeof *t->gpu);
    t->collectives = calloc(json_array_size(events) + 1, sizeof *t->collectives);
    if (!t->events || !t->gpu || !t->collectives || !call)
        return pb_fail(PB_ENOMEM, "%s: no memory for its events", path);
    json_array_foreach(events, i, e)
    {
        const char *ph = json_string_value(json_object_get(e, "ph")),
                   *name = json_string_value(json_object_get(e, "name"));
        const json_t *args = json_object_get(e, "args"), *value = json_object_get(args, "value");
        if (!ph || strcmp(ph, "X") != 0) continue;
        if (!name || !json_is_number(json_object_get(e, "ts")) || !json_is_number(json_object_get(e, "dur")))
            return pb_fail(PB_EINVAL, "%s: event %zu has no name, ts or dur", path, i);
        if (!pb_trace_time_valid(number(e, "ts")) || !(number(e, "dur") >= 0) || !pb_trace_time_valid(number(e, "dur")))
            return pb_fail(
                PB_EINVAL,
                "%s: event %zu: ts %g, dur %g: need a ts between -1e15 and 1e15 microseconds, and a dur from 0 to 1e15",
                path, i, number(e, "ts"), number(e, "dur"));
        const double begin = pb_trace_moment(e, 0, begin_ns), end = pb_trace_moment(e, number(e, "dur"), begin_ns);
        const char *cat = json_string_value(json_object_get(e, "cat"));
        if (json_string_value(json_object_get(args, "Collective name")) &&
            json_string_value(json_object_get(args, "Process Group Name"))) {
            t->collectives[t->ncollectives] = collective(args, begin, end);
            kernels = t->collectives[t->ncollectives++].kernel || kernels;
        }
        if (is_gpu_work(cat)) {
            t->gpu[t->ngpu] = gpu_span(name, cat, args, begin, end);
            t->gpu[t->ngpu++].lane = whole(e, "tid");
        }
        if (cat && (strcmp(cat, "cuda_runtime") == 0 || strcmp(cat, "cuda_driver") == 0))
            call[calls++] = (host_call){whole(args, "correlation"), end};
        if (!json_object_get(args, "kind")) continue; /* not a range */
        t->events[t->n++] = (pb_trace_event){.name = name,
                                             .kind = kind_of(args),
                                             .tid = (int)whole(e, "tid"),
                                             .begin = begin,
                                             .end = end,
                                             .flops = number(args, "op_flops"),
                                             .bytes = number(args, "op_bytes"),
                                             .value = value ? (int64_t)json_integer_value(value) : PB_RANGE_NO_VALUE};
    }
    qsort(t->events, t->n, sizeof *t->events, compare_events);
    sort_collectives(t, kernels);
    find_enqueued(t, call, calls);
    return PB_OK;
}

static pb_status read_expected(const char *path, const json_t *ranks, pb_trace *t)
{
    size_t i;
    json_t *rank;
    if (!json_is_array(ranks)) return PB_OK;
    t->expected = calloc(json_array_size(ranks) + 1, sizeof *t->expected);
    if (!t->expected) return pb_fail(PB_ENOMEM, "%s: no memory for its ranks", path);
    json_array_foreach(ranks, i, rank) t->expected[t->nexpected++] = (int)json_integer_value(rank);
    return PB_OK;
}

static void read_clock(const json_t *about, pb_trace *t)
{
    const json_t *offsets = json_object_get(about, "clock_offsets_ns"),
                 *uncertain = json_object_get(about, "clock_uncertainty_ns");
    t->clock_why = json_string_value(json_object_get(about, "clock_unknown"));
    t->compared = t->clock_why || json_array_size(offsets) == 2;
    t->shifted = json_is_true(json_object_get(about, "clock_shifted"));
    for (size_t i = 0; i < 2; i++) {
        const double o = 1e-9 * json_number_value(json_array_get(offsets, i)),
                     u = 1e-9 * json_number_value(json_array_get(uncertain, i));
        if (fabs(o) > fabs(t->offset)) t->offset = o;
        if (u > t->uncertain) t->uncertain = u;
    }
}

#define MOST_NS ((int64_t)4e18) /* 127 years; the difference of two such times is an int64_t */

static pb_status read_trace(const char *path, int ranks, pb_trace *t)
{
    json_t *o = NULL;
    PB_TRY(read_json(path, &o));
    t->json = o;
    const json_t *about = json_object_get(o, "plumb"), *steps = json_object_get(about, "steps"),
                 *window = json_object_get(about, "window_ns");
    const json_t *rank = json_object_get(json_object_get(o, "distributedInfo"), "rank");
    if (!json_is_integer(rank) || json_array_size(steps) != 2 || json_array_size(window) != 2 ||
        !json_is_array(json_object_get(o, "traceEvents")))
        return pb_fail(PB_EINVAL, "%s: not a trace of train --profile-out", path);
    if (json_integer_value(rank) < 0 || json_integer_value(rank) >= ranks)
        return pb_fail(PB_EINVAL, "%s: of rank %lld, but the job of manifest.json has %d ranks", path,
                       (long long)json_integer_value(rank), ranks);
    t->rank = (int)json_integer_value(rank);
    t->first_step = json_integer_value(json_array_get(steps, 0));
    t->last_step = json_integer_value(json_array_get(steps, 1));
    t->begin_ns = json_integer_value(json_array_get(window, 0));
    read_clock(about, t);
    t->truncated = json_is_true(json_object_get(about, "truncated"));
    t->dropped = (long)whole(about, "dropped") + (long)whole(about, "gpu_dropped");
    t->omitted = (long)whole(about, "omitted");
    PB_TRY(read_expected(path, json_object_get(about, "ranks"), t));
    const int64_t base = json_integer_value(json_object_get(o, "baseTimeNanoseconds"));
    if (base < -MOST_NS || base > MOST_NS || t->begin_ns < -MOST_NS || t->begin_ns > MOST_NS)
        return pb_fail(PB_EINVAL, "%s: window_ns or baseTimeNanoseconds is more than a century from 1970", path);
    const int64_t begin_ns = t->begin_ns - base;
    const json_t *events = json_object_get(o, "traceEvents");
    host_call *calls = malloc((json_array_size(events) + 1) * sizeof *calls);
    const pb_status s = read_events(path, events, begin_ns, t, calls);
    free(calls);
    if (s != PB_OK) return s;
    return pb_trace_samples_read(path, events, 1e-6 * number(about, "sample_interval_us"), begin_ns, &t->samples);
}

static int not_hidden(const struct dirent *d) { return d->d_name[0] != '.'; }
static int trace_file(const struct dirent *d)
{
    const size_t n = strlen(d->d_name);
    return strncmp(d->d_name, "rank", 4) == 0 && n > 8 && strcmp(d->d_name + n - 8, ".json.gz") == 0;
}

static pb_status read_window(const char *folder, pb_profile_run *r)
{
    struct dirent **files = NULL;
    pb_status s = PB_OK;
    const int n = scandir(folder, &files, trace_file, versionsort);
    pb_trace *more = realloc(r->traces, (r->n + (size_t)(n > 0 ? n : 0) + 1) * sizeof *more);
    if (more) r->traces = more;
    else s = pb_fail(PB_ENOMEM, "%s: no memory for its traces", folder);
    for (int i = 0; i < n; i++) {
        char path[1280];
        snprintf(path, sizeof path, "%s/%s", folder, files[i]->d_name);
        if (s == PB_OK) {
            r->traces[r->n] = (pb_trace){0};
            s = read_trace(path, r->ranks, &r->traces[r->n++]);
        }
        free(files[i]);
    }
    free(files);
    return s;
}

static int by_step(const void *x, const void *y)
{
    const pb_trace *a = x, *b = y;
    if (a->first_step != b->first_step) return a->first_step < b->first_step ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static pb_status read_traces(pb_profile_run *r)
{
    char folder[768];
    struct dirent **windows = NULL;
    pb_status s = PB_OK;
    snprintf(folder, sizeof folder, "%s/traces", r->folder);
    const int n = scandir(folder, &windows, not_hidden, versionsort);
    for (int i = 0; i < n; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%.200s", folder, windows[i]->d_name);
        if (s == PB_OK) s = read_window(path, r);
        free(windows[i]);
    }
    free(windows);
    if (r->n) qsort(r->traces, r->n, sizeof *r->traces, by_step);
    return s;
}

static pb_status read_manifest(pb_profile_run *r)
{
    char path[768];
    json_t *m = NULL, *v;
    size_t i;
    snprintf(path, sizeof path, "%s/manifest.json", r->folder);
    PB_TRY(read_json(path, &m));
    r->manifest = m;
    const json_t *hosts = json_object_get(m, "hosts"), *profiled = json_object_get(m, "profiled");
    const json_int_t ranks = json_integer_value(json_object_get(m, "ranks"));
    if (json_integer_value(json_object_get(m, "format")) != 1 || ranks < 1 || ranks > 1 << 20 ||
        json_array_size(hosts) != (size_t)ranks)
        return pb_fail(PB_EINVAL, "%s: not the manifest of a profile that this program can read", path);
    r->ranks = (int)ranks;
    r->profiled = calloc((size_t)ranks, sizeof *r->profiled);
    r->host = calloc((size_t)ranks, sizeof *r->host);
    if (!r->profiled || !r->host) return pb_fail(PB_ENOMEM, "%s: no memory for %d ranks", path, r->ranks);
    json_array_foreach(profiled, i, v)
    {
        const json_int_t rank = json_integer_value(v);
        if (rank >= 0 && rank < ranks) r->profiled[rank] = true;
    }
    json_array_foreach(hosts, i, v) r->host[i] = json_is_string(v) ? json_string_value(v) : "?";
    const char *why = json_string_value(json_object_get(m, "why")),
               *t = json_string_value(json_object_get(m, "topology"));
    snprintf(r->why, sizeof r->why, "%s", why ? why : "");
    snprintf(r->topology, sizeof r->topology, "%s", t ? t : "");
    return PB_OK;
}

pb_status pb_profile_run_read(const char *folder, pb_profile_run *out)
{
    *out = (pb_profile_run){0};
    if (strlen(folder) >= sizeof out->folder) return pb_fail(PB_EINVAL, "%.80s...: the name is too long", folder);
    snprintf(out->folder, sizeof out->folder, "%s", folder);
    PB_TRY(read_manifest(out));
    return read_traces(out);
}

void pb_profile_run_free(pb_profile_run *r)
{
    for (size_t i = 0; i < r->n; i++) {
        free(r->traces[i].events);
        free(r->traces[i].gpu);
        free(r->traces[i].collectives);
        free(r->traces[i].expected);
        free(r->traces[i].samples.begin);
        free(r->traces[i].samples.value);
        json_decref(r->traces[i].json);
    }
    free(r->traces);
    free(r->profiled);
    free(r->host);
    json_decref(r->manifest);
    *r = (pb_profile_run){0};
}
