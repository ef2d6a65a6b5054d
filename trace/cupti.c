/* cupti.c - implements gpu.h with CUPTI's Activity and Callback APIs, loaded at run time. */
#include <cupti.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "trace/cupti_library.h"
#include "trace/gpu.h"
#include "trace/nodes.h"

enum { BUFFER = 4 << 20, ALIGN = 64 };

static struct {
#define CUPTI(name, parameters) CUptiResult(CUPTIAPI *name) parameters;
#include "trace/cupti.def"
#undef CUPTI
} api;

typedef struct buffer {
    uint8_t *bytes; /* [BUFFER] */
    size_t valid;
} buffer;

/* The buffers. CUPTI's threads call want_buffer and take_buffer; no CUPTI function is called under the lock, because
 * CUPTI holds locks of its own during these calls. */
static struct {
    pthread_mutex_t lock;
    bool open, whole; /* whole: graphs are not recorded node by node */
    uint8_t *memory;  /* [most][BUFFER] */
    uint8_t **spare;  /* [spares]: buffers that are free */
    buffer *full;     /* [fulls], in the order of completion */
    size_t most, spares, fulls, refused, dropped;
    CUpti_SubscriberHandle subscriber;
} on = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const CUpti_ActivityKind kinds[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
    CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMSET,
    CUPTI_ACTIVITY_KIND_RUNTIME,
    CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
    CUPTI_ACTIVITY_KIND_OVERHEAD,
    CUPTI_ACTIVITY_KIND_DRIVER,
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static pb_status failed(const char *what, CUptiResult r)
{
    const char *why = "unknown error";
    (void)api.cuptiGetResultString(r, &why);
    if (r == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
        return pb_fail(PB_EUNSUPPORTED,
                       "profile: another profiler, such as Nsight, is attached to this process, and CUPTI admits one");
    if (r == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES)
        return pb_fail(PB_EUNSUPPORTED, "profile: the driver does not permit profiling to this user (%s)", why);
    return pb_fail(PB_EDEVICE, "profile: CUPTI failed in %s: %s", what, why);
}

#define CUPTI_TRY(name, ...)                                                                                           \
    do {                                                                                                               \
        const CUptiResult cupti_result_ = api.name(__VA_ARGS__);                                                       \
        if (cupti_result_ != CUPTI_SUCCESS) return failed(#name, cupti_result_);                                       \
    } while (0)

/* ---- buffers ------------------------------------------------------------------------------------- */

static void CUPTIAPI want_buffer(uint8_t **bytes, size_t *size, size_t *records)
{
    *records = 0; /* as many as fit */
    (void)pthread_mutex_lock(&on.lock);
    *bytes = on.spares ? on.spare[--on.spares] : NULL; /* NULL: CUPTI drops records */
    on.refused += !*bytes;
    (void)pthread_mutex_unlock(&on.lock);
    *size = *bytes ? BUFFER : 0;
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *bytes, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size;
    (void)pthread_mutex_lock(&on.lock);
    if (valid && on.fulls < on.most) on.full[on.fulls++] = (buffer){bytes, valid};
    else if (bytes) on.spare[on.spares++] = bytes;
    (void)pthread_mutex_unlock(&on.lock);
}

/* Gives back the buffers of the window before, as zeros: otherwise CUPTI would clear each one inside the window, in the
 * thread that enqueues work. */
static void empty_buffers(void)
{
    (void)pthread_mutex_lock(&on.lock);
    while (on.fulls) {
        uint8_t *bytes = on.full[--on.fulls].bytes;
        (void)pthread_mutex_unlock(&on.lock);
        memset(bytes, 0, BUFFER);
        (void)pthread_mutex_lock(&on.lock);
        on.spare[on.spares++] = bytes;
    }
    on.refused = on.dropped = 0;
    (void)pthread_mutex_unlock(&on.lock);
}

/* ---- attaching ----------------------------------------------------------------------------------- */

/* A node is created by the thread that captures, or cloned when a graph is instantiated. */
static void CUPTIAPI on_resource(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data)
{
    uint64_t node = 0, original = 0;
    (void)user;
    if (domain != CUPTI_CB_DOMAIN_RESOURCE) return;
    const CUpti_GraphData *g = ((const CUpti_ResourceData *)data)->resourceDescriptor;
    if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) {
        const pb_range_stack place = pb_range_stack_take();
        if (place.depth && api.cuptiGetGraphNodeId(g->node, &node) == CUPTI_SUCCESS) pb_nodes_add(node, &place);
    }
    if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED && api.cuptiGetGraphNodeId(g->node, &node) == CUPTI_SUCCESS &&
        api.cuptiGetGraphNodeId(g->originalNode, &original) == CUPTI_SUCCESS)
        pb_nodes_copy(node, original);
}

static pb_status load(void)
{
    void *library;
    PB_TRY(pb_cupti_library("profile", &library));
#define CUPTI(name, parameters) PB_TRY(pb_cupti_symbol("profile", library, #name, (void **)&api.name));
#include "trace/cupti.def"
#undef CUPTI
    return PB_OK;
}

static pb_status reserve(size_t limit)
{
    on.most = (limit ? limit : (size_t)256 << 20) / BUFFER;
    if (on.most < 4) on.most = 4;
    on.memory = aligned_alloc(ALIGN, on.most * BUFFER);
    on.spare = calloc(on.most, sizeof *on.spare);
    on.full = calloc(on.most, sizeof *on.full);
    if (!on.memory || !on.spare || !on.full)
        return pb_fail(PB_ENOMEM, "profile: no memory for %zu MiB of CUPTI records", on.most * BUFFER >> 20);
    memset(on.memory, 0, on.most * BUFFER); /* no page faults in a window */
    for (size_t i = 0; i < on.most; i++) on.spare[on.spares++] = on.memory + i * BUFFER;
    return PB_OK;
}

static pb_status attach(void)
{
    static const CUpti_CallbackId ids[] = {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED};
    CUPTI_TRY(cuptiSubscribe, &on.subscriber, on_resource, NULL);
    for (size_t i = 0; !on.whole && i < sizeof ids / sizeof *ids; i++)
        CUPTI_TRY(cuptiEnableCallback, 1, on.subscriber, CUPTI_CB_DOMAIN_RESOURCE, ids[i]);
    CUPTI_TRY(cuptiSetThreadIdType, CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
    size_t bytes = sizeof(uint8_t);
    uint8_t zeroed = 1;
    CUPTI_TRY(cuptiActivitySetAttribute, CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &bytes, &zeroed);
    CUPTI_TRY(cuptiActivityRegisterCallbacks, want_buffer, take_buffer);
    /* The first use of this kind generates code, which can take seconds: not in the first window. */
    CUPTI_TRY(cuptiActivityEnable, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    CUPTI_TRY(cuptiActivityDisable, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    /* On from before the first instantiation until the process ends; what it records outside of windows is dropped. */
    if (on.whole) CUPTI_TRY(cuptiActivityEnable, CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
    return PB_OK;
}

pb_status pb_gpu_open(size_t limit, pb_gpu_graphs graphs)
{
    if (on.open) return PB_OK;
    PB_TRY(load());
    PB_TRY(reserve(limit));
    on.whole = graphs == PB_GPU_GRAPHS_GRAPH;
    PB_TRY(attach());
    on.open = true;
    return PB_OK;
}

void pb_gpu_node(void *handle, const pb_range_stack *place)
{
    uint64_t node = 0;
    if (on.open && api.cuptiGetGraphNodeId((CUgraphNode)handle, &node) == CUPTI_SUCCESS) pb_nodes_add(node, place);
}

/* ---- windows ------------------------------------------------------------------------------------- */

/* Leaves out calls that enqueue no work, and those of the driver that repeat calls of the runtime. cuBLASLt launches
 * its kernels through cuLaunchKernelEx. These calls only restrict a kind that is enabled as a whole: with
 * cuptiActivityEnableDriverApi() alone, CUPTI 13.0 gives no record (tried on an H200). */
static pb_status choose_calls(void)
{
    static const CUpti_CallbackId idle[] = {
        CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020,
        CUPTI_RUNTIME_TRACE_CBID_cudaSetDevice_v3020,
        CUPTI_RUNTIME_TRACE_CBID_cudaGetLastError_v3020,
        CUPTI_RUNTIME_TRACE_CBID_cudaPeekAtLastError_v3020,
        CUPTI_RUNTIME_TRACE_CBID_cudaDeviceGetAttribute_v5000,
        CUPTI_RUNTIME_TRACE_CBID_cudaGetDriverEntryPointByVersion_v12050,
        CUPTI_RUNTIME_TRACE_CBID_cudaFuncSetAttribute_v9000,
        CUPTI_RUNTIME_TRACE_CBID_cudaStreamIsCapturing_v10000,
    };
    for (CUpti_CallbackId id = 1; id < CUPTI_DRIVER_TRACE_CBID_SIZE; id++)
        if (id != CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel && id != CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx)
            (void)api.cuptiActivityEnableDriverApi(id, 0); /* some numbers have no call */
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++) CUPTI_TRY(cuptiActivityEnableRuntimeApi, idle[i], 0);
    return PB_OK;
}

pb_status pb_gpu_begin(void)
{
    empty_buffers();
    for (int i = 0; i < KINDS; i++) CUPTI_TRY(cuptiActivityEnable, kinds[i]);
    return choose_calls();
}

pb_status pb_gpu_end(void)
{
    size_t dropped = 0;
    CUPTI_TRY(cuptiActivityFlushAll, 0);
    for (int i = 0; i < KINDS; i++) CUPTI_TRY(cuptiActivityDisable, kinds[i]);
    CUPTI_TRY(cuptiActivityFlushAll, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    CUPTI_TRY(cuptiActivityGetNumDroppedRecords, NULL, 0, &dropped);
    on.dropped = dropped;
    return PB_OK;
}

/* ---- records ------------------------------------------------------------------------------------- */

static const char *copy_name(uint8_t kind)
{
    switch (kind) { /* the first words are what analyses tell kinds of copies apart by */
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD: return "Memcpy HtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH: return "Memcpy DtoH";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD: return "Memcpy DtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP: return "Memcpy PtoP";
    default: return "Memcpy";
    }
}

static const char *sync_name(CUpti_ActivitySynchronizationType type)
{
    switch (type) {
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE: return "Event Sync";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT: return "Stream Wait Event";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE: return "Stream Sync";
    default: return "Context Sync";
    }
}

static const char *overhead_name(CUpti_ActivityOverheadKind kind)
{
    switch (kind) {
    case CUPTI_ACTIVITY_OVERHEAD_DRIVER_COMPILER: return "compilation";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH: return "CUPTI buffer flush";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_INSTRUMENTATION: return "CUPTI instrumentation";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE: return "CUPTI resources";
    case CUPTI_ACTIVITY_OVERHEAD_RUNTIME_TRIGGERED_MODULE_LOADING: return "module loading";
    case CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING: return "lazy function loading";
    case CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL: return "command buffer full";
    default: return "overhead";
    }
}

static pb_gpu_event from_kernel(const CUpti_ActivityKernel10 *k)
{
    return (pb_gpu_event){.kind = PB_GPU_KERNEL,
                          .begin_ns = (int64_t)k->start,
                          .end_ns = (int64_t)k->end,
                          .name = k->name,
                          .device = k->deviceId,
                          .context = k->contextId,
                          .stream = k->streamId,
                          .correlation = k->correlationId,
                          .node = k->graphNodeId,
                          .grid = {(uint32_t)k->gridX, (uint32_t)k->gridY, (uint32_t)k->gridZ},
                          .block = {(uint32_t)k->blockX, (uint32_t)k->blockY, (uint32_t)k->blockZ},
                          .registers = k->registersPerThread,
                          .shared = (uint32_t)(k->staticSharedMemory + k->dynamicSharedMemory)};
}

static pb_gpu_event from_copy(const CUpti_ActivityMemcpy6 *c)
{
    return (pb_gpu_event){.kind = PB_GPU_COPY,
                          .begin_ns = (int64_t)c->start,
                          .end_ns = (int64_t)c->end,
                          .name = copy_name(c->copyKind),
                          .device = c->deviceId,
                          .context = c->contextId,
                          .stream = c->streamId,
                          .correlation = c->correlationId,
                          .node = c->graphNodeId,
                          .bytes = c->bytes};
}

static pb_gpu_event from_set(const CUpti_ActivityMemset4 *s)
{
    return (pb_gpu_event){.kind = PB_GPU_SET,
                          .begin_ns = (int64_t)s->start,
                          .end_ns = (int64_t)s->end,
                          .name = "Memset",
                          .device = s->deviceId,
                          .context = s->contextId,
                          .stream = s->streamId,
                          .correlation = s->correlationId,
                          .node = s->graphNodeId,
                          .bytes = s->bytes};
}

static pb_gpu_event from_call(const CUpti_ActivityAPI *a, CUpti_CallbackDomain domain)
{
    const char *name = "unknown call";
    (void)api.cuptiGetCallbackName(domain, a->cbid, &name);
    return (pb_gpu_event){.kind = PB_GPU_CALL,
                          .begin_ns = (int64_t)a->start,
                          .end_ns = (int64_t)a->end,
                          .name = name,
                          .stream = UINT32_MAX,
                          .correlation = a->correlationId,
                          .thread = a->threadId};
}

/* False: a record of no interest. */
static bool from_record(const CUpti_Activity *r, pb_gpu_event *e)
{
    switch (r->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: *e = from_kernel((const CUpti_ActivityKernel10 *)r); break;
    case CUPTI_ACTIVITY_KIND_MEMCPY: *e = from_copy((const CUpti_ActivityMemcpy6 *)r); break;
    case CUPTI_ACTIVITY_KIND_MEMSET: *e = from_set((const CUpti_ActivityMemset4 *)r); break;
    case CUPTI_ACTIVITY_KIND_RUNTIME: *e = from_call((const CUpti_ActivityAPI *)r, CUPTI_CB_DOMAIN_RUNTIME_API); break;
    case CUPTI_ACTIVITY_KIND_DRIVER: *e = from_call((const CUpti_ActivityAPI *)r, CUPTI_CB_DOMAIN_DRIVER_API); break;
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: {
        const CUpti_ActivitySynchronization2 *s = (const CUpti_ActivitySynchronization2 *)r;
        *e = (pb_gpu_event){.kind = PB_GPU_SYNC,
                            .begin_ns = (int64_t)s->start,
                            .end_ns = (int64_t)s->end,
                            .name = sync_name(s->type),
                            .context = s->contextId,
                            .stream = s->streamId,
                            .correlation = s->correlationId};
        break;
    }
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: {
        const CUpti_ActivityGraphTrace2 *g = (const CUpti_ActivityGraphTrace2 *)r;
        *e = (pb_gpu_event){.kind = PB_GPU_GRAPH,
                            .begin_ns = (int64_t)g->start,
                            .end_ns = (int64_t)g->end,
                            .name = "graph",
                            .device = g->deviceId,
                            .context = g->contextId,
                            .stream = g->streamId,
                            .correlation = g->correlationId};
        break;
    }
    case CUPTI_ACTIVITY_KIND_OVERHEAD: {
        const CUpti_ActivityOverhead3 *o = (const CUpti_ActivityOverhead3 *)r;
        free(o->overheadData);
        *e = (pb_gpu_event){.kind = PB_GPU_OVERHEAD,
                            .begin_ns = (int64_t)o->start,
                            .end_ns = (int64_t)o->end,
                            .name = overhead_name(o->overheadKind),
                            .stream = UINT32_MAX};
        break;
    }
    default: return false;
    }
    return true;
}

static pb_status add(pb_gpu_window *w, size_t *room, const pb_gpu_event *e)
{
    if (w->n == *room) {
        const size_t more = *room ? 2 * *room : 65536;
        pb_gpu_event *events = realloc(w->events, more * sizeof *events);
        if (!events) return pb_fail(PB_ENOMEM, "profile: no memory for %zu records of a GPU", more);
        w->events = events;
        *room = more;
    }
    w->events[w->n++] = *e;
    return PB_OK;
}

pb_status pb_gpu_read(pb_gpu_window *out)
{
    pb_gpu_window w = {.dropped = on.dropped + on.refused};
    size_t room = 0;
    pb_status s = PB_OK;
    for (size_t i = 0; s == PB_OK && i < on.fulls; i++) {
        CUpti_Activity *r = NULL;
        w.buffer_bytes += on.full[i].valid;
        while (s == PB_OK && api.cuptiActivityGetNextRecord(on.full[i].bytes, on.full[i].valid, &r) == CUPTI_SUCCESS) {
            pb_gpu_event e;
            if (from_record(r, &e)) s = add(&w, &room, &e);
        }
    }
    if (s != PB_OK) pb_gpu_free(&w);
    *out = w;
    return s;
}
