/* attention.cu - the lists of CUDA implementations of attention, best first, and the arguments that each accepts. */
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_impls.cuh"

static bool aligned(const void *p, size_t ld) { return (uintptr_t)p % 16 == 0 && ld % 8 == 0; }

static bool mma_takes_fwd(const void *args)
{
    const pb_attention_fwd_args *a = (const pb_attention_fwd_args *)args;
    return a->dtype == PB_BF16 && a->D % 8 == 0 && a->D <= 128 && a->scale > 0 && aligned(a->q, a->ldq) &&
           aligned(a->k, a->ldk) && aligned(a->v, a->ldv) && aligned(a->o, a->ldo);
}

static bool mma_takes_bwd(const void *args)
{
    const pb_attention_bwd_args *a = (const pb_attention_bwd_args *)args;
    return a->dtype == PB_BF16 && a->D % 8 == 0 && a->D <= 128 && a->scale > 0 && aligned(a->q, a->ldq) &&
           aligned(a->k, a->ldk) && aligned(a->v, a->ldv) && aligned(a->o, a->ldo) && aligned(a->dO, a->lddo) &&
           aligned(a->dq, a->lddq) && aligned(a->dk, a->lddk) && aligned(a->dv, a->lddv);
}

static bool wgmma_takes_fwd(const void *args)
{
    const int D = ((const pb_attention_fwd_args *)args)->D;
    return (D == 64 || D == 128) && mma_takes_fwd(args);
}

static bool wgmma_takes_bwd(const void *args)
{
    const pb_attention_bwd_args *a = (const pb_attention_bwd_args *)args;
    return (a->D == 64 || a->D == 128) && mma_takes_bwd(args);
}

/* Returns the bytes of delta [B,H,S], the workspace of the implementations mma and simt. */
static size_t bwd_workspace(const void *args)
{
    const pb_attention_bwd_args *a = (const pb_attention_bwd_args *)args;
    return (size_t)a->B * a->H * a->S * sizeof(float);
}

extern "C" {
extern const pb_impl pb_attention_fwd_cuda[] = {
    {.name = "wgmma", .run = pb_attention_fwd_wgmma, .accepts = wgmma_takes_fwd, .available = pb_cuda_has_sm90},
    {.name = "mma", .run = pb_attention_fwd_mma, .accepts = mma_takes_fwd},
    {.name = "simt", .run = pb_attention_fwd_simt},
    {0},
};
extern const pb_impl pb_attention_bwd_cuda[] = {
    {.name = "wgmma",
     .run = pb_attention_bwd_wgmma,
     .accepts = wgmma_takes_bwd,
     .workspace = pb_attention_bwd_wgmma_workspace,
     .available = pb_cuda_has_sm90,
     .varies = true},
    {.name = "wgmma_ordered",
     .run = pb_attention_bwd_wgmma_ordered,
     .accepts = wgmma_takes_bwd,
     .workspace = pb_attention_bwd_wgmma_workspace,
     .available = pb_cuda_has_sm90},
    {.name = "mma", .run = pb_attention_bwd_mma, .accepts = mma_takes_bwd, .workspace = bwd_workspace},
    {.name = "simt", .run = pb_attention_bwd_simt, .workspace = bwd_workspace},
    {0},
};
}
