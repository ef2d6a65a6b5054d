/* lora.cu - low-rank adapters on the GPU. `mma` uses tensor cores and takes up to 64 adapter columns in total
 * (lora_mma.cuh). `cublaslt` and `simt` take every shape; they run two matrix products per target in the forward pass
 * and four in the backward pass. */
#include "kernels/cuda/cuda_blas.h"
#include "kernels/lora/lora_mma.cuh"
#include "kernels/lora/lora_plan.h"

namespace
{
const pb_lora_fwd_args *fwd_args(const void *args) { return static_cast<const pb_lora_fwd_args *>(args); }
const pb_lora_bwd_args *bwd_args(const void *args) { return static_cast<const pb_lora_bwd_args *>(args); }
size_t rounded(size_t bytes) { return (bytes + 255) / 256 * 256; }

/* ---- implementations cublaslt and simt: matrix products, target by target --------------------------------------- */

typedef pb_status (*product)(pb_ctx *, const pb_gemm *);
pb_status by_library(pb_ctx *ctx, const pb_gemm *g) { return pb_cuda_gemm(ctx, g, NULL); }

pb_status fwd_products(pb_ctx *ctx, const pb_lora_fwd_args *f, product run)
{
    for (int i = 0; i < f->n; i++) {
        pb_lora_fwd_args one = *f;
        one.n = 1;
        const pb_gemm xa = pb_lora_xa(&one, f->target[i].a, f->target[i].xa, true), y = pb_lora_y(f, i);
        PB_TRY(run(ctx, &xa));
        PB_TRY(run(ctx, &y));
    }
    return PB_OK;
}

/* Adds `sum` to dx, with one rounding per element. */
__global__ void __launch_bounds__(256) add_rounded(__nv_bfloat16 *dx, const float *sum, size_t n)
{
    const size_t e = (size_t)blockIdx.x * 256 + threadIdx.x;
    if (e < n) dx[e] = pb_from_f32<__nv_bfloat16>(pb_to_f32(dx[e]) + sum[e]);
}

size_t dxa_room(const pb_lora_bwd_args *a) { return rounded((size_t)a->T * (size_t)a->R * sizeof(float)); }
/* True if the products for dx must be summed in f32 before they are added to dx: adding the product of each of several
 * targets to a bf16 dx would round once per target. */
bool sums_dx_in_f32(const pb_lora_bwd_args *a) { return a->dtype == PB_BF16 && a->n > 1; }

/* Runs the four products of each target. dxa_type is the type of dxa in scratch: cuBLASLt multiplies only operands of
 * equal type, so it needs `dtype`; `simt` uses f32. */
pb_status bwd_products(pb_ctx *ctx, const pb_lora_bwd_args *a, product run, pb_dtype dxa_type)
{
    float *room = static_cast<float *>(ctx->scratch), *sum = room + dxa_room(a) / sizeof(float);
    const size_t each = (size_t)a->T * (size_t)a->K;
    for (int i = 0; i < a->n; i++) {
        pb_lora_bwd_args one = *a;
        one.n = 1;
        one.target[0] = a->target[i];
        pb_gemm dxa = pb_lora_dxa(&one, 0, room), da = pb_lora_da(&one, room, a->target[i].da);
        pb_gemm dx = pb_lora_dx(&one, room, a->target[i].a);
        const pb_gemm db = pb_lora_db(a, i);
        dxa.c_dtype = da.a.dtype = dx.a.dtype = dxa_type;
        if (sums_dx_in_f32(a)) dx.c = sum, dx.c_dtype = PB_F32, dx.accumulate = i > 0;
        PB_TRY(run(ctx, &dxa));
        PB_TRY(run(ctx, &db));
        PB_TRY(run(ctx, &da));
        PB_TRY(run(ctx, &dx));
    }
    if (!sums_dx_in_f32(a) || !each) return PB_OK;
    add_rounded<<<(unsigned)((each + 255) / 256), 256, 0, pb_cuda_stream(ctx)>>>(static_cast<__nv_bfloat16 *>(a->dx),
                                                                                 sum, each);
    return pb_cuda_launched(ctx, "lora_bwd add_rounded");
}

pb_status fwd_cublaslt(pb_ctx *ctx, const void *args) { return fwd_products(ctx, fwd_args(args), by_library); }
pb_status fwd_simt(pb_ctx *ctx, const void *args) { return fwd_products(ctx, fwd_args(args), pb_cuda_gemm_simt); }
pb_status bwd_cublaslt(pb_ctx *ctx, const void *args)
{
    return bwd_products(ctx, bwd_args(args), by_library, bwd_args(args)->dtype);
}
pb_status bwd_simt(pb_ctx *ctx, const void *args)
{
    return bwd_products(ctx, bwd_args(args), pb_cuda_gemm_simt, PB_F32);
}
size_t products_workspace(const void *args)
{
    const pb_lora_bwd_args *a = bwd_args(args);
    return dxa_room(a) + (sums_dx_in_f32(a) ? (size_t)a->T * (size_t)a->K * sizeof(float) : 0);
}

/* ---- implementation mma: the kernels of lora_mma.cuh ------------------------------------------------------------ */

bool aligned(const void *p) { return (uintptr_t)p % 16 == 0; }
bool mma_shape(int n, int R, int K, pb_dtype t) { return t == PB_BF16 && R % 16 == 0 && n * R <= 64 && K % 8 == 0; }

bool fwd_mma_accepts(const void *args)
{
    const pb_lora_fwd_args *f = fwd_args(args);
    bool fits = mma_shape(f->n, f->R, f->K, f->dtype) && aligned(f->x);
    for (int i = 0; i < f->n; i++) {
        const pb_lora_target *t = &f->target[i];
        fits = fits && t->N % 8 == 0 && t->ldy % 8 == 0 && aligned(t->a) && aligned(t->b) && aligned(t->xa) &&
               aligned(t->y);
    }
    return fits;
}

bool bwd_mma_accepts(const void *args)
{
    const pb_lora_bwd_args *a = bwd_args(args);
    bool fits = mma_shape(a->n, a->R, a->K, a->dtype) && aligned(a->x) && aligned(a->dx);
    for (int i = 0; i < a->n; i++) {
        const pb_lora_grad *t = &a->target[i];
        fits = fits && t->N % 8 == 0 && t->lddy % 8 == 0 && aligned(t->a) && aligned(t->b) && aligned(t->xa) &&
               aligned(t->dy) && aligned(t->da) && aligned(t->db);
    }
    return fits;
}

unsigned blocks_of(size_t n, size_t each) { return (unsigned)((n + each - 1) / each); }

/* Calls fn<16>, fn<32>, fn<48> or fn<64>, according to `width`. */
#define BY_WIDTH(width, fn, ...)                                                                                       \
    ((width) == 16   ? fn<16>(__VA_ARGS__)                                                                             \
     : (width) == 32 ? fn<32>(__VA_ARGS__)                                                                             \
     : (width) == 48 ? fn<48>(__VA_ARGS__)                                                                             \
                     : fn<64>(__VA_ARGS__))

int down_splits(const pb_lora_fwd_args *f)
{
    return lora_mma::splits_for(blocks_of(f->T, lora_mma::DOWN_ROWS), blocks_of(f->K, 4 * lora_mma::DEEP));
}

template <int W> pb_status launch_down(pb_ctx *ctx, const pb_lora_fwd_args *f, float *parts)
{
    const dim3 grid(blocks_of(f->T, lora_mma::DOWN_ROWS), (unsigned)down_splits(f));
    lora_mma::down<W><<<grid, 32 * lora_mma::DOWN_WARPS, 0, pb_cuda_stream(ctx)>>>(*f, parts);
    return pb_cuda_launched(ctx, "lora_fwd down");
}

template <int R> pb_status launch_up(pb_ctx *ctx, const pb_lora_fwd_args *f, const float *parts)
{
    unsigned tiles = 0;
    for (int i = 0; i < f->n; i++) tiles += blocks_of(f->target[i].N, lora_mma::UP_COLS);
    const dim3 grid(tiles, blocks_of(f->T, lora_mma::UP_ROWS));
    lora_mma::up<R><<<grid, lora_mma::UP_THREADS, 0, pb_cuda_stream(ctx)>>>(*f, parts, down_splits(f));
    return pb_cuda_launched(ctx, "lora_fwd up");
}

pb_status fwd_mma(pb_ctx *ctx, const void *args)
{
    const pb_lora_fwd_args *f = fwd_args(args);
    float *parts = static_cast<float *>(ctx->scratch);
    if (!f->T) return PB_OK;
    PB_TRY(BY_WIDTH(f->n * f->R, launch_down, ctx, f, parts));
    return BY_WIDTH(f->R, launch_up, ctx, f, parts);
}

size_t fwd_mma_workspace(const void *args)
{
    const pb_lora_fwd_args *f = fwd_args(args);
    return (size_t)down_splits(f) * (size_t)f->T * (size_t)(f->n * f->R) * sizeof(float);
}

/* Lays out the scratch of the backward pass from p on, into `room`. Returns its size in bytes. */
size_t plan_bwd(const pb_lora_bwd_args *a, char *p, lora_mma::bwd_room *room)
{
    const size_t W = (size_t)(a->n * a->R), T = (size_t)a->T, K = (size_t)a->K;
    size_t at = 0, most = 0;
    for (int i = 0; i < a->n; i++) most = (size_t)a->target[i].N > most ? (size_t)a->target[i].N : most;
    room->token_blocks = (int)blocks_of(T, lora_mma::TOKENS);
    room->splits = lora_mma::splits_for((size_t)room->token_blocks * a->n, blocks_of(most, lora_mma::CHUNK));
    room->dxa_parts = reinterpret_cast<float *>(p);
    at += rounded((size_t)room->splits * T * W * sizeof(float));
    room->dxa = reinterpret_cast<__nv_bfloat16 *>(p + at);
    at += rounded(T * W * sizeof(__nv_bfloat16));
    room->da_parts = reinterpret_cast<float *>(p + at);
    at += rounded((size_t)room->token_blocks * W * K * sizeof(float));
    for (int i = 0; i < a->n; i++) {
        room->db_parts[i] = reinterpret_cast<float *>(p + at);
        at += rounded((size_t)room->token_blocks * (size_t)a->target[i].N * (size_t)a->R * sizeof(float));
    }
    return at;
}

size_t bwd_mma_workspace(const void *args)
{
    lora_mma::bwd_room room;
    return plan_bwd(bwd_args(args), NULL, &room);
}

template <int R> pb_status launch_from_dy(pb_ctx *ctx, const pb_lora_bwd_args *a, const lora_mma::bwd_room &room)
{
    const dim3 grid((unsigned)(a->n * room.splits), (unsigned)room.token_blocks);
    if (room.token_blocks == 1) lora_mma::from_dy<R, true><<<grid, 256, 0, pb_cuda_stream(ctx)>>>(*a, room);
    else lora_mma::from_dy<R, false><<<grid, 256, 0, pb_cuda_stream(ctx)>>>(*a, room);
    return pb_cuda_launched(ctx, "lora_bwd from_dy");
}

template <int W> pb_status launch_from_x(pb_ctx *ctx, const pb_lora_bwd_args *a, const lora_mma::bwd_room &room)
{
    const dim3 grid(blocks_of(a->K, lora_mma::CHUNK), (unsigned)room.token_blocks);
    lora_mma::from_x<W><<<grid, 256, 0, pb_cuda_stream(ctx)>>>(*a, room);
    return pb_cuda_launched(ctx, "lora_bwd from_x");
}

pb_status bwd_mma(pb_ctx *ctx, const void *args)
{
    const pb_lora_bwd_args *a = bwd_args(args);
    const size_t W = (size_t)(a->n * a->R);
    size_t folded = (size_t)a->T * W;
    lora_mma::bwd_room room;
    if (!a->T) return bwd_simt(ctx, args); /* handles T = 0: da and db become zero, or are kept */
    (void)plan_bwd(a, static_cast<char *>(ctx->scratch), &room);
    for (int i = 0; i < a->n; i++) folded += (size_t)a->target[i].N * (size_t)a->R;
    PB_TRY(BY_WIDTH(a->R, launch_from_dy, ctx, a, room));
    if (room.token_blocks == 1) return BY_WIDTH(a->n * a->R, launch_from_x, ctx, a, room);
    lora_mma::fold<<<blocks_of(folded, 1024), 256, 0, pb_cuda_stream(ctx)>>>(*a, room);
    PB_TRY(pb_cuda_launched(ctx, "lora_bwd fold"));
    PB_TRY(BY_WIDTH(a->n * a->R, launch_from_x, ctx, a, room));
    lora_mma::fold_da<<<blocks_of(W * (size_t)a->K, 1024), 256, 0, pb_cuda_stream(ctx)>>>(*a, room);
    return pb_cuda_launched(ctx, "lora_bwd fold_da");
}
} // namespace

extern "C" {
const pb_impl pb_lora_fwd_cuda[] = {
    {.name = "mma", .run = fwd_mma, .accepts = fwd_mma_accepts, .workspace = fwd_mma_workspace},
    {.name = "cublaslt", .run = fwd_cublaslt},
    {.name = "simt", .run = fwd_simt},
    {0}};
const pb_impl pb_lora_bwd_cuda[] = {
    {.name = "mma", .run = bwd_mma, .accepts = bwd_mma_accepts, .workspace = bwd_mma_workspace},
    {.name = "cublaslt", .run = bwd_cublaslt, .workspace = products_workspace},
    {.name = "simt", .run = bwd_simt, .workspace = products_workspace},
    {0}};
}
