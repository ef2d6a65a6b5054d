/* row_window.h - the keys of chunks (row_chunks.h) for queries that attend only to their own token and `before` tokens
 * before it; for ranks that share a batch row in contiguous slices, one chunk each.
 *
 * Of the other ranks' tokens, a rank then needs only the last `before` of the previous rank. One all-gather of `before`
 * rows of each rank takes the place of one of whole slices. Rank 0 uses none of the gathered rows, and no rank uses those
 * of the last rank. In the backward pass, no rank uses what rank 0 sends. */
#ifndef PB_ROW_WINDOW_H
#define PB_ROW_WINDOW_H
#include "trainer/parallel/row_chunks.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Both take a chunk that is not `reversed`, 0 <= before <= c->length, and in c->room [ranks before,width] of the dtype
 * that is moved, for reduce f32. No two of own, all and room overlap. They fail as pb_comm_all_gather does. */

/* Copies own [length,width] to its place in `all` [ranks length,width], and gathers the `before` rows that precede it.
 * The other rows of `all` are not written. */
pb_status pb_row_window_gather(pb_ctx *ctx, const pb_row_chunks *c, int before, const void *own, void *all,
                               pb_dtype dtype);
/* The backward of the gather: own [length,width] gets the rows of this rank's slice in its `all`. To the last `before` of
 * them are added the terms that the next rank has for these rows in its own `all`. */
pb_status pb_row_window_reduce(pb_ctx *ctx, const pb_row_chunks *c, int before, const float *all, float *own);
#ifdef __cplusplus
}
#endif
#endif
