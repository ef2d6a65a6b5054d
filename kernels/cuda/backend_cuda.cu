/* backend_cuda.cu - an NVIDIA GPU as a device: it has one stream, events as timestamps, and graphs made
 * by capturing that stream. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/cuda_blas.h"
#include "kernels/cuda/graph_kernels.h"
#include "kernels/cuda/graph_notes.h"
#include "kernels/engine/gpu_check.h"
#include "profiles/ranges.h"

struct cuda_state {
    pb_cuda_device device;
    pb_cuda_blas *blas;
    cudaEvent_t at[PB_MARK_SLOTS]; /* all created at open: creating one takes as long as a short kernel */
    void *flush;
    size_t flush_bytes, used_at_open;
    unsigned char flush_value;
    double delay_cost;      /* seconds that an injected delay of 0 takes; 0: not measured yet */
    unsigned char *staging; /* page-locked host memory that staged uploads are copied from */
    size_t staged;          /* bytes at the start of `staging` that the stream has possibly not read yet */
};
enum { STAGING = 64 << 10 };

struct pb_graph {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    size_t nodes;
    pb_graph_notes *notes;
};

static cuda_state *state_of(const pb_ctx *ctx) { return (cuda_state *)ctx->priv; }
const pb_cuda_device *pb_cuda_device_of(const pb_ctx *ctx) { return &state_of(ctx)->device; }
pb_cuda_blas *pb_cuda_blas_of(const pb_ctx *ctx) { return state_of(ctx)->blas; }

/* Returns PB_CAPABILITY, read once; 0 if it is not set or wrong. Opening a device reports that it is wrong. */
static int assumed_capability(void)
{
    static const int once = [] {
        int capability;
        return pb_gpu_assumed(&capability) == PB_OK ? capability : 0;
    }();
    return once;
}

/* Returns an attribute of the current device; 0 without a device. */
static int of_current_device(cudaDeviceAttr which)
{
    int device, value = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return 0;
    return cudaDeviceGetAttribute(&value, which, device) == cudaSuccess ? value : 0;
}

bool pb_cuda_has_sm90(void)
{
    const int assumed = assumed_capability();
    return (assumed ? assumed / 10 : of_current_device(cudaDevAttrComputeCapabilityMajor)) == 9;
}

size_t pb_cuda_shared(void)
{
    const int assumed = assumed_capability();
    if (assumed) return pb_gpu_shared(assumed);
    const int bytes = of_current_device(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    return bytes ? (size_t)bytes : (size_t)PB_GPU_LEAST_SHARED;
}

/* ---- turning errors of the CUDA runtime into statuses ----------------------------------------------------------- */

static void free_memory(size_t *unused, size_t *all)
{
    *unused = *all = 0;
    if (cudaMemGetInfo(unused, all) != cudaSuccess) *unused = *all = 0;
    (void)cudaGetLastError();
}

pb_status pb_cuda_failed(cudaError_t e, const char *call)
{
    size_t unused, all;
    (void)cudaGetLastError();
    if (e != cudaErrorMemoryAllocation) return pb_fail(PB_EDEVICE, "cuda: %s failed: %s", call, cudaGetErrorString(e));
    free_memory(&unused, &all);
    if (!all) return pb_fail(PB_ENOMEM, "cuda: %s failed: out of memory", call); /* no memory even for a context */
    return pb_fail(PB_ENOMEM, "cuda: %s failed: out of memory, %.3f of %.3f GB free", call, 1e-9 * (double)unused,
                   1e-9 * (double)all);
}

pb_status pb_cuda_malloc(size_t bytes, void **out)
{
    void *p = NULL;
    size_t unused, all;
    const cudaError_t e = cudaMalloc(&p, bytes);
    if (e == cudaSuccess) {
        *out = p;
        return PB_OK;
    }
    (void)cudaGetLastError();
    if (e != cudaErrorMemoryAllocation)
        return pb_fail(PB_EDEVICE, "cuda: allocating %zu bytes failed: %s", bytes, cudaGetErrorString(e));
    free_memory(&unused, &all);
    return pb_gpu_no_memory(bytes, unused, all);
}

/* ---- opening and closing the device ---------------------------------------------------------------------------- */

/* Checks the driver's version first: the runtime returns one error both for a missing and for an old driver. */
static pb_status device_exists(int device)
{
    int driver = 0, runtime = 0, n = 0;
    PB_CUDA_TRY(cudaDriverGetVersion(&driver));
    PB_CUDA_TRY(cudaRuntimeGetVersion(&runtime));
    PB_TRY(pb_gpu_check_driver(driver, runtime));
    const cudaError_t e = cudaGetDeviceCount(&n);
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        return pb_fail(PB_EDEVICE, "cuda: no usable GPU: %s", cudaGetErrorString(e));
    }
    return pb_gpu_check_number(device, n);
}

