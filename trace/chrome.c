/* chrome.c - implements chrome.h. */
#include "trace/chrome.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trace/chrome_gpu.h"
#include "trace/chrome_samples.h"

static const int64_t period_ns = 90LL * 24 * 3600 * 1000000000;

void pb_trace_put_us(pb_gzip *g, const char *key, int64_t ns)
{
    const char *sign = ns < 0 ? "-" : "";
    if (ns < 0) ns = -ns;
    pb_gzip_print(g, ",\"%s\":%s%" PRId64 ".%03d", key, sign, ns / 1000, (int)(ns % 1000));
}

void pb_trace_put_work(pb_gzip *g, int64_t flops, int64_t bytes)
{
    if (flops) pb_gzip_print(g, ",\"op_flops\":%" PRId64, flops);
    if (bytes) pb_gzip_print(g, ",\"op_bytes\":%" PRId64, bytes);
}

void pb_trace_put_collective(pb_gzip *g, const char *name, const char *key, int64_t bytes, const pb_range_collective *c)
{
    if (!c->group) return;
    pb_gzip_print(g, ",\"Collective name\":\"%s\",\"%s\":%" PRId64 ",\"dtype\":\"%s\"", name, key, bytes, c->dtype);
    pb_gzip_print(g, ",\"Process Group Name\":\"%s\",\"Group size\":%d,\"Seq\":%" PRId64, c->group, c->ranks,
                  c->number);
}

static void put_text(pb_gzip *g, const char *before, const char *text)
{
    pb_gzip_print(g, "%s", before);
    pb_gzip_string(g, text ? text : "");
}

static void put_head(pb_gzip *g, const pb_trace_about *a, int64_t base)
{
    pb_gzip_print(g,
                  "{\"schemaVersion\":1,\"deviceProperties\":[],\"distributedInfo\":{\"rank\": %d,\"world_size\": %d",
                  a->rank, a->ranks);
    put_text(g, ",\"backend\":", a->backend);
    put_text(g, ",\"topology\":", a->topology);
    pb_gzip_print(g, "},\"displayTimeUnit\":\"ns\",\"baseTimeNanoseconds\":%" PRId64 ",\"traceEvents\":[\n", base);
    /* Names come first: analyses take the event with index 0 for no event. */
    pb_gzip_print(g, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"tid\":0,\"args\":{\"name\":", (int)getpid());
    char name[128];
    snprintf(name, sizeof name, "rank %d on %s", a->rank, a->host ? a->host : "?");
    pb_gzip_string(g, name);
    pb_gzip_print(
        g, "}},\n{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,\"tid\":0,\"args\":{\"sort_index\":%d}}",
        (int)getpid(), a->rank);
}

static void put_range(pb_gzip *g, const pb_ring_record *r, int tid, int64_t base)
{
    pb_gzip_print(g,
                  ",\n{\"ph\":\"X\",\"cat\":\"%s\",\"name\":", r->kind == PB_RANGE_op ? "cpu_op" : "user_annotation");
    if (r->kind == PB_RANGE_step) pb_gzip_print(g, "\"ProfilerStep#%" PRId64 "\"", r->value);
    else pb_gzip_string(g, r->name);
    pb_gzip_print(g, ",\"pid\":%d,\"tid\":%d", (int)getpid(), tid);
    pb_trace_put_us(g, "ts", r->begin_ns - base);
    pb_trace_put_us(g, "dur", r->end_ns - r->begin_ns);
    pb_gzip_print(g, ",\"args\":{\"kind\":\"%s\"", pb_range_kinds[r->kind]);
    if (r->value != PB_RANGE_NO_VALUE)
        pb_gzip_print(g, ",\"%s\":%" PRId64, r->kind == PB_RANGE_op ? "layer" : "value", r->value);
    pb_trace_put_work(g, r->flops, r->bytes);
    pb_trace_put_collective(g, r->name, "bytes", r->value, &r->of);
    pb_gzip_print(g, "%s}}", r->complete ? "" : ",\"incomplete\":true");
}

/* Appends the ranges of a thread, as long as the text stays within `room` bytes. */
static void put_thread(pb_gzip *g, const pb_ring_thread *t, size_t room, int64_t base, pb_trace_size *size)
{
    size_t mark = pb_gzip_mark(g);
    pb_gzip_print(g, ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s %d\"}}",
                  (int)getpid(), t->tid, t->tid == getpid() ? "main thread" : "thread", t->tid);
    size_t i = 0;
    for (bool fits = pb_gzip_fits(g, mark, room); fits && i < t->n; i += fits) {
        mark = pb_gzip_mark(g);
        put_range(g, &t->records[i], t->tid, base);
        fits = pb_gzip_fits(g, mark, room);
    }
    size->events += i;
    size->omitted += t->n - i;
}

