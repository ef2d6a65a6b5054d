/* row_chunks.c - gathers chunks of rows from all ranks, and adds their gradients over the ranks. */
#include "trainer/parallel/row_chunks.h"

#include "kernels/copy/copy.h"

/* Copies one chunk of every rank, with the chunks in reverse order. */
static pb_status reverse(pb_ctx *ctx, const pb_row_chunks *c, const void *x, void *y, pb_dtype dtype)
{
    return pb_copy_rows(ctx, &(pb_copy_rows_args){.x = x,
                                                  .y = y,
                                                  .T = pb_comm_size(c->comm) * c->length,
                                                  .D = (int)c->width,
                                                  .block = c->length,
                                                  .ldx = c->width,
                                                  .ldy = c->width,
                                                  .reversed = true,
                                                  .dtype = dtype});
}

pb_status pb_row_chunks_gather(pb_ctx *ctx, const pb_row_chunks *c, const void *own, void *all, pb_dtype dtype)
{
    PB_TRY(pb_comm_all_gather(ctx, &(pb_comm_all_gather_args){.comm = c->comm,
                                                              .x = own,
                                                              .y = c->reversed ? c->room : all,
                                                              .count = (size_t)c->length * c->width,
                                                              .dtype = dtype}));
    return c->reversed ? reverse(ctx, c, c->room, all, dtype) : PB_OK;
}

pb_status pb_row_chunks_reduce(pb_ctx *ctx, const pb_row_chunks *c, const float *all, float *own)
{
    if (c->reversed) PB_TRY(reverse(ctx, c, all, c->room, PB_F32));
    return pb_comm_reduce_scatter(ctx, &(pb_comm_reduce_scatter_args){.comm = c->comm,
                                                                      .x = c->reversed ? c->room : all,
                                                                      .y = own,
                                                                      .count = (size_t)c->length * c->width,
                                                                      .dtype = PB_F32,
                                                                      .op = PB_COMM_SUM,
                                                                      .ordered = c->ordered || ctx->deterministic});
}
