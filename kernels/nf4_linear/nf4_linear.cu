/* nf4_linear.cu - a layer with a frozen NF4 weight on the GPU, in five implementations.
 *
 * - fused: forward pass for up to 16 tokens. A warp owns 4 rows of W (1 if N is too small to fill the GPU) and all
 *   tokens. A lane owns 8 neighbouring k of every 256, so it reads codes as whole words and x as whole vectors. Up to
 *   about 4 tokens it is bound by reading W, 0.56 bytes per weight with f32 scales; beyond that by the multiply-adds.
 * - wgmma: decodes W into shared memory for the tensor cores of sm_90a; see nf4_linear_wgmma.cu.
 * - registers: decodes W into the registers of the tensor cores' operand A; see nf4_linear_registers.cu.
 * - cublaslt: dequantises W to scratch in the type of x, then multiplies. In bf16 this rounds the weight to bf16. In a
 *   long sum the error is about as large as that of rounding y; short sums are left to the other implementations.
 * - simt: CUDA cores; decodes W while staging it in shared memory. Takes every shape. */
#include "kernels/cuda/cuda_blas.h"
#include "kernels/cuda/nf4_decode.cuh"
#include "kernels/nf4/nf4.h"
#include "kernels/nf4_linear/nf4_linear_gemm.h"
#include "kernels/nf4_linear/nf4_linear_wgmma.cuh"

namespace
{
/* The largest T for `fused` and for `wgmma`. Both were measured: see DESIGN.md. */
enum { FEW = 16, SEVERAL = 768 };
/* EACH: neighbouring k that a lane of kernel fused() processes per step; ROWS: rows of W per warp when N is large. */
enum { THREADS = 256, WARPS = THREADS / 32, EACH = 8, ROWS = 4 };

template <class T> __device__ void load_each(const T *p, float (&v)[EACH])
{
#pragma unroll
    for (int i = 0; i < EACH; i += pb_lanes<T>) {
        float part[pb_lanes<T>];
        pb_load_vec<T, pb_lanes<T>>(p + i, part);
#pragma unroll
        for (int j = 0; j < pb_lanes<T>; j++) v[i + j] = part[j];
    }
}

/* Decodes elements e .. e+7, which must be in one 32-bit word of codes and in one quantisation block. */
__device__ void decode_each(const pb_nf4_view &w, const float *level, size_t e, float (&v)[EACH])
{
    const uint32_t codes = *reinterpret_cast<const uint32_t *>(w.q + e / 2);
    const float scale = pb_nf4_scale_at(w.s, e >> w.shift);
#pragma unroll
    for (int i = 0; i < EACH; i++) v[i] = __fmul_rn(level[codes >> (8 * (i / 2) + (i % 2 ? 0 : 4)) & 15], scale);
}

/* Kernel fused computes y for up to M tokens (a power of two), with R rows of W per warp. If there are fewer rows or
 * tokens, the last one is computed repeatedly, and these results are not stored. */
template <class T, int M, int R>
__global__ void __launch_bounds__(THREADS, 1)
    fused(const T *x, const __grid_constant__ pb_nf4_view w, const float *bias, T *y, int tokens, int N, int K)
{
    __shared__ float level[16];
    const int lane = (int)threadIdx.x % 32, n0 = ((int)blockIdx.x * WARPS + (int)threadIdx.x / 32) * R;
    constexpr int unroll = R == 1 && M <= 4 ? 4 : 1; /* more loads in flight where registers allow */
    float sum[R][M] = {};
    if (threadIdx.x < 16) level[threadIdx.x] = w.level[threadIdx.x];
    __syncthreads();
#pragma unroll unroll
    for (int k = lane * EACH; k < K; k += 32 * EACH) {
        float v[R][EACH], z[EACH];
#pragma unroll
        for (int r = 0; r < R; r++) decode_each(w, level, (size_t)min(n0 + r, N - 1) * K + k, v[r]);
#pragma unroll
        for (int t = 0; t < M; t++) {
            load_each(x + (size_t)min(t, tokens - 1) * K + k, z);
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int i = 0; i < EACH; i++) sum[r][t] = fmaf(z[i], v[r][i], sum[r][t]);
        }
    }
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int t = 0; t < M; t++) {
            const float s = pb_warp_sum(sum[r][t]);
            if (lane == 0 && n0 + r < N && t < tokens)
                y[(size_t)t * N + n0 + r] = pb_from_f32<T>(bias ? s + bias[n0 + r] : s);
        }
}

