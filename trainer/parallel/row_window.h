/* row_window.h - keys of a batch row that several ranks share in contiguous slices (context.h), for queries that attend
 * only to their own token and a few tokens before it.
 *
 * Then a rank needs, of the tokens of other ranks, only the last ones of the previous rank: `before` rows. They are
 * exchanged in one all-gather of `before` rows of each rank, in place of one of whole slices. Rank 0 uses none of the
 * gathered rows, and no rank uses those of the last rank. In the backward pass, what rank 0 sends is not used. */
#ifndef PB_ROW_WINDOW_H
#define PB_ROW_WINDOW_H
#include "kernels/comm/comm.h"
#ifdef __cplusplus
extern "C" {
#endif

/* A slice of `length` rows of `width` elements on each rank of comm. */
typedef struct pb_row_window {
    pb_comm *comm;
    int length;
    int before; /* 0 .. length */
    size_t width;
    void *room; /* [ranks before,width] of the dtype of the gathered rows; for pb_row_window_reduce f32 */
} pb_row_window;

/* Copies own [length,width] to its place in `all` [ranks length,width], and gathers the `before` rows that precede it.
 * The other rows of `all` are not written. No two of own, all and room overlap. Fails as pb_comm_all_gather does. */
pb_status pb_row_window_gather(pb_ctx *ctx, const pb_row_window *w, const void *own, void *all, pb_dtype dtype);
/* The backward of the gather: own [length,width] gets the rows of this rank's slice in its `all`, and to the last
 * `before` of them the terms are added that the next rank has for them in its own `all`. */
pb_status pb_row_window_reduce(pb_ctx *ctx, const pb_row_window *w, const float *all, float *own);
#ifdef __cplusplus
}
#endif
#endif
