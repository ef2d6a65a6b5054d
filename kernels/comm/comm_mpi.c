/* comm_mpi.c - communicators of the CPU over MPI. All calls of MPI are made by the worker thread (worker.h); each is a
 * nonblocking collective that is tested until it has finished, so that pb_comm_abort can end the wait. */
#define _DEFAULT_SOURCE
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/comm/worker.h"
#include "os/where.h"
#include "profiles/ranges.h"
#include "ranks/mpi.h"

typedef struct state {
    MPI_Comm mpi;
    const int *members; /* while opening */
    int *counts;        /* [4 size]: counts and offsets of what is sent and received, as MPI takes them */
    int64_t *signs;     /* [size][SIGN_WORDS] */
    uint64_t last;      /* number of the last job; used by the thread that enqueues */
    uint64_t number;    /* collectives begun; used by the worker */
    atomic_bool aborted;
    pthread_mutex_t lock; /* guards what follows */
    bool busy;
    pb_comm_call now;
    pb_status failed;
    char why[400];
} state;
enum { SIGN_WORDS = 4, PART = 1 << 30 /* elements of one MPI call */ };

static state *state_of(pb_comm *c) { return c->priv; }

/* ---- waiting for MPI ------------------------------------------------------------------------------------------ */

static pb_status mpi_failed(const pb_comm *c, int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    (void)MPI_Error_string(code, text, &n);
    pb_mpi_give_up();
    return pb_fail(PB_EDEVICE, "communicator %s: %s failed: %s", c->role, call, text);
}

/* Waits for a request. It yields the processor after every test: ranks may outnumber the cores. */
static pb_status finish(pb_comm *c, MPI_Request *request, const char *call)
{
    for (int done = 0;;) {
        const int code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS) return mpi_failed(c, code, call);
        if (done) return PB_OK;
        if (atomic_load(&state_of(c)->aborted)) {
            pb_mpi_give_up();
            return pb_fail(PB_EDEVICE, "communicator %s was aborted", c->role);
        }
        (void)sched_yield();
    }
}

