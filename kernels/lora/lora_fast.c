/* lora_fast.c - computes both LoRA passes with the matrix product of cpu/gemm.h. One product serves all targets, so x
 * and dx are each read once (lora_plan.h). Memory-bound for small R, because R is a dimension of nearly every
 * product. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd.h"
#include "kernels/lora/lora_plan.h"

static void run(pb_gemm g, void *workspace)
{
    g.workspace = workspace;
    pb_gemm_run(&g);
}

/* Copies columns i*R .. (i+1)*R-1 of the f32 product of all targets to xa_i, rounded to dtype. */
static void split(const pb_lora_fwd_args *f, const float *all)
{
    const int R = f->R, wide = f->n * R;
#pragma omp parallel for schedule(static) if ((size_t)f->T * wide > 16384)
    for (int t = 0; t < f->T; t++)
        for (int i = 0; i < f->n; i++) {
            const size_t from = (size_t)t * wide + (size_t)i * R, to = (size_t)t * R;
            int r = 0;
            for (; r + PB_VLEN <= R; r += PB_VLEN)
                vf_store(f->target[i].xa, to + r, f->dtype, vf_load(all, from + r, PB_F32));
            if (r < R) vf_store_n(f->target[i].xa, to + r, f->dtype, vf_load_n(all, from + r, PB_F32, R - r), R - r);
        }
}

pb_status PB_FAST(pb_lora_fwd)(pb_ctx *ctx, const void *args)
{
    const pb_lora_fwd_args *f = args;
    const pb_lora_plan p = pb_lora_fwd_plan(f);
    unsigned char *a = ctx->scratch, *gemm = a + p.a + p.xa;
    float *xa = (float *)(void *)(a + p.a);
    if (f->n == 1) {
        run(pb_lora_xa(f, f->target[0].a, f->target[0].xa, true), gemm);
    } else {
        const size_t each = (size_t)f->R * (size_t)f->K * pb_dtype_size(f->dtype);
        for (int i = 0; i < f->n; i++) memcpy(a + (size_t)i * each, f->target[i].a, each);
        run(pb_lora_xa(f, a, xa, false), gemm);
        split(f, xa);
    }
    for (int i = 0; i < f->n; i++) run(pb_lora_y(f, i), gemm);
    return PB_OK;
}

/* Copies each target's rows of the stacked da to da_i, or adds them when accumulating. */
static void unstack(const pb_lora_bwd_args *g, const float *all)
{
    const size_t K = (size_t)g->K, R = (size_t)g->R, rows = R * (size_t)g->n;
#pragma omp parallel for schedule(static) if (rows * K > 16384)
    for (size_t r = 0; r < rows; r++) {
        const float *from = all + r * K;
        float *da = g->target[r / R].da + r % R * K;
        if (!g->accumulate) memcpy(da, from, K * sizeof *da);
        else
            for (size_t k = 0; k < K; k++) da[k] += from[k];
    }
}

pb_status PB_FAST(pb_lora_bwd)(pb_ctx *ctx, const void *args)
{
    const pb_lora_bwd_args *g = args;
    const pb_lora_plan p = pb_lora_bwd_plan(g);
    unsigned char *stacked = ctx->scratch, *gemm = stacked + p.a + p.dxa + p.da;
    float *dxa = (float *)(void *)(stacked + p.a), *da = (float *)(void *)(stacked + p.a + p.dxa);
    const void *a = g->target[0].a;
    for (int i = 0; i < g->n; i++) {
        run(pb_lora_dxa(g, i, dxa + (size_t)i * g->R), gemm);
        run(pb_lora_db(g, i), gemm);
    }
    if (g->n == 1) {
        run(pb_lora_da(g, dxa, g->target[0].da), gemm);
    } else {
        const size_t each = (size_t)g->R * (size_t)g->K * pb_dtype_size(g->dtype);
        for (int i = 0; i < g->n; i++) memcpy(stacked + (size_t)i * each, g->target[i].a, each);
        a = stacked;
        run(pb_lora_da(g, dxa, da), gemm);
        unstack(g, da);
    }
    run(pb_lora_dx(g, dxa, a), gemm);
    return PB_OK;
}
