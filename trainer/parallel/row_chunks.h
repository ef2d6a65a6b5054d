/* row_chunks.h - collectives over rows that the ranks of a group share (context.h): one chunk of every rank at a time.
 *
 * A collective puts chunks in the order of the ranks. For the ranks' first chunks this is the order of the row. The
 * second chunks of a zigzag row are in the opposite order there, so they are reordered on the way. */
#ifndef PB_ROW_CHUNKS_H
#define PB_ROW_CHUNKS_H
#include "kernels/comm/comm.h"
#ifdef __cplusplus
extern "C" {
#endif

/* A chunk of `length` rows of `width` elements on each of the ranks of comm. */
typedef struct pb_row_chunks {
    pb_comm *comm;
    int length;
    size_t width;
    bool reversed; /* the chunks are in the reverse order of the ranks */
    void *room;    /* [ranks length,width] of the type that is moved; used if reversed */
    bool ordered;  /* pb_row_chunks_reduce adds in the order of the ranks */
} pb_row_chunks;

/* Gathers own [length,width] of every rank into all [ranks length,width], in the order of the row. own may be this
 * rank's place in `all`. EDEVICE, and others of pb_comm_all_gather. */
pb_status pb_row_chunks_gather(pb_ctx *ctx, const pb_row_chunks *c, const void *own, void *all, pb_dtype dtype);
/* Its backward: adds all [ranks length,width] over the ranks; own [length,width] gets the sums of this rank's chunk. */
pb_status pb_row_chunks_reduce(pb_ctx *ctx, const pb_row_chunks *c, const float *all, float *own);
#ifdef __cplusplus
}
#endif
#endif