template <class T, int M> void launch_rows(pb_ctx *ctx, const pb_nf4_linear_fwd_args *a)
{
    const pb_nf4_view w = pb_nf4_view_of(a->q, &a->scales);
    const T *x = static_cast<const T *>(a->x);
    T *y = static_cast<T *>(a->y);
    const bool many = a->N >= 2 * pb_cuda_device_of(ctx)->sms * WARPS * ROWS;
    const int each = WARPS * (many ? ROWS : 1);
    const unsigned blocks = (unsigned)((a->N + each - 1) / each);
    cudaStream_t s = pb_cuda_stream(ctx);
    if (many) fused<T, M, ROWS><<<blocks, THREADS, 0, s>>>(x, w, a->bias, y, a->T, a->N, a->K);
    else fused<T, M, 1><<<blocks, THREADS, 0, s>>>(x, w, a->bias, y, a->T, a->N, a->K);
}

template <class T> void launch_fused(pb_ctx *ctx, const pb_nf4_linear_fwd_args *a)
{
    if (a->T <= 1) launch_rows<T, 1>(ctx, a);
    else if (a->T <= 2) launch_rows<T, 2>(ctx, a);
    else if (a->T <= 4) launch_rows<T, 4>(ctx, a);
    else if (a->T <= 8) launch_rows<T, 8>(ctx, a);
    else launch_rows<T, 16>(ctx, a);
}

/* ---- host functions that launch the kernels --------------------------------------------------------------------- */

const pb_nf4_linear_fwd_args *fwd_args(const void *args) { return static_cast<const pb_nf4_linear_fwd_args *>(args); }
const pb_nf4_linear_dx_args *dx_args(const void *args) { return static_cast<const pb_nf4_linear_dx_args *>(args); }

bool fused_accepts(const void *args)
{
    const pb_nf4_linear_fwd_args *a = fwd_args(args);
    return a->T <= FEW && a->K % EACH == 0 && (uintptr_t)a->x % 16 == 0 && (uintptr_t)a->q % 4 == 0;
}

pb_status fwd_fused(pb_ctx *ctx, const void *args)
{
    const pb_nf4_linear_fwd_args *a = fwd_args(args);
    if (!a->T) return PB_OK;
    PB_CUDA_BY_DTYPE(a->dtype, launch_fused, ctx, a);
    return pb_cuda_launched(ctx, "nf4_linear fused");
}

/* Returns true if the sum has enough terms, and the output enough elements, for the rounding of W to bf16 to average
 * out. */
bool long_sums(pb_dtype t, int tokens, int terms, int outputs)
{
    return t == PB_F32 || (terms >= 32 && (size_t)tokens * (size_t)outputs >= 16);
}

bool fwd_cublaslt_accepts(const void *args)
{
    const pb_nf4_linear_fwd_args *a = fwd_args(args);
    return long_sums(a->dtype, a->T, a->K, a->N);
}

bool dx_cublaslt_accepts(const void *args)
{
    const pb_nf4_linear_dx_args *a = dx_args(args);
    return long_sums(a->dtype, a->T, a->N, a->K);
}

size_t weight_bytes(int N, int K, pb_dtype t) { return ((size_t)N * (size_t)K * pb_dtype_size(t) + 255) / 256 * 256; }

bool fwd_wgmma_accepts(const void *args)
{
    return fwd_args(args)->T <= SEVERAL && fwd_cublaslt_accepts(args) && pb_nf4_linear_wgmma_takes_fwd(args);
}

/* Returns true for shapes where decoding inside the product was faster than dequantising first (DESIGN.md): few tokens,
 * and N, the number of terms, large compared with K. */
bool dx_wgmma_pays(const void *args)
{
    const pb_nf4_linear_dx_args *a = dx_args(args);
    return (a->T <= 256 && a->N >= 4 * a->K) || (a->T <= 128 && a->N >= a->K);
}

bool dx_wgmma_accepts(const void *args)
{
    return dx_args(args)->T <= SEVERAL && dx_cublaslt_accepts(args) && pb_nf4_linear_wgmma_takes_dx(args);
}

