/* comm.c - the ops of communication: checks, inputs, costs, and the lists of CPU implementations. With several
 * ranks "mpi" runs the collective; with one, "alone" copies, and "ref" does so element by element. */
#include "kernels/comm/comm.h"

#include <stdint.h>

#include "kernels/comm/backend.h"

/* ---- implementations ------------------------------------------------------------------------------------------ */

/* Copies or, for agree, compares one element after the other. */
static pb_status move_ref(const void *x, void *y, size_t count, pb_dtype t)
{
    for (size_t i = 0; i < count; i++) pb_store(y, i, t, pb_load(x, i, t));
    return PB_OK;
}

#define REF(pass, n)                                                                                                   \
    static pb_status pass##_ref(pb_ctx *ctx, const void *args)                                                         \
    {                                                                                                                  \
        const pb_comm_##pass##_args *a = args;                                                                         \
        (void)ctx;                                                                                                     \
        return move_ref(a->x, a->y, n, a->dtype);                                                                      \
    }
REF(all_reduce, a->count)
REF(reduce_scatter, a->counts ? a->counts[0] : a->count)
REF(all_gather, a->counts ? a->counts[0] : a->count)
REF(all_to_all, a->send ? a->send[0] : a->count)
REF(broadcast, a->count)

static pb_status agree_ref(pb_ctx *ctx, const void *args)
{
    const pb_comm_agree_args *a = args;
    (void)ctx;
    for (size_t i = 0; i < a->count; i++) pb_store(a->y, i, a->dtype, pb_load(a->x, i, a->dtype) != 0);
    return PB_OK;
}

static pb_status agree_alone(pb_ctx *ctx, const void *args)
{
    const pb_comm_agree_args *a = args;
    const float *x = a->x;
    const int32_t *whole = a->x;
    float *y = a->y;
    int32_t *whole_y = a->y;
    (void)ctx;
    if (a->dtype == PB_F32)
        for (size_t i = 0; i < a->count; i++) y[i] = x[i] != 0 ? 1.0f : 0.0f;
    else
        for (size_t i = 0; i < a->count; i++) whole_y[i] = whole[i] != 0;
    return PB_OK;
}

#define IMPLS(pass, alone, ref)                                                                                        \
    const pb_impl pb_comm_##pass##_cpu[] = {                                                                           \
        {.name = "mpi", .run = pb_comm_run_##pass, .accepts = pb_comm_is_live, .reserve = pb_comm_reserve_##pass},     \
        {.name = "alone", .run = alone, .accepts = pb_comm_is_alone},                                                  \
        {.name = "ref", .run = ref, .accepts = pb_comm_is_alone},                                                      \
        {0}};
IMPLS(all_reduce, pb_comm_copy_all_reduce, all_reduce_ref)
IMPLS(reduce_scatter, pb_comm_copy_reduce_scatter, reduce_scatter_ref)
IMPLS(all_gather, pb_comm_copy_all_gather, all_gather_ref)
IMPLS(all_to_all, pb_comm_copy_all_to_all, all_to_all_ref)
IMPLS(broadcast, pb_comm_copy_broadcast, broadcast_ref)
IMPLS(agree, agree_alone, agree_ref)
IMPLS(wait, pb_comm_copy_wait, pb_comm_copy_wait)

/* ---- checks --------------------------------------------------------------------------------------------------- */

/* True if the ranges share an element. */
static bool overlap(const void *x, size_t nx, const void *y, size_t ny, pb_dtype t)
{
    const uintptr_t a = (uintptr_t)x, b = (uintptr_t)y;
    const size_t each = pb_dtype_size(t);
    return nx && ny && a < b + ny * each && b < a + nx * each;
}

/* Checks buffers of nx and ny elements. in_place: the element of the longer buffer at which the shorter one may begin;
 * SIZE_MAX: nowhere. */
static pb_status check_buffers(const char *op, const void *x, size_t nx, const void *y, size_t ny, pb_dtype t,
                               size_t in_place)
{
    if ((unsigned)t >= PB_NDTYPES) return pb_fail(PB_EINVAL, "%s: dtype %d does not exist", op, (int)t);
    if ((nx && !x) || (ny && !y)) return pb_fail(PB_EINVAL, "%s: x or y is NULL, for %zu and %zu elements", op, nx, ny);
    if (!overlap(x, nx, y, ny, t)) return PB_OK;
    const uintptr_t shift = in_place == SIZE_MAX ? 0 : in_place * pb_dtype_size(t);
    const bool allowed =
        in_place != SIZE_MAX && (nx >= ny ? (uintptr_t)y - (uintptr_t)x : (uintptr_t)x - (uintptr_t)y) == shift;
    return allowed ? PB_OK : pb_fail(PB_EINVAL, "%s: x and y overlap, but are not in place", op);
}