static pb_status attribute(size_t *out, cudaDeviceAttr which, int device)
{
    int value = 0;
    PB_CUDA_TRY(cudaDeviceGetAttribute(&value, which, device));
    *out = (size_t)value;
    return PB_OK;
}

static pb_status read_facts(pb_cuda_device *d, int device)
{
    size_t sms = 0, major = 0, minor = 0;
    PB_TRY(attribute(&sms, cudaDevAttrMultiProcessorCount, device));
    PB_TRY(attribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    PB_TRY(attribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    PB_TRY(attribute(&d->shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    PB_TRY(attribute(&d->l2, cudaDevAttrL2CacheSize, device));
    d->sms = (int)sms;
    d->cc = (int)(10 * major + minor);
    return PB_OK;
}

static __global__ void nothing() {}
#define TEXT_OF(...) #__VA_ARGS__
#define TEXT(...)    TEXT_OF(__VA_ARGS__)

/* Checks the compute capability before the device gets a context: with eager loading, creating a context on an old
 * device would fail first, with a less clear error. */
static pb_status recent_enough(int device, int cc)
{
    cudaDeviceProp p;
    if (cc >= PB_GPU_LEAST_CAPABILITY) return PB_OK;
    PB_CUDA_TRY(cudaGetDeviceProperties(&p, device));
    return pb_gpu_check_capability(device, p.name, cc);
}

/* Applies PB_CAPABILITY to the facts of the device. */
static pb_status assume(pb_cuda_device *d)
{
    int assumed;
    PB_TRY(pb_gpu_assumed(&assumed));
    if (!assumed) return PB_OK;
    PB_TRY(pb_gpu_can_assume(d->cc, assumed));
    d->shared = pb_gpu_shared(assumed);
    return PB_OK;
}

/* Checks that this build has code for the device's architecture. */
static pb_status has_code(int device, int cc)
{
    cudaFuncAttributes a;
    cudaDeviceProp p;
    const cudaError_t e = cudaFuncGetAttributes(&a, nothing);
    if (e == cudaSuccess) return PB_OK;
    if (e != cudaErrorNoKernelImageForDevice && e != cudaErrorInvalidDeviceFunction)
        return pb_cuda_failed(e, "loading");
    (void)cudaGetLastError();
    PB_CUDA_TRY(cudaGetDeviceProperties(&p, device));
    return pb_gpu_no_code(device, p.name, cc, TEXT(__CUDA_ARCH_LIST__));
}

static pb_status memory_in_use(size_t *bytes)
{
    size_t unused = 0, all = 0;
    PB_CUDA_TRY(cudaMemGetInfo(&unused, &all));
    *bytes = all - unused;
    return PB_OK;
}

static pb_status open_state(pb_ctx *ctx, int device)
{
    cuda_state *s = state_of(ctx);
    cudaStream_t stream = NULL;
    PB_TRY(device_exists(device));
    PB_TRY(read_facts(&s->device, device));
    PB_TRY(recent_enough(device, s->device.cc));
    PB_TRY(assume(&s->device));
    PB_CUDA_TRY(cudaSetDevice(device));
    PB_TRY(has_code(device, s->device.cc));
    PB_TRY(memory_in_use(&s->used_at_open));
    PB_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ctx->stream = stream;
    s->flush_bytes = 2 * s->device.l2;
    PB_TRY(pb_cuda_malloc(s->flush_bytes, &s->flush));
    PB_CUDA_TRY(cudaMallocHost(&s->staging, STAGING));
    for (cudaEvent_t &e : s->at) PB_CUDA_TRY(cudaEventCreate(&e));
    return pb_cuda_blas_open(&s->blas);
}

static void cuda_close(pb_ctx *ctx)
{
    cuda_state *s = state_of(ctx);
    if (ctx->stream) (void)cudaStreamSynchronize(pb_cuda_stream(ctx));
    pb_cuda_blas_close(s->blas);
    for (cudaEvent_t e : s->at)
        if (e) (void)cudaEventDestroy(e);
    (void)cudaFree(s->flush);
    (void)cudaFreeHost(s->staging);
    if (ctx->stream) (void)cudaStreamDestroy(pb_cuda_stream(ctx));
    (void)cudaGetLastError();
    free(s);
    ctx->priv = ctx->stream = NULL;
}

/* Opens a device with eager module loading: all kernels are loaded with the context, not at their first launch. A load
 * in the middle of a run would synchronise and allocate, and cannot be captured. CUDA reads the variable once per
 * process; a value that the user has set is kept. */
static pb_status cuda_open(pb_ctx *ctx, int device)
{
    (void)setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    ctx->priv = calloc(1, sizeof(cuda_state));
    if (!ctx->priv) return pb_fail(PB_ENOMEM, "cuda: no host memory for the state of the backend");
    const pb_status status = open_state(ctx, device);
    if (status != PB_OK) cuda_close(ctx);
    return status;
}

/* ---- device memory: allocating, copying, clearing -------------------------------------------------------------- */

static pb_status cuda_alloc(pb_ctx *, size_t bytes, void **out) { return pb_cuda_malloc(bytes ? bytes : 256, out); }

static void cuda_release(pb_ctx *, void *p) { (void)cudaFree(p); }

static pb_status cuda_sync(pb_ctx *ctx)
{
    PB_CUDA_TRY(cudaStreamSynchronize(pb_cuda_stream(ctx)));
    state_of(ctx)->staged = 0;
    return PB_OK;
}

static pb_status cuda_upload(pb_ctx *ctx, void *dev, const void *host, size_t bytes)
{
    if (!bytes) return PB_OK;
    PB_CUDA_TRY(cudaMemcpyAsync(dev, host, bytes, cudaMemcpyHostToDevice, pb_cuda_stream(ctx)));
    return cuda_sync(ctx);
}

/* Copies the bytes to page-locked memory first, from which cudaMemcpyAsync returns at once. From pageable memory, which
 * `host` is, it may wait for the GPU. */
static pb_status cuda_upload_staged(pb_ctx *ctx, void *dev, const void *host, size_t bytes)
{
    cuda_state *s = state_of(ctx);
    if (s->staged + bytes > STAGING) {
        ctx->counts.host_syncs++;
        PB_TRY(cuda_sync(ctx));
    }
    if (!bytes) return PB_OK;
    unsigned char *from = s->staging + s->staged;
    memcpy(from, host, bytes);
    s->staged += bytes;
    PB_CUDA_TRY(cudaMemcpyAsync(dev, from, bytes, cudaMemcpyHostToDevice, pb_cuda_stream(ctx)));
    return PB_OK;
}

static pb_status cuda_download(pb_ctx *ctx, void *host, const void *dev, size_t bytes)
{
    if (!bytes) return cuda_sync(ctx);
    PB_CUDA_TRY(cudaMemcpyAsync(host, dev, bytes, cudaMemcpyDeviceToHost, pb_cuda_stream(ctx)));
    return cuda_sync(ctx);
}

static pb_status cuda_copy(pb_ctx *ctx, void *to, const void *from, size_t bytes)
{
    if (bytes) PB_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, pb_cuda_stream(ctx)));
    return PB_OK;
}

static pb_status cuda_zero(pb_ctx *ctx, void *dev, size_t bytes)
{
    if (bytes) PB_CUDA_TRY(cudaMemsetAsync(dev, 0, bytes, pb_cuda_stream(ctx)));
    return PB_OK;
}

/* Evicts L2 by writing a buffer of twice its size. The value changes each time, so that no write can
 * be skipped or compressed. */
static pb_status cuda_flush(pb_ctx *ctx)
{
    cuda_state *s = state_of(ctx);
    PB_CUDA_TRY(cudaMemsetAsync(s->flush, ++s->flush_value, s->flush_bytes, pb_cuda_stream(ctx)));
    return PB_OK;
}

/* Returns in *bytes the memory in use now minus the memory in use at open. Both numbers include other processes, so
 * memory that those allocate or free meanwhile distorts the result. */
static pb_status cuda_used(pb_ctx *ctx, size_t *bytes)
{
    const size_t before = state_of(ctx)->used_at_open;
    size_t now = 0;
    PB_TRY(memory_in_use(&now));
    *bytes = now > before ? now - before : 0;
    return PB_OK;
}

/* ---- facts about the device: versions, clocks, memory, architecture -------------------------------------------- */

static pb_status clock_of(double *hz, cudaDeviceAttr which, int device)
{
    size_t khz = 0;
    PB_TRY(attribute(&khz, which, device));
    *hz = 1e3 * (double)khz;
    return PB_OK;
}

static pb_status cuda_facts(int device, pb_device_facts *out)
{
    pb_device_facts f = {};
    pb_cuda_device d = {};
    cudaDeviceProp p;
    PB_TRY(device_exists(device));
    PB_CUDA_TRY(cudaGetDeviceProperties(&p, device));
    PB_TRY(read_facts(&d, device));
    PB_CUDA_TRY(cudaDriverGetVersion(&f.driver));
    PB_CUDA_TRY(cudaRuntimeGetVersion(&f.runtime));
    PB_TRY(clock_of(&f.clock_hz, cudaDevAttrClockRate, device));
    PB_TRY(clock_of(&f.memory_clock_hz, cudaDevAttrMemoryClockRate, device));
    PB_CUDA_TRY(cudaDeviceGetPCIBusId(f.bus, sizeof f.bus, device));
    f.blas = pb_cuda_blas_version();
    snprintf(f.compiler, sizeof f.compiler, "%d.%d.%d", __CUDACC_VER_MAJOR__, __CUDACC_VER_MINOR__,
             __CUDACC_VER_BUILD__);
    snprintf(f.name, sizeof f.name, "%.*s", (int)sizeof f.name - 1, p.name);
    f.multiprocessors = d.sms;
    f.capability = d.cc;
    f.memory = p.totalGlobalMem;
    f.l2 = d.l2;
    *out = f;
    return PB_OK;
}

/* ---- timestamps: events that are recorded in the stream -------------------------------------------------------- */

static pb_status cuda_mark(pb_ctx *ctx, int slot)
{
    /* Without the flag, a captured event would only order work inside the graph, and get no time. */
    const unsigned how = ctx->recording ? cudaEventRecordExternal : cudaEventRecordDefault;
    PB_CUDA_TRY(cudaEventRecordWithFlags(state_of(ctx)->at[slot % PB_MARK_SLOTS], pb_cuda_stream(ctx), how));
    return PB_OK;
}

static pb_status cuda_between(pb_ctx *ctx, int from, int to, double *seconds)
{
    const cuda_state *s = state_of(ctx);
    float ms = 0;
    PB_CUDA_TRY(cudaEventElapsedTime(&ms, s->at[from % PB_MARK_SLOTS], s->at[to % PB_MARK_SLOTS]));
    *seconds = 1e-3 * (double)ms;
    return PB_OK;
}

/* ---- injected delays: a kernel that spins, to test whether a comparison finds a slowdown ------------------------- */

/* Reads the GPU's global timer in nanoseconds; it does not depend on the SM clock. */
static __device__ uint64_t nanoseconds()
{
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

static __global__ void spin(uint64_t ns)
{
    const uint64_t from = nanoseconds();
    while (nanoseconds() - from < ns) continue;
}

static pb_status enqueue_spin(pb_ctx *ctx, double seconds)
{
    spin<<<1, 1, 0, pb_cuda_stream(ctx)>>>((uint64_t)(1e9 * seconds + 0.5));
    return pb_cuda_launched(ctx, "spin");
}

static pb_status time_spins(pb_ctx *ctx, cudaEvent_t from, cudaEvent_t to, int n, double seconds, double *each)
{
    float ms = 0;
    PB_CUDA_TRY(cudaEventRecord(from, pb_cuda_stream(ctx)));
    for (int i = 0; i < n; i++) PB_TRY(enqueue_spin(ctx, seconds));
    PB_CUDA_TRY(cudaEventRecord(to, pb_cuda_stream(ctx)));
    PB_CUDA_TRY(cudaEventSynchronize(to));
    PB_CUDA_TRY(cudaEventElapsedTime(&ms, from, to));
    *each = 1e-3 * (double)ms / n;
    return PB_OK;
}

/* A spin kernel takes some microseconds longer than requested, more if the timer is coarse. This overhead is measured
 * as the mean of SPINS kernels in a row and is subtracted from every later delay. Each spins 20 us, so that the host
 * enqueues faster than the GPU works. */
static pb_status measure_delay_cost(pb_ctx *ctx)
{
    enum { SPINS = 64 };
    const double asked = 20e-6;
    cudaEvent_t from = NULL, to = NULL;
    double each = 0;
    cudaError_t e = cudaEventCreate(&from);
    if (e == cudaSuccess) e = cudaEventCreate(&to);
    pb_status s = e == cudaSuccess ? PB_OK : pb_cuda_failed(e, "cudaEventCreate");
    if (s == PB_OK) s = time_spins(ctx, from, to, SPINS, asked, &each); /* the first round is a warm-up */
    if (s == PB_OK) s = time_spins(ctx, from, to, SPINS, asked, &each);
    if (from) (void)cudaEventDestroy(from);
    if (to) (void)cudaEventDestroy(to);
    if (s == PB_OK) state_of(ctx)->delay_cost = each > asked ? each - asked : 1e-9;
    return s;
}

static pb_status cuda_delay(pb_ctx *ctx, double seconds)
{
    cuda_state *s = state_of(ctx);
    const pb_counts counts = ctx->counts; /* kernels of a delay are not counted as the caller's */
    if (!(s->delay_cost > 0)) {
        if (ctx->recording) return pb_fail(PB_EUNSUPPORTED, "cuda: the first delay cannot be recorded into a graph");
        PB_TRY(measure_delay_cost(ctx));
    }
    PB_TRY(enqueue_spin(ctx, seconds > s->delay_cost ? seconds - s->delay_cost : 0));
    ctx->counts = counts;
    return PB_OK;
}

/* ---- graphs: recording, replaying and freeing them ------------------------------------------------------------- */

static void cuda_graph_free(pb_graph *g)
{
    if (g->exec) (void)cudaGraphExecDestroy(g->exec);
    if (g->graph) (void)cudaGraphDestroy(g->graph);
    pb_graph_notes_free(g->notes);
    free(g);
}

/* Captures what fn enqueues. Thread-local mode lets other threads allocate during a capture. The capture is ended even
 * if fn fails, because the stream would otherwise stay in capture mode. The error that this leaves is cleared, so that
 * no later call reports it. */
static pb_status capture(pb_ctx *ctx, pb_fn fn, void *self, cudaGraph_t *graph)
{
    PB_CUDA_TRY(cudaStreamBeginCapture(pb_cuda_stream(ctx), cudaStreamCaptureModeThreadLocal));
    pb_range_stack_track(true);
    const pb_status s = fn(ctx, self);
    pb_range_stack_track(false);
    const cudaError_t e = cudaStreamEndCapture(pb_cuda_stream(ctx), graph);
    (void)cudaGetLastError();
    if (s != PB_OK) return s;
    if (e != cudaSuccess)
        return pb_fail(PB_EUNSUPPORTED, "cuda: the graph was not captured: %s", cudaGetErrorString(e));
    return PB_OK;
}

/* Instantiates the captured graph and uploads it to the device, so that the first replay costs as much as later
 * ones. */
static pb_status make_ready(pb_ctx *ctx, pb_graph *g)
{
    PB_CUDA_TRY(cudaGraphGetNodes(g->graph, NULL, &g->nodes));
    PB_CUDA_TRY(cudaGraphInstantiate(&g->exec, g->graph, 0));
    PB_CUDA_TRY(cudaGraphUpload(g->exec, pb_cuda_stream(ctx)));
    return PB_OK;
}

static pb_status cuda_record(pb_ctx *ctx, pb_fn fn, void *self, pb_graph **out)
{
    const uint64_t launches = ctx->counts.kernel_launches;
    pb_graph *g = (pb_graph *)calloc(1, sizeof *g);
    if (!g) return pb_fail(PB_ENOMEM, "cuda: no host memory for a graph");
    g->notes = pb_graph_notes_new(); /* NULL: a profiler that is attached later does not know the ops */
    ctx->recorder = g;
    pb_status s = capture(ctx, fn, self, &g->graph);
    ctx->recorder = NULL;
    ctx->counts.kernel_launches = launches; /* the kernels were captured, not launched */
    if (s == PB_OK) s = make_ready(ctx, g);
    if (s == PB_OK) *out = g;
    else cuda_graph_free(g);
    return s;
}

static pb_status cuda_replay(pb_ctx *ctx, pb_graph *g)
{
    PB_CUDA_TRY(cudaGraphLaunch(g->exec, pb_cuda_stream(ctx)));
    return PB_OK;
}

/* The nodes that came into the graph since the op before belong to the op that ends now, whichever stream they were
 * captured on. A failure to find them is none of the recording. */
static void cuda_noted(pb_ctx *ctx)
{
    pb_graph *g = (pb_graph *)ctx->recorder;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaGraph_t graph = NULL;
    unsigned long long id;
    if (!g || !g->notes) return;
    if (cudaStreamGetCaptureInfo(pb_cuda_stream(ctx), &status, &id, &graph, NULL, NULL, NULL) == cudaSuccess &&
        status == cudaStreamCaptureStatusActive)
        pb_graph_notes_add(g->notes, graph);
}

static pb_status cuda_trace(pb_ctx *ctx, pb_graph *g, pb_graph_node_fn node)
{
    cudaGraphExec_t exec = NULL;
    PB_TRY(cuda_sync(ctx)); /* the instance that is replaced may still run */
    if (g->notes) pb_graph_notes_tell(g->notes, node);
    PB_CUDA_TRY(cudaGraphInstantiate(&exec, g->graph, 0));
    const cudaError_t e = cudaGraphUpload(exec, pb_cuda_stream(ctx));
    if (e != cudaSuccess) {
        (void)cudaGraphExecDestroy(exec);
        return pb_cuda_failed(e, "cudaGraphUpload");
    }
    (void)cudaGraphExecDestroy(g->exec);
    g->exec = exec;
    return PB_OK;
}

static size_t cuda_graph_nodes(const pb_graph *g) { return g->nodes; }

static pb_status cuda_graph_resources(const pb_graph *g, pb_kernel_resources *out)
{
    return pb_graph_kernels(g->graph, out);
}

extern "C" const pb_backend pb_backend_cuda = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .upload = cuda_upload,
    .upload_staged = cuda_upload_staged,
    .download = cuda_download,
    .copy = cuda_copy,
    .zero = cuda_zero,
    .sync = cuda_sync,
    .mark = cuda_mark,
    .between = cuda_between,
    .flush_cache = cuda_flush,
    .delay = cuda_delay,
    .record = cuda_record,
    .replay = cuda_replay,
    .graph_nodes = cuda_graph_nodes,
    .graph_resources = cuda_graph_resources,
    .noted = cuda_noted,
    .trace = cuda_trace,
    .graph_free = cuda_graph_free,
    .used = cuda_used,
    .facts = cuda_facts,
};
