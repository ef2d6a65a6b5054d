/* embedding.c - table lookup and its gradient: the references, and the pb_op descriptors of the two ops. */
#include "kernels/embedding/embedding.h"

#include <math.h>
#include <omp.h>

#include "kernels/cpu/cpu.h"

/* ---- reference: copies, and sums in f32 in the order of the tokens ------------------------------ */

static pb_status fwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_embedding_fwd_args *a = args;
    (void)ctx;
    for (int t = 0; t < a->T; t++)
        for (int d = 0; d < a->D; d++) {
            size_t y = (size_t)t * a->D + d;
            if (a->ids[t] < 0 || a->ids[t] >= a->V) pb_store(a->y, y, a->dtype, (double)NAN);
            else pb_store(a->y, y, a->dtype, pb_load(a->table, (size_t)a->ids[t] * a->D + d, a->dtype));
        }
    return PB_OK;
}

static bool seen_before(const int32_t *ids, int t)
{
    for (int u = 0; u < t; u++)
        if (ids[u] == ids[t]) return true;
    return false;
}

/* Adds all tokens of a table row, and rounds the sum once. t: the first token of the row; row: its first element. */
static void add_to_bf16(const pb_embedding_bwd_args *a, int t, size_t row)
{
    const size_t D = (size_t)a->D;
    for (size_t d = 0; d < D; d++) {
        float sum = (float)pb_load(a->dtable, row + d, PB_BF16);
        for (int u = t; u < a->T; u++)
            if (a->ids[u] == a->ids[t]) sum += (float)pb_load(a->dy, (size_t)u * D + d, a->dtype);
        pb_store(a->dtable, row + d, PB_BF16, (double)sum);
    }
}

static pb_status bwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_embedding_bwd_args *a = args;
    const size_t D = (size_t)a->D;
    (void)ctx;
    for (size_t i = 0; !a->accumulate && i < (size_t)a->V * D; i++) pb_store(a->dtable, i, a->table_dtype, 0);
    for (int t = 0; t < a->T; t++) {
        if (a->ids[t] < 0 || a->ids[t] >= a->V) continue;
        const size_t row = (size_t)a->ids[t] * D;
        if (a->table_dtype == PB_F32)
            for (size_t d = 0; d < D; d++)
                ((float *)a->dtable)[row + d] += (float)pb_load(a->dy, (size_t)t * D + d, a->dtype);
        else if (!seen_before(a->ids, t)) add_to_bf16(a, t, row);
    }
    return PB_OK;
}

/* ---- CPU implementations, best first --------------------------------------------------------- */

PB_FAST_DECLARE(pb_embedding_fwd)
PB_FAST_DECLARE(pb_embedding_bwd)

const pb_impl pb_embedding_fwd_cpu[] = {PB_FAST_IMPLS(pb_embedding_fwd){"ref", fwd_ref}, {0}};
static size_t bwd_workspace(const void *args)
{
    const pb_embedding_bwd_args *a = args;
    return a->table_dtype == PB_F32 ? 0 : (size_t)omp_get_max_threads() * (size_t)a->D * sizeof(float);
}

const pb_impl pb_embedding_bwd_cpu[] = {PB_FAST_IMPLS(pb_embedding_bwd, .workspace = bwd_workspace){"ref", bwd_ref},
                                        {0}};

/* ---- op descriptors (pb_op): shapes, argument checks, inputs, costs --------------------------- */

/* Axis a of the shapes below: a = 1: dtable is added to (accumulate). In shapes with more tokens than V, several tokens
 * share a row of the table. */
static const char axes[] = "BSVDa", bwd_rare[] = "w";
static const pb_dims edge[] = {
    {2, 3, 11, 7},      {1, 5, 7, 1000, 1},    {2, 70, 50, 33, 0},    {1, 1, 1, 1, 0},     {2, 40, 1000, 64, 1},
    {1, 33, 5, 576, 0}, {2, 70, 50, 33, 1, 1}, {1, 33, 5, 576, 0, 1}, {1, 9000, 3, 40, 1}, {0},
};
static const pb_dims grid[] = {
    {8, 1024, 49152, 576, 0}, {8, 1024, 49152, 576, 1}, {4, 1024, 151936, 896, 0}, {4, 1024, 151936, 896, 1}, {0},
};
static const pb_dims device_grid[] = {{4, 2048, 151936, 1536, 0}, {4, 2048, 151936, 1536, 1}, {0}};

