/* ctx.h - a context says where work runs: it holds a backend, its stream, its scratch memory and its counters.
 *
 * All code above this file reaches a device through pb_ctx and the functions below; pb_ctx_open selects the backend.
 * Only backends wait for a device. pb_sync, pb_download and pb_upload count as a host sync each (counts.host_syncs), on
 * every backend. */
#ifndef PB_CTX_H
#define PB_CTX_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/status.h"
#include "profiles/ranges.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef enum pb_backend_id { PB_CPU, PB_CUDA, PB_NBACKENDS } pb_backend_id;
typedef struct pb_ctx pb_ctx;
typedef struct pb_graph pb_graph; /* opaque; owned by the caller of pb_record; pb_graph_free frees it */

/* Work that can be timed, recorded or traced: it enqueues on ctx's stream and returns. */
typedef pb_status (*pb_fn)(pb_ctx *ctx, void *self);

/* Tells a profiler that node `handle` (a cudaGraphNode_t) of a graph was recorded inside the ranges `place`. */
typedef void (*pb_graph_node_fn)(void *handle, const pb_range_stack *place);

/* The most that a kernel of a recorded graph takes of a GPU, as it was compiled. */
typedef struct pb_kernel_resources {
    size_t kernels;
    int registers;      /* of a thread */
    size_t local_bytes; /* local memory of a thread: spilled registers, stack */
} pb_kernel_resources;

/* Facts that a device reports about itself, recorded with every run; 0 or "" where a fact is not available. */
typedef struct pb_device_facts {
    char name[256];                   /* for example "NVIDIA H200" */
    char bus[32];                     /* PCI address, for example "0000:18:00.0" */
    int multiprocessors, capability;  /* number of SMs; compute capability times 10 */
    int driver, runtime;              /* CUDA versions: 1000 * major + 10 * minor */
    char compiler[32];                /* version of nvcc that compiled the kernels, for example "13.0.88" */
    size_t blas;                      /* version of cuBLASLt: 10000 * major + 100 * minor + patch */
    double clock_hz, memory_clock_hz; /* highest clock rates in Hz */
    size_t memory, l2;                /* bytes */
} pb_device_facts;

/* The functions that a backend implements: pb_backend_cpu, pb_backend_cuda and the plan backend. Where a pb_* function
 * below does the same, call that: it also counts, applies PB_DEBUG and refuses what a graph cannot record. */
typedef struct pb_backend {
    const char *name;
    pb_status (*open)(pb_ctx *ctx, int device);
    void (*close)(pb_ctx *ctx);
    pb_status (*alloc)(pb_ctx *ctx, size_t bytes, void **out); /* aligned to 256 bytes */
    void (*release)(pb_ctx *ctx, void *p);
    pb_status (*upload)(pb_ctx *ctx, void *dev, const void *host, size_t bytes);
    /* See pb_upload_staged. If the staging memory is full, it waits for the device and counts a host sync. */
    pb_status (*upload_staged)(pb_ctx *ctx, void *dev, const void *host, size_t bytes);
    pb_status (*download)(pb_ctx *ctx, void *host, const void *dev, size_t bytes);
    pb_status (*copy)(pb_ctx *ctx, void *to, const void *from, size_t bytes); /* from device memory to device memory */
    pb_status (*zero)(pb_ctx *ctx, void *dev, size_t bytes);
    pb_status (*sync)(pb_ctx *ctx);
    /* Records a timestamp in stream order (on a GPU an event) in a slot; in a recorded graph, each replay does. */
    pb_status (*mark)(pb_ctx *ctx, int slot);
    /* Returns the time from slot `from` to slot `to`. Call sync first. */
    pb_status (*between)(pb_ctx *ctx, int from, int to, double *seconds);
    pb_status (*flush_cache)(pb_ctx *ctx); /* evicts the last-level cache */
    /* Keeps the stream busy for `seconds`, in a recorded graph at each replay. The first call may wait for the device, to
     * measure its own overhead. */
    pb_status (*delay)(pb_ctx *ctx, double seconds);
    pb_status (*record)(pb_ctx *ctx, pb_fn fn, void *self, pb_graph **out);
    pb_status (*replay)(pb_ctx *ctx, pb_graph *graph);
    size_t (*graph_nodes)(const pb_graph *graph);
    pb_status (*graph_resources)(const pb_graph *graph, pb_kernel_resources *out); /* NULL: nothing is compiled */
    /* NULL: a replay opens the ranges of its calls itself, so a profiler needs no help. noted: called while recording,
     * after each op, inside its range. trace: see pb_graph_trace. */
    void (*noted)(pb_ctx *ctx);
    pb_status (*trace)(pb_ctx *ctx, pb_graph *graph, pb_graph_node_fn node);
    void (*graph_free)(pb_graph *graph);
    pb_status (*used)(pb_ctx *ctx, size_t *bytes);        /* NULL: the backend does not count memory */
    pb_status (*facts)(int device, pb_device_facts *out); /* NULL: the backend describes no device; needs no context */
} pb_backend;
extern const pb_backend pb_backend_cpu, pb_backend_cuda;
enum { PB_MARK_SLOTS = 4096, PB_STAGED_MOST = 256 /* bytes of one pb_upload_staged */ };

