/* chrome_gpu.c - implements chrome_gpu.h. */
#include "trace/chrome_gpu.h"

#include <ctype.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef char *(*demangle_fn)(const char *name, char *out, size_t *n, int *status);

/* The function of the C++ runtime that demangles names; NULL: the runtime is not installed, and names stay as they are.
 * CUDA builds link the runtime, others load it, so that a trace does not depend on the build that writes it. */
static demangle_fn demangler(void)
{
    static const char *const name = "__cxa_demangle";
    void *f = dlsym(RTLD_DEFAULT, name), *library = f ? NULL : dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL);
    demangle_fn out = NULL;
    if (library) f = dlsym(library, name);
    memcpy(&out, &f, sizeof out); /* ISO C has no conversion from an object pointer to a function pointer */
    return out;
}

enum { LANES = 4, STREAMS = 256, DEMANGLED = 1024 };

/* A range of a thread, for the search by time. */
typedef struct span {
    int tid, depth;
    int64_t begin, end;
    const pb_ring_record *range;
} span;

typedef struct lane_ends {
    uint32_t device, stream;
    int64_t end[LANES];
} lane_ends;

typedef struct writer {
    pb_gzip *g;
    int64_t base;
    const pb_gpu_event **calls; /* [ncalls], by correlation; of equal ones, only the outermost */
    span *spans;                /* [nspans]: collectives, ops and phases, by thread, then by begin */
    size_t ncalls, nspans;
    lane_ends streams[STREAMS];
    int nstreams;
    struct {
        const char *mangled;
        char *name;
    } names[DEMANGLED];
    demangle_fn demangle;
    pb_trace_size *size;
} writer;

/* ---- searching ----------------------------------------------------------------------------------- */

static int by_correlation(const void *x, const void *y)
{
    const pb_gpu_event *a = *(const pb_gpu_event *const *)x, *b = *(const pb_gpu_event *const *)y;
    if (a->correlation != b->correlation) return a->correlation < b->correlation ? -1 : 1;
    return a->begin_ns < b->begin_ns ? -1 : a->begin_ns > b->begin_ns;
}

static const pb_gpu_event *call_of(const writer *w, uint32_t correlation)
{
    size_t low = 0, high = w->ncalls;
    while (low < high) {
        const size_t mid = (low + high) / 2;
        if (w->calls[mid]->correlation < correlation) low = mid + 1;
        else high = mid;
    }
    return low < w->ncalls && w->calls[low]->correlation == correlation ? w->calls[low] : NULL;
}

static int by_thread(const void *x, const void *y)
{
    const span *a = x, *b = y;
    if (a->tid != b->tid) return a->tid < b->tid ? -1 : 1;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return a->depth - b->depth;
}

/* The innermost range of this kind that thread `tid` was in at time t. NULL: none. */
static const pb_ring_record *range_at(const writer *w, int tid, int64_t t, pb_range_kind kind)
{
    size_t low = 0, high = w->nspans;
    while (low < high) { /* the first span that begins later */
        const size_t mid = (low + high) / 2;
        const span *s = &w->spans[mid];
        if (s->tid < tid || (s->tid == tid && s->begin <= t)) low = mid + 1;
        else high = mid;
    }
    for (size_t i = low; i-- > 0 && w->spans[i].tid == tid;) {
        const pb_ring_record *r = w->spans[i].range;
        if (w->spans[i].end >= t && r->kind == kind) return r;
        if (r->kind == PB_RANGE_phase && w->spans[i].end < t) return NULL; /* earlier ones have ended too */
    }
    return NULL;
}

