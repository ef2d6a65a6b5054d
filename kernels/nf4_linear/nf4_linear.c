/* nf4_linear.c - a layer with a frozen NF4 weight: the reference, and the pb_op descriptors of both ops. */
#include "kernels/nf4_linear/nf4_linear.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/nf4_decode.h"
#include "kernels/nf4/nf4.h"
#include "kernels/nf4_linear/nf4_linear_gemm.h"

/* ---- reference in double precision -------------------------------------------------------------- */

static pb_status fwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_nf4_linear_fwd_args *a = args;
    (void)ctx;
    for (size_t t = 0; t < (size_t)a->T; t++)
        for (size_t n = 0; n < (size_t)a->N; n++) {
            double sum = a->bias ? (double)a->bias[n] : 0;
            for (size_t k = 0; k < (size_t)a->K; k++)
                sum += pb_load(a->x, t * a->K + k, a->dtype) * (double)pb_nf4_value(a->q, &a->scales, n * a->K + k);
            pb_store(a->y, t * a->N + n, a->dtype, sum);
        }
    return PB_OK;
}

static pb_status dx_ref(pb_ctx *ctx, const void *args)
{
    const pb_nf4_linear_dx_args *a = args;
    (void)ctx;
    for (size_t t = 0; t < (size_t)a->T; t++)
        for (size_t k = 0; k < (size_t)a->K; k++) {
            double sum = a->accumulate ? pb_load(a->dx, t * a->K + k, a->dtype) : 0;
            for (size_t n = 0; n < (size_t)a->N; n++)
                sum += pb_load(a->dy, t * a->N + n, a->dtype) * (double)pb_nf4_value(a->q, &a->scales, n * a->K + k);
            pb_store(a->dx, t * a->K + k, a->dtype, sum);
        }
    return PB_OK;
}

/* ---- CPU implementations, best first, and the workspace that each needs -------------------------- */

PB_FAST_DECLARE(pb_nf4_linear_fwd)
PB_FAST_DECLARE(pb_nf4_linear_dx)

static size_t fwd_workspace(const void *args)
{
    const pb_gemm g = pb_nf4_linear_fwd_gemm(args);
    return pb_gemm_workspace(&g);
}

static size_t dx_workspace(const void *args)
{
    const pb_gemm g = pb_nf4_linear_dx_gemm(args);
    return pb_gemm_workspace(&g);
}

const pb_impl pb_nf4_linear_fwd_cpu[] = {PB_FAST_IMPLS(pb_nf4_linear_fwd, .workspace = fwd_workspace){"ref", fwd_ref},
                                         {0}};
const pb_impl pb_nf4_linear_dx_cpu[] = {PB_FAST_IMPLS(pb_nf4_linear_dx, .workspace = dx_workspace){"ref", dx_ref}, {0}};

/* ---- op descriptors (pb_op): shapes, argument checks, inputs, costs ------------------------------ */

/* Axes of the shapes below: b: quantisation block; q = 1: double quantisation; f = 1: with a bias (fwd); a = 1:
 * accumulate (dx). */
