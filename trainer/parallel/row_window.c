/* row_window.c - exchanges the rows before a rank's slice, and the gradients of these rows. */
#include "trainer/parallel/row_window.h"

#include "kernels/copy/copy.h"
#include "kernels/gradient/gradient.h"

static pb_status copy(pb_ctx *ctx, const pb_row_window *w, const void *x, void *y, int rows, pb_dtype dtype)
{
    return pb_copy_rows(
        ctx, &(pb_copy_rows_args){
                 .x = x, .y = y, .T = rows, .D = (int)w->width, .ldx = w->width, .ldy = w->width, .dtype = dtype});
}

/* Gathers `before` rows of every rank, from x on, into w->room. */
static pb_status exchange(pb_ctx *ctx, const pb_row_window *w, const void *x, pb_dtype dtype)
{
    return pb_comm_all_gather(
        ctx, &(pb_comm_all_gather_args){
                 .comm = w->comm, .x = x, .y = w->room, .count = (size_t)w->before * w->width, .dtype = dtype});
}

/* Pointer to row `row` of x. */
static void *at(const pb_row_window *w, const void *x, size_t row, pb_dtype dtype)
{
    return (unsigned char *)x + row * w->width * pb_dtype_size(dtype);
}

pb_status pb_row_window_gather(pb_ctx *ctx, const pb_row_window *w, const void *own, void *all, pb_dtype dtype)
{
    const size_t rank = (size_t)pb_comm_rank(w->comm), length = (size_t)w->length, before = (size_t)w->before;
    PB_TRY(copy(ctx, w, own, at(w, all, rank * length, dtype), w->length, dtype));
    if (!w->before) return PB_OK;
    PB_TRY(exchange(ctx, w, at(w, own, length - before, dtype), dtype));
    if (!rank) return PB_OK;
    return copy(ctx, w, at(w, w->room, (rank - 1) * before, dtype), at(w, all, rank * length - before, dtype),
                w->before, dtype);
}

pb_status pb_row_window_reduce(pb_ctx *ctx, const pb_row_window *w, const float *all, float *own)
{
    const size_t rank = (size_t)pb_comm_rank(w->comm), ranks = (size_t)pb_comm_size(w->comm);
    const size_t length = (size_t)w->length, before = (size_t)w->before;
    PB_TRY(copy(ctx, w, all + rank * length * w->width, own, w->length, PB_F32));
    if (!w->before) return PB_OK;
    PB_TRY(exchange(ctx, w, all + (rank ? rank * length - before : 0) * w->width, PB_F32));
    if (rank + 1 == ranks) return PB_OK;
    return pb_gradient_add(ctx, &(pb_gradient_add_args){.x = at(w, w->room, (rank + 1) * before, PB_F32),
                                                        .y = own + (length - before) * w->width,
                                                        .n = before * w->width,
                                                        .add = true});
}