static pb_status make_indexes(writer *w, const pb_gpu_window *gpu, const pb_ring_window *ranges)
{
    size_t n = 0;
    for (int i = 0; i < ranges->n; i++) n += ranges->threads[i].n;
    w->calls = malloc((gpu->n + 1) * sizeof(pb_gpu_event *));
    w->spans = malloc((n + 1) * sizeof *w->spans);
    if (!w->calls || !w->spans) return pb_fail(PB_ENOMEM, "profile: no memory to join %zu records of a GPU", gpu->n);
    for (size_t i = 0; i < gpu->n; i++)
        if (gpu->events[i].kind == PB_GPU_CALL && gpu->events[i].correlation) w->calls[w->ncalls++] = &gpu->events[i];
    if (w->ncalls) qsort(w->calls, w->ncalls, sizeof *w->calls, by_correlation);
    n = 0;
    for (size_t i = 0; i < w->ncalls; i++)
        if (!n || w->calls[n - 1]->correlation != w->calls[i]->correlation) w->calls[n++] = w->calls[i];
    w->ncalls = n;
    for (int i = 0; i < ranges->n; i++)
        for (size_t k = 0; k < ranges->threads[i].n; k++) {
            const pb_ring_record *r = &ranges->threads[i].records[k];
            if (r->kind == PB_RANGE_op || r->kind == PB_RANGE_phase || r->kind == PB_RANGE_collective)
                w->spans[w->nspans++] = (span){ranges->threads[i].tid, r->depth, r->begin_ns, r->end_ns, r};
        }
    if (w->nspans) qsort(w->spans, w->nspans, sizeof *w->spans, by_thread);
    return PB_OK;
}

/* ---- writing ------------------------------------------------------------------------------------- */

/* A kernel's name without its parameters' mangling; cached by address, because CUPTI keeps one string per kernel. */
static const char *demangled(writer *w, const char *name)
{
    size_t at = ((size_t)name >> 4) % DEMANGLED;
    int status = 1;
    for (int i = 0; i < DEMANGLED; i++, at = (at + 1) % DEMANGLED) {
        if (w->names[at].mangled == name) return w->names[at].name ? w->names[at].name : name;
        if (w->names[at].mangled) continue;
        w->names[at].mangled = name;
        if (w->demangle) w->names[at].name = w->demangle(name, NULL, NULL, &status);
        return w->names[at].name ? w->names[at].name : name;
    }
    return name;
}

/* The lane of a stream on which the event overlaps no earlier one; events come by begin. The last lane takes what does
 * not fit. */
static uint32_t lane_of(writer *w, const pb_gpu_event *e)
{
    int i = 0;
    while (i < w->nstreams && (w->streams[i].device != e->device || w->streams[i].stream != e->stream)) i++;
    if (i == STREAMS) return 0;
    if (i == w->nstreams) w->streams[w->nstreams++] = (lane_ends){.device = e->device, .stream = e->stream};
    uint32_t lane = 0;
    while (lane + 1 < LANES && w->streams[i].end[lane] > e->begin_ns) lane++;
    if (e->end_ns > w->streams[i].end[lane]) w->streams[i].end[lane] = e->end_ns;
    return lane;
}

static void begin_event(writer *w, const char *cat, const char *name, long pid, long tid, const pb_gpu_event *e)
{
    pb_gzip_print(w->g, ",\n{\"ph\":\"X\",\"cat\":\"%s\",\"name\":", cat);
    pb_gzip_string(w->g, name);
    pb_gzip_print(w->g, ",\"pid\":%ld,\"tid\":%ld", pid, tid);
    pb_trace_put_us(w->g, "ts", e->begin_ns - w->base);
    pb_trace_put_us(w->g, "dur", e->end_ns - e->begin_ns);
    pb_gzip_print(w->g, ",\"args\":{\"correlation\":%" PRIu32, e->correlation);
    w->size->events++;
}

/* The index of the innermost range of a kind; -1: none. */
static int in_place(const pb_range_stack *p, pb_range_kind kind)
{
    int i = p->depth - 1;
    while (i >= 0 && p->at[i].kind != kind) i--;
    return i;
}

/* True if this work is communication when it lies inside a collective: a kernel of NCCL, or a copy. */
static bool may_communicate(writer *w, const pb_gpu_event *e)
{
    if (e->kind == PB_GPU_COPY) return true;
    return e->kind == PB_GPU_KERNEL && e->name && strncmp(demangled(w, e->name), "nccl", 4) == 0;
}

/* Only such work gets the collective's arguments: analysers take these as a sign of communication, and the other
 * kernels of a collective, such as ordered sums, are none. */
