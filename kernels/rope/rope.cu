/* rope.cu - rotary position embedding on a GPU: q and k in one launch, forward and backward the same kernel.
 *
 * An item is a run of N pairs of one token in HEADS heads: the cos and sin of the run are loaded once for all, and
 * 2 HEADS 16-byte loads are in flight. Neighbouring threads own neighbouring runs and then neighbouring heads, q's
 * before k's. Tokens go by position and then by sequence, so that a row of cos and sin comes from memory once for all
 * sequences. Bound: memory, 2e bytes an element of size e, and the tables once.
 * qr may be q and kr may be k: a pair is read by the thread that overwrites it. */
#include <math.h>

#include "kernels/core/cuda_pack.cuh"
#include "kernels/rope/rope.h"

/* x is rotated into y, with sin times sign. */
template <class T> struct rotation {
    const T *q, *k;
    T *qr, *kr;
    size_t ldq, ldk, ldqr, ldkr;
    const float *cos, *sin;
    const int32_t *pos;
    size_t tokens;
    int B, S, H, K, D, P;
    float sign;
};

template <int N> __device__ static inline void load_row(const float *p, float (&out)[N])
{
    if constexpr (N % 4 == 0) pb_load_f32(p, out);
    else pb_load_vec(p, out);
}

/* N pairs of a head, from pair i on. */
template <class T, bool HALF, bool VEC> struct run {
    static constexpr int N = !VEC ? 1 : HALF ? pb_lanes<T> : pb_lanes<T> / 2;
    typename pb_unit<T, VEC>::raw lo, hi; /* the first elements and the second ones; adjacent vectors: lo holds both */

    __device__ void load(const T *x, int i, int D)
    {
        typedef const typename pb_unit<T, VEC>::raw *raw;
        lo = *(raw)(x + (HALF ? i : 2 * i));
        if (HALF) hi = *(raw)(x + D / 2 + i);
        else if (!VEC) hi = *(raw)(x + 2 * i + 1);
    }

    __device__ void rotate(T *y, int i, int D, const float (&c)[N], const float (&s)[N])
    {
        typedef pb_unit<T, VEC> unit;
        typedef typename unit::raw *raw;
        constexpr bool together = VEC && !HALF;
        float a[unit::n], b[unit::n];
        unit::unpack(lo, a);
        if (!together) unit::unpack(hi, b);
#pragma unroll
        for (int j = 0; j < N; j++) {
            float &u = together ? a[2 * j] : a[j], &v = together ? a[2 * j + 1] : b[j];
            const float u_ = u * c[j] - v * s[j];
            v = v * c[j] + u * s[j];
            u = u_;
        }
        *(raw)(y + (HALF ? i : 2 * i)) = unit::pack(a);
        if (HALF) *(raw)(y + D / 2 + i) = unit::pack(b);
        else if (!VEC) *(raw)(y + 2 * i + 1) = unit::pack(b);
    }
};

template <class T> __device__ static inline const T *head_in(const rotation<T> &a, size_t t, int h)
{
    return h < a.H ? a.q + t * a.ldq + (size_t)h * a.D : a.k + t * a.ldk + (size_t)(h - a.H) * a.D;
}
template <class T> __device__ static inline T *head_out(const rotation<T> &a, size_t t, int h)
{
    return h < a.H ? a.qr + t * a.ldqr + (size_t)h * a.D : a.kr + t * a.ldkr + (size_t)(h - a.H) * a.D;
}

/* A block owns `per` tokens; item e of a token is run e % runs of heads e / runs and that + share, + 2 share, ... */
template <class T, bool HALF, bool VEC, int HEADS>
__global__ void __launch_bounds__(256) rope_items(rotation<T> a, int per)
{
    typedef run<T, HALF, VEC> run_t;
    constexpr int N = run_t::N;
    const int runs = a.D / 2 / N, heads = a.H + a.K, share = (heads + HEADS - 1) / HEADS, items = runs * share;
    for (int n = threadIdx.x; n < per * items; n += blockDim.x) {
        const size_t at = (size_t)blockIdx.x * per + n / items;
        if (at >= a.tokens) break;
        const int s_at = (int)(at >> 32 ? at / a.B : (uint32_t)at / (uint32_t)a.B); /* 64-bit division is slow */
        const size_t t = (at - (size_t)s_at * a.B) * a.S + s_at;
        const int e = n % items, h = e / runs, i = e % runs * N, p = a.pos ? a.pos[t] : s_at;
        run_t part[HEADS];
#pragma unroll
        for (int k = 0; k < HEADS; k++)
            if (h + k * share < heads) part[k].load(head_in(a, t, h + k * share), i, a.D);
        float c[N], s[N];
        if (p >= 0 && p < a.P) {
            load_row(a.cos + (size_t)p * (a.D / 2) + i, c);
            load_row(a.sin + (size_t)p * (a.D / 2) + i, s);
#pragma unroll
            for (int j = 0; j < N; j++) s[j] *= a.sign;
        } else {
#pragma unroll
            for (int j = 0; j < N; j++) c[j] = s[j] = NAN;
        }
#pragma unroll
        for (int k = 0; k < HEADS; k++)
            if (h + k * share < heads) part[k].rotate(head_out(a, t, h + k * share), i, a.D, c, s);
    }
}