static pb_status check_reduction(const char *op, pb_dtype t, pb_comm_op reduction)
{
    if (t != PB_F32 && t != PB_BF16) return pb_fail(PB_EINVAL, "%s: dtype %d, need f32 or bf16", op, (int)t);
    if ((unsigned)reduction >= PB_COMM_NOPS)
        return pb_fail(PB_EINVAL, "%s: op %d, need sum or max", op, (int)reduction);
    return PB_OK;
}

static size_t total_of(const pb_comm *c, const size_t *counts, size_t count)
{
    return pb_comm_offset(counts, count, pb_comm_size(c));
}

static size_t mine_of(const pb_comm *c, const size_t *counts, size_t count)
{
    return counts ? counts[pb_comm_rank(c)] : count;
}

static pb_status all_reduce_check(const void *args)
{
    const pb_comm_all_reduce_args *a = args;
    PB_TRY(check_reduction("comm_all_reduce", a->dtype, a->op));
    return check_buffers("comm_all_reduce", a->x, a->count, a->y, a->count, a->dtype, 0);
}

static pb_status reduce_scatter_check(const void *args)
{
    const pb_comm_reduce_scatter_args *a = args;
    PB_TRY(check_reduction("comm_reduce_scatter", a->dtype, a->op));
    return check_buffers("comm_reduce_scatter", a->x, total_of(a->comm, a->counts, a->count), a->y,
                         mine_of(a->comm, a->counts, a->count), a->dtype,
                         pb_comm_offset(a->counts, a->count, pb_comm_rank(a->comm)));
}

static pb_status all_gather_check(const void *args)
{
    const pb_comm_all_gather_args *a = args;
    return check_buffers("comm_all_gather", a->x, mine_of(a->comm, a->counts, a->count), a->y,
                         total_of(a->comm, a->counts, a->count), a->dtype,
                         pb_comm_offset(a->counts, a->count, pb_comm_rank(a->comm)));
}

static pb_status all_to_all_check(const void *args)
{
    const pb_comm_all_to_all_args *a = args;
    const int me = pb_comm_rank(a->comm);
    if (!a->send != !a->receive) return pb_fail(PB_EINVAL, "comm_all_to_all: one of send and receive is NULL");
    if (a->send && a->send[me] != a->receive[me])
        return pb_fail(PB_EINVAL, "comm_all_to_all: rank %d sends %zu elements to itself, but expects %zu", me,
                       a->send[me], a->receive[me]);
    /* With one rank, x may equal y: nothing moves. */
    return check_buffers("comm_all_to_all", a->x, total_of(a->comm, a->send, a->count), a->y,
                         total_of(a->comm, a->receive, a->count), a->dtype, pb_comm_size(a->comm) > 1 ? SIZE_MAX : 0);
}

static pb_status broadcast_check(const void *args)
{
    const pb_comm_broadcast_args *a = args;
    if (a->root < 0 || a->root >= pb_comm_size(a->comm))
        return pb_fail(PB_EINVAL, "comm_broadcast: root %d, need 0 to %d", a->root, pb_comm_size(a->comm) - 1);
    return check_buffers("comm_broadcast", a->x, a->root == pb_comm_rank(a->comm) ? a->count : 0, a->y, a->count,
                         a->dtype, 0);
}

static pb_status agree_check(const void *args)
{
    const pb_comm_agree_args *a = args;
    if (a->dtype != PB_F32 && a->dtype != PB_I32)
        return pb_fail(PB_EINVAL, "comm_agree: dtype %d, need f32 or i32", (int)a->dtype);
    return check_buffers("comm_agree", a->x, a->count, a->y, a->count, a->dtype, 0);
}

/* ---- inputs for tests and benchmarks, with one rank ----------------------------------------------------------- */

static size_t elements(const int *dim) { return (size_t)dim[0] * (size_t)dim[1]; }

static pb_status all_reduce_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t n = elements(dim);
    *(pb_comm_all_reduce_args *)args = (pb_comm_all_reduce_args){.x = pb_in(b, "x", b->dtype, n),
                                                                 .y = pb_out(b, "y", b->dtype, n),
                                                                 .count = n,
                                                                 .dtype = b->dtype,
                                                                 .op = dim[2] ? PB_COMM_MAX : PB_COMM_SUM};
    return b->status;
}

