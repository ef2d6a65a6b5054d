/* grouped_linear.c - grouped dense layers: the reference in double precision, and the pb_op descriptors of the three
 * ops. */
#include "kernels/grouped_linear/grouped_linear.h"

#include "kernels/grouped_linear/grouped_gemm.h"

/* ---- reference in double precision ---------------------------------------------------------- */

static const double worth_threads = 1 << 16; /* multiply-adds; smaller products run on one thread */

static pb_status fwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_grouped_linear_fwd_args *a = args;
    const size_t G = (size_t)a->G, N = (size_t)a->N, K = (size_t)a->K;
    (void)ctx;
#pragma omp parallel for if ((double)a->T * a->G * a->N * a->K > worth_threads)
    for (size_t r = 0; r < (size_t)a->T * G; r++)
        for (size_t n = 0; n < N; n++) {
            double sum = 0;
            for (size_t k = 0; k < K; k++)
                sum += pb_load(a->x, r * K + k, a->dtype) * pb_load(a->w, (r % G * N + n) * K + k, a->dtype);
            pb_store(a->y, r * N + n, a->dtype, sum);
        }
    return PB_OK;
}

static pb_status dx_ref(pb_ctx *ctx, const void *args)
{
    const pb_grouped_linear_dx_args *a = args;
    const size_t G = (size_t)a->G, N = (size_t)a->N, K = (size_t)a->K;
    (void)ctx;
#pragma omp parallel for if ((double)a->T * a->G * a->N * a->K > worth_threads)
    for (size_t r = 0; r < (size_t)a->T * G; r++)
        for (size_t k = 0; k < K; k++) {
            double sum = a->accumulate ? pb_load(a->dx, r * K + k, a->dtype) : 0;
            for (size_t n = 0; n < N; n++)
                sum += pb_load(a->dy, r * N + n, a->dtype) * pb_load(a->w, (r % G * N + n) * K + k, a->dtype);
            pb_store(a->dx, r * K + k, a->dtype, sum);
        }
    return PB_OK;
}

static pb_status dw_ref(pb_ctx *ctx, const void *args)
{
    const pb_grouped_linear_dw_args *a = args;
    const size_t G = (size_t)a->G, N = (size_t)a->N, K = (size_t)a->K;
    (void)ctx;
#pragma omp parallel for if ((double)a->T * a->G * a->N * a->K > worth_threads)
    for (size_t i = 0; i < G * N; i++)
        for (size_t k = 0; k < K; k++) {
            double sum = a->accumulate ? (double)a->dw[i * K + k] : 0;
            for (size_t t = 0; t < (size_t)a->T; t++)
                sum += pb_load(a->dy, t * G * N + i, a->dtype) * pb_load(a->x, (t * G + i / N) * K + k, a->dtype);
            a->dw[i * K + k] = (float)sum;
        }
    return PB_OK;
}

/* ---- CPU implementations, best first, and the workspace that each needs ---------------------- */

PB_FAST_DECLARE(pb_grouped_linear_fwd)
PB_FAST_DECLARE(pb_grouped_linear_dx)
PB_FAST_DECLARE(pb_grouped_linear_dw)

static size_t fwd_workspace(const void *args)
{
    pb_gemm_batch batch;
    const pb_gemm g = pb_grouped_fwd_gemm(args, &batch);
    return pb_gemm_workspace(&g);
}

static size_t dx_workspace(const void *args)
{
    pb_gemm_batch batch;
    const pb_gemm g = pb_grouped_dx_gemm(args, &batch);
    return pb_gemm_workspace(&g);
}

static size_t dw_workspace(const void *args)
{
    pb_gemm_batch batch;
    const pb_gemm g = pb_grouped_dw_gemm(args, &batch);
    return pb_gemm_workspace(&g);
}

#define IMPLS(p)                                                                                                       \
    {                                                                                                                  \
        PB_FAST_IMPLS(pb_grouped_linear_##p, .workspace = p##_workspace){"ref", p##_ref}, { 0 }                        \
    }
const pb_impl pb_grouped_linear_fwd_cpu[] = IMPLS(fwd);
const pb_impl pb_grouped_linear_dx_cpu[] = IMPLS(dx);
const pb_impl pb_grouped_linear_dw_cpu[] = IMPLS(dw);

/* ---- op descriptors (pb_op): shapes, argument checks, inputs, costs --------------------------- */

/* Axes of the shapes below: there are T = B*S tokens; a = 1: dx and dw are added to (accumulate). */
static const char axes[] = "BSGNKa";
static const pb_dims edge[] = {
    {2, 3, 3, 5, 7},        {1, 1, 1, 1, 1},     {2, 33, 2, 47, 65},   {1, 40, 4, 16, 600, 1}, {1, 40, 2, 600, 16, 1},
    {1, 600, 2, 33, 16, 1}, {2, 50, 8, 96, 136}, {1, 17, 5, 64, 2100}, {2, 64, 2, 128, 64, 1}, {0},
};
static const pb_dims grid[] = {{1, 256, 8, 1024, 4096}, {1, 1024, 4, 128, 256}, {0}};
static const pb_dims device_grid[] = {{1, 4096, 8, 1024, 4096}, {0}};

static pb_status check(const char *op, int T, const int *sizes, const void *x, const void *y, const void *z)
{
    if (T < 0 || sizes[0] < 1 || sizes[1] < 1 || sizes[2] < 1)
        return pb_fail(PB_EINVAL, "%s: T=%d G=%d N=%d K=%d, need T >= 0 and G, N, K >= 1", op, T, sizes[0], sizes[1],
                       sizes[2]);
    return x && y && z ? PB_OK : pb_fail(PB_EINVAL, "%s: a tensor is NULL", op);
}

static pb_status fwd_check(const void *args)
{
    const pb_grouped_linear_fwd_args *a = args;
    return check("grouped_linear", a->T, (const int[]){a->G, a->N, a->K}, a->x, a->w, a->y);
}

static pb_status dx_check(const void *args)
{
    const pb_grouped_linear_dx_args *a = args;
    return check("grouped_linear_dx", a->T, (const int[]){a->G, a->N, a->K}, a->dy, a->w, a->dx);
}

static pb_status dw_check(const void *args)
{
    const pb_grouped_linear_dw_args *a = args;
    return check("grouped_linear_dw", a->T, (const int[]){a->G, a->N, a->K}, a->dy, a->x, a->dw);
}

static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t T = (size_t)dim[0] * dim[1], GN = (size_t)dim[2] * dim[3], K = (size_t)dim[4];
    *(pb_grouped_linear_fwd_args *)args = (pb_grouped_linear_fwd_args){
        .x = pb_in(b, "x", b->dtype, T * dim[2] * K),
        .w = pb_in(b, "w", b->dtype, GN * K),
        .y = pb_out(b, "y", b->dtype, T * GN),
        .T = (int)T,
        .G = dim[2],
        .N = dim[3],
        .K = dim[4],
        .dtype = b->dtype,
    };
    return b->status;
}

