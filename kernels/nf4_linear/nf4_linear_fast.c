/* nf4_linear_fast.c - the NF4 layer on the CPU with SIMD. Both passes are matrix products whose packing step decodes
 * the weight panel by panel. A forward pass of few tokens decodes without packing, which would cost more than it saves.
 * Bound by arithmetic; with few tokens, by decoding. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/nf4_decode.h"
#include "kernels/cpu/simd.h"
#include "kernels/nf4_linear/nf4_linear_gemm.h"

enum { FEW = 6 }; /* number of tokens up to which decoding the weight is most of the work */

/* Computes acc[t] += x[t, k .. k+n-1] * w, where w is a vector of decoded weights. */
PB_INLINE void add(const pb_nf4_linear_fwd_args *a, int T, size_t k, size_t n, vf w, vf *acc)
{
#pragma GCC unroll 8
    for (int t = 0; t < T; t++) {
        const size_t at = (size_t)t * a->K + k;
        acc[t] += w * (n == PB_VLEN ? vf_load(a->x, at, a->dtype) : vf_load_n(a->x, at, a->dtype, n));
    }
}

/* Computes y[:,n] of T tokens. T is a constant in every call. K must be even, so that codes
 * start at a byte boundary. */
PB_INLINE void column(const pb_nf4_linear_fwd_args *a, int T, size_t n)
{
    const size_t K = (size_t)a->K, e = n * K;
    const int shift = __builtin_ctz((unsigned)a->scales.block);
    vf acc[FEW] = {{0}};
    for (size_t k = 0, end; k < K; k = end) {
        const size_t j = (e + k) >> shift, left = ((j + 1) << shift) - e;
        const float scale = pb_nf4_scale(&a->scales, j);
        end = left < K ? left : K;
        for (; k + PB_VLEN <= end; k += PB_VLEN) add(a, T, k, PB_VLEN, pb_nf4_levels(a->q + (e + k) / 2) * scale, acc);
        if (k == end) continue;
        uint8_t tail[PB_VLEN / 2] = {0};
        memcpy(tail, a->q + (e + k) / 2, (end - k) / 2);
        add(a, T, k, end - k, pb_nf4_levels(tail) * scale, acc);
    }
    for (int t = 0; t < T; t++) {
        const float sum = vf_sum(acc[t]) + (a->bias ? a->bias[n] : 0);
        vf_store_n(a->y, (size_t)t * a->N + n, a->dtype, vf_set(sum), 1);
    }
}

static void few_tokens(const pb_nf4_linear_fwd_args *a)
{
#pragma omp parallel for schedule(static) if ((double)a->N * a->K > 65536)
    for (int n = 0; n < a->N; n++) {
        switch (a->T) { /* a constant T keeps the sums in registers */
        case 1: column(a, 1, (size_t)n); break;
        case 2: column(a, 2, (size_t)n); break;
        case 3: column(a, 3, (size_t)n); break;
        case 4: column(a, 4, (size_t)n); break;
        case 5: column(a, 5, (size_t)n); break;
        default: column(a, FEW, (size_t)n); break;
        }
    }
}

pb_status PB_FAST(pb_nf4_linear_fwd)(pb_ctx *ctx, const void *args)
{
    const pb_nf4_linear_fwd_args *a = args;
    pb_gemm g = pb_nf4_linear_fwd_gemm(a);
    g.workspace = ctx->scratch;
    if (a->T > 0 && a->T <= FEW && a->K % 2 == 0) few_tokens(a);
    else pb_gemm_run(&g);
    return PB_OK;
}

pb_status PB_FAST(pb_nf4_linear_dx)(pb_ctx *ctx, const void *args)
{
    pb_gemm g = pb_nf4_linear_dx_gemm(args);
    g.workspace = ctx->scratch;
    pb_gemm_run(&g);
    return PB_OK;
}
