/* xent.c - masked cross-entropy: the references in double precision, and the pb_op descriptors of the two ops. */
#include "kernels/xent/xent.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/cpu.h"

/* ---- reference in double precision ---------------------------------------------------------- */

typedef struct row_sum {
    double max, sum; /* sum of exp(x - max); separate from max, because max + log(sum) would lose digits of the
                        logarithm */
} row_sum;

static row_sum sum_row(const void *logits, size_t row, int V, pb_dtype dtype)
{
    row_sum s = {-INFINITY, 0};
    for (int v = 0; v < V; v++) s.max = fmax(s.max, pb_load(logits, row + v, dtype));
    for (int v = 0; v < V; v++) s.sum += exp(pb_load(logits, row + v, dtype) - s.max);
    return s;
}

static pb_status bwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_xent_bwd_args *a = args;
    const double scale = a->loss_scale ? (double)a->loss_scale[0] : 1;
    double loss = 0;
    (void)ctx;
    for (int t = 0; t < a->T; t++) {
        const size_t row = (size_t)t * a->V;
        const bool counts = a->mask[t] != 0, valid = a->target[t] >= 0 && a->target[t] < a->V;
        double nll = counts ? (double)NAN : 0, k = scale * (double)a->mask[t] * (double)a->inv_count[0];
        row_sum s = {0};
        if (counts && valid) {
            s = sum_row(a->logits, row, a->V, a->dtype);
            nll = s.max - pb_load(a->logits, row + a->target[t], a->dtype) + log(s.sum);
        }
        for (int v = 0; a->dlogits && v < a->V; v++) {
            double d = nll; /* masked token: 0; invalid target: NaN */
            if (counts && valid)
                d = k * (exp(pb_load(a->logits, row + v, a->dtype) - s.max) / s.sum - (v == a->target[t]));
            pb_store(a->dlogits, row + v, a->dtype, d);
        }
        a->nll[t] = (float)nll;
        if (counts) loss += (double)a->mask[t] * nll;
    }
    a->loss[0] = (float)(loss * (double)a->inv_count[0]);
    if (a->total) a->total[0] = (a->add ? a->total[0] : 0) + a->loss[0];
    return PB_OK;
}

static pb_status fwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_xent_fwd_args *a = args;
    return bwd_ref(ctx, &(pb_xent_bwd_args){.logits = a->logits,
                                            .target = a->target,
                                            .mask = a->mask,
                                            .inv_count = a->inv_count,
                                            .nll = a->nll,
                                            .loss = a->loss,
                                            .T = a->T,
                                            .V = a->V,
                                            .dtype = a->dtype});
}

/* ---- CPU implementations, best first --------------------------------------------------------- */

PB_FAST_DECLARE(pb_xent_fwd)
PB_FAST_DECLARE(pb_xent_bwd)

const pb_impl pb_xent_fwd_cpu[] = {PB_FAST_IMPLS(pb_xent_fwd){"ref", fwd_ref}, {0}};
const pb_impl pb_xent_bwd_cpu[] = {PB_FAST_IMPLS(pb_xent_bwd){"ref", bwd_ref}, {0}};

/* ---- op descriptors (pb_op): shapes, argument checks, inputs, costs --------------------------- */

static const char axes[] = "BSV";
static const pb_dims edge[] = {
    {2, 3, 7}, {1, 2, 1000}, {2, 5, 1}, {1, 3, 2500}, {2, 9, 33}, {1, 1, 4096}, {1, 2, 40001}, {1, 2, 70000}, {0},
};
static const pb_dims grid[] = {{1, 1024, 49152}, {1, 512, 151936}, {1, 16, 1024}, {0}};
static const pb_dims device_grid[] = {{2, 4096, 128256}, {1, 2048, 151936}, {0}};

static pb_status check_sizes(const char *op, int T, int V)
{
    return T < 0 || V < 1 ? pb_fail(PB_EINVAL, "%s: T=%d V=%d, need T >= 0 and V >= 1", op, T, V) : PB_OK;
}

static pb_status fwd_check(const void *args)
{
    const pb_xent_fwd_args *a = args;
    return check_sizes("xent", a->T, a->V);
}

