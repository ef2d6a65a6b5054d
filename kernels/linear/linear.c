/* linear.c - a dense layer: the reference in double precision, OpenBLAS for f32, and the pb_op descriptors of the three
 * ops. */
#include "kernels/linear/linear.h"

#include <cblas.h>
#include <string.h>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/rows.h"
#include "kernels/linear/linear_gemm.h"

/* ---- reference in double precision ---------------------------------------------------------- */

static const double worth_threads = 1 << 16; /* multiply-adds; smaller products run on one thread */

static pb_status fwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_linear_fwd_args *a = args;
    const size_t N = (size_t)a->N, K = (size_t)a->K;
    (void)ctx;
#pragma omp parallel for if ((double)a->T * a->N * a->K > worth_threads)
    for (int t = 0; t < a->T; t++)
        for (size_t n = 0; n < N; n++) {
            double sum = a->bias ? (double)a->bias[n] : 0;
            for (size_t k = 0; k < K; k++)
                sum += pb_load(a->x, t * K + k, a->dtype) * pb_load(a->w, n * K + k, a->dtype);
            pb_store(a->y, t * N + n, a->dtype, sum);
        }
    return PB_OK;
}

static pb_status dx_ref(pb_ctx *ctx, const void *args)
{
    const pb_linear_dx_args *a = args;
    const size_t N = (size_t)a->N, K = (size_t)a->K;
    (void)ctx;
#pragma omp parallel for if ((double)a->T * a->N * a->K > worth_threads)
    for (int t = 0; t < a->T; t++)
        for (size_t k = 0; k < K; k++) {
            double sum = a->accumulate ? pb_load(a->dx, t * K + k, a->dtype) : 0;
            for (size_t n = 0; n < N; n++)
                sum += pb_load(a->dy, t * N + n, a->dtype) * pb_load(a->w, n * K + k, a->dtype);
            pb_store(a->dx, t * K + k, a->dtype, sum);
        }
    return PB_OK;
}

static pb_status dw_ref(pb_ctx *ctx, const void *args)
{
    const pb_linear_dw_args *a = args;
    const size_t N = (size_t)a->N, K = (size_t)a->K;
    (void)ctx;
#pragma omp parallel for if ((double)a->T * a->N * a->K > worth_threads)
    for (size_t n = 0; n < N; n++) {
        for (size_t k = 0; k < K; k++) {
            double sum = a->accumulate ? pb_load(a->dw, n * K + k, a->dw_dtype) : 0;
            for (int t = 0; t < a->T; t++)
                sum += pb_load(a->dy, t * N + n, a->dtype) * pb_load(a->x, t * K + k, a->dtype);
            pb_store(a->dw, n * K + k, a->dw_dtype, sum);
        }
        double sum = a->accumulate && a->dbias ? (double)a->dbias[n] : 0;
        for (int t = 0; t < a->T; t++) sum += pb_load(a->dy, t * N + n, a->dtype);
        if (a->dbias) a->dbias[n] = (float)sum;
    }
    return PB_OK;
}

/* ---- the implementation "blas": OpenBLAS, f32 only --------------------------------------------- */

/* Calls OpenBLAS for a product that is described as pb_gemm (cpu/gemm.h). If g has a bias, the caller must have copied
 * it into C; the product is then added to it. */
static void sgemm(const pb_gemm *g)
{
    if (g->M == 0 || g->N == 0) return;
    cblas_sgemm(CblasRowMajor, g->a.trans ? CblasTrans : CblasNoTrans, g->b.trans ? CblasTrans : CblasNoTrans, g->M,
                g->N, g->K, g->alpha, g->a.p, (int)g->a.ld, g->b.p, (int)g->b.ld,
                g->accumulate || g->bias ? 1.0f : 0.0f, g->c, (int)g->ldc);
}