template <class T, bool HALF, int HEADS> static pb_status launch(pb_ctx *ctx, const rotation<T> &a)
{
    const int width = HALF ? a.D / 2 : a.D;
    const bool vec = pb_vectors_fit<T>(a.q, width, a.ldq) && pb_vectors_fit<T>(a.k, width, a.ldk) &&
                     pb_vectors_fit<T>(a.qr, width, a.ldqr) && pb_vectors_fit<T>(a.kr, width, a.ldkr) &&
                     pb_aligned16(a.cos) && pb_aligned16(a.sin);
    const int pairs = !vec ? 1 : HALF ? pb_lanes<T> : pb_lanes<T> / 2;
    const size_t items = (size_t)(a.D / 2 / pairs) * ((a.H + a.K + HEADS - 1) / HEADS);
    const size_t spread = pb_ceil_div(a.tokens, 2 * (size_t)pb_cuda_device_of(ctx)->sms);
    size_t per = items < 256 ? 256 / items : 1;
    if (per > spread) per = spread; /* few tokens: to every multiprocessor some */
    if (a.tokens == 0) return PB_OK;
    const size_t threads = per * items < 256 ? pb_ceil_div(per * items, 32) * 32 : 256;
    const auto kernel = vec ? rope_items<T, HALF, true, HEADS> : rope_items<T, HALF, false, HEADS>;
    const unsigned blocks = (unsigned)pb_ceil_div(a.tokens, per);
    kernel<<<blocks, (unsigned)threads, 0, pb_cuda_stream(ctx)>>>(a, (int)per);
    return pb_cuda_launched(ctx, "rope_items");
}

/* The tensors of `x`, and of the arguments what both passes have. */
template <class T, int HEADS, class ARGS> static pb_status rotate(pb_ctx *ctx, rotation<T> x, const ARGS *a, float sign)
{
    x.cos = a->cos, x.sin = a->sin, x.pos = a->pos, x.sign = sign;
    x.B = a->B, x.S = a->S, x.H = a->H, x.K = a->K, x.D = a->D, x.P = a->P;
    x.tokens = (size_t)a->B * a->S;
    return a->pairing == PB_ROPE_HALF ? launch<T, true, HEADS>(ctx, x) : launch<T, false, HEADS>(ctx, x);
}

template <class T, int HEADS> static pb_status fwd(pb_ctx *ctx, const pb_rope_fwd_args *a)
{
    const rotation<T> r = {.q = (const T *)a->q,
                           .k = (const T *)a->k,
                           .qr = (T *)a->qr,
                           .kr = (T *)a->kr,
                           .ldq = a->ldq,
                           .ldk = a->ldk,
                           .ldqr = a->ldqr,
                           .ldkr = a->ldkr};
    return rotate<T, HEADS>(ctx, r, a, 1);
}

template <class T, int HEADS> static pb_status bwd(pb_ctx *ctx, const pb_rope_bwd_args *a)
{
    const rotation<T> r = {.q = (const T *)a->dqr,
                           .k = (const T *)a->dkr,
                           .qr = (T *)a->dq,
                           .kr = (T *)a->dk,
                           .ldq = a->lddqr,
                           .ldk = a->lddkr,
                           .ldqr = a->lddq,
                           .ldkr = a->lddk};
    return rotate<T, HEADS>(ctx, r, a, -1);
}

template <int HEADS> static pb_status run_fwd(pb_ctx *ctx, const void *args)
{
    const pb_rope_fwd_args *a = (const pb_rope_fwd_args *)args;
    return a->dtype == PB_F32 ? fwd<float, HEADS>(ctx, a) : fwd<__nv_bfloat16, HEADS>(ctx, a);
}

template <int HEADS> static pb_status run_bwd(pb_ctx *ctx, const void *args)
{
    const pb_rope_bwd_args *a = (const pb_rope_bwd_args *)args;
    return a->dtype == PB_F32 ? bwd<float, HEADS>(ctx, a) : bwd<__nv_bfloat16, HEADS>(ctx, a);
}

extern "C" const pb_impl pb_rope_fwd_cuda[] = {{.name = "quads", .run = run_fwd<4>}, {0}};
extern "C" const pb_impl pb_rope_bwd_cuda[] = {{.name = "quads", .run = run_bwd<4>}, {0}};