/* Counters since pb_ctx_open; they never decrease. */
typedef struct pb_counts {
    uint64_t kernel_launches; /* kernels and graph replays (each counts as one) that the host enqueued; CPU: op calls */
    uint64_t host_syncs;      /* calls that return only after the work enqueued before them has finished */
    uint64_t allocs;          /* calls of pb_alloc */
    uint64_t searches;        /* times that a vendor's library was asked for the algorithm of a product; CPU: none */
} pb_counts;

/* Counts per name how often a kernel is launched. On a GPU the name is the one given to pb_cuda_launched(), counted
 * when a kernel is launched or captured. On a CPU it is an op and its implementation, counted when the op is called or
 * recorded. The caller sets ctx->tally to start counting, and to NULL to stop. */
enum { PB_TALLY_MOST = 128 };
typedef struct pb_tally {
    int n;         /* names in use */
    uint64_t lost; /* launches that were not counted, because all names were in use */
    struct pb_tally_name {
        const char *op, *impl; /* static text; impl is "" on a GPU */
        uint64_t count;
    } name[PB_TALLY_MOST];
} pb_tally;
/* Counts a launch. NULL: does nothing. */
void pb_tally_add(pb_tally *t, const char *op, const char *impl);

struct pb_ctx {
    const pb_backend *be;
    pb_backend_id id;
    const char *impl;   /* only this implementation may run (tests, `bench --impl`); NULL: any */
    const char *prefer; /* implementation to select if the op has it and it accepts the arguments; NULL: none */
    bool deterministic; /* never select an implementation whose `varies` is true */
    bool recording;     /* inside pb_record: waiting, allocating and host copies are refused */
    bool collectives;   /* the GPU carries out collectives: waits for it are reported to the monitor (os/where.h) */
    int busy_sms;       /* SMs of large sums in windows of NCCL that run next to the ops; 0: none does */
    bool planning;      /* ops are checked and get their scratch, but do not run (see pb_ctx_open_plan) */
    void *recorder;     /* while recording: state of the backend */
    void *stream;       /* a cudaStream_t; NULL on the CPU */
    void *scratch;      /* workspace of the op that is running; see pb_ctx_reserve */
    size_t scratch_bytes;
    size_t scratch_asked;   /* while `asking`: the most bytes that pb_ctx_reserve was called with */
    bool asking;            /* pb_ctx_reserve only notes the size, see pb_ctx_reserve_once */
    size_t held, held_peak; /* bytes from pb_alloc that are not released yet; the maximum of `held` */
    void *allocations;      /* list of the allocations that `held` counts */
    void *scratch_blocks;   /* all scratch blocks ever allocated: a recorded graph may still use an old one */
    void *priv;             /* owned by the backend */
    unsigned debug;         /* flags from the environment variable PB_DEBUG=sync,trace */
    pb_counts counts;
    pb_tally *tally; /* counts launches per kernel name; NULL: launches are not counted per name */
};
enum { PB_DEBUG_SYNC = 1, PB_DEBUG_TRACE = 2 };

/* Opens device number `device` of a backend. After a failure *ctx needs no pb_ctx_close. EUNSUPPORTED: the build lacks
 * the backend; EDEVICE: the machine lacks the device. */
pb_status pb_ctx_open(pb_ctx *ctx, pb_backend_id id, int device);
void pb_ctx_close(pb_ctx *ctx);
/* Opens the plan backend: it checks ops, selects implementations and accounts for memory as backend `id` does, but runs
 * no op and touches no memory. So running the training code on it finds how much memory training needs. A download
 * returns zeros. Needs no device; recording is refused. Without a GPU it selects what every GPU runs; PB_CAPABILITY
 * names a GPU (gpu_check.h). EINVAL: PB_CAPABILITY is wrong. */
pb_status pb_ctx_open_plan(pb_ctx *ctx, pb_backend_id id);
size_t pb_plan_peak(const pb_ctx *ctx);                          /* bytes: held_peak */
pb_status pb_backend_find(const char *name, pb_backend_id *out); /* "cpu" or "cuda"; EINVAL: any other name */
const char *pb_backend_name(pb_backend_id id);
/* Parses the name of a device: "cpu", "cuda" or "cuda:N", where N is the number of the GPU (0 if it is left out).
 * EINVAL: any other text. */
pb_status pb_device_find(const char *text, pb_backend_id *id, int *number);

/* A source of device memory other than the backend, such as a communication library (pb_comm_window_memory). */
typedef struct pb_memory_source {
    pb_status (*alloc)(void *self, size_t bytes, void **out);
    void (*release)(void *self, void *p);
    void *self;
} pb_memory_source;

