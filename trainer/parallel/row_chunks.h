/* row_chunks.h - collectives over batch rows that the ranks of a group share (context.h). One call moves one chunk of
 * each rank: `length` tokens of `width` elements.
 *
 * A collective puts the chunks in the order of the ranks. For the ranks' first chunks this is their order in the batch
 * row. The second chunks of a zigzag row lie in it in the reverse order, so a copy reverses them. */
#ifndef PB_ROW_CHUNKS_H
#define PB_ROW_CHUNKS_H
#include "kernels/comm/comm.h"
#ifdef __cplusplus
extern "C" {
#endif

/* A chunk on each of the ranks of comm. */
typedef struct pb_row_chunks {
    pb_comm *comm;
    int length;
    size_t width;
    bool reversed; /* the batch row has these chunks in the reverse order of the ranks */
    void *room;    /* if reversed: [ranks length,width] of the dtype that is moved, for reduce f32; row_window.h */
    bool ordered;  /* pb_row_chunks_reduce adds in the order of the ranks; also if ctx->deterministic */
} pb_row_chunks;

/* Gathers own [length,width] of every rank into all [ranks length,width], in the order of the batch row. own may be
 * this rank's place in `all`; room must not overlap either. Fails as pb_comm_all_gather does. */
pb_status pb_row_chunks_gather(pb_ctx *ctx, const pb_row_chunks *c, const void *own, void *all, pb_dtype dtype);
/* The backward of the gather: adds `all` [ranks length,width] of every rank; own [length,width] gets the sums of this
 * rank's chunk. Fails as pb_comm_reduce_scatter does. */
pb_status pb_row_chunks_reduce(pb_ctx *ctx, const pb_row_chunks *c, const float *all, float *own);
#ifdef __cplusplus
}
#endif
#endif
