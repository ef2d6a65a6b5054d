/* cuda_probe_none.c - replaces cuda_probe.cu in a build without CUDA: a probe_trap() that fails, so that lose_device.c
 * links. */
#include "tests/cuda_probe.h"

pb_status probe_trap(pb_ctx *ctx)
{
    (void)ctx;
    return pb_fail(PB_EUNSUPPORTED, "this build has no CUDA backend");
}
