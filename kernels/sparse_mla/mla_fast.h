/* mla_fast.h - the vectorised passes of sparse_mla_fast.c, for the _fast.c files of both MLA families. */
#ifndef PB_MLA_FAST_H
#define PB_MLA_FAST_H
#include "kernels/core/cpu.h"
#include "kernels/sparse_mla/mla.h"

pb_status PB_FAST(pb_mla_fwd)(pb_ctx *ctx, const pb_mla *p);
pb_status PB_FAST(pb_mla_bwd)(pb_ctx *ctx, const pb_mla *p);
#endif