static pb_status check_sizes(const char *op, int T, int V, int D)
{
    return T < 0 || V < 1 || D < 1 ? pb_fail(PB_EINVAL, "%s: T=%d V=%d D=%d, need T >= 0 and V, D >= 1", op, T, V, D)
                                   : PB_OK;
}

static pb_status fwd_check(const void *args)
{
    const pb_embedding_fwd_args *a = args;
    return check_sizes("embedding", a->T, a->V, a->D);
}

static pb_status bwd_check(const void *args)
{
    const pb_embedding_bwd_args *a = args;
    if (a->table_dtype != PB_F32 && a->table_dtype != PB_BF16)
        return pb_fail(PB_EINVAL, "embedding_bwd: dtable must be f32 or bf16");
    return check_sizes("embedding_bwd", a->T, a->V, a->D);
}

static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    size_t T = (size_t)dim[0] * dim[1], V = dim[2], D = dim[3];
    *(pb_embedding_fwd_args *)args = (pb_embedding_fwd_args){
        .table = pb_in(b, "table", b->dtype, V * D),
        .ids = pb_in_range(b, "ids", PB_I32, T, 0, (double)V),
        .y = pb_out(b, "y", b->dtype, T * D),
        .T = (int)T,
        .V = (int)V,
        .D = (int)D,
        .dtype = b->dtype,
    };
    return b->status;
}

static pb_status bwd_bind(pb_binder *b, const int *dim, void *args)
{
    size_t T = (size_t)dim[0] * dim[1], V = dim[2], D = dim[3];
    const pb_dtype table_dtype = dim[5] ? b->dtype : PB_F32;
    *(pb_embedding_bwd_args *)args = (pb_embedding_bwd_args){
        .dy = pb_in(b, "dy", b->dtype, T * D),
        .ids = pb_in_range(b, "ids", PB_I32, T, 0, (double)V),
        .dtable = dim[4] ? pb_inout(b, "dtable", table_dtype, V * D, -1, 1) : pb_out(b, "dtable", table_dtype, V * D),
        .T = (int)T,
        .V = (int)V,
        .D = (int)D,
        .accumulate = dim[4],
        .dtype = b->dtype,
        .table_dtype = table_dtype,
    };
    return b->status;
}

static pb_cost fwd_cost(const void *args)
{
    const pb_embedding_fwd_args *a = args;
    double n = (double)a->T * a->D;
    return (pb_cost){.bytes = 2 * n * (double)pb_dtype_size(a->dtype) + 4.0 * a->T};
}

/* With accumulate: assumes that no two tokens share a row, so each token's row is read and written. Without it: every
 * row of the table is written once. */
static pb_cost bwd_cost(const void *args)
{
    const pb_embedding_bwd_args *a = args;
    double n = (double)a->T * a->D, table = (double)a->V * a->D, e = (double)pb_dtype_size(a->table_dtype);
    return (pb_cost){
        .flops = n,
        .bytes = n * (double)pb_dtype_size(a->dtype) + 4.0 * a->T + (a->accumulate ? 2 * e * n : e * table),
    };
}

const pb_op pb_op_embedding_fwd = {
    .name = "embedding_fwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_embedding_fwd_args),
    .impls = PB_BOTH_BACKENDS(embedding, fwd),
    .check = fwd_check,
    .bind = fwd_bind,
    .cost = fwd_cost,
    .tol = {[PB_F32] = 0, [PB_BF16] = 0}, /* a copy */
};
const pb_op pb_op_embedding_bwd = {
    .name = "embedding_bwd",
    .axes = axes,
    .rare = bwd_rare,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_embedding_bwd_args),
    .impls = PB_BOTH_BACKENDS(embedding, bwd),
    .check = bwd_check,
    .bind = bwd_bind,
    .cost = bwd_cost,
    .tol = {[PB_F32] = 1e-6, [PB_BF16] = 1e-6}, /* sums are f32 for both types, and added in the same order */
    .grad_of = &pb_op_embedding_fwd,
};
