/* attention_ref.h - declares the reference implementations of attention, which attention.c puts into its lists of
 * implementations. Workspace: keys of a row, or 2 D, in double precision. */
#ifndef PB_ATTENTION_REF_H
#define PB_ATTENTION_REF_H
#include "kernels/attention/attention.h"

pb_status pb_attention_fwd_ref(pb_ctx *ctx, const void *args);
pb_status pb_attention_bwd_ref(pb_ctx *ctx, const void *args);
#endif