static void put_collective_of(writer *w, const pb_gpu_event *e, const pb_gpu_event *call)
{
    if (!may_communicate(w, e)) return;
    const char *key = e->kind == PB_GPU_COPY ? "collective bytes" : "bytes"; /* `bytes` of a copy are its own */
    for (int i = e->place ? e->place->depth - 1 : -1; i >= 0; i--)
        if (e->place->at[i].kind == PB_RANGE_collective) {
            pb_trace_put_collective(w->g, e->place->at[i].name, key, e->place->at[i].value, &e->place->at[i].of);
            return;
        }
    if (e->place || e->node || !call) return;
    const pb_ring_record *r = range_at(w, (int)call->thread, call->begin_ns, PB_RANGE_collective);
    if (r) pb_trace_put_collective(w->g, r->name, key, r->value, &r->of);
}

static const char *name_of(const pb_ring_record *r) { return r ? r->name : NULL; }

/* The op, with the layer of the model, and the phase of work on the GPU, and its collective. */
static void put_origin(writer *w, const pb_gpu_event *e)
{
    const pb_gpu_event *call = call_of(w, e->correlation);
    const char *op = NULL, *phase = NULL;
    int64_t layer = PB_RANGE_NO_VALUE;
    if (e->place) {
        const int o = in_place(e->place, PB_RANGE_op), p = in_place(e->place, PB_RANGE_phase);
        if (o >= 0) op = e->place->at[o].name, layer = e->place->at[o].value;
        if (p >= 0) phase = e->place->at[p].name;
        const int last = e->place->depth - 1;
        if (last >= 0) pb_trace_put_work(w->g, e->place->at[last].flops, e->place->at[last].bytes);
    }
    if (!e->place && call && !e->node) {
        const pb_ring_record *r = range_at(w, (int)call->thread, call->begin_ns, PB_RANGE_op);
        if (r) op = r->name, layer = r->value;
        phase = name_of(range_at(w, (int)call->thread, call->begin_ns, PB_RANGE_phase));
    }
    if (op) pb_gzip_print(w->g, ",\"op\":\"%s\"", op);
    if (layer != PB_RANGE_NO_VALUE) pb_gzip_print(w->g, ",\"layer\":%" PRId64, layer);
    if (phase) pb_gzip_print(w->g, ",\"phase\":\"%s\"", phase);
    put_collective_of(w, e, call);
    w->size->unjoined += !op && e->kind == PB_GPU_KERNEL;
    w->size->kernels += e->kind == PB_GPU_KERNEL;
}

static void put_arrow(writer *w, const pb_gpu_event *e, long tid)
{
    const pb_gpu_event *call = call_of(w, e->correlation);
    if (!call || e->node) return;
    pb_gzip_print(w->g,
                  ",\n{\"ph\":\"s\",\"cat\":\"ac2g\",\"name\":\"ac2g\",\"id\":%" PRIu32 ",\"pid\":%d,\"tid\":%" PRIu32,
                  e->correlation, (int)getpid(), call->thread);
    pb_trace_put_us(w->g, "ts", call->begin_ns - w->base);
    pb_gzip_print(w->g,
                  "},\n{\"ph\":\"f\",\"bp\":\"e\",\"cat\":\"ac2g\",\"name\":\"ac2g\",\"id\":%" PRIu32
                  ",\"pid\":%" PRIu32 ",\"tid\":%ld",
                  e->correlation, e->device, tid);
    pb_trace_put_us(w->g, "ts", e->begin_ns - w->base);
    pb_gzip_put(w->g, "}", 1);
}

