/* row_window.c - exchanges the rows before a rank's slice, and the gradients of these rows. */
#include "trainer/parallel/row_window.h"

#include "kernels/copy/copy.h"
#include "kernels/gradient/gradient.h"

static pb_status copy(pb_ctx *ctx, const pb_row_chunks *c, const void *x, void *y, int rows, pb_dtype dtype)
{
    return pb_copy_rows(
        ctx, &(pb_copy_rows_args){
                 .x = x, .y = y, .T = rows, .D = (int)c->width, .ldx = c->width, .ldy = c->width, .dtype = dtype});
}

/* Gathers `before` rows of every rank, from x on, into c->room. */
static pb_status exchange(pb_ctx *ctx, const pb_row_chunks *c, int before, const void *x, pb_dtype dtype)
{
    return pb_comm_all_gather(
        ctx, &(pb_comm_all_gather_args){
                 .comm = c->comm, .x = x, .y = c->room, .count = (size_t)before * c->width, .dtype = dtype});
}

/* Pointer to row `row` of x. */
static void *at(const pb_row_chunks *c, const void *x, int row, pb_dtype dtype)
{
    return (unsigned char *)x + (size_t)row * c->width * pb_dtype_size(dtype);
}

pb_status pb_row_window_gather(pb_ctx *ctx, const pb_row_chunks *c, int before, const void *own, void *all,
                               pb_dtype dtype)
{
    const int rank = pb_comm_rank(c->comm), first = rank * c->length;
    PB_TRY(copy(ctx, c, own, at(c, all, first, dtype), c->length, dtype));
    if (!before) return PB_OK;
    PB_TRY(exchange(ctx, c, before, at(c, own, c->length - before, dtype), dtype));
    if (!rank) return PB_OK;
    return copy(ctx, c, at(c, c->room, (rank - 1) * before, dtype), at(c, all, first - before, dtype), before, dtype);
}

pb_status pb_row_window_reduce(pb_ctx *ctx, const pb_row_chunks *c, int before, const float *all, float *own)
{
    const int rank = pb_comm_rank(c->comm), first = rank * c->length;
    PB_TRY(copy(ctx, c, at(c, all, first, PB_F32), own, c->length, PB_F32));
    if (!before) return PB_OK;
    PB_TRY(exchange(ctx, c, before, at(c, all, rank ? first - before : 0, PB_F32), PB_F32));
    if (rank + 1 == pb_comm_size(c->comm)) return PB_OK;
    return pb_gradient_add(ctx, &(pb_gradient_add_args){.x = at(c, c->room, (rank + 1) * before, PB_F32),
                                                        .y = at(c, own, c->length - before, PB_F32),
                                                        .n = (size_t)before * c->width,
                                                        .add = true});
}
