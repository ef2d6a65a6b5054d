/* suite_comm.c - collectives between the ranks of `bench run --ranks N`, with the definitions of nccl-tests: bytes,
 * time, algorithm bandwidth, bus bandwidth, and the number of wrong elements.
 *
 * Axis bytes is nccl-tests' "size": the bytes of the larger of a rank's two buffers, so all bytes that a rank receives
 * in all_gather and sends in reduce_scatter and all_to_all. If the elements do not divide by the ranks, the rest is
 * left out, as in nccl-tests; the rates count the bytes that were moved. A series as of -b 1024 -e 1048576 -f 4 is
 * --axis bytes=1024..1048576*4.
 *
 * A sample is CALLS calls one after the other, as nccl-tests makes between two clock readings, and its time is the
 * mean. One collective of one element precedes it on the device, not timed, so that the ranks begin within the time of
 * a short message. Source: nccl-tests, doc/PERFORMANCE.md and src/{all_reduce,alltoall,...}.cu (the functions
 * getBw). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/measure/measure.h"
#include "bench/suites/suite.h"
#include "kernels/comm/comm.h"
#include "kernels/engine/arena.h"

enum { CALLS = 20, LARGEST = 256 /* every whole number up to it is exact in bf16 */ };

typedef enum which { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL, BROADCAST, COLLECTIVES } which;
static const char *const names[COLLECTIVES] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast"};

typedef struct job {
    pb_comm *comm;
    which op;
    pb_dtype dtype;
    int rank, ranks;
    /* elements: of the whole vector (axis bytes); count: what the op takes, of a block where there is one per rank;
     * sent, received: elements of this rank's buffers */
    size_t elements, count, sent, received;
    void *x, *y, *aligned; /* device memory: [sent], [received], and one element for the collective before a sample */
} job;

/* ---- what a case asks for ----------------------------------------------------------------------------- */

static which find(const char *name)
{
    which w = 0;
    while (w < COLLECTIVES && strcmp(names[w], name) != 0) w++;
    return w;
}

static bool read_bytes(const pb_case *c, unsigned long long *out)
{
    const char *text = pb_case_get(c, "bytes");
    char *end = NULL;
    if (!text || *text < '0' || *text > '9') return false;
    *out = strtoull(text, &end, 10);
    return !*end && *out >= 1 && *out <= 1ull << 40;
}

static pb_status check(const pb_case *c)
{
    unsigned long long bytes;
    const char *dtype = pb_case_get(c, "dtype");
    if (find(c->name) == COLLECTIVES) return pb_fail(PB_EINVAL, "suite comm has no case '%s'", c->name);
    if (!read_bytes(c, &bytes))
        return pb_fail(PB_EINVAL, "bytes=%s: need a whole number from 1 to 2^40", pb_case_get(c, "bytes"));
    if (strcmp(dtype, "f32") != 0 && strcmp(dtype, "bf16") != 0)
        return pb_fail(PB_EINVAL, "dtype=%s: need f32 or bf16", dtype);
    return PB_OK;
}

static pb_status plan_job(const pb_case *c, const pb_suite_env *env, job *j)
{
    unsigned long long bytes = 0;
    *j = (job){.op = find(c->name), .ranks = pb_lockstep_size(env->lockstep)};
    j->comm = env->lockstep ? env->lockstep->comm : NULL;
    j->rank = pb_comm_rank(j->comm);
    j->dtype = strcmp(pb_case_get(c, "dtype"), "bf16") == 0 ? PB_BF16 : PB_F32;
    (void)read_bytes(c, &bytes);
    const bool blocks = j->op != ALL_REDUCE && j->op != BROADCAST;
    const size_t whole = (size_t)bytes / pb_dtype_size(j->dtype), parts = blocks ? (size_t)j->ranks : 1;
    j->count = whole / parts;
    j->elements = j->count * parts;
    j->sent = j->op == ALL_GATHER ? j->count : j->elements;
    j->received = j->op == REDUCE_SCATTER ? j->count : j->elements;
    if (j->count) return PB_OK;
    return pb_fail(PB_EUNSUPPORTED, "%llu bytes are less than one element of %s for each of %zu blocks", bytes,
                   pb_dtype_name(j->dtype), parts);
}

/* ---- the calls that are timed ------------------------------------------------------------------------- */