static void put_work(writer *w, const pb_gpu_event *e)
{
    static const char *const cats[] = {
        [PB_GPU_KERNEL] = "kernel", [PB_GPU_COPY] = "gpu_memcpy", [PB_GPU_SET] = "gpu_memset"};
    const long tid = (long)e->stream + 1000000L * lane_of(w, e);
    begin_event(w, cats[e->kind], e->kind == PB_GPU_KERNEL ? demangled(w, e->name) : e->name, (long)e->device, tid, e);
    pb_gzip_print(w->g, ",\"device\":%" PRIu32 ",\"context\":%" PRIu32 ",\"stream\":%" PRIu32, e->device, e->context,
                  e->stream);
    if (e->kind == PB_GPU_KERNEL)
        pb_gzip_print(
            w->g, ",\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u],\"registers per thread\":%u,\"shared memory\":%u",
            e->grid[0], e->grid[1], e->grid[2], e->block[0], e->block[1], e->block[2], e->registers, e->shared);
    else {
        const double s = 1e-9 * (double)(e->end_ns - e->begin_ns);
        pb_gzip_print(w->g, ",\"bytes\":%" PRIu64 ",\"memory bandwidth (GB/s)\":%.6g", e->bytes,
                      s > 0 ? 1e-9 * (double)e->bytes / s : 0.0);
    }
    if (e->node) pb_gzip_print(w->g, ",\"graph node\":%" PRIu64, e->node);
    put_origin(w, e);
    pb_gzip_put(w->g, "}}", 2);
    put_arrow(w, e, tid);
}

/* Runtime calls are named as in the program: "cudaLaunchKernel", not "cudaLaunchKernel_v7000" or "_ptsz_v7000". */
static void plain_name(const char *name, char *out, size_t n)
{
    snprintf(out, n, "%s", name);
    char *v = strrchr(out, '_');
    if (v && v[1] == 'v' && strlen(v + 2) >= 4 && isdigit((unsigned char)v[2])) *v = 0;
    const size_t length = strlen(out);
    if (length > 5 && strcmp(out + length - 5, "_ptsz") == 0) out[length - 5] = 0;
}

static void put_event(writer *w, const pb_gpu_event *e)
{
    char name[128];
    switch (e->kind) {
    case PB_GPU_CALL:
        if (e->correlation && call_of(w, e->correlation) != e)
            return; /* the driver's call inside that of the runtime */
        plain_name(e->name, name, sizeof name);
        begin_event(w, strncmp(name, "cuda", 4) == 0 ? "cuda_runtime" : "cuda_driver", name, (long)getpid(),
                    (long)e->thread, e);
        pb_gzip_put(w->g, "}}", 2);
        break;
    case PB_GPU_SYNC: {
        const bool of_stream = e->stream != UINT32_MAX;
        begin_event(w, "cuda_sync", e->name, (long)e->device, of_stream ? (long)e->stream + 1000000L * LANES : -1, e);
        pb_gzip_print(w->g, ",\"stream\":-1"); /* no work: with a stream, analyses count it as busy time */
        if (of_stream) pb_gzip_print(w->g, ",\"of stream\":%" PRIu32, e->stream);
        pb_gzip_put(w->g, "}}", 2);
        break;
    }
    case PB_GPU_GRAPH:
        begin_event(w, "cuda_graph", e->name, (long)e->device, (long)e->stream + 1000000L * lane_of(w, e), e);
        pb_gzip_print(w->g, ",\"device\":%" PRIu32 ",\"context\":%" PRIu32 ",\"stream\":%" PRIu32 "}}", e->device,
                      e->context, e->stream);
        break;
    case PB_GPU_OVERHEAD:
        begin_event(w, "overhead", e->name, (long)getpid(), -1, e);
        pb_gzip_put(w->g, "}}", 2);
        break;
    default: put_work(w, e); break;
    }
}

pb_status pb_chrome_gpu(pb_gzip *g, const pb_gpu_window *gpu, const pb_ring_window *ranges, int64_t base, size_t room,
                        pb_trace_size *size)
{
    writer *w = calloc(1, sizeof *w);
    if (!w) return pb_fail(PB_ENOMEM, "profile: no memory to write the records of a GPU");
    *w = (writer){.g = g, .base = base, .demangle = demangler(), .size = size};
    const pb_status s = make_indexes(w, gpu, ranges);
    for (size_t i = 0; s == PB_OK && i < gpu->n; i++) {
        const pb_trace_size before = *size;
        const size_t mark = pb_gzip_mark(g);
        put_event(w, &gpu->events[i]);
        if (pb_gzip_fits(g, mark, room)) continue;
        *size = before;
        size->omitted += gpu->n - i;
        break;
    }
    for (int i = 0; i < DEMANGLED; i++) free(w->names[i].name);
    free(w->calls);
    free(w->spans);
    free(w);
    return s;
}
