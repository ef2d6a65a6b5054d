/* indexer_ref.h - declares the reference implementations of the indexer's ops, which indexer.c puts into its lists of
 * implementations. */
#ifndef PB_INDEXER_REF_H
#define PB_INDEXER_REF_H
#include "kernels/indexer/indexer.h"

pb_status pb_indexer_quantize_ref(pb_ctx *ctx, const void *args);
pb_status pb_indexer_scores_ref(pb_ctx *ctx, const void *args);
pb_status pb_indexer_pick_ref(pb_ctx *ctx, const void *args);
size_t pb_indexer_pick_ref_workspace(const void *args);
pb_status pb_indexer_at_ref(pb_ctx *ctx, const void *args);
pb_status pb_indexer_bwd_ref(pb_ctx *ctx, const void *args);
size_t pb_indexer_bwd_ref_workspace(const void *args);
#endif