static const char axes[] = "BSNKbqfa";
static const pb_dims edge[] = {
    {1, 5, 19, 46, 32, 1, 1, 0},    /* K is not a multiple of the block, so rows start inside a block */
    {1, 5, 19, 45, 32, 1, 1, 0},    /* K is odd, so rows start inside a byte */
    {2, 3, 33, 64, 64, 0, 0, 1},    /* one block per row */
    {1, 7, 6, 50, 4096, 0, 1, 1},   /* the whole weight is less than one block */
    {1, 1, 1, 1, 32, 1, 0, 0},      /* a single element */
    {1, 4, 90, 1024, 64, 1, 0, 0},  /* few tokens, enough work for several threads */
    {2, 9, 70, 130, 64, 1, 0, 0},   /* blocks span rows; partial panels in every dimension */
    {1, 40, 520, 96, 128, 1, 1, 1}, /* many panels of N */
    {1, 3, 48, 700, 512, 0, 0, 0},  /* K exceeds one block of the matrix product */
    {1, 70, 64, 256, 32, 0, 1, 1},  /* several blocks per row, several threads */
    {1, 1, 19, 264, 64, 1, 1, 0},   /* this and the next shapes are for `fused`: up to 16 tokens, K % 8 == 0 */
    {1, 2, 9, 512, 128, 0, 0, 1},
    {1, 13, 30, 40, 64, 1, 0, 0},
    {1, 16, 8451, 16, 32, 1, 1, 0}, /* N so large that a warp of `fused` owns 4 rows */
    /* Shapes for the tensor-core kernels, with K a multiple of 32: partial tiles in every dimension, one to three tiles
     * of tokens, long sums. */
    {1, 40, 72, 96, 32, 1, 1, 0},
    {2, 35, 200, 256, 64, 0, 0, 1},
    {1, 300, 136, 640, 64, 1, 1, 1},
    {1, 17, 16, 6208, 64, 1, 1, 0},
    {1, 18, 6208, 32, 32, 0, 0, 1},
    {1, 130, 40, 2592, 64, 1, 0, 0},
    {1, 130, 1800, 64, 128, 1, 0, 1},
    {1, 33, 128, 512, 4096, 1, 0, 0},
    {1, 2, 2080, 2080, 64, 1, 0, 1},   /* 17 tiles of features, processed in pairs: the last pair has one tile */
    {1, 100, 264, 192, 32, 1, 1, 1},   /* three shares of the terms in both passes, pairs, 65 to 128 tokens */
    {1, 97, 136, 2848, 64, 1, 0, 0},   /* forward: more steps per share than stages; the last step has 32 terms */
    {1, 66, 2904, 96, 32, 0, 0, 0},    /* the same in dx, with 24 terms in the last step */
    {1, 17, 11392, 1152, 64, 1, 0, 0}, /* pairs with more steps per share than stages */
    {0},
};
static const pb_dims grid[] = {{1, 256, 576, 576, 64, 1, 0, 0},  {1, 256, 1536, 576, 64, 1, 0, 0},
                               {1, 256, 896, 4864, 64, 1, 0, 0}, {1, 64, 1536, 1536, 64, 1, 1, 0},
                               {1, 64, 8960, 1536, 64, 1, 0, 0}, {1, 64, 1536, 8960, 64, 1, 0, 0},
                               {1, 1, 8960, 1536, 64, 1, 0, 0},  {1, 256, 8960, 1536, 64, 0, 0, 0},
                               {1, 16, 192, 192, 64, 1, 0, 0},   {0}};
/* The layers of qwen2.5-1.5b and 0.5b from few to many tokens, to find the token count from which dequantising W first
 * is faster than decoding it inside the product. */
static const pb_dims device_grid[] = {
    {1, 32, 17920, 1536, 64, 0, 0, 0},  {1, 64, 17920, 1536, 64, 0, 0, 0},  {1, 128, 17920, 1536, 64, 0, 0, 0},
    {1, 128, 2048, 1536, 64, 0, 0, 0},  {1, 128, 1536, 1536, 64, 0, 0, 0},  {1, 128, 1536, 8960, 64, 0, 0, 0},
    {1, 256, 2048, 1536, 64, 0, 0, 0},  {1, 256, 17920, 1536, 64, 0, 0, 0}, {1, 512, 17920, 1536, 64, 0, 0, 0},
    {1, 512, 1152, 896, 64, 0, 0, 0},   {1, 512, 9728, 896, 64, 0, 0, 0},   {1, 512, 896, 4864, 64, 0, 0, 0},
    {4, 512, 17920, 1536, 64, 0, 0, 0}, {4, 512, 1536, 8960, 64, 0, 0, 0},  {0}};

static pb_status check_shape(const char *op, int T, int N, int K, const pb_nf4_scales *s)
{
    if (T < 0 || N < 1 || K < 1)
        return pb_fail(PB_EINVAL, "%s: T=%d N=%d K=%d, need T >= 0 and N, K >= 1", op, T, N, K);
    return pb_nf4_check_scales(op, s);
}