static pb_status fwd_blas(pb_ctx *ctx, const void *args)
{
    const pb_linear_fwd_args *a = args;
    const pb_gemm g = pb_linear_fwd_gemm(a);
    (void)ctx;
    for (int t = 0; a->bias && t < a->T; t++) memcpy((float *)a->y + t * g.ldc, a->bias, g.ldc * sizeof(float));
    sgemm(&g);
    return PB_OK;
}

static pb_status dx_blas(pb_ctx *ctx, const void *args)
{
    const pb_gemm g = pb_linear_dx_gemm(args);
    (void)ctx;
    sgemm(&g);
    return PB_OK;
}

static pb_status dw_blas(pb_ctx *ctx, const void *args)
{
    const pb_linear_dw_args *a = args;
    const pb_gemm g = pb_linear_dw_gemm(a);
    const float *dy = a->dy;
    (void)ctx;
    sgemm(&g);
    if (a->dbias && !a->accumulate) memset(a->dbias, 0, (size_t)a->N * sizeof(float));
    for (int t = 0; a->dbias && t < a->T; t++) cblas_saxpy(a->N, 1, dy + (size_t)t * a->N, 1, a->dbias, 1);
    return PB_OK;
}

static bool fwd_f32(const void *args) { return ((const pb_linear_fwd_args *)args)->dtype == PB_F32; }
static bool dx_f32(const void *args) { return ((const pb_linear_dx_args *)args)->dtype == PB_F32; }
static bool dw_f32(const void *args)
{
    const pb_linear_dw_args *a = args;
    return a->dtype == PB_F32 && a->dw_dtype == PB_F32;
}

/* ---- CPU implementations, best first, and the workspace that each needs ---------------------- */

PB_FAST_DECLARE(pb_linear_fwd)
PB_FAST_DECLARE(pb_linear_dx)
PB_FAST_DECLARE(pb_linear_dw)

static size_t fwd_workspace(const void *args)
{
    const pb_gemm g = pb_linear_fwd_gemm(args);
    return pb_gemm_workspace(&g);
}

static size_t dx_workspace(const void *args)
{
    const pb_gemm g = pb_linear_dx_gemm(args);
    return pb_gemm_workspace(&g);
}

static size_t dw_workspace(const void *args)
{
    const pb_linear_dw_args *a = args;
    const pb_gemm g = pb_linear_dw_gemm(a);
    const size_t product = pb_gemm_workspace(&g), sums = a->dbias ? pb_dw_workspace((size_t)a->T, a->N) : 0;
    return product > sums ? product : sums;
}

/* In the list of implementations, OpenBLAS comes before `omp` only. The SIMD implementations are as fast, also take
 * bf16, and give the same bits for every number of threads. */
