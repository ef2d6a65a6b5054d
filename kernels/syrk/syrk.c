/* syrk.c - the symmetric product: the reference in double precision, and the op's pb_op descriptor. */
#include "kernels/syrk/syrk.h"

#include "kernels/cpu/cpu.h"
#include "kernels/syrk/syrk_gemm.h"

/* ---- reference in double precision ---------------------------------------------------------- */

static double element(const pb_syrk_product_args *a, size_t b, size_t i, size_t j)
{
    const size_t M = (size_t)a->M, K = (size_t)a->K, at = b * M * K;
    double sum = 0;
    for (size_t k = 0; k < K; k++)
        sum += pb_load(a->x, at + (a->trans ? k * M + i : i * K + k), a->dtype) *
               pb_load(a->x, at + (a->trans ? k * M + j : j * K + k), a->dtype);
    sum *= (double)a->alpha;
    return a->add ? sum + (double)a->beta * pb_load(a->add, (b * M + i) * M + j, a->c_dtype) : sum;
}

static pb_status product_ref(pb_ctx *ctx, const void *args)
{
    const pb_syrk_product_args *a = args;
    const size_t M = (size_t)a->M;
    (void)ctx;
    for (size_t b = 0; b < (size_t)a->n; b++)
        for (size_t i = 0; i < M; i++)
            for (size_t j = 0; j <= i; j++) {
                const double x = element(a, b, i, j);
                pb_store(a->c, (b * M + i) * M + j, a->c_dtype, x);
                pb_store(a->c, (b * M + j) * M + i, a->c_dtype, x);
            }
    return PB_OK;
}

/* ---- CPU implementations, best first, and the workspace that each needs ---------------------- */

PB_FAST_DECLARE(pb_syrk_product)

static size_t product_workspace(const void *args) { return pb_syrk_workspace(args); }

const pb_impl pb_syrk_product_cpu[] = {
    PB_FAST_IMPLS(pb_syrk_product, .workspace = product_workspace){"ref", product_ref}, {0}};

/* ---- op descriptor (pb_op): shapes, argument checks, inputs, costs ---------------------------- */

/* Axes of the shapes below:
 *     N     number of matrices
 *     M     rows of C
 *     S     terms of the sums (K)
 *     t     trans
 *     a     1: beta A is added
 *     w     1: C is f32 whatever the dtype of X */
static const pb_dims edge[] = {
    {2, 7, 9, 0, 1, 0},
    {1, 1, 1, 0, 0, 0},
    {1, 1, 40, 1, 1, 0},
    {3, 18, 5, 1, 0, 1},
    {1, 96, 33, 0, 1, 1},
    {1, 97, 64, 1, 1, 0},
    {2, 130, 17, 0, 0, 0},
    {1, 200, 1, 0, 1, 0},
    {1, 65, 130, 0, 0, 1},
    /* blocks of 128 rows on a GPU: an even and an odd number of them, more terms than the stages hold, rows that are
     * not aligned, and more tiles than SMs */
    {2, 392, 72, 0, 1, 0},
    {1, 392, 328, 1, 1, 0},
    {2, 264, 328, 0, 0, 1},
    {1, 264, 72, 1, 0, 0},
    {2, 161, 64, 0, 1, 0},
    {40, 264, 16, 0, 1, 0},
    {0},
};
static const pb_dims grid[] = {{1, 576, 1536, 0, 0, 0}, {1, 896, 896, 0, 1, 0}, {0}};
static const pb_dims device_grid[] = {
    {32, 512, 1408, 0, 0, 0},  {24, 896, 4864, 0, 0, 0}, {8, 1024, 1024, 0, 1, 0},
    {4, 2048, 2048, 0, 0, 0},  {1, 4096, 4096, 0, 0, 0}, {1, 4096, 4096, 0, 1, 0},
    {1, 4096, 11008, 0, 0, 0}, {1, 8192, 8192, 0, 0, 0}, {0},
};

static pb_status product_check(const void *args)
{
    const pb_syrk_product_args *a = args;
    if (a->n < 0 || a->M < 0 || a->K < 0)
        return pb_fail(PB_EINVAL, "syrk: n=%d M=%d K=%d, need sizes of at least 0", a->n, a->M, a->K);
    if (a->n && a->M && ((a->K && !a->x) || !a->c)) return pb_fail(PB_EINVAL, "syrk: x or c is NULL");
    if (!isfinite(a->alpha) || !isfinite(a->beta))
        return pb_fail(PB_EINVAL, "syrk: alpha=%g beta=%g, need finite factors", (double)a->alpha, (double)a->beta);
    if ((int)a->dtype >= PB_NFLOAT || (int)a->c_dtype >= PB_NFLOAT) return pb_fail(PB_EINVAL, "syrk: need f32 or bf16");
    return PB_OK;
}

static pb_status product_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t n = (size_t)dim[0], M = (size_t)dim[1], K = (size_t)dim[2];
    const pb_dtype c = dim[5] ? PB_F32 : b->dtype;
    *(pb_syrk_product_args *)args = (pb_syrk_product_args){
        .x = pb_in(b, "x", b->dtype, n * M * K),
        .add = dim[4] ? pb_in(b, "add", c, n * M * M) : NULL,
        .c = pb_out(b, "c", c, n * M * M),
        .n = dim[0],
        .M = dim[1],
        .K = dim[2],
        .alpha = dim[4] ? -2.5f : 1,
        .beta = dim[4] ? 1.75f : 0,
        .trans = dim[3],
        .dtype = b->dtype,
        .c_dtype = c,
    };
    return b->status;
}

static pb_cost product_cost(const void *args)
{
    const pb_syrk_product_args *a = args;
    const double n = a->n, M = a->M, K = a->K;
    const double e = (double)pb_dtype_size(a->dtype), c = (double)pb_dtype_size(a->c_dtype);
    return (pb_cost){.flops = n * M * (M + 1) * K, .bytes = n * M * (e * K + c * M + (a->add ? c * M / 2 : 0))};
}

const pb_op pb_op_syrk_product = {
    .name = "syrk_product",
    .axes = "NMStaw",
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_syrk_product_args),
    .numbers = (const pb_number[]){PB_NUMBER(pb_syrk_product_args, alpha), PB_NUMBER(pb_syrk_product_args, beta), {0}},
    .impls = PB_BOTH_BACKENDS(syrk, product),
    .check = product_check,
    .bind = product_bind,
    .cost = product_cost,
    .tol = {[PB_F32] = 2e-6, [PB_BF16] = 4e-3},
};
