/* nccl_windows.cu - memory that is registered as symmetric windows of NCCL 2.28 (pb_comm_window_memory in comm.h), and
 * the communicator for large sums in it. NCCL sums such memory with kernels that read and write the memory of the other
 * GPUs directly. With few CTAs these reach the bandwidth that its ring kernels reach only with many. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/comm/nccl.cuh"
#include "os/where.h"

/* The number of CTAs is chosen so that a sum would end in a quarter of the time of the work that runs next to it.
 * FLOPS: of an SM per second, which a step of qwen2.5-0.5b with 4 x 2048 tokens reaches on an H200 (432 TFLOP/s of 132
 * SMs). BYTES: what a CTA sums per second while nothing runs next to it (docs/ranks.md: 7 CTAs, 245 GB/s). Next to the
 * backward pass it is 19 to 31 GB/s; the quarter allows for that. */
static const double FLOPS = 3.3e12, BYTES = 35e9;
enum { LEAST_CTAS = 2, MOST_CTAS = 16, ANY_CTAS = 64 };
static const size_t large = (size_t)1 << 20; /* bytes; a smaller sum ends too soon for other kernels to leave it SMs */

pb_status pb_nccl_windows_asked(int *asked)
{
    const char *text = getenv("PB_NCCL_WINDOWS");
    char *end = NULL;
    *asked = 0;
    if (!text || !*text) return PB_OK;
    const long n = strtol(text, &end, 10);
    if (*end || n < 0 || n > ANY_CTAS)
        return pb_fail(PB_EINVAL, "PB_NCCL_WINDOWS=%s: need 0, 1, or 2 to %d CTAs", text, ANY_CTAS);
    *asked = (int)n;
    return PB_OK;
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
static void free_window(pb_nccl_state *s, pb_nccl_window *w)
{
    if (w->registered) (void)pb_nccl.CommWindowDeregister(s->sums, w->registered);
    (void)pb_nccl.MemFree(w->p);
    (void)cudaGetLastError();
    free(w);
}

/* Opens the communicator of the sums, if it is not open yet. It has its own limit of CTAs, so that other collectives
 * keep all that NCCL gives them. */
static pb_status open_sums(pb_comm *c)
{
    pb_nccl_state *s = pb_nccl_state_of(c);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.maxCTAs = s->ctas;
    if (s->sums) return PB_OK;
    PB_CUDA_TRY(cudaStreamSynchronize(s->stream)); /* a communicator must not be split while its collectives run */
    PB_NCCL_TRY(c, CommSplit, s->comm, 0, c->rank, &s->sums, &config);
    return PB_OK;
}

static pb_status make_window(pb_comm *c, size_t bytes, pb_nccl_window *w)
{
    pb_nccl_state *s = pb_nccl_state_of(c);
    PB_TRY(open_sums(c));
    w->bytes = bytes ? bytes : 1;
    const ncclResult_t e = pb_nccl.MemAlloc(&w->p, w->bytes);
    if (e != ncclSuccess) {
        (void)cudaGetLastError();
        w->p = NULL;
        return pb_fail(PB_ENOMEM, "communicator %s: allocating %zu bytes failed: %s", c->role, bytes,
                       pb_nccl.GetErrorString(e));
    }
    PB_NCCL_TRY(c, CommWindowRegister, s->sums, w->p, w->bytes, &w->registered, NCCL_WIN_COLL_SYMMETRIC);
    return PB_OK;
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

static bool on_one_host(const pb_comm *c, const pb_world *w, const int *members)
{
    for (int r = 1; r < c->size; r++)
        if (strcmp(pb_world_member_of(w, members[r])->machine, pb_world_member_of(w, members[0])->machine) != 0)
            return false;
    return true;
}

static bool has_windows()
{
    int version = 0;
    return pb_nccl.GetVersion(&version) == ncclSuccess && version >= NCCL_VERSION(2, 28, 0) && pb_nccl.MemAlloc &&
           pb_nccl.MemFree && pb_nccl.CommSplit && pb_nccl.CommWindowRegister && pb_nccl.CommWindowDeregister;
}

void pb_nccl_offer_windows(pb_comm *c, const pb_world *w, const int *members, int asked)
{
    pb_nccl_state_of(c)->asked = asked;
    if (asked && c->size > 1 && on_one_host(c, w, members) && has_windows())
        pb_nccl_state_of(c)->source = (pb_memory_source){alloc_window, release_window, c};
}
#else
void pb_nccl_offer_windows(pb_comm *, const pb_world *, const int *, int) {}
#endif

static int ctas_for(const pb_comm *c, double bytes_per_flop)
{
    const int asked = pb_nccl_state_of(c)->asked;
    if (asked > 1) return asked;
    const double ctas = ceil(4 * bytes_per_flop * pb_cuda_device_of(c->ctx)->sms * FLOPS / BYTES);
    return ctas < LEAST_CTAS ? LEAST_CTAS : ctas > MOST_CTAS ? MOST_CTAS : (int)ctas;
}

const pb_memory_source *pb_nccl_window_memory(const pb_comm *c, double bytes_per_flop)
{
    pb_nccl_state *s = pb_nccl_state_of(c);
    if (!s->sums) s->ctas = ctas_for(c, bytes_per_flop);
    return s->source.alloc ? &s->source : NULL;
}

static bool in_a_window(const pb_nccl_state *s, const void *p, size_t bytes)
{
    const char *from = (const char *)p;
    for (const pb_nccl_window *w = s->windows; w; w = w->next)
        if (from >= (const char *)w->p && from + bytes <= (const char *)w->p + w->bytes) return true;
    return false;
}

bool pb_nccl_in_window(const pb_comm *c, const void *p) { return in_a_window(pb_nccl_state_of(c), p, 1); }

int pb_nccl_sum_ctas(const pb_comm *c, const void *x, const void *y, size_t bytes)
{
    const pb_nccl_state *s = pb_nccl_state_of(c);
    return bytes >= large && in_a_window(s, x, bytes) && in_a_window(s, y, bytes) ? s->ctas : 0;
}
