/* nccl.cu - communicators of GPUs over NCCL. Each has a stream of its own, which follows the compute stream by an event
 * before every collective; the compute stream follows it by another one. So collectives can be captured into graphs. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/comm/comm.cuh"
#include "kernels/comm/nccl.cuh"
#include "os/where.h"
#include "profiles/ranges.h"

/* ---- the library ---------------------------------------------------------------------------------------------- */

/* The library is loaded when it is needed, because loading its kernels takes time and memory of every process. */

pb_nccl_library pb_nccl;

static pb_status load_library()
{
    static const struct {
        const char *name;
        size_t offset;
        bool needed;
    } symbols[] = {
#define NCCL(name)          {"nccl" #name, offsetof(pb_nccl_library, name), true},
#define NCCL_OPTIONAL(name) {"nccl" #name, offsetof(pb_nccl_library, name), false},
#include "kernels/comm/nccl.def"
#undef NCCL
#undef NCCL_OPTIONAL
    };
    static void *library;
    if (library) return PB_OK;
    library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) library = dlopen(PB_NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL); /* where CMake found it */
    if (!library) return pb_fail(PB_EUNSUPPORTED, "nccl: libnccl.so.2 was not found: %s", dlerror());
    for (const auto &s : symbols) {
        void *f = dlsym(library, s.name);
        if (!f && s.needed)
            return library = NULL, pb_fail(PB_EUNSUPPORTED, "nccl: this libnccl.so.2 has no %s", s.name);
        memcpy((char *)&pb_nccl + s.offset, &f, sizeof f);
    }
    return PB_OK;
}

/* ---- state ---------------------------------------------------------------------------------------------------- */

/* The thread that enters the communicator; ncclCommInitRankConfig waits for all ranks, one of which may be gone. */
typedef struct entry {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    ncclUniqueId id;
    ncclComm_t comm;
    int rank, size, device;
    bool done;
    ncclResult_t result;
} entry;

typedef pb_nccl_state state;

static state *state_of(pb_comm *c) { return pb_nccl_state_of(c); }

pb_status pb_nccl_failed(const pb_comm *c, ncclResult_t e, const char *call)
{
    return pb_fail(PB_EDEVICE, "communicator %s: %s failed: %s", c->role, call, pb_nccl.GetErrorString(e));
}

bool pb_nccl_is_aborting(state *s)
{
    (void)pthread_mutex_lock(&s->lock);
    const bool aborting = s->aborting;
    (void)pthread_mutex_unlock(&s->lock);
    return aborting;
}

static pb_status status_of(pb_comm *c)
{
    ncclResult_t e = ncclSuccess;
    state *s = state_of(c);
    if (pb_nccl_is_aborting(s)) return pb_fail(PB_EDEVICE, "communicator %s was aborted", c->role);
    for (const ncclComm_t comm : {s->comm, s->sums})
        if (comm && (pb_nccl.CommGetAsyncError(comm, &e) != ncclSuccess || e != ncclSuccess))
            return pb_nccl_failed(c, e, "a collective");
    return PB_OK;
}

/* ---- the steps ------------------------------------------------------------------------------------------------ */

static ncclDataType_t type_of(pb_dtype t)
{
    static const ncclDataType_t types[PB_NDTYPES] = {ncclFloat32, ncclBfloat16, ncclInt32, ncclUint8};
    return types[t];
}

static ncclRedOp_t reduction(pb_comm_op op) { return op == PB_COMM_SUM ? ncclSum : ncclMax; }

static pb_status launched(pb_comm *c, const char *what) { return pb_cuda_launched(c->ctx, what); }

/* Sets how many SMs this communicator occupies. */
static void occupy(pb_ctx *ctx, state *s, int sms)
{
    ctx->busy_sms += sms - s->sms;
    s->sms = sms;
}

static pb_status reduce(pb_comm *c, const void *x, void *y, size_t count, pb_dtype t, pb_comm_op op)
{
    state *s = state_of(c);
    const int ctas = op == PB_COMM_SUM ? pb_nccl_sum_ctas(c, x, y, count * pb_dtype_size(t)) : 0;
    PB_NCCL_TRY(c, AllReduce, x, y, count, type_of(t), reduction(op), ctas ? s->sums : s->comm, s->stream);
    if (ctas) occupy(c->ctx, s, ctas); /* until the compute stream waits for the sum */
    return launched(c, "nccl_all_reduce");
}