static pb_status fwd_check(const void *args)
{
    const pb_nf4_linear_fwd_args *a = args;
    if (a->T && (!a->x || !a->q || !a->y)) return pb_fail(PB_EINVAL, "nf4_linear_fwd: x, q or y is NULL");
    return check_shape("nf4_linear_fwd", a->T, a->N, a->K, &a->scales);
}

static pb_status dx_check(const void *args)
{
    const pb_nf4_linear_dx_args *a = args;
    if (a->T && (!a->dy || !a->q || !a->dx)) return pb_fail(PB_EINVAL, "nf4_linear_dx: dy, q or dx is NULL");
    return check_shape("nf4_linear_dx", a->T, a->N, a->K, &a->scales);
}

static const uint8_t *bind_codes(pb_binder *b, size_t n) { return pb_in_range(b, "q", PB_U8, (n + 1) / 2, 0, 256); }

static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t T = (size_t)dim[0] * dim[1], N = (size_t)dim[2], K = (size_t)dim[3];
    *(pb_nf4_linear_fwd_args *)args = (pb_nf4_linear_fwd_args){
        .x = pb_in(b, "x", b->dtype, T * K),
        .q = bind_codes(b, N * K),
        .scales = pb_nf4_bind_scales(b, N * K, dim[4], dim[5]),
        .bias = dim[6] ? pb_in(b, "bias", PB_F32, N) : NULL,
        .y = pb_out(b, "y", b->dtype, T * N),
        .T = (int)T,
        .N = (int)N,
        .K = (int)K,
        .dtype = b->dtype,
    };
    return b->status;
}

static pb_status dx_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t T = (size_t)dim[0] * dim[1], N = (size_t)dim[2], K = (size_t)dim[3];
    *(pb_nf4_linear_dx_args *)args = (pb_nf4_linear_dx_args){
        .dy = pb_in(b, "dy", b->dtype, T * N),
        .q = bind_codes(b, N * K),
        .scales = pb_nf4_bind_scales(b, N * K, dim[4], dim[5]),
        .dx = dim[7] ? pb_inout(b, "dx", b->dtype, T * K, -1, 1) : pb_out(b, "dx", b->dtype, T * K),
        .T = (int)T,
        .N = (int)N,
        .K = (int)K,
        .accumulate = dim[7],
        .dtype = b->dtype,
    };
    return b->status;
}

/* Least memory traffic of the weight: its codes and scales are read once. */
static double weight_bytes(const pb_nf4_scales *s, double n) { return n / 2 + pb_nf4_scale_bytes(s, (size_t)n); }

static pb_cost fwd_cost(const void *args)
{
    const pb_nf4_linear_fwd_args *a = args;
    const double T = a->T, N = a->N, K = a->K, e = (double)pb_dtype_size(a->dtype);
    return (pb_cost){.flops = 2 * T * N * K,
                     .bytes = T * (N + K) * e + weight_bytes(&a->scales, N * K) + (a->bias ? 4 * N : 0)};
}

static pb_cost dx_cost(const void *args)
{
    const pb_nf4_linear_dx_args *a = args;
    const double T = a->T, N = a->N, K = a->K, e = (double)pb_dtype_size(a->dtype);
    return (pb_cost){.flops = 2 * T * N * K,
                     .bytes = T * (N + (a->accumulate ? 2 : 1) * K) * e + weight_bytes(&a->scales, N * K)};
}

const pb_op pb_op_nf4_linear_fwd = {
    .name = "nf4_linear_fwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_nf4_linear_fwd_args),
    .impls = PB_BOTH_BACKENDS(nf4_linear, fwd),
    .check = fwd_check,
    .bind = fwd_bind,
    .cost = fwd_cost,
    .tol = {[PB_F32] = 1e-6, [PB_BF16] = 4e-3},
};
const pb_op pb_op_nf4_linear_dx = {
    .name = "nf4_linear_dx",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_nf4_linear_dx_args),
    .impls = PB_BOTH_BACKENDS(nf4_linear, dx),
    .check = dx_check,
    .bind = dx_bind,
    .cost = dx_cost,
    .tol = {[PB_F32] = 1e-6, [PB_BF16] = 4e-3},
    .grad_of = &pb_op_nf4_linear_fwd,
};