static pb_status reduce_scatter_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t n = elements(dim);
    *(pb_comm_reduce_scatter_args *)args = (pb_comm_reduce_scatter_args){.x = pb_in(b, "x", b->dtype, n),
                                                                         .y = pb_out(b, "y", b->dtype, n),
                                                                         .count = n,
                                                                         .dtype = b->dtype,
                                                                         .op = dim[2] ? PB_COMM_MAX : PB_COMM_SUM};
    return b->status;
}

static pb_status all_gather_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t n = elements(dim);
    *(pb_comm_all_gather_args *)args = (pb_comm_all_gather_args){
        .x = pb_in(b, "x", b->dtype, n), .y = pb_out(b, "y", b->dtype, n), .count = n, .dtype = b->dtype};
    return b->status;
}

static pb_status all_to_all_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t n = elements(dim);
    *(pb_comm_all_to_all_args *)args = (pb_comm_all_to_all_args){
        .x = pb_in(b, "x", b->dtype, n), .y = pb_out(b, "y", b->dtype, n), .count = n, .dtype = b->dtype};
    return b->status;
}

static pb_status broadcast_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t n = elements(dim);
    *(pb_comm_broadcast_args *)args = (pb_comm_broadcast_args){
        .x = pb_in(b, "x", b->dtype, n), .y = pb_out(b, "y", b->dtype, n), .count = n, .dtype = b->dtype};
    return b->status;
}

/* The integers -1, 0 and 1. */
static pb_status agree_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t n = elements(dim);
    *(pb_comm_agree_args *)args = (pb_comm_agree_args){
        .x = pb_in_range(b, "x", PB_I32, n, -1, 2), .y = pb_out(b, "y", PB_I32, n), .count = n, .dtype = PB_I32};
    return b->status;
}

static pb_status wait_bind(pb_binder *b, const int *dim, void *args)
{
    (void)dim;
    *(pb_comm_wait_args *)args = (pb_comm_wait_args){0};
    return b->status;
}

static pb_cost moved(size_t count, pb_dtype t)
{
    return (pb_cost){.bytes = 2 * (double)count * (double)pb_dtype_size(t)};
}

#define COST(pass)                                                                                                     \
    static pb_cost pass##_cost(const void *args)                                                                       \
    {                                                                                                                  \
        const pb_comm_##pass##_args *a = args;                                                                         \
        return moved(a->count, a->dtype);                                                                              \
    }
COST(all_reduce)
COST(reduce_scatter)
COST(all_gather)
COST(all_to_all)
COST(broadcast)
COST(agree)

static pb_cost wait_cost(const void *args)
{
    (void)args;
    return (pb_cost){0};
}

/* Axis o: 0 sums, 1 takes the maximum; the other ops ignore it. */
static const pb_dims edge[] = {{1, 7, 0}, {1, 1, 0}, {3, 341, 1}, {5, 1001, 0}, {1, 66000, 1}, {0}};
static const pb_dims grid[] = {{1024, 576, 0}, {49152, 576, 0}, {0}};
static const pb_dims once[] = {{1, 1, 0}, {0}};

#define OP_OF(pass, shapes, measured, f32)                                                                             \
    const pb_op pb_op_comm_##pass = {                                                                                  \
        .name = "comm_" #pass,                                                                                         \
        .axes = "SDo",                                                                                                 \
        .edge = shapes,                                                                                                \
        .grid = measured,                                                                                              \
        .args_size = sizeof(pb_comm_##pass##_args),                                                                    \
        .impls = PB_BOTH_BACKENDS(comm, pass),                                                                         \
        .check = pass##_check,                                                                                         \
        .bind = pass##_bind,                                                                                           \
        .cost = pass##_cost,                                                                                           \
        .f32_only = f32,                                                                                               \
    };
static pb_status wait_check(const void *args)
{
    (void)args;
    return PB_OK;
}
OP_OF(all_reduce, edge, grid, false)
OP_OF(reduce_scatter, edge, grid, false)
OP_OF(all_gather, edge, grid, false)
OP_OF(all_to_all, edge, grid, false)
OP_OF(broadcast, edge, grid, false)
OP_OF(agree, edge, grid, true)
OP_OF(wait, once, once, true)
