/* indexer.cu - the indexer's ops on the GPU: the kernels of the ops quantize and pick, and the list of implementations
 * of every op. The first implementation in a list that accepts the arguments runs. */
#include "kernels/indexer/indexer.cuh"
#include "kernels/topk/topk.cuh"

namespace
{
/* ---- quantize: one warp per row -------------------------------------------------------------------------------- */

template <class T> __global__ __launch_bounds__(INDEXER_THREADS) void quantize_kernel(const pb_indexer_quantize_args a)
{
    const size_t r = (size_t)blockIdx.x * INDEXER_WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    float x[4], amax = 0;
    bool finite = true;
    if (r >= (size_t)a.N) return;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int d = lane + i * 32;
        x[i] = d < a.D ? pb_to_f32(((const T *)a.x)[r * a.D + d]) : 0;
        finite = finite && isfinite(x[i]);
        amax = fmaxf(amax, fabsf(x[i]));
    }
    amax = pb_warp_max(amax);
    finite = __all_sync(0xffffffffu, finite);
    const float scale = finite ? pb_e4m3_scale(amax, a.f32_scale) : NAN;
    if (lane == 0) a.scale[r] = scale;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (lane + i * 32 < a.D) a.code[r * a.D + lane + i * 32] = pb_e4m3_encode(__fdiv_rn(x[i], scale));
}
template <class T> pb_status quantize_as(pb_ctx *ctx, const pb_indexer_quantize_args &a)
{
    return indexer_launch(ctx, "indexer_quantize", quantize_kernel<T>,
                          ((size_t)a.N + INDEXER_WARPS - 1) / INDEXER_WARPS, 0, a);
}
pb_status quantize(pb_ctx *ctx, const void *args)
{
    const pb_indexer_quantize_args *a = (const pb_indexer_quantize_args *)args;
    return PB_CUDA_BY_DTYPE(a->dtype, quantize_as, ctx, *a);
}

/* ---- the ops scores and pick ----------------------------------------------------------------------------------- */

typedef pb_status scores_fn(pb_ctx *ctx, const pb_indexer *x, const indexer_span *span);

template <scores_fn *RUN> pb_status scores(pb_ctx *ctx, const void *args)
{
    const pb_indexer_scores_args *a = (const pb_indexer_scores_args *)args;
    const indexer_span span = {a->start, a->score, a->first, a->n, a->ratio, true};
    return RUN(ctx, &a->x, &span);
}

/* Writes the top-k lists of the span's queries, one CTA per query. Only visible scores are read, because only these
 * were written. */
__global__ __launch_bounds__(TOPK_THREADS) void pick_kernel(const pb_indexer_pick_args a, const indexer_span s)
{
    __shared__ topk_smem sm;
    const int b = (int)blockIdx.x / s.n, i = (int)blockIdx.x % s.n, t = s.first + i;
    const size_t token = (size_t)b * a.x.S + t;
    const pb_visible v = pb_visible_to(a.x.offset + t, a.start ? a.start[token] : 0, a.ratio, a.x.G);
    topk_row(sm, s.score + ((size_t)b * s.n + i) * a.x.G, v.lo, v.hi, a.K, a.pick + token * a.K);
}

size_t pick_workspace(const void *args)
{
    const pb_indexer *x = &((const pb_indexer_pick_args *)args)->x;
    return (size_t)x->B * pb_indexer_run(x->B, x->S, x->G) * x->G * sizeof(float);
}
template <scores_fn *RUN> pb_status pick(pb_ctx *ctx, const void *args)
{
    const pb_indexer_pick_args *a = (const pb_indexer_pick_args *)args;
    const int run = pb_indexer_run(a->x.B, a->x.S, a->x.G);
    for (int first = 0; first < a->x.S; first += run) {
        const int n = a->x.S - first < run ? a->x.S - first : run;
        const indexer_span span = {a->start, (float *)ctx->scratch, first, n, a->ratio, false};
        PB_TRY(RUN(ctx, &a->x, &span));
        pick_kernel<<<(unsigned)(a->x.B * n), TOPK_THREADS, 0, pb_cuda_stream(ctx)>>>(*a, span);
        PB_TRY(pb_cuda_launched(ctx, "indexer_pick"));
    }
    return PB_OK;
}

