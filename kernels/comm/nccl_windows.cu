/* nccl_windows.cu - memory that the copy engines of the GPUs can move between ranks: symmetric windows of NCCL 2.28,
 * with which all-to-all and all-gather need no kernel (pb_comm_window_memory in comm.h). */
#include <stdlib.h>
#include <string.h>

#include "kernels/comm/nccl.cuh"
#include "os/where.h"

bool pb_nccl_wants_windows(void)
{
    const char *asked = getenv("PB_COPY_ENGINES");
    return asked && strcmp(asked, "1") == 0;
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
/* Sets *out to true if the graph has nodes, but no kernel. */
static pb_status has_no_kernel(cudaGraph_t graph, bool *out)
{
    enum { NODES = 64 };
    cudaGraphNode_t nodes[NODES];
    size_t n = NODES;
    PB_CUDA_TRY(cudaGraphGetNodes(graph, nodes, &n));
    *out = n > 0;
    for (size_t i = 0; i < n && *out; i++) {
        cudaGraphNodeType type;
        /* The runtime has no name for the type of the waits, and calls it an unknown error. */
        *out = cudaGraphNodeGetType(nodes[i], &type) != cudaSuccess || type != cudaGraphNodeTypeKernel;
    }
    (void)cudaGetLastError();
    return PB_OK;
}

/* No function of NCCL tells whether it uses copy engines for this communicator. So this captures an all-gather in the
 * window p: a graph without kernels means copy engines. NCCL 2.28 numbers its collectives by copy engines, and a
 * captured one waits for the number 1. Two eager ones run first, so that none has left a 1 that could be taken for it. */
static pb_status find_out(pb_comm *c, char *p)
{
    enum { BYTES = 16 };
    pb_nccl_state *s = pb_nccl_state_of(c);
    cudaGraph_t graph = NULL;
    char *mine = p + (size_t)c->rank * BYTES;
    for (int i = 0; i < 2; i++) PB_NCCL_TRY(c, AllGather, mine, p, BYTES, ncclUint8, s->comm, s->stream);
    PB_CUDA_TRY(cudaStreamSynchronize(s->stream));
    PB_CUDA_TRY(cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal));
    const ncclResult_t e = pb_nccl.AllGather(mine, p, BYTES, ncclUint8, s->comm, s->stream);
    const cudaError_t ended = cudaStreamEndCapture(s->stream, &graph);
    pb_status status = e != ncclSuccess ? pb_nccl_failed(c, e, "ncclAllGather") : PB_OK;
    if (status == PB_OK && ended != cudaSuccess)
        status = pb_fail(PB_EDEVICE, "communicator %s: a capture failed: %s", c->role, cudaGetErrorString(ended));
    if (status == PB_OK) status = has_no_kernel(graph, &s->copies);
    s->tried = status == PB_OK;
    if (graph) (void)cudaGraphDestroy(graph);
    return status;
}

static void free_window(pb_nccl_state *s, pb_nccl_window *w)
{
    if (w->registered) (void)pb_nccl.CommWindowDeregister(s->comm, w->registered);
    (void)pb_nccl.MemFree(w->p);
    (void)cudaGetLastError();
    free(w);
}

static pb_status make_window(pb_comm *c, size_t bytes, pb_nccl_window *w)
{
    pb_nccl_state *s = pb_nccl_state_of(c);
    const size_t least = (size_t)c->size * 16; /* what find_out needs */
    w->bytes = bytes > least ? bytes : least;
    const ncclResult_t e = pb_nccl.MemAlloc(&w->p, w->bytes);
    if (e != ncclSuccess) {
        (void)cudaGetLastError();
        w->p = NULL;
        return pb_fail(PB_ENOMEM, "communicator %s: allocating %zu bytes failed: %s", c->role, bytes,
                       pb_nccl.GetErrorString(e));
    }
    PB_NCCL_TRY(c, CommWindowRegister, s->comm, w->p, w->bytes, &w->registered, NCCL_WIN_COLL_SYMMETRIC);
    return s->tried ? PB_OK : find_out(c, (char *)w->p);
}

/* Registering waits for the other ranks. */
static pb_status alloc_window(void *self, size_t bytes, void **out)
{
    pb_comm *c = (pb_comm *)self;
    pb_nccl_state *s = pb_nccl_state_of(c);
    pb_nccl_window *w = (pb_nccl_window *)calloc(1, sizeof *w);
    if (!w) return pb_fail(PB_ENOMEM, "communicator %s: no memory for its list of windows", c->role);
    if (pb_nccl_is_aborting(s)) return free(w), pb_fail(PB_EDEVICE, "communicator %s was aborted", c->role);
    (void)pthread_mutex_lock(&s->enqueuing);
    pb_where_collective("window", pb_where_sequence() + 1);
    const pb_status status = make_window(c, bytes, w);
    pb_where_collective(NULL, 0);
    if (status == PB_OK) {
        *out = w->p;
        w->next = s->windows;
        s->windows = w;
    } else if (w->p) free_window(s, w);
    else free(w);
    (void)pthread_mutex_unlock(&s->enqueuing);
    return status;
}

/* After an abort the memory is left to the end of the process: work that waits for a lost rank may still use it. */
static void release_window(void *self, void *p)
{
    pb_nccl_state *s = pb_nccl_state_of((const pb_comm *)self);
    pb_nccl_window **at = &s->windows;
    while (*at && (*at)->p != p) at = &(*at)->next;
    pb_nccl_window *w = *at;
    if (!w || pb_nccl_is_aborting(s)) return;
    (void)pthread_mutex_lock(&s->enqueuing);
    *at = w->next;
    (void)cudaDeviceSynchronize(); /* work on the compute stream may use the memory */
    free_window(s, w);
    (void)pthread_mutex_unlock(&s->enqueuing);
}

void pb_nccl_offer_windows(pb_comm *c)
{
    if (pb_nccl_wants_windows() && c->size > 1 && pb_nccl.MemAlloc && pb_nccl.MemFree && pb_nccl.CommWindowRegister &&
        pb_nccl.CommWindowDeregister && pb_nccl.AlltoAll)
        pb_nccl_state_of(c)->source = (pb_memory_source){alloc_window, release_window, c};
}

void pb_nccl_configure_windows(ncclConfig_t *config) { config->CTAPolicy = NCCL_CTA_POLICY_ZERO; }
#else
void pb_nccl_offer_windows(pb_comm *) {}
void pb_nccl_configure_windows(ncclConfig_t *) {}
#endif

const pb_memory_source *pb_nccl_window_memory(const pb_comm *c)
{
    const pb_nccl_state *s = pb_nccl_state_of(c);
    return s->source.alloc ? &s->source : NULL;
}

bool pb_nccl_copies(const pb_comm *c, const void *p, size_t bytes)
{
    const pb_nccl_state *s = pb_nccl_state_of(c);
    const char *from = (const char *)p;
    if (!s->copies) return false;
    for (const pb_nccl_window *w = s->windows; w; w = w->next)
        if (from >= (const char *)w->p && from + bytes <= (const char *)w->p + w->bytes) return true;
    return false;
}
