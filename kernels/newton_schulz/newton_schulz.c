/* newton_schulz.c - the Newton-Schulz iteration: the reference in double precision, and the op's pb_op descriptor. */
#include "kernels/newton_schulz/newton_schulz.h"

#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/newton_schulz/ns_room.h"

/* ---- reference in double precision ---------------------------------------------------------- */

/* Element (i,k) of a matrix is p[i*row + k*col]. */
typedef struct view {
    const double *p;
    size_t row, col;
} view;

/* Rounds n elements to bf16 if that is the type, where newton_schulz.h says so. */
static void round_to(double *x, size_t n, pb_dtype t)
{
    for (size_t i = 0; i < n && t == PB_BF16; i++) x[i] = (double)pb_bf16_to_f32(pb_f32_to_bf16((float)x[i]));
}

/* y [M,N] = add y + x1 [M,K] x2 [K,N] */
static void times(view x1, view x2, double *y, size_t M, size_t N, size_t K, double add)
{
#pragma omp parallel for schedule(static) if ((double)M * (double)N * (double)K > 65536)
    for (size_t i = 0; i < M; i++)
        for (size_t j = 0; j < N; j++) {
            double sum = 0;
            for (size_t k = 0; k < K; k++) sum += x1.p[i * x1.row + k * x1.col] * x2.p[k * x2.row + j * x2.col];
            y[i * N + j] = add != 0 ? add * y[i * N + j] + sum : sum; /* y may hold no number */
        }
}

/* One matrix: x and next [R,C]; small, five matrices [m,m]. */
typedef struct reference {
    const pb_newton_schulz_run_args *a;
    double *x, *next, *small[5];
    size_t R, C, m;
} reference;

static void gram_ref(const reference *r, double *g)
{
    const view x = {r->x, r->C, 1}, xt = {r->x, 1, r->C};
    if (r->R <= r->C) times(x, xt, g, r->m, r->m, r->C, 0);
    else times(xt, x, g, r->m, r->m, r->R, 0);
}

/* X = a X + P X, or a X + X P for a tall matrix. Rounds P. */
static void apply_ref(reference *r, double *p, double a)
{
    const view x = {r->x, r->C, 1}, small = {p, r->m, 1};
    double *const before = r->x;
    const size_t n = r->R * r->C;
    round_to(p, r->m * r->m, r->a->dtype);
    for (size_t i = 0; i < n; i++) r->next[i] = a * r->x[i];
    if (r->R <= r->C) times(small, x, r->next, r->R, r->C, r->m, 1);
    else times(x, small, r->next, r->R, r->C, r->m, 1);
    round_to(r->next, n, r->a->dtype);
    r->x = r->next, r->next = before;
}

/* z = b g + c g^2 + a I */
static void polynomial_ref(const reference *r, const double *g, double *z, pb_ns_factors f, double a)
{
    const size_t m = r->m;
    times((view){g, m, 1}, (view){g, m, 1}, z, m, m, m, 0);
    for (size_t i = 0; i < m * m; i++) z[i] = f.b * g[i] + f.c * z[i] + (i % (m + 1) ? 0 : a);
}

static void iterate_ref(reference *r)
{
    for (int k = 0; k < r->a->steps; k++) {
        const pb_ns_factors f = pb_ns_factors_of(r->a->variant, k);
        gram_ref(r, r->small[0]);
        round_to(r->small[0], r->m * r->m, r->a->dtype);
        polynomial_ref(r, r->small[0], r->small[1], f, 0);
        apply_ref(r, r->small[1], f.a);
    }
}

static void iterate_gram_ref(reference *r)
{
    const size_t m = r->m, all = m * m;
    double *g = r->small[0], *z = r->small[1], *p = r->small[2], *t = r->small[3];
    for (int k = 0; k < r->a->steps; k++) {
        const pb_ns_factors f = pb_ns_factors_of(r->a->variant, k);
        if (k == PB_NS_RESTART) apply_ref(r, p, 0);
        if (k == 0 || k == PB_NS_RESTART) {
            gram_ref(r, g);
            for (size_t i = 0; i < all; i++) p[i] = i % (m + 1) == 0;
        }
        polynomial_ref(r, g, z, f, f.a);
        times((view){p, m, 1}, (view){z, m, 1}, t, m, m, m, 0);
        memcpy(p, t, all * sizeof *p);
        times((view){z, m, 1}, (view){g, m, 1}, t, m, m, m, 0);
        times((view){t, m, 1}, (view){z, m, 1}, g, m, m, m, 0);
    }
    apply_ref(r, p, 0);
}

