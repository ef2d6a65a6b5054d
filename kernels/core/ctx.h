/* ctx.h - where work runs: a backend, its stream, its scratch memory and its counters.
 *
 * Everything above this file reaches a device through pb_ctx and the functions below; which backend
 * answers is decided once, in pb_ctx_open. Only these functions wait for a device, and each of them
 * counts: `waits` in a results row is the number of times the host stood still. */
#ifndef PB_CTX_H
#define PB_CTX_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/status.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef enum pb_backend_id { PB_CPU, PB_CUDA, PB_NBACKENDS } pb_backend_id;
typedef struct pb_ctx pb_ctx;
typedef struct pb_graph pb_graph; /* opaque; owned by the caller of pb_record, freed by pb_graph_free */

/* Work that can be timed, recorded or traced: it enqueues on ctx's stream and returns. */
typedef pb_status (*pb_fn)(pb_ctx *ctx, void *self);

/* What a device says of itself, for fingerprints; 0 and "" where it does not say. */
typedef struct pb_device_facts {
    char name[256];                   /* "NVIDIA H200" */
    char bus[32];                     /* PCI address: "0000:18:00.0" */
    int multiprocessors, capability;  /* capability times 10 */
    int driver, runtime;              /* CUDA versions: 1000 * major + 10 * minor */
    size_t blas;                      /* cuBLASLt: 10000 * major + 100 * minor + patch */
    double clock_hz, memory_clock_hz; /* the highest */
    size_t memory, l2;                /* bytes */
} pb_device_facts;

/* What a backend must do. Two exist: pb_backend_cpu and pb_backend_cuda. Call them through the
 * pb_* functions below, which count, apply PB_DEBUG and refuse what a recording cannot hold. */
typedef struct pb_backend {
    const char *name;
    pb_status (*open)(pb_ctx *ctx, int device);
    void (*close)(pb_ctx *ctx);
    pb_status (*alloc)(pb_ctx *ctx, size_t bytes, void **out); /* 256-byte aligned */
    void (*release)(pb_ctx *ctx, void *p);
    pb_status (*upload)(pb_ctx *ctx, void *dev, const void *host, size_t bytes);
    pb_status (*download)(pb_ctx *ctx, void *host, const void *dev, size_t bytes);
    pb_status (*copy)(pb_ctx *ctx, void *to, const void *from, size_t bytes); /* within the device */
    pb_status (*zero)(pb_ctx *ctx, void *dev, size_t bytes);
    pb_status (*sync)(pb_ctx *ctx);
    pb_status (*mark)(pb_ctx *ctx, int slot);                             /* timestamp, in stream order */
    pb_status (*between)(pb_ctx *ctx, int from, int to, double *seconds); /* after sync */
    pb_status (*flush_cache)(pb_ctx *ctx);                                /* evicts the last-level cache */
    pb_status (*delay)(pb_ctx *ctx, double seconds); /* busy for so long, in stream order; the first call may wait */
    pb_status (*record)(pb_ctx *ctx, pb_fn fn, void *self, pb_graph **out);
    pb_status (*replay)(pb_ctx *ctx, pb_graph *graph);
    size_t (*graph_nodes)(const pb_graph *graph);
    void (*graph_free)(pb_graph *graph);
    pb_status (*used)(pb_ctx *ctx, size_t *bytes);        /* NULL: nobody counts */
    pb_status (*facts)(int device, pb_device_facts *out); /* NULL: there are none; needs no context */
} pb_backend;
extern const pb_backend pb_backend_cpu, pb_backend_cuda;
enum { PB_MARK_SLOTS = 4096 };

/* Monotonic counters since pb_ctx_open. A launch is one thing the host enqueues: an op call on the
 * CPU, a kernel on a GPU, and one replay of a graph however many nodes it holds. */
typedef struct pb_counts {
    uint64_t launches, waits, allocs;
} pb_counts;

struct pb_ctx {
    const pb_backend *be;
    pb_backend_id id;
    const char *impl;   /* only this implementation may run (tests, `bench --impl`); NULL: any */
    const char *prefer; /* this implementation where an op has it and it accepts; NULL: best first */
    bool deterministic; /* only implementations that declare it */
    bool recording;     /* inside pb_record: nothing may wait, allocate or copy from the host */
    bool planning;      /* opened by pb_ctx_open_plan */
    void *recorder;     /* the backend's, while recording */
    void *stream;       /* cudaStream_t, or NULL on the CPU */
    void *scratch;      /* workspace of the op that runs; see pb_ctx_reserve */
    size_t scratch_bytes;
    size_t held, held_peak; /* bytes that pb_alloc gave and pb_release did not take back; the most of it */
    void *pieces;           /* what `held` consists of */
    void *scratch_blocks;   /* every block ever handed out: a recorded graph may still use it */
    void *priv;             /* the backend's own */
    unsigned debug;         /* PB_DEBUG=sync,trace */
    pb_counts counts;
};
enum { PB_DEBUG_SYNC = 1, PB_DEBUG_TRACE = 2 };