static pb_status dx_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t T = (size_t)dim[0] * dim[1], GN = (size_t)dim[2] * dim[3], K = (size_t)dim[4], n = T * dim[2] * K;
    *(pb_grouped_linear_dx_args *)args = (pb_grouped_linear_dx_args){
        .dy = pb_in(b, "dy", b->dtype, T * GN),
        .w = pb_in(b, "w", b->dtype, GN * K),
        .dx = dim[5] ? pb_inout(b, "dx", b->dtype, n, -1, 1) : pb_out(b, "dx", b->dtype, n),
        .T = (int)T,
        .G = dim[2],
        .N = dim[3],
        .K = dim[4],
        .accumulate = dim[5],
        .dtype = b->dtype,
    };
    return b->status;
}

static pb_status dw_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t T = (size_t)dim[0] * dim[1], GN = (size_t)dim[2] * dim[3], K = (size_t)dim[4];
    *(pb_grouped_linear_dw_args *)args = (pb_grouped_linear_dw_args){
        .dy = pb_in(b, "dy", b->dtype, T * GN),
        .x = pb_in(b, "x", b->dtype, T * dim[2] * K),
        .dw = dim[5] ? pb_inout(b, "dw", PB_F32, GN * K, -1, 1) : pb_out(b, "dw", PB_F32, GN * K),
        .T = (int)T,
        .G = dim[2],
        .N = dim[3],
        .K = dim[4],
        .accumulate = dim[5],
        .dtype = b->dtype,
    };
    return b->status;
}

/* Least memory traffic: in_bytes are read; out_bytes are written, and also read when accumulating. */
static pb_cost cost(double T, double G, double N, double K, double in_bytes, double out_bytes, bool accumulate)
{
    return (pb_cost){.flops = 2 * T * G * N * K, .bytes = in_bytes + (accumulate ? 2 : 1) * out_bytes};
}

static pb_cost fwd_cost(const void *args)
{
    const pb_grouped_linear_fwd_args *a = args;
    const double T = a->T, G = a->G, N = a->N, K = a->K, e = (double)pb_dtype_size(a->dtype);
    return cost(T, G, N, K, e * G * (T * K + N * K), e * G * T * N, false);
}

static pb_cost dx_cost(const void *args)
{
    const pb_grouped_linear_dx_args *a = args;
    const double T = a->T, G = a->G, N = a->N, K = a->K, e = (double)pb_dtype_size(a->dtype);
    return cost(T, G, N, K, e * G * (T * N + N * K), e * G * T * K, a->accumulate);
}

static pb_cost dw_cost(const void *args)
{
    const pb_grouped_linear_dw_args *a = args;
    const double T = a->T, G = a->G, N = a->N, K = a->K, e = (double)pb_dtype_size(a->dtype);
    return cost(T, G, N, K, e * G * (T * N + T * K), 4 * G * N * K, a->accumulate);
}

#define OP_OF(p, ...)                                                                                                  \
    const pb_op pb_op_grouped_linear_##p = {.name = "grouped_linear_" #p,                                              \
                                            .axes = axes,                                                              \
                                            .edge = edge,                                                              \
                                            .grid = grid,                                                              \
                                            .device_grid = device_grid,                                                \
                                            .args_size = sizeof(pb_grouped_linear_##p##_args),                         \
                                            .impls = PB_BOTH_BACKENDS(grouped_linear, p),                              \
                                            .check = p##_check,                                                        \
                                            .bind = p##_bind,                                                          \
                                            .cost = p##_cost,                                                          \
                                            .tol = {[PB_F32] = 1e-6, [PB_BF16] = 4e-3},                                \
                                            __VA_ARGS__}

OP_OF(fwd, .grad_of = NULL);
OP_OF(dx, .grad_of = &pb_op_grouped_linear_fwd);
OP_OF(dw, .grad_of = &pb_op_grouped_linear_fwd);