static pb_status call(pb_ctx *ctx, const job *j)
{
    switch (j->op) {
    case ALL_REDUCE:
        return pb_comm_all_reduce(
            ctx,
            &(pb_comm_all_reduce_args){.comm = j->comm, .x = j->x, .y = j->y, .count = j->count, .dtype = j->dtype});
    case REDUCE_SCATTER:
        return pb_comm_reduce_scatter(ctx,
                                      &(pb_comm_reduce_scatter_args){
                                          .comm = j->comm, .x = j->x, .y = j->y, .count = j->count, .dtype = j->dtype});
    case ALL_GATHER:
        return pb_comm_all_gather(
            ctx,
            &(pb_comm_all_gather_args){.comm = j->comm, .x = j->x, .y = j->y, .count = j->count, .dtype = j->dtype});
    case ALL_TO_ALL:
        return pb_comm_all_to_all(
            ctx,
            &(pb_comm_all_to_all_args){.comm = j->comm, .x = j->x, .y = j->y, .count = j->count, .dtype = j->dtype});
    default:
        return pb_comm_broadcast(ctx, &(pb_comm_broadcast_args){
                                          .comm = j->comm, .x = j->x, .y = j->y, .count = j->count, .dtype = j->dtype});
    }
}

static pb_status calls(pb_ctx *ctx, void *self)
{
    for (int i = 0; i < CALLS; i++) PB_TRY(call(ctx, self));
    return PB_OK;
}

/* Lets the ranks begin a sample together: none of them leaves this collective before the last one has entered it. */
static pb_status align(pb_ctx *ctx, void *self)
{
    const job *j = self;
    return pb_comm_all_reduce(ctx, &(pb_comm_all_reduce_args){
                                       .comm = j->comm, .x = j->aligned, .y = j->aligned, .count = 1, .dtype = PB_F32});
}

/* ---- checking every element --------------------------------------------------------------------------- */

/* Element i of rank s's input: a whole number so small that every sum over the ranks is exact in bf16, whatever the
 * order of the additions. Neighbouring elements, blocks and ranks differ. */
static unsigned input(const job *j, int s, size_t i)
{
    const unsigned most = (unsigned)(LARGEST / j->ranks);
    uint64_t h = (i + 1) * 0x9e3779b97f4a7c15u ^ ((uint64_t)s + 1) * 0xbf58476d1ce4e5b9u;
    h ^= h >> 29, h *= 0x94d049bb133111ebu;
    return (unsigned)(h >> 33) % (most + 1);
}

/* Element i of this rank's exact result. */
static unsigned expected(const job *j, size_t i)
{
    unsigned sum = 0;
    const size_t block = i / j->count, at = i % j->count;
    switch (j->op) {
    case ALL_GATHER: return input(j, (int)block, at);
    case ALL_TO_ALL: return input(j, (int)block, (size_t)j->rank * j->count + at);
    case BROADCAST: return input(j, 0, i);
    default: break;
    }
    const size_t from = j->op == REDUCE_SCATTER ? (size_t)j->rank * j->count : 0;
    for (int s = 0; s < j->ranks; s++) sum += input(j, s, from + i);
    return sum;
}

/* Uploads this rank's input, and an output that no collective gives: NaN. */
static pb_status fill(pb_ctx *ctx, const job *j, void *host)
{
#pragma omp parallel for
    for (size_t i = 0; i < j->sent; i++) pb_store(host, i, j->dtype, input(j, j->rank, i));
    PB_TRY(pb_upload(ctx, j->x, host, j->sent * pb_dtype_size(j->dtype)));
    memset(host, 0xff, j->received * pb_dtype_size(j->dtype));
    return pb_upload(ctx, j->y, host, j->received * pb_dtype_size(j->dtype));
}

static pb_status count_wrong(pb_ctx *ctx, const job *j, void *host, double *wrong)
{
    size_t n = 0;
    PB_TRY(pb_download(ctx, host, j->y, j->received * pb_dtype_size(j->dtype)));
#pragma omp parallel for reduction(+ : n)
    for (size_t i = 0; i < j->received; i++) n += !(fabs(pb_load(host, i, j->dtype) - expected(j, i)) <= 0);
    *wrong = (double)n;
    return PB_OK;
}

/* Calls the collective once, compares every element of every rank, and emits the number of wrong ones. */
static pb_status check_result(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env, const job *j, double *wrong)
{
    char note[96] = "";
    void *host = malloc((j->sent > j->received ? j->sent : j->received) * pb_dtype_size(j->dtype));
    pb_status s = host ? PB_OK : pb_fail(PB_ENOMEM, "no memory to check %zu elements", j->received);
    if (s == PB_OK) s = fill(ctx, j, host);
    s = pb_lockstep_meet(env->lockstep, s); /* a rank that has no memory must not let the others wait for it */
    if (s == PB_OK) s = call(ctx, j);
    if (s == PB_OK && host) s = count_wrong(ctx, j, host, wrong);
    free(host);
    PB_TRY(pb_lockstep_meet(env->lockstep, s));
    PB_TRY(pb_lockstep_sum(env->lockstep, wrong));
    if (*wrong > 0) snprintf(note, sizeof note, "%.0f elements differ from the exact result", *wrong);
    return pb_emit(env->emitter, c, "wrong_count", *wrong, 0, *wrong > 0 ? PB_ROW_WRONG : PB_ROW_OK, note);
}