/* Opens device number `device` of a backend; on failure *ctx holds nothing that needs closing.
 * EUNSUPPORTED: the build lacks the backend; EDEVICE: the machine lacks the device. */
pb_status pb_ctx_open(pb_ctx *ctx, pb_backend_id id, int device);
void pb_ctx_close(pb_ctx *ctx);
/* A context that computes nothing: ops are checked, implementations picked, scratch and memory accounted for as on the
 * backend `id`, but no op runs and no memory is touched, so that the same code that trains says what training takes.
 * What is downloaded is zero. Needs no device; recording is refused. */
pb_status pb_ctx_open_plan(pb_ctx *ctx, pb_backend_id id);
size_t pb_plan_peak(const pb_ctx *ctx);                          /* held_peak */
pb_status pb_backend_find(const char *name, pb_backend_id *out); /* "cpu", "cuda"; EINVAL otherwise */
const char *pb_backend_name(pb_backend_id id);

/* Device memory. Counted as `allocs`; refused (EUNSUPPORTED) inside a recording. */
pb_status pb_alloc(pb_ctx *ctx, size_t bytes, void **out);
void pb_release(pb_ctx *ctx, void *p); /* NULL is fine */
/* Starts a new held_peak at what is held now. */
void pb_held_reset(pb_ctx *ctx);
/* Device memory that the driver counts as in use since pb_ctx_open, with what libraries and graphs keep for
 * themselves. EUNSUPPORTED: the backend has no such count. */
pb_status pb_device_used(pb_ctx *ctx, size_t *bytes);
/* EUNSUPPORTED: the backend is not in this build, or describes no device. */
pb_status pb_backend_facts(pb_backend_id id, int device, pb_device_facts *out);
/* Makes ctx->scratch at least `bytes` large. Called by pb_op_run with what the implementation asks
 * for; inside a recording it succeeds only when the scratch is large enough already, so run once
 * before you record. Earlier blocks stay valid until pb_ctx_close. */
pb_status pb_ctx_reserve(pb_ctx *ctx, size_t bytes);
/* Gives all scratch back, so that what is held does not depend on what ran before. No recorded graph may live. */
void pb_ctx_release_scratch(pb_ctx *ctx);

/* Host to device and back; both wait, and pb_download counts as a wait (pb_upload does not: the
 * host never needs its result). Refused inside a recording. */
pb_status pb_upload(pb_ctx *ctx, void *dev, const void *host, size_t bytes);
pb_status pb_download(pb_ctx *ctx, void *host, const void *dev, size_t bytes);
/* From device memory to device memory, in stream order; outside recordings only. */
pb_status pb_copy(pb_ctx *ctx, void *to, const void *from, size_t bytes);
/* Outside recordings only; an op that must clear memory does so itself. */
pb_status pb_zero(pb_ctx *ctx, void *dev, size_t bytes);
/* Waits until everything enqueued has finished. One wait. Refused inside a recording. */
pb_status pb_sync(pb_ctx *ctx);

/* After a failure, whether the device still takes work. EDEVICE: it is lost to this process, every later call would
 * fail too; pb_error() then says so, with the text of the failure that came first, which PB_OK leaves untouched. */
pb_status pb_device_check(pb_ctx *ctx);

/* Runs fn(ctx, self) in recording mode: ops are noted, not executed, with their arguments by value.
 * Pointers inside the arguments must stay valid for the graph's life. A failing fn leaves ctx usable
 * and *out untouched. EUNSUPPORTED with the reason when fn did what cannot be recorded. */
pb_status pb_record(pb_ctx *ctx, pb_fn fn, void *self, pb_graph **out);
pb_status pb_replay(pb_ctx *ctx, void *graph); /* a pb_fn whose self is a pb_graph */
size_t pb_graph_nodes(pb_ctx *ctx, const pb_graph *graph);
void pb_graph_free(pb_ctx *ctx, pb_graph *graph); /* NULL is fine */
#ifdef __cplusplus
}
#endif
#endif
