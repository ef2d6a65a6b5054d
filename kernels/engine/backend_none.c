/* backend_none.c - replaces backend_cuda.cu and the .cu file of every op in a build without CUDA, so that no
 * other file needs an #ifdef. */
#include "kernels/engine/op.h"

static pb_status not_built(void)
{
    return pb_fail(PB_EUNSUPPORTED, "cuda: this build has no CUDA backend (make PRESET=cuda)");
}

static pb_status none_open(pb_ctx *ctx, int device)
{
    (void)ctx, (void)device;
    return not_built();
}

static pb_status none_facts(int device, pb_device_facts *out)
{
    (void)device, (void)out;
    return not_built();
}

const pb_backend pb_backend_cuda = {.name = "cuda", .open = none_open, .facts = none_facts};

#define OP(f, p)                                                                                                       \
    extern const pb_impl pb_##f##_##p##_cuda[];                                                                        \
    const pb_impl pb_##f##_##p##_cuda[] = {{0}};
#include "kernels/ops.def"