#define MPI_RUN(c, call, ...)                                                                                          \
    do {                                                                                                               \
        MPI_Request request_ = MPI_REQUEST_NULL;                                                                       \
        const int code_ = call(__VA_ARGS__, &request_);                                                                \
        if (code_ != MPI_SUCCESS) return mpi_failed(c, code_, #call);                                                  \
        PB_TRY(finish(c, &request_, #call));                                                                           \
    } while (0)

/* clang-tidy expects MPI_Wait after a nonblocking collective; finish() calls MPI_Test until it has ended. */
/* NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker) */
/* ---- the steps ------------------------------------------------------------------------------------------------ */

/* An MPI type of the same size, for moving elements. */
static MPI_Datatype carrier(pb_dtype t)
{
    const size_t bytes = pb_dtype_size(t);
    return bytes == 4 ? MPI_INT32_T : bytes == 2 ? MPI_UINT16_T : MPI_UINT8_T;
}

static pb_status mpi_reduce(pb_comm *c, const void *x, void *y, size_t count, pb_dtype t, pb_comm_op op)
{
    size_t i = 0;
    (void)t; /* f32: perform.c adds other types itself */
    do {     /* once also for a count of 0, so that every rank takes part in the same calls */
        const int n = count - i < PART ? (int)(count - i) : PART;
        MPI_RUN(c, MPI_Iallreduce, x == y ? MPI_IN_PLACE : (const float *)x + i, (float *)y + i, n, MPI_FLOAT,
                op == PB_COMM_SUM ? MPI_SUM : MPI_MAX, state_of(c)->mpi);
        i += (size_t)n;
    } while (i < count);
    return PB_OK;
}

/* Writes counts and offsets as MPI takes them. limits() has checked that they fit. */
static void as_ints(const pb_comm *c, const size_t *counts, size_t count, int *n, int *at)
{
    int offset = 0;
    for (int i = 0; i < c->size; i++) {
        n[i] = (int)(counts ? counts[i] : count);
        at[i] = offset;
        offset += n[i];
    }
}

static pb_status mpi_gather(pb_comm *c, const void *x, void *y, size_t count, const size_t *counts, pb_dtype t)
{
    int *n = state_of(c)->counts, *at = n + c->size;
    as_ints(c, counts, count, n, at);
    const bool in_place = x == (const char *)y + (size_t)at[c->rank] * pb_dtype_size(t);
    MPI_RUN(c, MPI_Iallgatherv, in_place ? MPI_IN_PLACE : x, n[c->rank], carrier(t), y, n, at, carrier(t),
            state_of(c)->mpi);
    return PB_OK;
}

static pb_status mpi_exchange(pb_comm *c, const void *x, void *y, size_t count, const size_t *send,
                              const size_t *receive, pb_dtype t)
{
    int *sn = state_of(c)->counts, *sat = sn + c->size, *rn = sat + c->size, *rat = rn + c->size;
    as_ints(c, send, count, sn, sat);
    as_ints(c, receive, count, rn, rat);
    MPI_RUN(c, MPI_Ialltoallv, x, sn, sat, carrier(t), y, rn, rat, carrier(t), state_of(c)->mpi);
    return PB_OK;
}

static pb_status mpi_broadcast(pb_comm *c, const void *x, void *y, size_t count, pb_dtype t, int root)
{
    const size_t each = pb_dtype_size(t);
    size_t i = 0;
    if (c->rank == root && x != y && count) memcpy(y, x, count * each);
    do {
        const int n = count - i < PART ? (int)(count - i) : PART;
        MPI_RUN(c, MPI_Ibcast, (char *)y + i * each, n, carrier(t), root, state_of(c)->mpi);
        i += (size_t)n;
    } while (i < count);
    return PB_OK;
}

static float element(const void *x, size_t i, pb_dtype t)
{
    return t == PB_F32 ? ((const float *)x)[i] : pb_bf16_to_f32(((const uint16_t *)x)[i]);
}

/* Adds run elements of all blocks, which begin `count` elements apart, beginning with element `from`. The sum begins
 * with the first block's value, not with 0, which would make -0 to +0. */
static void add_run(const pb_comm *c, const void *x, size_t count, size_t from, size_t run, pb_dtype t, pb_comm_op op,
                    float *sum)
{
    for (size_t i = 0; i < run; i++) sum[i] = element(x, from + i, t);
    for (int b = 1; b < c->size; b++)
        for (size_t i = 0; i < run; i++) {
            const float v = element(x, (size_t)b * count + from + i, t);
            if (op == PB_COMM_SUM) sum[i] += v;
            else sum[i] = v > sum[i] ? v : sum[i];
        }
}

static pb_status mpi_add_blocks(pb_comm *c, const void *x, void *y, size_t count, pb_dtype t, pb_comm_op op)
{
    enum { RUN = 1024 };
    float sum[RUN];
    for (size_t from = 0; from < count; from += RUN) {
        const size_t run = count - from < RUN ? count - from : RUN;
        add_run(c, x, count, from, run, t, op, sum);
        if (t == PB_F32) memcpy((float *)y + from, sum, run * sizeof *sum);
        else
            for (size_t i = 0; i < run; i++) ((uint16_t *)y)[from + i] = pb_f32_to_bf16(sum[i]);
    }
    return PB_OK;
}

static pb_status mpi_flags(pb_comm *c, const void *x, pb_dtype xt, void *y, pb_dtype yt, size_t count)
{
    (void)c;
    for (size_t i = 0; i < count; i++) pb_store(y, i, yt, pb_load(x, i, xt) != 0);
    return PB_OK;
}

static const pb_comm_steps steps = {
    .reduce = mpi_reduce,
    .gather = mpi_gather,
    .exchange = mpi_exchange,
    .broadcast = mpi_broadcast,
    .add_blocks = mpi_add_blocks,
    .flags = mpi_flags,
};

/* ---- comparing the calls of all ranks before any data moves --------------------------------------------------- */

static uint64_t hash_counts(const size_t *counts, int n)
{
    uint64_t h = 1469598103934665603u;
    for (int i = 0; counts && i < n; i++) h = (h ^ counts[i]) * 1099511628211u;
    return h >> 1;
}

/* Encodes all that must be equal on all ranks. The counts of all_to_all are compared by pairs instead. */
static void sign(const pb_comm *c, const pb_comm_call *call, uint64_t number, int64_t s[SIGN_WORDS])
{
    const size_t *counts = call->kind == PB_COMM_REDUCE_SCATTER ? call->send
                           : call->kind == PB_COMM_ALL_GATHER   ? call->receive
                                                                : NULL;
    const bool uneven = call->kind == PB_COMM_ALL_TO_ALL && call->send;
    s[0] = call->kind | (int64_t)call->dtype << 8 | (int64_t)call->op << 16 | (int64_t)call->ordered << 24 |
           (int64_t)uneven << 25 | (int64_t)call->root << 32;
    s[1] = counts || uneven ? -1 : (int64_t)call->count;
    s[2] = (int64_t)hash_counts(counts, c->size);
    s[3] = (int64_t)number;
}

static void sign_text(const int64_t s[SIGN_WORDS], char *out, size_t n)
{
    char count[32] = "uneven counts";
    const int kind = (int)(s[0] & 0xff), dtype = (int)(s[0] >> 8 & 0xff);
    if (s[1] >= 0) snprintf(count, sizeof count, "%lld", (long long)s[1]);
    snprintf(out, n, "%s of %s %s%s, op %d, root %d", pb_comm_kind_name((pb_comm_kind)kind), count,
             pb_dtype_name((pb_dtype)dtype), s[0] >> 24 & 1 ? " ordered" : "", (int)(s[0] >> 16 & 0xff),
             (int)(s[0] >> 32));
}

static pb_status tell_difference(pb_comm *c, const int64_t *mine)
{
    int64_t *all = state_of(c)->signs;
    char first[120], other[120];
    MPI_RUN(c, MPI_Iallgather, mine, SIGN_WORDS, MPI_INT64_T, all, SIGN_WORDS, MPI_INT64_T, state_of(c)->mpi);
    for (int i = 1; i < c->size; i++) {
        if (memcmp(all, all + (size_t)i * SIGN_WORDS, SIGN_WORDS * sizeof *all) == 0) continue;
        sign_text(all, first, sizeof first);
        sign_text(all + (size_t)i * SIGN_WORDS, other, sizeof other);
        return pb_fail(PB_EINVAL, "communicator %s: rank %d calls %s, rank 0 calls %s%s", c->role, i, other, first,
                       strcmp(first, other) == 0 ? " with other counts" : "");
    }
    return PB_OK;
}

/* Compares what each rank sends with what the other expects. */
static pb_status compare_pairs(pb_comm *c, const pb_comm_call *call)
{
    state *s = state_of(c);
    int64_t *theirs = s->signs, bad = -1;
    for (int i = 0; i < c->size; i++) s->signs[c->size + i] = (int64_t)call->send[i];
    MPI_RUN(c, MPI_Ialltoall, theirs + c->size, 1, MPI_INT64_T, theirs, 1, MPI_INT64_T, s->mpi);
    for (int i = 0; i < c->size; i++)
        if (theirs[i] != (int64_t)call->receive[i]) bad = (int64_t)c->rank * c->size + i;
    MPI_RUN(c, MPI_Iallreduce, MPI_IN_PLACE, &bad, 1, MPI_INT64_T, MPI_MAX, s->mpi);
    if (bad < 0) return PB_OK;
    return pb_fail(PB_EINVAL, "communicator %s: all_to_all: rank %d expects another count from rank %d than it sends",
                   c->role, (int)(bad / c->size), (int)(bad % c->size));
}

/* The maxima of v and of -v over all ranks are max v and -min v. */
static pb_status compare_calls(pb_comm *c, const pb_comm_call *call)
{
    int64_t mine[SIGN_WORDS], both[2 * SIGN_WORDS];
    sign(c, call, state_of(c)->number, mine);
    for (int i = 0; i < SIGN_WORDS; i++) both[i] = mine[i], both[SIGN_WORDS + i] = -mine[i];
    MPI_RUN(c, MPI_Iallreduce, MPI_IN_PLACE, both, 2 * SIGN_WORDS, MPI_INT64_T, MPI_MAX, state_of(c)->mpi);
    for (int i = 0; i < SIGN_WORDS; i++)
        if (both[i] != -both[SIGN_WORDS + i]) return tell_difference(c, mine);
    return call->kind == PB_COMM_ALL_TO_ALL && call->send ? compare_pairs(c, call) : PB_OK;
}

/* NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker) */

/* ---- jobs of the worker --------------------------------------------------------------------------------------- */

static void keep_failure(state *s, pb_status status)
{
    (void)pthread_mutex_lock(&s->lock);
    if (s->failed == PB_OK) {
        s->failed = status;
        snprintf(s->why, sizeof s->why, "%s", pb_error());
    }
    (void)pthread_mutex_unlock(&s->lock);
}

static void run_call(pb_comm *c, const pb_comm_call *call)
{
    static uint64_t collectives; /* of all communicators of this process; used by the worker */
    state *s = state_of(c);
    (void)pthread_mutex_lock(&s->lock);
    const bool skip = s->failed != PB_OK;
    if (!skip) s->busy = true, s->now = *call, s->number++;
    const uint64_t number = s->number;
    (void)pthread_mutex_unlock(&s->lock);
    if (skip) return;
    pb_where_collective(pb_comm_kind_name(call->kind), ++collectives);
    pb_comm_range_push(c, call, number);
    pb_status status = compare_calls(c, call);
    if (status == PB_OK) status = pb_comm_perform(c, call);
    pb_range_pop(), pb_where_collective(NULL, 0);
    if (status != PB_OK) keep_failure(s, status);
    (void)pthread_mutex_lock(&s->lock);
    s->busy = false;
    (void)pthread_mutex_unlock(&s->lock);
}

static void run_open(pb_comm *c, const pb_comm_call *call)
{
    enum { TAG = 77 };
    state *s = state_of(c);
    MPI_Group world, group;
    (void)call;
    int code = MPI_Comm_group(MPI_COMM_WORLD, &world);
    if (code == MPI_SUCCESS) code = MPI_Group_incl(world, c->size, s->members, &group);
    if (code == MPI_SUCCESS) code = MPI_Comm_create_group(MPI_COMM_WORLD, group, TAG, &s->mpi);
    if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(s->mpi, MPI_ERRORS_RETURN);
    if (code != MPI_SUCCESS) keep_failure(s, mpi_failed(c, code, "MPI_Comm_create_group"));
    (void)MPI_Group_free(&group);
    (void)MPI_Group_free(&world);
}

static void run_close(pb_comm *c, const pb_comm_call *call)
{
    (void)call;
    (void)MPI_Comm_free(&state_of(c)->mpi);
}

static pb_status mpi_status(pb_comm *c)
{
    state *s = state_of(c);
    (void)pthread_mutex_lock(&s->lock);
    const pb_status status = s->failed == PB_OK ? PB_OK : pb_fail(s->failed, "%s", s->why);
    (void)pthread_mutex_unlock(&s->lock);
    return status;
}

/* ---- the backend's functions ---------------------------------------------------------------------------------- */

static pb_status add_job(pb_comm *c, void (*run)(pb_comm *, const pb_comm_call *), const pb_comm_call *call, bool wait)
{
    state *s = state_of(c);
    s->last = pb_worker_add((pb_job){.run = run, .comm = c, .call = call ? *call : (pb_comm_call){0}});
    if (!wait) return PB_OK;
    pb_worker_wait(s->last);
    return mpi_status(c);
}

static pb_status mpi_open(pb_comm *c, pb_world *w, const int *members)
{
    int rank, size;
    if (w && c->size == 1) return PB_OK; /* the caller closes the communicator of a rank that is alone in its group */
    if (w && !pb_world_has_mpi(w))
        return pb_fail(PB_EINVAL, "ranks on the CPU communicate over MPI: start them with mpirun");
    PB_TRY(pb_mpi_start(&rank, &size));
    state *s = calloc(1, sizeof *s);
    if (!s) return pb_fail(PB_ENOMEM, "no memory for communicator %s", c->role);
    c->priv = s;
    s->mpi = MPI_COMM_NULL;
    s->members = members;
    (void)pthread_mutex_init(&s->lock, NULL);
    s->counts = malloc(4 * (size_t)c->size * sizeof *s->counts);
    s->signs = malloc(SIGN_WORDS * (size_t)c->size * sizeof *s->signs);
    pb_status status = s->counts && s->signs ? PB_OK : pb_fail(PB_ENOMEM, "no memory for communicator %s", c->role);
    if (status == PB_OK) status = pb_worker_start();
    if (status != PB_OK) {
        free(s->counts), free(s->signs), free(s);
        c->priv = NULL;
        return status;
    }
    return add_job(c, run_open, NULL, true);
}

/* After a failure the MPI communicator is left as it is: MPI_Comm_free is collective. */
static void mpi_close(pb_comm *c)
{
    state *s = state_of(c);
    if (!s) return;
    pb_worker_wait(s->last);
    if (s->mpi != MPI_COMM_NULL && s->failed == PB_OK) (void)add_job(c, run_close, NULL, true);
    pb_worker_stop();
    (void)pthread_mutex_destroy(&s->lock);
    free(s->counts), free(s->signs), free(s);
    c->priv = NULL;
}

/* MPI counts in int. all_reduce and broadcast are cut into parts instead, but for the parts of an ordered sum. */
static pb_status limits(const pb_comm *c, const pb_comm_call *call)
{
    const bool cut = call->kind == PB_COMM_BROADCAST || call->kind == PB_COMM_AGREE ||
                     (call->kind == PB_COMM_ALL_REDUCE && pb_comm_memory(c, call) == 0);
    const size_t count = call->kind == PB_COMM_ALL_REDUCE ? call->count / (size_t)c->size : call->count;
    const size_t sent = pb_comm_offset(call->send, count, c->size), got = pb_comm_offset(call->receive, count, c->size);
    const size_t most = sent > got ? sent : got;
    if (cut || most <= INT_MAX) return PB_OK;
    return pb_fail(PB_EUNSUPPORTED, "communicator %s: %s of %zu elements: MPI takes at most %d", c->role,
                   pb_comm_kind_name(call->kind), most, INT_MAX);
}

static pb_status mpi_enqueue(pb_ctx *ctx, pb_comm *c, const pb_comm_call *call)
{
    (void)ctx;
    PB_TRY(mpi_status(c));
    PB_TRY(limits(c, call));
    return add_job(c, run_call, call, !call->overlap);
}

static pb_status mpi_wait(pb_ctx *ctx, pb_comm *c)
{
    (void)ctx;
    pb_worker_wait(state_of(c)->last);
    return mpi_status(c);
}

/* The worker leaves the collective that it waits in, and skips those after it. */
static void mpi_abort(pb_comm *c)
{
    state *s = state_of(c);
    if (!s) return;
    atomic_store(&s->aborted, true);
    (void)pb_fail(PB_EDEVICE, "communicator %s was aborted", c->role);
    keep_failure(s, PB_EDEVICE);
    pb_mpi_give_up();
}

static bool mpi_aborted(pb_comm *c)
{
    state *s = state_of(c);
    if (!s) return true;
    (void)pthread_mutex_lock(&s->lock);
    const bool busy = s->busy;
    (void)pthread_mutex_unlock(&s->lock);
    return !busy;
}

static void mpi_current(pb_comm *c, char *out, size_t n)
{
    state *s = state_of(c);
    char text[80];
    if (!s) return;
    (void)pthread_mutex_lock(&s->lock);
    if (s->busy) {
        pb_comm_call_text(&s->now, text, sizeof text);
        snprintf(out, n, "%s, number %llu", text, (unsigned long long)s->number);
    }
    (void)pthread_mutex_unlock(&s->lock);
}

const pb_comm_backend pb_comm_mpi = {
    .name = "mpi",
    .steps = &steps,
    .open = mpi_open,
    .close = mpi_close,
    .enqueue = mpi_enqueue,
    .wait = mpi_wait,
    .status = mpi_status,
    .abort = mpi_abort,
    .aborted = mpi_aborted,
    .current = mpi_current,
    .library = pb_mpi_library,
};
