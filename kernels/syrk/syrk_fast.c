/* syrk_fast.c - the symmetric product through the matrix product of cpu/gemm.h, block by block of the lower
 * triangle. */
#include "kernels/cpu/cpu.h"
#include "kernels/syrk/syrk_blocks.h"

pb_status PB_FAST(pb_syrk_product)(pb_ctx *ctx, const void *args)
{
    pb_syrk_blocks(args, ctx->scratch);
    return PB_OK;
}