/* Allocates device memory and counts in `allocs`. EUNSUPPORTED inside a recording. */
pb_status pb_alloc(pb_ctx *ctx, size_t bytes, void **out);
/* The same from another source, which must outlive the memory; NULL: from the backend. */
pb_status pb_alloc_from(pb_ctx *ctx, const pb_memory_source *source, size_t bytes, void **out);
void pb_release(pb_ctx *ctx, void *p); /* p may be NULL */
/* Sets held_peak to the bytes held now, so that a new maximum can be measured. */
void pb_held_reset(pb_ctx *ctx);
/* Returns the device memory that came into use since pb_ctx_open, as the driver counts it, in bytes. It includes what
 * libraries and graphs allocate for themselves. EUNSUPPORTED: the backend has no such count. */
pb_status pb_device_used(pb_ctx *ctx, size_t *bytes);
/* Describes a device. EUNSUPPORTED: the backend is not in this build, or describes no device. */
pb_status pb_backend_facts(pb_backend_id id, int device, pb_device_facts *out);
/* Makes ctx->scratch at least `bytes` large; pb_op_run calls it with the workspace of the implementation. Inside a
 * recording it fails if the scratch would have to grow, so run an op once before you record it. Earlier scratch blocks
 * stay valid until pb_ctx_close or pb_ctx_release_scratch. */
pb_status pb_ctx_reserve(pb_ctx *ctx, size_t bytes);
/* Runs fn(self), whose ops only plan (`planning`), and then makes the scratch as large as the largest of them needs: one
 * block, where reserving op by op would leave a block for each size on the way. The errors of fn and pb_ctx_reserve. */
pb_status pb_ctx_reserve_once(pb_ctx *ctx, pb_status (*fn)(pb_ctx *ctx, void *self), void *self);
/* Frees all scratch blocks, so that memory in use does not depend on earlier ops. No recorded graph may exist then. */
void pb_ctx_release_scratch(pb_ctx *ctx);

/* Copies from host to device and back. Both return when the copy has finished; both are refused inside a recording.
 * Each counts as a host sync, as on a GPU it waits for the stream; an upload of 0 bytes does nothing. */
pb_status pb_upload(pb_ctx *ctx, void *dev, const void *host, size_t bytes);
pb_status pb_download(pb_ctx *ctx, void *host, const void *dev, size_t bytes);
/* Copies at most PB_STAGED_MOST bytes from host to device, in stream order, without waiting: the bytes are copied into
 * memory of the context first, so `host` may be changed at once. If that memory is full, which takes hundreds of calls
 * without a host sync between them, the call waits and counts a host sync. Refused inside a recording. EINVAL: more
 * bytes. */
pb_status pb_upload_staged(pb_ctx *ctx, void *dev, const void *host, size_t bytes);
/* Copies within device memory, in stream order. Refused inside a recording. */
pb_status pb_copy(pb_ctx *ctx, void *to, const void *from, size_t bytes);
/* Clears device memory, in stream order. Refused inside a recording: an op that needs cleared
 * memory clears it itself. */
pb_status pb_zero(pb_ctx *ctx, void *dev, size_t bytes);
/* Waits until all enqueued work has finished; counts as a host sync. Refused inside a recording. */
pb_status pb_sync(pb_ctx *ctx);

/* Tells after a failure whether the device still takes work. EDEVICE: the device is lost to this process, and
 * every later call would fail too. pb_error() then says so and repeats the text of the first failure. With
 * PB_OK that text is unchanged. */
pb_status pb_device_check(pb_ctx *ctx);

/* Runs fn(ctx, self) in recording mode: ops are recorded with their arguments by value, not executed. The pointers in
 * these arguments must stay valid as long as the graph is used. If fn fails, ctx stays usable and *out is unchanged.
 * EUNSUPPORTED: fn did something that cannot be recorded; the message says what. */
pb_status pb_record(pb_ctx *ctx, pb_fn fn, void *self, pb_graph **out);
pb_status pb_replay(pb_ctx *ctx, void *graph); /* a pb_fn; `graph` is a pb_graph * */
size_t pb_graph_nodes(pb_ctx *ctx, const pb_graph *graph);
/* EUNSUPPORTED: a CPU, or a driver that does not tell. EDEVICE, ENOMEM. */
pb_status pb_graph_resources(pb_ctx *ctx, const pb_graph *graph, pb_kernel_resources *out);
/* For a profiler that was attached after the recording: calls node() for each node whose ranges are known, and
 * instantiates the graph once more, so that the profiler hears which node of the new instance is a copy of which. Waits
 * for the device. On a failure the graph is as before. Does nothing on a CPU. */
pb_status pb_graph_trace(pb_ctx *ctx, pb_graph *graph, pb_graph_node_fn node);
void pb_graph_free(pb_ctx *ctx, pb_graph *graph); /* graph may be NULL */
#ifdef __cplusplus
}
#endif
#endif