static pb_status reduce_scatter(pb_comm *c, const void *x, void *y, size_t count, pb_dtype t, pb_comm_op op)
{
    state *s = state_of(c);
    PB_NCCL_TRY(c, ReduceScatter, x, y, count, type_of(t), reduction(op), s->comm, s->stream);
    return launched(c, "nccl_reduce_scatter");
}

/* Ends a group also after a failure `e` inside it. */
static pb_status end_group(const pb_comm *c, ncclResult_t e, const char *what)
{
    const ncclResult_t end = pb_nccl.GroupEnd();
    return e == ncclSuccess && end == ncclSuccess ? PB_OK : pb_nccl_failed(c, e != ncclSuccess ? e : end, what);
}

static pb_status gather_blocks(pb_comm *c, const void *x, char *y, const size_t *counts, pb_dtype t)
{
    state *s = state_of(c);
    size_t at = 0;
    ncclResult_t e = pb_nccl.GroupStart();
    for (int r = 0; r < c->size && e == ncclSuccess; at += counts[r++]) {
        void *to = y + at * pb_dtype_size(t);
        if (counts[r]) e = pb_nccl.Broadcast(r == c->rank ? x : to, to, counts[r], type_of(t), r, s->comm, s->stream);
    }
    PB_TRY(end_group(c, e, "ncclBroadcast"));
    return launched(c, "nccl_all_gather");
}

static pb_status gather(pb_comm *c, const void *x, void *y, size_t count, const size_t *counts, pb_dtype t)
{
    state *s = state_of(c);
    if (counts) return gather_blocks(c, x, (char *)y, counts, t);
    PB_NCCL_TRY(c, AllGather, x, y, count, type_of(t), s->comm, s->stream);
    return launched(c, "nccl_all_gather");
}

static pb_status exchange(pb_comm *c, const void *x, void *y, size_t count, const size_t *send, const size_t *receive,
                          pb_dtype t)
{
    state *s = state_of(c);
    const size_t each = pb_dtype_size(t);
    const char *from = (const char *)x;
    char *to = (char *)y;
    ncclResult_t e = pb_nccl.GroupStart();
    for (int r = 0; r < c->size && e == ncclSuccess; r++) {
        const size_t out = send ? send[r] : count, in = receive ? receive[r] : count;
        if (out) e = pb_nccl.Send(from, out, type_of(t), r, s->comm, s->stream);
        if (in && e == ncclSuccess) e = pb_nccl.Recv(to, in, type_of(t), r, s->comm, s->stream);
        from += out * each;
        to += in * each;
    }
    PB_TRY(end_group(c, e, "ncclSend or ncclRecv"));
    return launched(c, "nccl_all_to_all");
}

static pb_status broadcast(pb_comm *c, const void *x, void *y, size_t count, pb_dtype t, int root)
{
    state *s = state_of(c);
    PB_NCCL_TRY(c, Broadcast, c->rank == root ? x : y, y, count, type_of(t), root, s->comm, s->stream);
    return launched(c, "nccl_broadcast");
}

static pb_status add_blocks(pb_comm *c, const void *x, void *y, size_t count, pb_dtype t, pb_comm_op op)
{
    return pb_comm_cuda_add(c->ctx, state_of(c)->stream, x, y, c->size, count, t, op);
}

static pb_status flags(pb_comm *c, const void *x, pb_dtype xt, void *y, pb_dtype yt, size_t count)
{
    return pb_comm_cuda_flags(c->ctx, state_of(c)->stream, x, xt, y, yt, count);
}

static const pb_comm_steps steps = {
    .reduce = reduce,
    .reduce_scatter = reduce_scatter,
    .gather = gather,
    .exchange = exchange,
    .broadcast = broadcast,
    .add_blocks = add_blocks,
    .flags = flags,
};

/* ---- the two streams ------------------------------------------------------------------------------------------ */

static pb_status capture_id(pb_ctx *ctx, unsigned long long *id)
{
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    *id = 0;
    if (!ctx->recording) return PB_OK;
    PB_CUDA_TRY(cudaStreamGetCaptureInfo(pb_cuda_stream(ctx), &capturing, id));
    return PB_OK;
}