/* ---- measuring ---------------------------------------------------------------------------------------- */

/* nccl-tests' factor from algorithm to bus bandwidth. */
static double bus_factor(const job *j)
{
    const double n = j->ranks;
    return j->op == ALL_REDUCE ? 2 * (n - 1) / n : j->op == BROADCAST ? 1 : (n - 1) / n;
}

static pb_status emit(const pb_case *c, pb_emitter *e, const job *j, pb_timing *t)
{
    char note[96] = "";
    const double bytes = (double)j->elements * (double)pb_dtype_size(j->dtype);
    if (bytes < strtod(pb_case_get(c, "bytes"), NULL))
        snprintf(note, sizeof note, "%.0f bytes were moved: %d ranks do not divide the elements", bytes, j->ranks);
    for (int i = 0; i < t->n; i++) t->seconds[i] /= CALLS;
    t->median /= CALLS;
    PB_TRY(pb_emit_timing(e, c, "time", t, note));
    if (!t->n) return PB_OK;
    PB_TRY(pb_emit_rate(e, c, "algorithm_bandwidth", bytes, t, note));
    if (j->ranks > 1) return pb_emit_rate(e, c, "bus_bandwidth", bytes * bus_factor(j), t, note);
    return pb_emit(e, c, "bus_bandwidth", (double)NAN, 0, PB_ROW_UNSUPPORTED,
                   "one rank: nothing passes a bus between ranks");
}

static pb_status measure(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env, job *j)
{
    double wrong = 0;
    pb_measure_opts o = pb_env_measure_opts(env, (pb_measure_opts){PB_MEASURE_USUAL});
    PB_TRY(check_result(ctx, c, env, j, &wrong));
    if (wrong > 0) return PB_OK;
    o.before = align, o.before_self = j;
    o.queued = true; /* no host sync between align() and the sample */
    pb_timing *t = malloc(sizeof *t);
    pb_status s = pb_lockstep_meet(env->lockstep, t ? PB_OK : pb_fail(PB_ENOMEM, "no memory for samples"));
    if (s == PB_OK && t) s = pb_measure(ctx, calls, j, &o, t);
    if (s == PB_OK && t) s = emit(c, env->emitter, j, t);
    free(t);
    return s;
}

static pb_status run(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    pb_arena a;
    job j;
    PB_TRY(plan_job(c, env, &j)); /* fails on all ranks or on none */
    const size_t size = pb_dtype_size(j.dtype);
    pb_status s = PB_OK;
    pb_arena_begin(&a, ctx);
    for (int pass = 0; pass < 2 && s == PB_OK; pass++) {
        j.x = pb_carve(&a, j.sent * size), j.y = pb_carve(&a, j.received * size);
        j.aligned = pb_carve(&a, sizeof(float));
        if (!pass) s = pb_arena_commit(&a);
    }
    s = pb_lockstep_meet(env->lockstep, s);
    if (s == PB_OK) s = measure(ctx, c, env, &j);
    pb_arena_free(&a);
    return s;
}

/* A case takes 0.2 s of samples or 6 x CALLS calls, and the comparison of each element with a sum over the ranks. */
static double expect(const pb_case *c)
{
    unsigned long long bytes = 0;
    const char *ranks = pb_case_get(c, "ranks");
    (void)read_bytes(c, &bytes);
    return 0.3 + (double)bytes * (6 * CALLS / 1e9 + 1e-9 * (ranks ? strtod(ranks, NULL) : 1));
}

static double device_expect(const pb_case *c)
{
    unsigned long long bytes = 0;
    (void)read_bytes(c, &bytes);
    return 0.3 + (double)bytes * (6 * CALLS / 1e11 + 2e-9);
}

#define ALL "all_reduce,reduce_scatter,all_gather,all_to_all,broadcast dtype=f32,bf16 "
static const char *const grid[] = {ALL "bytes=1024..4194304*64", NULL};
static const char *const full_grid[] = {ALL "bytes=8..67108864*2", NULL};
static const char *const device_grid[] = {ALL "bytes=1024..1073741824*32", NULL};
static const char *const device_full_grid[] = {ALL "bytes=8..8589934592*2", NULL};

const pb_suite pb_suite_comm = {
    .name = "comm",
    .ranks = true,
    .what = "collectives between ranks: time and bandwidths as in nccl-tests, every element checked",
    .axes = "bytes=1048576 dtype=f32 ranks=1",
    .grid = grid,
    .full_grid = full_grid,
    .device_grid = device_grid,
    .device_full_grid = device_full_grid,
    .check = check,
    .expect = expect,
    .device_expect = device_expect,
    .run = run,
};