static pb_status bwd_check(const void *args)
{
    const pb_xent_bwd_args *a = args;
    if (!a->dlogits) return pb_fail(PB_EINVAL, "xent_bwd: dlogits is NULL (only xent_fwd allows that)");
    return check_sizes("xent_bwd", a->T, a->V);
}

/* Makes the mask: of every four tokens one has mask 0, one 0.5 and two have 1. The first token has mask 1. */
static const float *bind_mask(pb_binder *b, size_t T)
{
    float *mask = malloc((T + 1) * sizeof *mask);
    if (!mask) {
        b->status = pb_fail(PB_ENOMEM, "xent: no host memory for a mask of %zu tokens", T);
        return NULL;
    }
    for (size_t t = 0; t < T; t++) mask[t] = t % 4 == 1 ? 0 : t % 4 == 3 ? 0.5f : 1;
    const float *bound = pb_in_raw(b, "mask", mask, T * sizeof *mask);
    free(mask);
    return bound;
}

static pb_status bwd_bind(pb_binder *b, const int *dim, void *args)
{
    size_t T = (size_t)dim[0] * dim[1], V = dim[2];
    *(pb_xent_bwd_args *)args = (pb_xent_bwd_args){
        .logits = pb_in_range(b, "logits", b->dtype, T * V, -8, 8), /* a range that makes the softmax uneven */
        .target = pb_in_range(b, "target", PB_I32, T, 0, (double)V),
        .mask = bind_mask(b, T),
        .inv_count = pb_in_range(b, "inv_count", PB_F32, 1, 0.25, 0.5),
        .dlogits = pb_out(b, "dlogits", b->dtype, T * V),
        .nll = pb_out(b, "nll", PB_F32, T),
        .loss = pb_out(b, "loss", PB_F32, 1),
        .total = pb_inout(b, "total", PB_F32, 1, 4, 8),
        .add = dim[0] > 1,
        .T = (int)T,
        .V = (int)V,
        .dtype = b->dtype,
    };
    return b->status;
}

static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    size_t T = (size_t)dim[0] * dim[1], V = dim[2];
    *(pb_xent_fwd_args *)args = (pb_xent_fwd_args){
        .logits = pb_in_range(b, "logits", b->dtype, T * V, -8, 8),
        .target = pb_in_range(b, "target", PB_I32, T, 0, (double)V),
        .mask = bind_mask(b, T),
        .inv_count = pb_in_range(b, "inv_count", PB_F32, 1, 0.25, 0.5),
        .nll = pb_out(b, "nll", PB_F32, T),
        .loss = pb_out(b, "loss", PB_F32, 1),
        .T = (int)T,
        .V = (int)V,
        .dtype = b->dtype,
    };
    return b->status;
}

/* The cost assumes that no token is masked, because the mask is in device memory. An exponential counts as one
 * operation. */
static pb_cost fwd_cost(const void *args)
{
    const pb_xent_fwd_args *a = args;
    double n = (double)a->T * a->V, e = (double)pb_dtype_size(a->dtype);
    return (pb_cost){.flops = 4 * n, .bytes = n * e + 12.0 * a->T};
}

static pb_cost bwd_cost(const void *args)
{
    const pb_xent_bwd_args *a = args;
    double n = (double)a->T * a->V, e = (double)pb_dtype_size(a->dtype);
    return (pb_cost){.flops = 5 * n, .bytes = 2 * n * e + 12.0 * a->T};
}

const pb_op pb_op_xent_fwd = {
    .name = "xent_fwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_xent_fwd_args),
    .impls = PB_BOTH_BACKENDS(xent, fwd),
    .check = fwd_check,
    .bind = fwd_bind,
    .cost = fwd_cost,
    .tol = {[PB_F32] = 1e-6, [PB_BF16] = 1e-6}, /* outputs are f32 for both types */
};
const pb_op pb_op_xent_bwd = {
    .name = "xent_bwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_xent_bwd_args),
    .impls = PB_BOTH_BACKENDS(xent, bwd),
    .check = bwd_check,
    .bind = bwd_bind,
    .cost = bwd_cost,
    .tol = {[PB_F32] = 1e-6, [PB_BF16] = 4e-3},
    .grad_of = &pb_op_xent_fwd,
    .loss = "loss",
    .grad_tol = 4e-3, /* the loss is a sum rounded to f32 */
};