/* The communicator's stream follows the compute stream. */
static pb_status begin(pb_ctx *ctx, pb_comm *c)
{
    state *s = state_of(c);
    unsigned long long id;
    PB_TRY(capture_id(ctx, &id));
    if (s->waits && s->recording == 0 && id != 0)
        return pb_fail(PB_EUNSUPPORTED, "communicator %s: collectives enqueued before a recording were not waited for",
                       c->role);
    s->waits = true; /* also if the following fails: the stream may be part of a capture now, and must join it again */
    s->recording = id;
    PB_CUDA_TRY(cudaEventRecord(s->begin, pb_cuda_stream(ctx)));
    PB_CUDA_TRY(cudaStreamWaitEvent(s->stream, s->begin, 0));
    return PB_OK;
}

/* The compute stream follows the communicator's stream. It does not follow collectives of another recording: that
 * recording waits for its own, or has failed. */
static pb_status follow(pb_ctx *ctx, pb_comm *c)
{
    state *s = state_of(c);
    unsigned long long id;
    occupy(ctx, s, 0);
    PB_TRY(capture_id(ctx, &id));
    const bool mine = s->waits && s->recording == id;
    s->waits = false;
    if (!mine) return PB_OK;
    PB_CUDA_TRY(cudaEventRecord(s->end, s->stream));
    PB_CUDA_TRY(cudaStreamWaitEvent(pb_cuda_stream(ctx), s->end, 0));
    return PB_OK;
}

/* Refuses collectives that exchange memory of a window by ncclSend and ncclRecv: all_to_all, ordered sums and uneven
 * reduce_scatter (perform.c). With NCCL 2.28.3 on two H200 they hang there; the window belongs to another
 * communicator. The cause is not known. */
static pb_status refuse_windows(const pb_comm *c, const pb_comm_call *call)
{
    const bool sums = call->kind == PB_COMM_ALL_REDUCE || call->kind == PB_COMM_REDUCE_SCATTER;
    const bool blocks = sums && ((call->ordered && call->op == PB_COMM_SUM) || call->send);
    if (call->kind != PB_COMM_ALL_TO_ALL && !blocks) return PB_OK;
    if (!pb_nccl_in_window(c, call->x) && !pb_nccl_in_window(c, call->y)) return PB_OK;
    return pb_fail(PB_EUNSUPPORTED, "communicator %s: no %s%s of memory of pb_comm_window_memory", c->role,
                   call->ordered ? "ordered " : "", pb_comm_kind_name(call->kind));
}

static pb_status perform(pb_ctx *ctx, pb_comm *c, const pb_comm_call *call)
{
    PB_TRY(status_of(c));
    PB_TRY(refuse_windows(c, call));
    PB_TRY(begin(ctx, c));
    const pb_status s = pb_comm_perform(c, call);
    if (!call->overlap || s != PB_OK) {
        char why[400];
        snprintf(why, sizeof why, "%s", pb_error());
        const pb_status followed = follow(ctx, c);
        return s != PB_OK ? pb_fail(s, "%s", why) : followed;
    }
    return PB_OK;
}

/* NCCL may wait for the other ranks here, for example to connect to them. */
static pb_status enqueue(pb_ctx *ctx, pb_comm *c, const pb_comm_call *call)
{
    state *s = state_of(c);
    (void)pthread_mutex_lock(&s->lock);
    s->last = *call;
    const uint64_t number = ++s->number;
    (void)pthread_mutex_unlock(&s->lock);
    (void)pthread_mutex_lock(&s->enqueuing);
    pb_where_collective(pb_comm_kind_name(call->kind), pb_where_sequence() + 1);
    pb_comm_range_push(c, call, number);
    const pb_status status = perform(ctx, c, call);
    if (ctx->recording) ctx->be->noted(ctx); /* so that the nodes belong to the collective, not only to its op */
    pb_range_pop();
    pb_where_collective(NULL, 0);
    (void)pthread_mutex_unlock(&s->enqueuing);
    return status;
}

static pb_status wait(pb_ctx *ctx, pb_comm *c)
{
    PB_TRY(status_of(c));
    return follow(ctx, c);
}

/* ---- opening and closing -------------------------------------------------------------------------------------- */

static void *enter(void *self)
{
    entry *e = (entry *)self;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    config.blocking = 1;
    (void)cudaSetDevice(e->device);
    const ncclResult_t result = pb_nccl.CommInitRankConfig(&comm, e->size, e->id, e->rank, &config);
    (void)pthread_mutex_lock(&e->lock);
    e->comm = comm;
    e->result = result;
    e->done = true;
    (void)pthread_cond_broadcast(&e->changed);
    (void)pthread_mutex_unlock(&e->lock);
    return NULL;
}