static void put_expected(pb_gzip *g, const pb_trace_about *a)
{
    const char *comma = "";
    if (!a->expected) return;
    pb_gzip_print(g, ",\"ranks\":[");
    for (int i = 0; i < a->ranks; i++) {
        if (!a->expected[i]) continue;
        pb_gzip_print(g, "%s%d", comma, i);
        comma = ",";
    }
    pb_gzip_print(g, "]");
}

static void put_clock(pb_gzip *g, const pb_trace_about *a)
{
    const pb_clock_offset *c = a->clock;
    if (!a->compared) return;
    if (!c[0].known || !c[1].known) {
        put_text(g, ",\"clock_unknown\":", c[0].known ? c[1].why : c[0].why);
        return;
    }
    pb_gzip_print(g,
                  ",\"clock_offsets_ns\":[%" PRId64 ",%" PRId64 "],\"clock_uncertainty_ns\":[%" PRId64 ",%" PRId64 "]",
                  c[0].offset_ns, c[1].offset_ns, c[0].uncertainty_ns, c[1].uncertainty_ns);
    pb_gzip_print(g, ",\"clock_shifted\":%s", a->shifted ? "true" : "false");
}

static void put_tail(pb_gzip *g, const pb_trace_about *a, const pb_ring_window *w, const pb_gpu_window *gpu,
                     const pb_trace_size *size)
{
    put_text(g, "\n],\"plumb\":{\"version\":", a->version);
    put_text(g, ",\"host\":", a->host);
    put_text(g, ",\"device\":", a->device);
    if (a->name) put_text(g, ",\"name\":", a->name);
    pb_gzip_print(g, ",\"steps\":[%" PRId64 ",%" PRId64 "],\"window_ns\":[%" PRId64 ",%" PRId64 "]", a->first_step,
                  a->last_step, w->begin_ns, w->end_ns);
    put_expected(g, a);
    pb_gzip_print(g, ",\"clock\":\"%s\",\"clock_stepped_ns\":%.0f", w->tsc ? "tsc" : "monotonic_raw", w->stepped_ns);
    put_clock(g, a);
    pb_gzip_print(g, ",\"kernels\":%zu,\"unjoined\":%zu,\"gpu_dropped\":%zu", size->kernels, size->unjoined,
                  gpu->dropped);
    pb_chrome_samples_about(g, &gpu->samples, size);
    pb_gzip_print(g, ",\"events\":%zu,\"dropped\":%zu,\"omitted\":%zu,\"truncated\":%s}}\n", size->events, w->dropped,
                  size->omitted, a->truncated || size->omitted ? "true" : "false");
}

/* The bytes that events may fill: the limit without the tail, whose texts may be escaped. */
static size_t room_of(const pb_trace_about *a)
{
    const char *const texts[] = {a->version, a->host, a->device, a->name};
    size_t tail = 1792;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i]) tail += 6 * strnlen(texts[i], PB_GZIP_NAME);
    if (!a->limit) return SIZE_MAX;
    return a->limit > tail ? a->limit - tail : 0;
}

pb_status pb_trace_write(const pb_disk *d, const char *path, const pb_trace_about *about, const pb_ring_window *w,
                         const pb_gpu_window *gpu, pb_trace_size *size)
{
    *size = (pb_trace_size){0};
    if (about->limit && about->limit < PB_TRACE_LEAST)
        return pb_fail(PB_EINVAL, "%s: a limit of %zu bytes, need %d", path, about->limit, PB_TRACE_LEAST);
    pb_gzip *g = malloc(sizeof *g);
    if (!g) return pb_fail(PB_ENOMEM, "%s: no memory to write it", path);
    pb_status s = pb_gzip_open(d, path, g);
    if (s == PB_OK) {
        const int64_t base = w->begin_ns / period_ns * period_ns;
        const size_t room = room_of(about);
        put_head(g, about, base);
        for (int i = 0; i < w->n; i++) put_thread(g, &w->threads[i], room, base, size);
        g->status = pb_chrome_gpu(g, gpu, w, base, room, size);
        pb_chrome_samples(g, &gpu->samples, base, room, size);
        put_tail(g, about, w, gpu, size);
        size->json = g->in;
        s = pb_gzip_close(g);
        size->file = g->out;
    }
    free(g);
    return s;
}