#define BEFORE_avx512(p)
#define BEFORE_avx2(p)
#define BEFORE_omp(p)      {"blas", p##_blas, .accepts = p##_f32},
#define ENTRY(isa, has, p) BEFORE_##isa(p) PB_FAST_ENTRY(isa, has, pb_linear_##p, .workspace = p##_workspace)
#define IMPLS(p)                                                                                                       \
    {                                                                                                                  \
        PB_ISA_MAP(ENTRY, p){"ref", p##_ref}, { 0 }                                                                    \
    }
const pb_impl pb_linear_fwd_cpu[] = IMPLS(fwd);
const pb_impl pb_linear_dx_cpu[] = IMPLS(dx);
const pb_impl pb_linear_dw_cpu[] = IMPLS(dw);

/* ---- op descriptors (pb_op): shapes, argument checks, inputs, costs --------------------------- */

/* Axes of the shapes below: there are T = B*S tokens; b = 1: with a bias (fwd, dw); a = 1: accumulate (dx, dw); w = 1:
 * the tensor dw has the type of the other tensors instead of f32 (op dw). The summed dimension is K in fwd, N in dx and
 * T in dw; each of them is large in some shape. */
static const char axes[] = "BSNKba", dw_rare[] = "w";
static const pb_dims edge[] = {
    {2, 3, 5, 7},
    {1, 1, 1, 1},
    {2, 33, 47, 65},
    {1, 40, 16, 1030, 1},
    {1, 40, 1030, 16, 0, 1},
    {1, 600, 33, 16, 1, 1},
    {2, 45, 130, 70, 1, 0},
    {1, 65, 1, 9, 1, 1},
    {2, 50, 96, 136, 1, 1}, /* all dimensions are multiples of the vector length */
    {1, 20, 48, 96},        /* so few rows that every instruction set reads W in place, without packing */
    {2, 33, 47, 66, 1, 0, 1},
    {1, 600, 34, 16, 0, 1, 1},
    {0},
};
/* Shapes of smollm2-135m (256 and 2048 tokens, and decoding with 1 and 16), qwen2.5-0.5b and qwen2.5-1.5b. The layers
 * are: fused q, k and v; fused gate and up; down; the output head. */
static const pb_dims grid[] = {
    {1, 256, 960, 576},     {1, 256, 3072, 576},  {1, 256, 576, 1536}, {1, 256, 49152, 576},
    {1, 2048, 960, 576},    {1, 2048, 3072, 576}, {1, 1, 3072, 576},   {1, 16, 3072, 576},
    {1, 256, 1152, 896, 1}, {1, 256, 9728, 896},  {1, 256, 896, 4864}, {1, 256, 2048, 1536, 1},
    {1, 256, 17920, 1536},  {1, 256, 1536, 8960}, {1, 64, 192, 192},   {0},
};
static const pb_dims device_grid[] = {{4, 512, 2048, 1536, 1}, {4, 512, 17920, 1536}, {4, 512, 1536, 8960},
                                      {4, 512, 151936, 1536},  {2, 4096, 8192, 8192}, {0}};

static pb_status sizes_ok(const char *op, int T, int N, int K)
{
    if (T < 0 || N < 1 || K < 1)
        return pb_fail(PB_EINVAL, "%s: T=%d N=%d K=%d, need T >= 0 and N, K >= 1", op, T, N, K);
    return PB_OK;
}

static pb_status given(const char *op, const void *x, const void *y, const void *z)
{
    if (!x || !y || !z) return pb_fail(PB_EINVAL, "%s: a tensor is NULL", op);
    return PB_OK;
}

static pb_status fwd_check(const void *args)
{
    const pb_linear_fwd_args *a = args;
    PB_TRY(sizes_ok("linear", a->T, a->N, a->K));
    return a->T ? given("linear", a->x, a->w, a->y) : PB_OK;
}

static pb_status dx_check(const void *args)
{
    const pb_linear_dx_args *a = args;
    PB_TRY(sizes_ok("linear_dx", a->T, a->N, a->K));
    return a->T ? given("linear_dx", a->dy, a->w, a->dx) : PB_OK;
}

static pb_status dw_check(const void *args)
{
    const pb_linear_dw_args *a = args;
    PB_TRY(sizes_ok("linear_dw", a->T, a->N, a->K));
    if (a->dw_dtype != PB_F32 && a->dw_dtype != PB_BF16) return pb_fail(PB_EINVAL, "linear_dw: dw must be f32 or bf16");
    return given("linear_dw", a->T ? a->dy : a->dw, a->T ? a->x : a->dw, a->dw);
}

static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t T = (size_t)dim[0] * dim[1], N = (size_t)dim[2], K = (size_t)dim[3];
    *(pb_linear_fwd_args *)args = (pb_linear_fwd_args){
        .x = pb_in(b, "x", b->dtype, T * K),
        .w = pb_in(b, "w", b->dtype, N * K),
        .bias = dim[4] ? pb_in(b, "bias", PB_F32, N) : NULL,
        .y = pb_out(b, "y", b->dtype, T * N),
        .T = (int)T,
        .N = dim[2],
        .K = dim[3],
        .dtype = b->dtype,
    };
    return b->status;
}

