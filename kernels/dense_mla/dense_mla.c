/* dense_mla.c - the two descriptors of dense_mla. What it computes is sparse_mla's (kernels/sparse_mla/mla.h). */
#include "kernels/dense_mla/dense_mla.h"

#include "kernels/core/cpu.h"
#include "kernels/dense_mla/convert.h"

/* ---- implementations ------------------------------------------------------------------------------------ */

PB_FAST_DECLARE(pb_dense_mla_fwd)
PB_FAST_DECLARE(pb_dense_mla_bwd)

static pb_status fwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_mla p = pb_dense_mla_fwd_problem(args);
    return pb_mla_fwd_ref(ctx, &p);
}
static pb_status bwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_mla p = pb_dense_mla_bwd_problem(args);
    return pb_mla_bwd_ref(ctx, &p);
}
static size_t fwd_ref_workspace(const void *args)
{
    const pb_mla p = pb_dense_mla_fwd_problem(args);
    return pb_mla_fwd_ref_workspace(&p);
}
static size_t bwd_ref_workspace(const void *args)
{
    const pb_mla p = pb_dense_mla_bwd_problem(args);
    return pb_mla_bwd_ref_workspace(&p);
}
static size_t fwd_workspace(const void *args)
{
    const pb_mla p = pb_dense_mla_fwd_problem(args);
    return pb_mla_fwd_fast_workspace(&p);
}
static size_t bwd_workspace(const void *args)
{
    const pb_mla p = pb_dense_mla_bwd_problem(args);
    return pb_mla_bwd_fast_workspace(&p);
}

const pb_impl pb_dense_mla_fwd_cpu[] = {
    PB_FAST_IMPLS(pb_dense_mla_fwd, .workspace = fwd_workspace){"ref", fwd_ref, .workspace = fwd_ref_workspace}, {0}};
const pb_impl pb_dense_mla_bwd_cpu[] = {
    PB_FAST_IMPLS(pb_dense_mla_bwd, .workspace = bwd_workspace){"ref", bwd_ref, .workspace = bwd_ref_workspace}, {0}};

/* ---- descriptors ---------------------------------------------------------------------------------------- */

/* K: rows of kv; c: causal; w: window. */
static const char axes[] = "BSKHDVcw";
static const pb_dims edge[] = {
    {2, 3, 37, 3, 16, 16, 1, 9},  {1, 5, 160, 8, 512, 512, 1},
    {2, 70, 70, 5, 24, 8, 1, 33}, {1, 4, 130, 64, 576, 512, 0, 0},
    {2, 9, 5, 16, 64, 64, 1, 2},  {1, 3, 200, 128, 512, 512, 1, 128},
    {1, 150, 80, 4, 7, 5, 1, 0},  {2, 2, 50, 65, 40, 32, 0, 20},
    {1, 1, 1, 1, 8, 8, 1, 1},     {0},
};
static const pb_dims grid[] = {{1, 256, 256, 8, 512, 512, 1}, {1, 128, 128, 64, 512, 512, 1}, {0}};
static const pb_dims device_grid[] = {{1, 1280, 1280, 64, 512, 512, 1}, {1, 4096, 4096, 64, 512, 512, 1}, {0}};

static pb_status dense_check(const char *op, const pb_mla *p)
{
    PB_TRY(pb_mla_check(op, p));
    return p->window >= 0 ? PB_OK : pb_fail(PB_EINVAL, "%s: window=%d", op, p->window);
}
static pb_status fwd_check(const void *args)
{
    const pb_mla p = pb_dense_mla_fwd_problem(args);
    return dense_check("dense_mla_fwd", &p);
}
static pb_status bwd_check(const void *args)
{
    const pb_mla p = pb_dense_mla_bwd_problem(args);
    return dense_check("dense_mla_bwd", &p);
}

static pb_mla bind(pb_binder *b, const int *dim, bool backward)
{
    pb_mla p = {.B = dim[0], .S = dim[1], .S_kv = dim[2], .H = dim[3], .D = dim[4], .V = dim[5]};
    p.backward = backward;
    p.causal = dim[6], p.window = dim[7];
    return pb_mla_bind(b, &p);
}

static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    const pb_mla p = bind(b, dim, false);
    *(pb_dense_mla_fwd_args *)args = pb_dense_mla_fwd_of(&p);
    return b->status;
}
static pb_status bwd_bind(pb_binder *b, const int *dim, void *args)
{
    const pb_mla p = bind(b, dim, true);
    *(pb_dense_mla_bwd_args *)args = pb_dense_mla_bwd_of(&p);
    return b->status;
}

static pb_status forward(pb_ctx *cpu, const pb_mla *p)
{
    const pb_dense_mla_fwd_args args = pb_dense_mla_fwd_of(p);
    return pb_dense_mla_fwd(cpu, &args);
}
static pb_status fwd_prepare(pb_ctx *cpu, const void *args)
{
    const pb_mla p = pb_dense_mla_fwd_problem(args);
    return pb_mla_prepare(cpu, &p, NULL);
}
static pb_status bwd_prepare(pb_ctx *cpu, const void *args)
{
    const pb_mla p = pb_dense_mla_bwd_problem(args);
    return pb_mla_prepare(cpu, &p, forward);
}

static pb_cost fwd_cost(const void *args)
{
    const pb_mla p = pb_dense_mla_fwd_problem(args);
    return pb_mla_cost(&p);
}
static pb_cost bwd_cost(const void *args)
{
    const pb_mla p = pb_dense_mla_bwd_problem(args);
    return pb_mla_cost(&p);
}

const pb_op pb_op_dense_mla_fwd = {
    .name = "dense_mla_fwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_dense_mla_fwd_args),
    .impls = PB_BOTH_BACKENDS(dense_mla, fwd),
    .check = fwd_check,
    .bind = fwd_bind,
    .prepare = fwd_prepare,
    .cost = fwd_cost,
    .tol = PB_MLA_TOL,
};
const pb_op pb_op_dense_mla_bwd = {
    .name = "dense_mla_bwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_dense_mla_bwd_args),
    .impls = PB_BOTH_BACKENDS(dense_mla, bwd),
    .check = bwd_check,
    .bind = bwd_bind,
    .prepare = bwd_prepare,
    .cost = bwd_cost,
    .tol = PB_MLA_TOL,
    .grad_of = &pb_op_dense_mla_fwd,
};