/* Dequantises W to the start of scratch and multiplies. The scratch for the bias follows W. */
pb_status multiply(pb_ctx *ctx, pb_gemm g, int N, int K)
{
    char *w = static_cast<char *>(ctx->scratch);
    const pb_nf4_dequantize_args d = {
        .q = static_cast<const uint8_t *>(g.b.p), .scales = *g.b.nf4, .w = w, .n = (size_t)N * K, .dtype = g.a.dtype};
    const pb_impl *dequantize = pb_nf4_dequantize_cuda;
    /* Takes the first available dequantiser. ctx->impl is not used here, because it names an implementation of
     * nf4_linear. */
    while (dequantize->available && !dequantize->available()) dequantize++;
    if (!g.M) return PB_OK;
    PB_TRY(dequantize->run(ctx, &d));
    g.b.p = w;
    g.b.nf4 = NULL;
    g.b.dtype = g.a.dtype;
    return pb_cuda_gemm(ctx, &g, w + weight_bytes(N, K, g.a.dtype));
}

pb_status fwd_cublaslt(pb_ctx *ctx, const void *args)
{
    return multiply(ctx, pb_nf4_linear_fwd_gemm(fwd_args(args)), fwd_args(args)->N, fwd_args(args)->K);
}

size_t fwd_workspace(const void *args)
{
    const pb_nf4_linear_fwd_args *a = fwd_args(args);
    const pb_gemm g = pb_nf4_linear_fwd_gemm(a);
    return weight_bytes(a->N, a->K, a->dtype) + pb_cuda_bias_room(&g);
}

pb_status fwd_simt(pb_ctx *ctx, const void *args)
{
    const pb_gemm g = pb_nf4_linear_fwd_gemm(fwd_args(args));
    return pb_cuda_gemm_simt(ctx, &g);
}

pb_status dx_cublaslt(pb_ctx *ctx, const void *args)
{
    return multiply(ctx, pb_nf4_linear_dx_gemm(dx_args(args)), dx_args(args)->N, dx_args(args)->K);
}

size_t dx_workspace(const void *args) { return weight_bytes(dx_args(args)->N, dx_args(args)->K, dx_args(args)->dtype); }

pb_status dx_simt(pb_ctx *ctx, const void *args)
{
    const pb_gemm g = pb_nf4_linear_dx_gemm(dx_args(args));
    return pb_cuda_gemm_simt(ctx, &g);
}
} // namespace

extern "C" {
const pb_impl pb_nf4_linear_fwd_cuda[] = {
    {.name = "fused", .run = fwd_fused, .accepts = fused_accepts},
    {.name = "cublaslt", .run = fwd_cublaslt, .accepts = fwd_cublaslt_accepts, .workspace = fwd_workspace},
    /* wgmma is listed after cublaslt, which was faster at every measured shape but one. So it runs only when selected
     * by name. */
    {.name = "wgmma", .run = pb_nf4_linear_wgmma_fwd, .accepts = fwd_wgmma_accepts, .available = pb_cuda_has_sm90},
    /* registers has not been measured, so it runs only when selected by name; the same holds for dx. */
    {.name = "registers",
     .run = pb_nf4_linear_registers_fwd,
     .accepts = fwd_wgmma_accepts,
     .available = pb_cuda_has_sm90},
    {.name = "simt", .run = fwd_simt},
    {0}};
const pb_impl pb_nf4_linear_dx_cuda[] = {
    {.name = "wgmma",
     .run = pb_nf4_linear_wgmma_dx,
     .accepts = [](const void *args) { return dx_wgmma_accepts(args) && dx_wgmma_pays(args); },
     .available = pb_cuda_has_sm90},
    {.name = "cublaslt", .run = dx_cublaslt, .accepts = dx_cublaslt_accepts, .workspace = dx_workspace},
    /* wgmma_any is the wgmma kernel without the condition dx_wgmma_pays(). It runs only when selected by name. */
    {.name = "wgmma_any", .run = pb_nf4_linear_wgmma_dx, .accepts = dx_wgmma_accepts, .available = pb_cuda_has_sm90},
    {.name = "registers",
     .run = pb_nf4_linear_registers_dx,
     .accepts = dx_wgmma_accepts,
     .available = pb_cuda_has_sm90},
    {.name = "simt", .run = dx_simt},
    {0}};
}