static pb_status dx_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t T = (size_t)dim[0] * dim[1], N = (size_t)dim[2], K = (size_t)dim[3];
    *(pb_linear_dx_args *)args = (pb_linear_dx_args){
        .dy = pb_in(b, "dy", b->dtype, T * N),
        .w = pb_in(b, "w", b->dtype, N * K),
        .dx = dim[5] ? pb_inout(b, "dx", b->dtype, T * K, -1, 1) : pb_out(b, "dx", b->dtype, T * K),
        .T = (int)T,
        .N = dim[2],
        .K = dim[3],
        .accumulate = dim[5],
        .dtype = b->dtype,
    };
    return b->status;
}

static void *gradient(pb_binder *b, const char *name, pb_dtype dtype, size_t n, int accumulate)
{
    return accumulate ? pb_inout(b, name, dtype, n, -1, 1) : pb_out(b, name, dtype, n);
}

static pb_status dw_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t T = (size_t)dim[0] * dim[1], N = (size_t)dim[2], K = (size_t)dim[3];
    const pb_dtype dw_dtype = dim[6] ? b->dtype : PB_F32;
    *(pb_linear_dw_args *)args = (pb_linear_dw_args){
        .dy = pb_in(b, "dy", b->dtype, T * N),
        .x = pb_in(b, "x", b->dtype, T * K),
        .dw = gradient(b, "dw", dw_dtype, N * K, dim[5]),
        .dbias = dim[4] ? gradient(b, "dbias", PB_F32, N, dim[5]) : NULL,
        .T = (int)T,
        .N = dim[2],
        .K = dim[3],
        .accumulate = dim[5],
        .dtype = b->dtype,
        .dw_dtype = dw_dtype,
    };
    return b->status;
}

/* Every tensor is read or written once. A tensor that is accumulated into is read and written. */
static pb_cost fwd_cost(const void *args)
{
    const pb_linear_fwd_args *a = args;
    const double T = a->T, N = a->N, K = a->K, e = (double)pb_dtype_size(a->dtype);
    return (pb_cost){.flops = 2 * T * N * K, .bytes = e * (T * K + N * K + T * N) + (a->bias ? 4 * N : 0)};
}

static pb_cost dx_cost(const void *args)
{
    const pb_linear_dx_args *a = args;
    const double T = a->T, N = a->N, K = a->K, e = (double)pb_dtype_size(a->dtype);
    return (pb_cost){.flops = 2 * T * N * K, .bytes = e * (T * N + N * K + (a->accumulate ? 2 : 1) * T * K)};
}

static pb_cost dw_cost(const void *args)
{
    const pb_linear_dw_args *a = args;
    const double T = a->T, N = a->N, K = a->K, e = (double)pb_dtype_size(a->dtype);
    const double w = (double)pb_dtype_size(a->dw_dtype);
    return (pb_cost){.flops = 2 * T * N * K + (a->dbias ? T * N : 0),
                     .bytes = e * (T * N + T * K) + (a->accumulate ? 2 : 1) * (w * N * K + (a->dbias ? 4 * N : 0))};
}

const pb_op pb_op_linear_fwd = {
    .name = "linear_fwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_linear_fwd_args),
    .impls = PB_BOTH_BACKENDS(linear, fwd),
    .check = fwd_check,
    .bind = fwd_bind,
    .cost = fwd_cost,
    .tol = {[PB_F32] = 1e-6, [PB_BF16] = 4e-3},
};
const pb_op pb_op_linear_dx = {
    .name = "linear_dx",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_linear_dx_args),
    .impls = PB_BOTH_BACKENDS(linear, dx),
    .check = dx_check,
    .bind = dx_bind,
    .cost = dx_cost,
    .tol = {[PB_F32] = 1e-6, [PB_BF16] = 4e-3},
    .grad_of = &pb_op_linear_fwd,
};
const pb_op pb_op_linear_dw = {
    .name = "linear_dw",
    .axes = axes,
    .rare = dw_rare,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_linear_dw_args),
    .impls = PB_BOTH_BACKENDS(linear, dw),
    .check = dw_check,
    .bind = dw_bind,
    .cost = dw_cost,
    .tol = {[PB_F32] = 1e-6, [PB_BF16] = 4e-3},
    .grad_of = &pb_op_linear_fwd,
};
