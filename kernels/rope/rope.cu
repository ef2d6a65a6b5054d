/* rope.cu - rotary position embedding on the GPU: one kernel for q and k, forward and backward. Memory-bound: every
 * element is read and written once, and the cos and sin tables are read once.
 *
 * A thread processes a run of N pairs of one token in HEADS heads. It loads cos and sin of the run once for these heads
 * and keeps 2 HEADS 16-byte loads in flight. Neighbouring threads take neighbouring runs, then neighbouring heads;
 * heads of q come before heads of k. Tokens are ordered by position, then by sequence, so that a row of cos and sin is
 * read from memory once for all sequences.
 *
 * If only a part of each head is rotated and the call is not in place, additional work items copy the other
 * elements in vectors of 16 bytes. The call may be in place (qr == q, kr == k) because the thread that
 * overwrites a pair has read it. */
#include <math.h>

#define PB_ROPE_FN __host__ __device__ static inline
#include "kernels/cuda/cuda_pack.cuh"
#include "kernels/rope/rows.h"

template <int N> __device__ static inline void load_row(const float *p, float (&out)[N])
{
    if constexpr (N % 4 == 0) pb_load_f32(p, out);
    else pb_load_vec(p, out);
}

/* N neighbouring pairs of the rotated part of a head, from pair i on. D is the number of rotated elements. */
template <class T, bool HALF, bool VEC> struct run {
    static constexpr int N = !VEC ? 1 : HALF ? pb_lanes<T> : pb_lanes<T> / 2;
    /* lo: the first elements of the pairs, hi: the second ones. With adjacent pairs in vectors, lo holds both. */
    typename pb_unit<T, VEC>::raw lo, hi;

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

/* Returns the element offset of token s of sequence b. PLAIN: sequences are contiguous, so seq is not needed. */
template <bool PLAIN>
__device__ static inline size_t row_at(const pb_rope_rows &a, size_t seq, size_t ld, size_t b, size_t s)
{
    return PLAIN ? (b * a.S + s) * ld : b * seq + s * ld;
}

/* Returns the address of head h of token s of sequence b. Heads of q are numbered before heads of k. */
template <class T, bool PLAIN>
__device__ static inline const T *head_in(const pb_rope_rows &a, size_t b, size_t s, int h)
{
    if (h < a.heads[0]) return (const T *)a.x[0] + row_at<PLAIN>(a, a.seqx[0], a.ldx[0], b, s) + (size_t)h * a.D;
    return (const T *)a.x[1] + row_at<PLAIN>(a, a.seqx[1], a.ldx[1], b, s) + (size_t)(h - a.heads[0]) * a.D;
}
template <class T, bool PLAIN> __device__ static inline T *head_out(const pb_rope_rows &a, size_t b, size_t s, int h)
{
    if (h < a.heads[0]) return (T *)a.y[0] + row_at<PLAIN>(a, a.seqy[0], a.ldy[0], b, s) + (size_t)h * a.D;
    return (T *)a.y[1] + row_at<PLAIN>(a, a.seqy[1], a.ldy[1], b, s) + (size_t)(h - a.heads[0]) * a.D;
}

/* Loads cos and sign * sin of pairs i .. i+N-1 at position p; NaN if p is outside [0,P). */
template <int N>
__device__ static inline void load_cos_sin(const pb_rope_rows &a, int p, int i, float (&c)[N], float (&s)[N])
{
    if (p < 0 || p >= a.P) {
#pragma unroll
        for (int j = 0; j < N; j++) c[j] = s[j] = NAN;
        return;
    }
    load_row(a.cos + (size_t)p * (a.R / 2) + i, c);
    load_row(a.sin + (size_t)p * (a.R / 2) + i, s);
#pragma unroll
    for (int j = 0; j < N; j++) s[j] *= a.sign;
}

/* A CTA owns `per` tokens. A head has `parts` parts: first the runs of pairs, then the vectors that are only copied.
 * Work item e of a token is part e % parts of the heads h = e / parts, h + share, h + 2 share, ... PLAIN: R == D and no
 * gaps between sequences; this instance needs fewer registers. */
template <class T, bool HALF, bool VEC, bool PLAIN, int HEADS>
__global__ void __launch_bounds__(256) rope_items(const __grid_constant__ pb_rope_rows a, int per, int parts)
{
    typedef run<T, HALF, VEC> run_t;
    typedef typename pb_unit<T, VEC>::raw raw;
    constexpr int N = run_t::N;
    const int runs = a.R / 2 / N, heads = a.heads[0] + a.heads[1], share = (heads + HEADS - 1) / HEADS;
    const int items = parts * share, still = PLAIN ? 0 : a.D - a.R;
    for (int n = threadIdx.x; n < per * items; n += blockDim.x) {
        const size_t at = (size_t)blockIdx.x * per + n / items;
        if (at >= (size_t)a.B * a.S) break;
        const size_t s_at = at >> 32 ? at / a.B : (uint32_t)at / (uint32_t)a.B; /* 32-bit division is faster */
        const size_t b = at - s_at * a.B;
        const int e = n % items, h = e / parts, i = e % parts;
        if (!PLAIN && i >= runs) {
            const int from = (i - runs) * pb_unit<T, VEC>::n;
            raw x[HEADS];
#pragma unroll
            for (int k = 0; k < HEADS; k++)
                if (h + k * share < heads) x[k] = *(const raw *)(head_in<T, PLAIN>(a, b, s_at, h + k * share) + from);
#pragma unroll
            for (int k = 0; k < HEADS; k++)
                if (h + k * share < heads) *(raw *)(head_out<T, PLAIN>(a, b, s_at, h + k * share) + from) = x[k];
            continue;
        }
        run_t part[HEADS];
#pragma unroll
        for (int k = 0; k < HEADS; k++)
            if (h + k * share < heads) part[k].load(head_in<T, PLAIN>(a, b, s_at, h + k * share) + still, i * N, a.R);
        float c[N], s[N];
        load_cos_sin(a, pb_rope_position(&a, b, s_at), i * N, c, s);
#pragma unroll
        for (int k = 0; k < HEADS; k++)
            if (h + k * share < heads)
                part[k].rotate(head_out<T, PLAIN>(a, b, s_at, h + k * share) + still, i * N, a.R, c, s);
    }
}

/* Returns true if every vector of side k (0: q, 1: k), rotated or copied, is 16-byte aligned. */
template <class T, bool HALF> static bool side_fits(const pb_rope_rows &a, int k)
{
    const size_t width = HALF ? a.R / 2 : a.R;
    if (a.heads[k] == 0) return true;
    return pb_vectors_fit<T>(a.x[k], width, a.ldx[k]) && pb_vectors_fit<T>(a.y[k], width, a.ldy[k]) &&
           pb_vectors_fit<T>(a.x[k], a.D, a.seqx[k]) && pb_vectors_fit<T>(a.y[k], a.D, a.seqy[k]);
}

/* Returns true if the sequences of all tensors are contiguous. */
static bool gapless(const pb_rope_rows &a)
{
    bool yes = true;
    for (int k = 0; k < 2; k++) yes = yes && a.seqx[k] == a.S * a.ldx[k] && a.seqy[k] == a.S * a.ldy[k];
    return yes;
}

template <class T, bool HALF, int HEADS> static pb_status launch(pb_ctx *ctx, const pb_rope_rows &a)
{
    const bool vec = side_fits<T, HALF>(a, 0) && side_fits<T, HALF>(a, 1) && pb_aligned16(a.cos) && pb_aligned16(a.sin);
    const int pairs = !vec ? 1 : HALF ? pb_lanes<T> : pb_lanes<T> / 2;
    const bool in_place = a.x[0] == a.y[0] && a.x[1] == a.y[1];
    const int parts = a.R / 2 / pairs + (in_place ? 0 : (a.D - a.R) / (vec ? pb_lanes<T> : 1));
    const size_t tokens = (size_t)a.B * a.S, items = (size_t)parts * ((a.heads[0] + a.heads[1] + HEADS - 1) / HEADS);
    const size_t spread = pb_ceil_div(tokens, 2 * (size_t)pb_cuda_device_of(ctx)->sms);
    size_t per = items < 256 ? 256 / items : 1;
    if (per > spread) per = spread; /* with few tokens: spread them over all SMs */
    if (tokens == 0) return PB_OK;
    const size_t threads = per * items < 256 ? pb_ceil_div(per * items, 32) * 32 : 256;
    const bool plain = a.R == a.D && gapless(a);
    const auto kernel = !vec    ? rope_items<T, HALF, false, false, HEADS>
                        : plain ? rope_items<T, HALF, true, true, HEADS>
                                : rope_items<T, HALF, true, false, HEADS>;
    const unsigned blocks = (unsigned)pb_ceil_div(tokens, per);
    kernel<<<blocks, (unsigned)threads, 0, pb_cuda_stream(ctx)>>>(a, (int)per, parts);
    return pb_cuda_launched(ctx, "rope_items");
}

template <class T> static pb_status rotate(pb_ctx *ctx, const pb_rope_rows &a)
{
    return a.pairing == PB_ROPE_HALF ? launch<T, true, 4>(ctx, a) : launch<T, false, 4>(ctx, a);
}

static pb_status run_fwd(pb_ctx *ctx, const void *args)
{
    const pb_rope_rows a = pb_rope_fwd_rows((const pb_rope_fwd_args *)args);
    return PB_CUDA_BY_DTYPE(a.dtype, rotate, ctx, a);
}

static pb_status run_bwd(pb_ctx *ctx, const void *args)
{
    const pb_rope_rows a = pb_rope_bwd_rows((const pb_rope_bwd_args *)args);
    return PB_CUDA_BY_DTYPE(a.dtype, rotate, ctx, a);
}

extern "C" const pb_impl pb_rope_fwd_cuda[] = {{.name = "quads", .run = run_fwd}, {0}};
extern "C" const pb_impl pb_rope_bwd_cuda[] = {{.name = "quads", .run = run_bwd}, {0}};
