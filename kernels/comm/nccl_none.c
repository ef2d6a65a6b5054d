/* nccl_none.c - replaces nccl.cu in a build without NCCL. */
#include "kernels/comm/backend.h"

static pb_status none_open(pb_comm *c, pb_world *w, const int *members)
{
    (void)c, (void)w, (void)members;
    return pb_fail(PB_EUNSUPPORTED, "this build has no NCCL, so it runs on one GPU only: install NCCL, one of CUDA's "
                                    "libraries, and configure with -DPB_NCCL=ON");
}

static void none_close(pb_comm *c) { (void)c; }

const pb_comm_backend pb_comm_nccl = {.name = "nccl", .open = none_open, .close = none_close};