static pb_status run_ref(pb_ctx *ctx, const void *args)
{
    const pb_newton_schulz_run_args *a = args;
    reference r = {.a = a, .R = (size_t)a->R, .C = (size_t)a->C, .m = (size_t)pb_ns_small(a)};
    const size_t n = r.R * r.C;
    double *room = ctx->scratch;
    for (int b = 0; b < a->n; b++) {
        r.x = room, r.next = room + n;
        for (int i = 0; i < 5; i++) r.small[i] = room + 2 * n + (size_t)i * r.m * r.m;
        double sum = 0;
        for (size_t i = 0; i < n; i++) {
            r.x[i] = pb_load(a->x, (size_t)b * n + i, a->dtype);
            sum += r.x[i] * r.x[i];
        }
        const double divisor = pb_ns_norm_factor(a->variant) * sqrt(sum) + (double)a->eps;
        for (size_t i = 0; i < n && divisor != 0; i++) r.x[i] /= divisor;
        round_to(r.x, n, a->dtype);
        (pb_ns_on_gram(a) ? iterate_gram_ref : iterate_ref)(&r);
        for (size_t i = 0; i < n; i++) pb_store(a->y, (size_t)b * n + i, a->dtype, r.x[i]);
    }
    return PB_OK;
}

static size_t ref_workspace(const void *args)
{
    const pb_newton_schulz_run_args *a = args;
    const size_t m = (size_t)pb_ns_small(a);
    return (2 * (size_t)a->R * (size_t)a->C + 5 * m * m) * sizeof(double);
}

/* ---- CPU implementations, best first, and the workspace that each needs ---------------------- */

PB_FAST_DECLARE(pb_newton_schulz_run)

static size_t run_workspace(const void *args) { return pb_ns_room_of(args).bytes; }

const pb_impl pb_newton_schulz_run_cpu[] = {
    PB_FAST_IMPLS(pb_newton_schulz_run, .workspace = run_workspace){"ref", run_ref, .workspace = ref_workspace}, {0}};

/* ---- op descriptor (pb_op): shapes, argument checks, inputs, costs ---------------------------- */

/* Axes of the shapes below:
 *     N     number of matrices
 *     R     rows
 *     S     columns (C)
 *     v     variant: 0 quintic, 1 polar_express, 2 gram
 *     k     steps
 *     i     1: y is x */
static const pb_dims edge[] = {
    {2, 12, 9, 0, 5, 0},  {2, 12, 9, 1, 5, 0},    {2, 12, 9, 2, 5, 0},    {1, 1, 40, 1, 5, 1},    {1, 40, 1, 2, 5, 0},
    {1, 16, 16, 2, 5, 0}, {3, 33, 70, 0, 1, 1},   {1, 97, 130, 1, 7, 0},  {1, 130, 100, 2, 3, 0}, {1, 20, 50, 2, 2, 1},
    {1, 1, 1, 0, 10, 0},  {2, 136, 152, 1, 5, 0}, {1, 152, 136, 0, 4, 1}, {1, 152, 136, 2, 3, 1}, {0},
};
static const pb_dims grid[] = {{1, 576, 576, 1, 5, 0}, {1, 576, 1536, 1, 5, 0}, {1, 576, 1536, 2, 5, 0}, {0}};
static const pb_dims device_grid[] = {
    {24, 896, 896, 1, 5, 0},  {48, 128, 896, 1, 5, 0},   {24, 896, 4864, 1, 5, 0},
    {24, 896, 4864, 0, 5, 0}, {24, 896, 4864, 2, 5, 0},  {32, 512, 1408, 1, 5, 0},
    {1, 4096, 4096, 1, 5, 0}, {1, 4096, 11008, 1, 5, 0}, {0},
};

