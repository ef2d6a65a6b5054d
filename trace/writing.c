/* writing.c - implements writing.h. */
#include "trace/writing.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "trace/manifest.h"

static double cpu_seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *write_window(void *self)
{
    pb_writing *w = self;
    const double start = cpu_seconds();
    for (int i = 0; i < 2 && w->about.compared; i++) w->about.clock[i] = pb_clocks_wait(w->clocks, i, 3);
    const pb_window_files files = {
        .trace = w->path, .records = *w->records ? w->records : NULL, .gpu = w->gpu, .sampler = w->sampler};
    w->status = pb_window_write(w->disk, &files, &w->about, &w->window, &w->of_gpu, &w->size);
    if (w->status != PB_OK) snprintf(w->why, sizeof w->why, "%s", pb_error());
    w->seconds = cpu_seconds() - start;
    return NULL;
}

static void drop(pb_writing *w)
{
    pb_ring_free(&w->window);
    pb_chosen_free(&w->ranks);
}

/* The names of the files; makes the folder of the trace. */
static pb_status find_files(pb_writing *w)
{
    char window[64], folder[PATH_MAX - 32];
    snprintf(window, sizeof window, "%.20s%" PRId64 "-%" PRId64, w->unit, w->about.first_step, w->last);
    if ((size_t)snprintf(folder, sizeof folder, "%s/traces/%s", w->out, window) >= sizeof folder)
        return pb_fail(PB_EINVAL, "profile: the name of the folder is too long");
    snprintf(w->path, sizeof w->path, "%s/rank%d.json.gz", folder, w->about.rank);
    *w->records = 0;
    if (w->keeps_records)
        snprintf(w->records, sizeof w->records, "%s/records/%s-rank%d.records.gz", w->out, window, w->about.rank);
    return pb_profile_folder(w->disk, folder);
}

static pb_status start_thread(pb_writing *w)
{
    w->running = pthread_create(&w->thread, NULL, write_window, w) == 0;
    return w->running ? PB_OK : pb_fail(PB_EIO, "profile: the thread that writes traces could not be started");
}

pb_status pb_writing_begin(pb_writing *w)
{
    w->size = (pb_trace_size){0};
    w->of_gpu = (pb_window_gpu){0};
    pb_status s = find_files(w);
    if (s == PB_OK) s = start_thread(w);
    if (s != PB_OK) drop(w);
    return s;
}

static json_t *gpu_json(const pb_writing *w)
{
    const pb_window_gpu *g = &w->of_gpu;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "kernels", (json_int_t)w->size.kernels, "unjoined",
                     (json_int_t)w->size.unjoined, "replayed", (json_int_t)g->replayed, "unplaced",
                     (json_int_t)g->unplaced, "dropped", (json_int_t)g->dropped, "record_bytes",
                     (json_int_t)g->buffer_bytes);
}

/* NULL: nothing was sampled. */
static json_t *sampling_json(const pb_writing *w)
{
    const pb_window_gpu *g = &w->of_gpu;
    if (!g->interval_us) return NULL;
    return json_pack("{s:i, s:I, s:I, s:I, s:I, s:f}", "interval_us", g->interval_us, "samples",
                     (json_int_t)w->size.samples, "lost", (json_int_t)g->lost, "outside", (json_int_t)g->outside,
                     "overflows", (json_int_t)g->overflows, "decode_cpu_s", g->decode_s);
}

static json_t *window_json(const pb_writing *w)
{
    return json_pack(
        "{s:s*, s:[I,I], s:[I,I], s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:o, s:o*}", "name",
        w->about.name, "steps", (json_int_t)w->about.first_step, (json_int_t)w->about.last_step, "window_ns",
        (json_int_t)w->window.begin_ns, (json_int_t)w->window.end_ns, "written", w->status == PB_OK, "truncated",
        w->about.truncated || w->size.omitted > 0, "events", (json_int_t)w->size.events, "dropped",
        (json_int_t)w->window.dropped, "omitted", (json_int_t)w->size.omitted, "json_bytes", (json_int_t)w->size.json,
        "file_bytes", (json_int_t)w->size.file, "opening_s", w->opening, "closing_s", w->closing, "writer_cpu_s",
        w->seconds, "clock_stepped_ns", w->window.stepped_ns, "gpu", gpu_json(w), "sampling", sampling_json(w));
}

pb_status pb_writing_finish(pb_writing *w, json_t *windows)
{
    if (!w->running) return PB_OK;
    (void)pthread_join(w->thread, NULL);
    w->running = false;
    json_array_append_new(windows, window_json(w));
    drop(w);
    return w->status == PB_OK ? PB_OK : pb_fail(w->status, "%s", w->why);
}
