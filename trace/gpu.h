/* gpu.h - what a GPU did in a profiling window: kernels, copies, and the host's calls that enqueued them, as CUPTI's
 * Activity API records them (https://docs.nvidia.com/cupti, Activity API).
 *
 * Only one tool can subscribe to CUPTI 13.0 at a time, so profiling fails under Nsight or another profiler, with a line
 * that says so. CUPTI is loaded when the first window is prepared; a build without its headers has none.
 *
 * Work of a replayed graph. All kernels of a replay share the host call that launched the graph, so the ranges around
 * that call do not name their op. While a graph is captured, CUPTI reports each node as it is created, in the thread
 * that captures: the ranges that are open then (pb_range_stack_now) are kept. When the graph is instantiated, CUPTI
 * reports which node is the copy of which, and a kernel's record names the copy. Graphs that were captured before
 * pb_gpu_open() need pb_gpu_node() for each of their nodes, and must be instantiated once more (pb_graph_trace in
 * kernels/engine/ctx.h). */
#ifndef PB_TRACE_GPU_H
#define PB_TRACE_GPU_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/status.h"
#include "profiles/ranges.h"
#include "trace/gpu_samples.h"

typedef enum pb_gpu_kind {
    PB_GPU_KERNEL,
    PB_GPU_COPY,
    PB_GPU_SET,      /* sets memory to a value */
    PB_GPU_CALL,     /* of the CUDA runtime or driver, on the host */
    PB_GPU_SYNC,     /* the host, or a stream, waits */
    PB_GPU_OVERHEAD, /* of CUPTI itself */
    PB_GPU_GRAPH     /* a replayed graph as a whole, without its kernels */
} pb_gpu_kind;

/* Detail of the records of a replayed graph. */
typedef enum pb_gpu_graphs {
    PB_GPU_GRAPHS_NODE, /* each kernel and copy, with its op: about 0.3 us of time each on an H200 */
    PB_GPU_GRAPHS_GRAPH /* its begin and end: cheap, but no kernels, and no pauses between them */
} pb_gpu_graphs;

typedef struct pb_gpu_event {
    pb_gpu_kind kind;
    int64_t begin_ns, end_ns;                      /* CLOCK_REALTIME */
    const char *name;                              /* static, or owned by CUPTI; a kernel's is mangled */
    uint32_t device, context;                      /* of work on the GPU */
    uint32_t stream;                               /* CUPTI's number; UINT32_MAX: none */
    uint32_t correlation;                          /* joins a host call and the work it enqueued; 0: none */
    uint32_t thread;                               /* gettid() of a host call */
    uint64_t bytes;                                /* of copies and sets */
    uint64_t node;                                 /* of a replayed graph; 0: none */
    uint32_t grid[3], block[3], registers, shared; /* of kernels; shared memory in bytes per CTA */
    const pb_range_stack *place; /* of work of a replayed graph: the ranges when it was captured; NULL: not known */
} pb_gpu_event;

typedef struct pb_gpu_window {
    pb_gpu_event *events; /* [n], by begin; before pb_gpu_place(), in CUPTI's order and without places */
    size_t n;
    size_t dropped;            /* records that CUPTI or the memory limit lost */
    size_t replayed, unplaced; /* kernels, copies and sets of replayed graphs; those whose ranges are not known */
    size_t buffer_bytes;       /* host memory that the window's records took */
    pb_gpu_samples samples;    /* of hardware counters; pb_gpu_read() leaves it empty */
} pb_gpu_window;

/* Attaches CUPTI to this process; work before is not recorded. limit: bytes of records that a window may hold, rounded
 * to buffers of 4 MiB; 0: 256 MiB. Graphs that were instantiated before are recorded node by node. Later calls have no
 * effect. EUNSUPPORTED: the build has no CUPTI, its library is not found, or another profiler is attached. ENOMEM. */
pb_status pb_gpu_open(size_t limit, pb_gpu_graphs graphs);
/* Node `handle` (a CUgraphNode) of a graph was captured inside the ranges `place`. */
void pb_gpu_node(void *handle, const pb_range_stack *place);
/* Begin and end of a window; call pb_gpu_end() after a host sync, so that all work of the window has ended. It only
 * collects buffers. EDEVICE: CUPTI failed. */
pb_status pb_gpu_begin(void);
pb_status pb_gpu_end(void);
/* Reads the buffers of the window that ended last; in another thread, before the next pb_gpu_begin(). ENOMEM. */
pb_status pb_gpu_read(pb_gpu_window *out);
/* Sorts the events by their begins, finds the places of the work of replayed graphs, and counts `replayed` and
 * `unplaced`. */
void pb_gpu_place(pb_gpu_window *w);
/* True if calls of the host enqueued kernels, and no record of work on the GPU exists: another user of the GPU's
 * counters may keep CUPTI from recording it. */
bool pb_gpu_lacks_work(const pb_gpu_window *w);
void pb_gpu_free(pb_gpu_window *w); /* {0} is allowed */
#endif