static pb_status run_check(const void *args)
{
    const pb_newton_schulz_run_args *a = args;
    if (a->n < 0 || a->R < 1 || a->C < 1)
        return pb_fail(PB_EINVAL, "newton_schulz: n=%d R=%d C=%d, need n >= 0 and R, C >= 1", a->n, a->R, a->C);
    if (a->n && (!a->x || !a->y)) return pb_fail(PB_EINVAL, "newton_schulz: x or y is NULL");
    if (a->steps < 1 || a->steps > PB_NS_STEPS)
        return pb_fail(PB_EINVAL, "newton_schulz: steps=%d, need 1 to %d", a->steps, PB_NS_STEPS);
    if (!(a->eps >= 0)) return pb_fail(PB_EINVAL, "newton_schulz: eps=%g, need at least 0", (double)a->eps);
    if ((unsigned)a->variant >= PB_NNS || (int)a->dtype >= PB_NFLOAT)
        return pb_fail(PB_EINVAL, "newton_schulz: unknown variant, or a dtype that is not f32 or bf16");
    return PB_OK;
}

static pb_status run_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t n = (size_t)dim[0] * (size_t)dim[1] * (size_t)dim[2];
    void *const both = dim[5] ? pb_inout(b, "x", b->dtype, n, -1, 1) : NULL;
    *(pb_newton_schulz_run_args *)args = (pb_newton_schulz_run_args){
        .x = both ? both : pb_in(b, "x", b->dtype, n),
        .y = both ? both : pb_out(b, "y", b->dtype, n),
        .n = dim[0],
        .R = dim[1],
        .C = dim[2],
        .variant = (pb_ns_variant)dim[3],
        .steps = dim[4],
        .eps = 1e-8f,
        .dtype = b->dtype,
    };
    return b->status;
}

/* Adds a multiple of the identity, so that no singular value is so small that rounding determines the result. */
static pb_status run_prepare(pb_ctx *ctx, const void *args)
{
    const pb_newton_schulz_run_args *a = args;
    const size_t R = (size_t)a->R, C = (size_t)a->C;
    void *x = (void *)a->x; /* the binder's memory, which prepare may write */
    (void)ctx;
    for (size_t b = 0; b < (size_t)a->n; b++)
        for (size_t i = 0; i < (size_t)pb_ns_small(a); i++) {
            const size_t e = (b * R + i) * C + i;
            pb_store(x, e, a->dtype, pb_load(x, e, a->dtype) + 2 * sqrt((double)pb_ns_large(a)));
        }
    return PB_OK;
}

/* A step of X itself: A, A^2 (of each half the products) and B X. On the Gram matrix: A once and after the restart, X
 * twice, and per step Z, P and twice G, whose first and last factors are free. */
static pb_cost run_cost(const void *args)
{
    const pb_newton_schulz_run_args *a = args;
    const double n = a->n, m = pb_ns_small(a), l = pb_ns_large(a), k = a->steps;
    const double restarts = k > PB_NS_RESTART ? 2 : 1;
    const double own = k * (3 * m * m * l + m * m * m);
    const double gram = restarts * 3 * m * m * l + k * m * m * m + (k - restarts) * 3 * m * m * m;
    return (pb_cost){.flops = n * (pb_ns_on_gram(a) ? gram : own),
                     .bytes = 2 * n * m * l * (double)pb_dtype_size(a->dtype)};
}

const pb_op pb_op_newton_schulz_run = {
    .name = "newton_schulz_run",
    .axes = "NRSvki",
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_newton_schulz_run_args),
    .numbers = (const pb_number[]){PB_NUMBER(pb_newton_schulz_run_args, eps), {0}},
    .impls = PB_BOTH_BACKENDS(newton_schulz, run),
    .check = run_check,
    .bind = run_bind,
    .prepare = run_prepare,
    .cost = run_cost,
    .tol = {[PB_F32] = 2e-5, [PB_BF16] = 2e-2},
};
