/* mla_list.cuh - PB_MLA_CUDA_LIST defines the lists of CUDA implementations of sparse_mla or dense_mla, best first,
 * with the arguments that each accepts. */
#ifndef PB_MLA_LIST_CUH
#define PB_MLA_LIST_CUH
#include "kernels/sparse_mla/mla_impls.cuh"
#include "kernels/sparse_mla/convert.h"

/* Runs RUN, a pass on a pb_mla, on the op's arguments; OF converts these to a pb_mla. */
template <pb_mla (*OF)(const void *), pb_status (*RUN)(pb_ctx *, const pb_mla *)>
static pb_status pb_mla_on(pb_ctx *ctx, const void *args)
{
    const pb_mla p = OF(args);
    return RUN(ctx, &p);
}
/* Calls ASK, an `accepts` or `workspace` function that takes a pb_mla, on the op's arguments; OF converts these. */
template <class R, pb_mla (*OF)(const void *), R (*ASK)(const pb_mla *)> static R pb_mla_ask(const void *args)
{
    const pb_mla p = OF(args);
    return ASK(&p);
}

#define PB_MLA_TAKES(of, how)     pb_mla_ask<bool, of, pb_mla_##how##_takes>
#define PB_MLA_WORKSPACE(of, how) pb_mla_ask<size_t, of, pb_mla_bwd_##how##_workspace>

#define PB_MLA_CUDA_LIST(f)                                                                                            \
    extern "C" {                                                                                                       \
    extern const pb_impl pb_##f##_fwd_cuda[] = {                                                                       \
        {.name = "wgmma",                                                                                              \
         .run = pb_mla_on<pb_mla_fwd_problem, pb_mla_fwd_wgmma>,                                                       \
         .accepts = PB_MLA_TAKES(pb_mla_fwd_problem, wgmma),                                                           \
         .available = pb_cuda_has_sm90},                                                                               \
        {.name = "mma",                                                                                                \
         .run = pb_mla_on<pb_mla_fwd_problem, pb_mla_fwd_mma>,                                                         \
         .accepts = PB_MLA_TAKES(pb_mla_fwd_problem, mma)},                                                            \
        {.name = "simt",                                                                                               \
         .run = pb_mla_on<pb_mla_fwd_problem, pb_mla_fwd_simt>,                                                        \
         .accepts = PB_MLA_TAKES(pb_mla_fwd_problem, simt)},                                                           \
        {0},                                                                                                           \
    };                                                                                                                 \
    extern const pb_impl pb_##f##_bwd_cuda[] = {                                                                       \
        {.name = "wgmma",                                                                                              \
         .run = pb_mla_on<pb_mla_bwd_problem, pb_mla_bwd_wgmma>,                                                       \
         .accepts = PB_MLA_TAKES(pb_mla_bwd_problem, bwd_wgmma),                                                       \
         .workspace = PB_MLA_WORKSPACE(pb_mla_bwd_problem, wgmma),                                                     \
         .available = pb_cuda_has_sm90,                                                                                \
         .varies = true},                                                                                              \
        {.name = "mma",                                                                                                \
         .run = pb_mla_on<pb_mla_bwd_problem, pb_mla_bwd_mma>,                                                         \
         .accepts = PB_MLA_TAKES(pb_mla_bwd_problem, mma),                                                             \
         .workspace = PB_MLA_WORKSPACE(pb_mla_bwd_problem, mma),                                                       \
         .varies = true},                                                                                              \
        {.name = "mma_ordered",                                                                                        \
         .run = pb_mla_on<pb_mla_bwd_problem, pb_mla_bwd_mma_ordered>,                                                 \
         .accepts = PB_MLA_TAKES(pb_mla_bwd_problem, mma),                                                             \
         .workspace = PB_MLA_WORKSPACE(pb_mla_bwd_problem, simt)},                                                     \
        {.name = "simt",                                                                                               \
         .run = pb_mla_on<pb_mla_bwd_problem, pb_mla_bwd_simt>,                                                        \
         .accepts = PB_MLA_TAKES(pb_mla_bwd_problem, simt),                                                            \
         .workspace = PB_MLA_WORKSPACE(pb_mla_bwd_problem, simt)},                                                     \
        {0},                                                                                                           \
    };                                                                                                                 \
    }
#endif
