/* dense_mla.c - the op descriptors of dense_mla. The implementations are shared with sparse_mla
 * (kernels/sparse_mla/mla.h). */
#include "kernels/dense_mla/dense_mla.h"

#include "kernels/sparse_mla/mla_ops.h"

static const char axes[] = "BSKHDVcw";
/* One shape in the tables below: a pb_dims whose numbers have names, in the order of `axes`. */
typedef struct shape {
    int B, S, S_kv, H, D, V;
    int causal; /* 0 or 1, plus 2 for dkv in f32 */
    int window;
    int unused[2];
} shape;
_Static_assert(sizeof(shape) == sizeof(pb_dims), "a shape is a pb_dims with names");
static const shape edge[] = {
    {.B = 2, .S = 3, .S_kv = 37, .H = 3, .D = 16, .V = 16, .causal = 1, .window = 9},
    {.B = 1, .S = 5, .S_kv = 160, .H = 8, .D = 512, .V = 512, .causal = 1},
    {.B = 2, .S = 70, .S_kv = 70, .H = 5, .D = 24, .V = 8, .causal = 1, .window = 33},
    {.B = 1, .S = 4, .S_kv = 130, .H = 64, .D = 576, .V = 512},
    {.B = 2, .S = 9, .S_kv = 5, .H = 16, .D = 64, .V = 64, .causal = 1, .window = 2},
    {.B = 1, .S = 3, .S_kv = 200, .H = 128, .D = 512, .V = 512, .causal = 1, .window = 128},
    {.B = 1, .S = 150, .S_kv = 80, .H = 4, .D = 7, .V = 5, .causal = 1},
    {.B = 2, .S = 2, .S_kv = 50, .H = 65, .D = 40, .V = 32, .window = 20},
    {.B = 1, .S = 1, .S_kv = 1, .H = 1, .D = 8, .V = 8, .causal = 1, .window = 1},
    {.B = 1, .S = 2, .S_kv = 260, .H = 16, .D = 512, .V = 512, .causal = 1},
    {.B = 2, .S = 3, .S_kv = 130, .H = 8, .D = 512, .V = 512, .causal = 1, .window = 70},
    {.B = 1, .S = 40, .S_kv = 30, .H = 16, .D = 512, .V = 512, .causal = 1, .window = 20},
    {.B = 2, .S = 9, .S_kv = 20, .H = 5, .D = 24, .V = 8, .causal = 2 + 1},
    {0},
};
static const shape grid[] = {
    {.B = 1, .S = 256, .S_kv = 256, .H = 8, .D = 512, .V = 512, .causal = 1},
    {.B = 1, .S = 128, .S_kv = 128, .H = 64, .D = 512, .V = 512, .causal = 1},
    {0},
};
static const shape device_grid[] = {
    {.B = 1, .S = 1280, .S_kv = 1280, .H = 64, .D = 512, .V = 512, .causal = 1},
    {.B = 1, .S = 4096, .S_kv = 4096, .H = 64, .D = 512, .V = 512, .causal = 1},
    {0},
};

static void bind_keys(pb_binder *b, const int *dim, pb_mla *p)
{
    (void)b;
    p->causal = dim[6] % 2, p->window = dim[7];
    p->W = pb_mla_dense_slots(p->S_kv, p->window);
}

static bool wide_of(const int *dim) { return dim[6] >= 2; }

PB_MLA_OP(dense_mla, fwd, false, .grad_of = NULL)
/* grad_tol is large because the gradient of a sink is small when it competes with many keys, and then the rounding of o
 * dominates the finite difference. */
PB_MLA_OP(dense_mla, bwd, false, .grad_of = &pb_op_dense_mla_fwd, .grad_tol = 5e-3)