static struct timespec seconds_from_now(double seconds)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += (time_t)seconds + 1;
    return t;
}

/* Enters the communicator on a thread, which keeps waiting if another rank does not arrive: the process ends then. */
static pb_status enter_in_time(pb_comm *c, const ncclUniqueId *id, double seconds)
{
    state *s = state_of(c);
    const struct timespec deadline = seconds_from_now(seconds);
    pthread_t thread;
    int late = 0;
    entry *e = (entry *)calloc(1, sizeof *e);
    if (!e) return pb_fail(PB_ENOMEM, "no memory for communicator %s", c->role);
    e->id = *id, e->rank = c->rank, e->size = c->size, e->device = s->device;
    (void)pthread_mutex_init(&e->lock, NULL);
    (void)pthread_cond_init(&e->changed, NULL);
    if (pthread_create(&thread, NULL, enter, e) != 0) {
        free(e);
        return pb_fail(PB_EIO, "no thread for communicator %s", c->role);
    }
    (void)pthread_detach(thread);
    (void)pthread_mutex_lock(&e->lock);
    while (!e->done && late != ETIMEDOUT) late = pthread_cond_timedwait(&e->changed, &e->lock, &deadline);
    const bool done = e->done;
    const ncclResult_t result = e->result;
    s->comm = e->comm;
    (void)pthread_mutex_unlock(&e->lock);
    if (!done) return pb_fail(PB_EDEVICE, "communicator %s: a rank did not enter it within %g s", c->role, seconds);
    free(e);
    return result == ncclSuccess ? PB_OK : pb_nccl_failed(c, result, "ncclCommInitRankConfig");
}

/* The message of each rank to the others. */
typedef struct greeting {
    ncclUniqueId id;
    int windows; /* pb_nccl_windows_asked */
} greeting;

/* Returns the id that rank 0 of this rank's group has made. Every rank of the world calls it. */
static pb_status share_id(pb_comm *c, pb_world *w, const int *members, int windows, ncclUniqueId *id)
{
    pb_status s = load_library();
    memset(id, 0, sizeof *id);
    if (s == PB_OK && c->rank == 0) {
        const ncclResult_t e = pb_nccl.GetUniqueId(id);
        if (e != ncclSuccess) s = pb_nccl_failed(c, e, "ncclGetUniqueId");
    }
    PB_TRY(pb_world_agree(w, c->role, s));
    if (!w) return PB_OK;
    const greeting mine = {*id, windows};
    greeting *all = (greeting *)malloc((size_t)pb_world_size(w) * sizeof *all);
    if (!all) return pb_fail(PB_ENOMEM, "no memory for communicator %s", c->role);
    s = pb_world_gather(w, c->role, &mine, sizeof mine, all);
    if (s == PB_OK) *id = all[members[0]].id;
    for (int r = 0; s == PB_OK && r < pb_world_size(w); r++)
        if (all[r].windows != all[0].windows) s = pb_fail(PB_EINVAL, "PB_NCCL_WINDOWS differs: ranks 0 and %d", r);
    free(all);
    return s;
}

static pb_status make_streams(state *s)
{
    int least, greatest;
    PB_CUDA_TRY(cudaGetDevice(&s->device));
    PB_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    /* The highest priority: a collective that waits for free SMs delays all ranks. */
    PB_CUDA_TRY(cudaStreamCreateWithPriority(&s->stream, cudaStreamNonBlocking, greatest));
    PB_CUDA_TRY(cudaEventCreateWithFlags(&s->begin, cudaEventDisableTiming));
    PB_CUDA_TRY(cudaEventCreateWithFlags(&s->end, cudaEventDisableTiming));
    return PB_OK;
}

static pb_status open_comm(pb_comm *c, pb_world *w, const int *members)
{
    ncclUniqueId id;
    int windows;
    PB_TRY(pb_world_agree(w, c->role, pb_nccl_windows_asked(&windows)));
    PB_TRY(share_id(c, w, members, windows, &id));
    if (w && c->size == 1) return PB_OK; /* the caller closes the communicator of a rank that is alone in its group */
    state *s = (state *)calloc(1, sizeof *s);
    if (!s) return pb_fail(PB_ENOMEM, "no memory for communicator %s", c->role);
    c->priv = s;
    c->ctx->collectives = true;
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_mutex_init(&s->enqueuing, NULL);
    PB_TRY(make_streams(s));
    pb_nccl_offer_windows(c, w, members, windows);
    return enter_in_time(c, &id, pb_world_timeout(w));
}