/* ---- the ops at (scores of listed groups) and bwd -------------------------------------------------------------- */

template <pb_status (*RUN)(pb_ctx *, const pb_indexer_at_args *)> pb_status at(pb_ctx *ctx, const void *args)
{
    return RUN(ctx, (const pb_indexer_at_args *)args);
}

size_t sums_of(const pb_indexer *x) { return (size_t)x->B * x->G * x->D; }
size_t scattered_workspace(const void *args)
{
    return sums_of(&((const pb_indexer_bwd_args *)args)->x) * sizeof(float);
}
size_t ordered_workspace(const void *args)
{
    const pb_indexer *x = &((const pb_indexer_bwd_args *)args)->x;
    return sums_of(x) * pb_indexer_cuda_parts(x) * sizeof(float);
}

/* How the backward pass sums dk. SCATTERED: with atomics; ORDERED: in partial sums that are added in order; SIMT: like
 * ORDERED, without tensor cores. */
enum bwd_way { SCATTERED, ORDERED, SIMT };
template <bwd_way WAY> pb_status bwd(pb_ctx *ctx, const void *args)
{
    const pb_indexer_bwd_args *a = (const pb_indexer_bwd_args *)args;
    const int parts = WAY == SCATTERED ? 1 : pb_indexer_cuda_parts(&a->x);
    float *sums = (float *)ctx->scratch;
    PB_TRY(pb_indexer_clear_sums(ctx, sums, sums_of(&a->x) * parts));
    PB_TRY(WAY == SIMT ? pb_indexer_bwd_simt(ctx, a, sums, parts)
                       : pb_indexer_bwd_mma(ctx, a, sums, parts, WAY == ORDERED));
    return pb_indexer_round_sums(ctx, a, sums, parts);
}

/* The arguments of all ops except quantize begin with a pb_indexer. */
template <bool (*TAKES)(const pb_indexer *)> bool takes(const void *args) { return TAKES((const pb_indexer *)args); }
bool bwd_mma_takes(const void *args) { return pb_indexer_bwd_mma_takes((const pb_indexer_bwd_args *)args); }
bool bwd_simt_takes(const void *args) { return pb_indexer_bwd_simt_takes((const pb_indexer_bwd_args *)args); }
} // namespace

extern "C" {
extern const pb_impl pb_indexer_quantize_cuda[] = {{.name = "warp", .run = quantize}, {0}};
extern const pb_impl pb_indexer_scores_cuda[] = {
    {.name = "mma", .run = scores<pb_indexer_scores_mma>, .accepts = takes<pb_indexer_mma_takes>},
    {.name = "simt", .run = scores<pb_indexer_scores_simt>, .accepts = takes<pb_indexer_simt_takes>},
    {0},
};
extern const pb_impl pb_indexer_pick_cuda[] = {
    {.name = "mma",
     .run = pick<pb_indexer_scores_mma>,
     .accepts = takes<pb_indexer_mma_takes>,
     .workspace = pick_workspace},
    {.name = "simt",
     .run = pick<pb_indexer_scores_simt>,
     .accepts = takes<pb_indexer_simt_takes>,
     .workspace = pick_workspace},
    {0},
};
extern const pb_impl pb_indexer_at_cuda[] = {
    {.name = "mma", .run = at<pb_indexer_at_mma>, .accepts = takes<pb_indexer_mma_takes>},
    {.name = "simt", .run = at<pb_indexer_at_simt>, .accepts = takes<pb_indexer_simt_takes>},
    {0},
};
extern const pb_impl pb_indexer_bwd_cuda[] = {
    {.name = "mma", .run = bwd<SCATTERED>, .accepts = bwd_mma_takes, .workspace = scattered_workspace, .varies = true},
    {.name = "mma_ordered", .run = bwd<ORDERED>, .accepts = bwd_mma_takes, .workspace = ordered_workspace},
    {.name = "simt", .run = bwd<SIMT>, .accepts = bwd_simt_takes, .workspace = ordered_workspace},
    {0},
};
}
