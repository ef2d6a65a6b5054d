/* dense_mla.c - the two descriptors of dense_mla. What it computes is sparse_mla's (kernels/sparse_mla/mla.h). */
#include "kernels/dense_mla/dense_mla.h"

#include "kernels/sparse_mla/mla_ops.h"

/* K: rows of kv; c: causal; w: window. */
static const char axes[] = "BSKHDVcw";
static const pb_dims edge[] = {
    {2, 3, 37, 3, 16, 16, 1, 9},
    {1, 5, 160, 8, 512, 512, 1},
    {2, 70, 70, 5, 24, 8, 1, 33},
    {1, 4, 130, 64, 576, 512, 0, 0},
    {2, 9, 5, 16, 64, 64, 1, 2},
    {1, 3, 200, 128, 512, 512, 1, 128},
    {1, 150, 80, 4, 7, 5, 1, 0},
    {2, 2, 50, 65, 40, 32, 0, 20},
    {1, 1, 1, 1, 8, 8, 1, 1},
    {1, 2, 260, 16, 512, 512, 1, 0},
    {2, 3, 130, 8, 512, 512, 1, 70},
    {1, 40, 30, 16, 512, 512, 1, 20},
    {0},
};
static const pb_dims grid[] = {{1, 256, 256, 8, 512, 512, 1}, {1, 128, 128, 64, 512, 512, 1}, {0}};
static const pb_dims device_grid[] = {{1, 1280, 1280, 64, 512, 512, 1}, {1, 4096, 4096, 64, 512, 512, 1}, {0}};

static void bind_keys(pb_binder *b, const int *dim, pb_mla *p)
{
    (void)b;
    p->causal = dim[6], p->window = dim[7];
    p->W = pb_mla_dense_slots(p->S_kv, p->window);
}

PB_MLA_OP(dense_mla, fwd, false, .grad_of = NULL)
/* Of a sink among many keys the difference drowns in the rounding of o. */
PB_MLA_OP(dense_mla, bwd, false, .grad_of = &pb_op_dense_mla_fwd, .grad_tol = 5e-3)