static bool aborted(pb_comm *c)
{
    state *s = state_of(c);
    if (!s) return true;
    (void)pthread_mutex_lock(&s->lock);
    const bool done = s->aborted;
    (void)pthread_mutex_unlock(&s->lock);
    return done;
}

/* A communicator whose abort does not end is left as it is: the process ends soon. */
static void close_comm(pb_comm *c)
{
    state *s = state_of(c);
    if (!s) return;
    occupy(c->ctx, s, 0);
    for (int i = 0; i < 1000 && pb_nccl_is_aborting(s) && !aborted(c); i++) (void)usleep(10000);
    if (pb_nccl_is_aborting(s) && !aborted(c)) return;
    if (s->stream && !pb_nccl_is_aborting(s)) (void)cudaStreamSynchronize(s->stream);
    if (s->sums && !pb_nccl_is_aborting(s)) (void)pb_nccl.CommDestroy(s->sums);
    if (s->comm && !pb_nccl_is_aborting(s)) (void)pb_nccl.CommDestroy(s->comm);
    if (s->begin) (void)cudaEventDestroy(s->begin);
    if (s->end) (void)cudaEventDestroy(s->end);
    if (s->stream) (void)cudaStreamDestroy(s->stream);
    (void)cudaGetLastError();
    (void)pthread_mutex_destroy(&s->lock);
    (void)pthread_mutex_destroy(&s->enqueuing);
    free(s);
    c->priv = NULL;
}

/* ---- aborting ------------------------------------------------------------------------------------------------- */

static void *abort_sums(void *self)
{
    state *s = (state *)self;
    (void)cudaSetDevice(s->device);
    (void)pb_nccl.CommAbort(s->sums);
    return NULL;
}

/* Aborts both communicators at the same time: an abort waits for the kernels of its communicator, which follow those
 * of the other one in the same stream. */
static void abort_both(state *s)
{
    pthread_t thread;
    const bool two = s->sums && pthread_create(&thread, NULL, abort_sums, s) == 0;
    if (s->comm) (void)pb_nccl.CommAbort(s->comm);
    if (two) (void)pthread_join(thread, NULL);
}

/* Waits for a call of NCCL on another thread, but not long: it may itself wait for a rank that is gone. */
static void *end_comm(void *self)
{
    state *s = (state *)self;
    const struct timespec soon = seconds_from_now(2);
    (void)cudaSetDevice(s->device);
    const bool mine = pthread_mutex_timedlock(&s->enqueuing, &soon) == 0;
    abort_both(s);
    if (mine) (void)pthread_mutex_unlock(&s->enqueuing);
    (void)pthread_mutex_lock(&s->lock);
    s->aborted = true;
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void abort_comm(pb_comm *c)
{
    state *s = state_of(c);
    pthread_t thread;
    if (!s) return;
    (void)pthread_mutex_lock(&s->lock);
    const bool first = !s->aborting;
    s->aborting = true;
    (void)pthread_mutex_unlock(&s->lock);
    if (first && pthread_create(&thread, NULL, end_comm, s) == 0) (void)pthread_detach(thread);
}

static void current(pb_comm *c, char *out, size_t n)
{
    state *s = state_of(c);
    char text[80];
    if (!s) return;
    (void)pthread_mutex_lock(&s->lock);
    if (s->number) {
        pb_comm_call_text(&s->last, text, sizeof text);
        snprintf(out, n, "%s, number %llu", text, s->number);
    }
    (void)pthread_mutex_unlock(&s->lock);
}

static void library_version(char *out, size_t n)
{
    int version = 0;
    if (pb_nccl.GetVersion && pb_nccl.GetVersion(&version) == ncclSuccess)
        snprintf(out, n, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

extern "C" const pb_comm_backend pb_comm_nccl = {
    .name = "nccl",
    .steps = &steps,
    .open = open_comm,
    .close = close_comm,
    .enqueue = enqueue,
    .wait = wait,
    .status = status_of,
    .abort = abort_comm,
    .aborted = aborted,
    .current = current,
    .library = library_version,
    .window_memory = pb_nccl_window_memory,
};
