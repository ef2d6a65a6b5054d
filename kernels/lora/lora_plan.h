/* lora_plan.h - the matrix products of both LoRA passes and the layout of their workspace. lora_fast.c runs the
 * products, and lora.c computes the size of the workspace from them.
 *
 * With several targets the matrices a_i are copied into one stacked matrix [n*R,K] in scratch, so that one product over
 * x or dx serves all targets. The result of such a product has n*R columns, R per target. With a single target nothing
 * is copied. */
#ifndef PB_LORA_PLAN_H
#define PB_LORA_PLAN_H
#include "kernels/cpu/gemm.h"
#include "kernels/lora/lora.h"

typedef struct pb_lora_plan {
    int wide; /* n*R, columns of all targets together */
    /* Sizes in bytes, 0 where unused. a: stacked a_i. xa, dxa: [T,n*R] f32. da: stacked da_i, f32.
     * gemm: pb_gemm's workspace. */
    size_t a, xa, dxa, da, gemm;
} pb_lora_plan;

static inline size_t pb_lora_round(size_t bytes) { return (bytes + 63) / 64 * 64; }
static inline size_t pb_lora_bytes(const pb_lora_plan *p) { return p->a + p->xa + p->dxa + p->da + p->gemm; }
/* Raises p->gemm to the workspace of product g if that is larger. */
static inline void pb_lora_need(pb_lora_plan *p, pb_gemm g)
{
    const size_t bytes = pb_gemm_workspace(&g);
    if (bytes > p->gemm) p->gemm = bytes;
}

/* Describes the product xa [T,n*R] = x a^T, with the matrices a_i stacked. xa is f32 scratch; with a single target it
 * is the op's output itself, of type `dtype`. */
static inline pb_gemm pb_lora_xa(const pb_lora_fwd_args *f, const void *a, void *xa, bool single)
{
    const int wide = f->n * f->R;
    return (pb_gemm){.M = f->T,
                     .N = wide,
                     .K = f->K,
                     .a = {.p = f->x, .ld = (size_t)f->K, .dtype = f->dtype},
                     .b = {.p = a, .ld = (size_t)f->K, .dtype = f->dtype, .trans = true},
                     .c = xa,
                     .ldc = (size_t)wide,
                     .c_dtype = single ? f->dtype : PB_F32,
                     .alpha = 1};
}

/* Describes the product y_i [T,N_i] += scale xa_i b_i^T */
static inline pb_gemm pb_lora_y(const pb_lora_fwd_args *f, int i)
{
    const pb_lora_target *t = &f->target[i];
    return (pb_gemm){.M = f->T,
                     .N = t->N,
                     .K = f->R,
                     .a = {.p = t->xa, .ld = (size_t)f->R, .dtype = f->dtype},
                     .b = {.p = t->b, .ld = (size_t)f->R, .dtype = f->dtype, .trans = true},
                     .c = t->y,
                     .ldc = t->ldy,
                     .c_dtype = f->dtype,
                     .alpha = f->scale,
                     .accumulate = true};
}

static inline pb_lora_plan pb_lora_fwd_plan(const pb_lora_fwd_args *f)
{
    pb_lora_plan p = {.wide = f->n * f->R};
    if (f->n > 1) {
        p.a = pb_lora_round((size_t)p.wide * (size_t)f->K * pb_dtype_size(f->dtype));
        p.xa = pb_lora_round((size_t)f->T * (size_t)p.wide * sizeof(float));
    }
    pb_lora_need(&p, pb_lora_xa(f, NULL, NULL, f->n == 1));
    for (int i = 0; i < f->n; i++) pb_lora_need(&p, pb_lora_y(f, i));
    return p;
}

/* Describes the product dxa_i [T,R] = scale dy_i b_i; rows are n*R elements apart */
static inline pb_gemm pb_lora_dxa(const pb_lora_bwd_args *g, int i, float *dxa)
{
    const pb_lora_grad *t = &g->target[i];
    return (pb_gemm){.M = g->T,
                     .N = g->R,
                     .K = t->N,
                     .a = {.p = t->dy, .ld = t->lddy, .dtype = g->dtype},
                     .b = {.p = t->b, .ld = (size_t)g->R, .dtype = g->dtype},
                     .c = dxa,
                     .ldc = (size_t)g->n * (size_t)g->R,
                     .alpha = g->scale};
}

/* Describes the product db_i [N_i,R] (+)= scale dy_i^T xa_i */
static inline pb_gemm pb_lora_db(const pb_lora_bwd_args *g, int i)
{
    const pb_lora_grad *t = &g->target[i];
    return (pb_gemm){.M = t->N,
                     .N = g->R,
                     .K = g->T,
                     .a = {.p = t->dy, .ld = t->lddy, .dtype = g->dtype, .trans = true},
                     .b = {.p = t->xa, .ld = (size_t)g->R, .dtype = g->dtype},
                     .c = t->db,
                     .ldc = (size_t)g->R,
                     .alpha = g->scale,
                     .accumulate = g->accumulate};
}

/* Describes the product da [n*R,K] = dxa^T x, stacked. With a single target, da is the op's output da_0 itself. */
static inline pb_gemm pb_lora_da(const pb_lora_bwd_args *g, const float *dxa, float *da)
{
    const int wide = g->n * g->R;
    return (pb_gemm){.M = wide,
                     .N = g->K,
                     .K = g->T,
                     .a = {.p = dxa, .ld = (size_t)wide, .trans = true},
                     .b = {.p = g->x, .ld = (size_t)g->K, .dtype = g->dtype},
                     .c = da,
                     .ldc = (size_t)g->K,
                     .alpha = 1,
                     .accumulate = g->n == 1 && g->accumulate};
}

/* Describes the product dx [T,K] += dxa a */
static inline pb_gemm pb_lora_dx(const pb_lora_bwd_args *g, const float *dxa, const void *a)
{
    const int wide = g->n * g->R;
    return (pb_gemm){.M = g->T,
                     .N = g->K,
                     .K = wide,
                     .a = {.p = dxa, .ld = (size_t)wide},
                     .b = {.p = a, .ld = (size_t)g->K, .dtype = g->dtype},
                     .c = g->dx,
                     .ldc = (size_t)g->K,
                     .c_dtype = g->dtype,
                     .alpha = 1,
                     .accumulate = true};
}

static inline pb_lora_plan pb_lora_bwd_plan(const pb_lora_bwd_args *g)
{
    pb_lora_plan p = {.wide = g->n * g->R};
    p.dxa = pb_lora_round((size_t)g->T * (size_t)p.wide * sizeof(float));
    if (g->n > 1) {
        p.a = pb_lora_round((size_t)p.wide * (size_t)g->K * pb_dtype_size(g->dtype));
        p.da = pb_lora_round((size_t)p.wide * (size_t)g->K * sizeof(float));
    }
    for (int i = 0; i < g->n; i++) {
        pb_lora_need(&p, pb_lora_dxa(g, i, NULL));
        pb_lora_need(&p, pb_lora_db(g, i));
    }
    pb_lora_need(&p, pb_lora_da(g, NULL, NULL));
    pb_lora_need(&p, pb_lora_dx(g, NULL, NULL));
    return p;
}
#endif
