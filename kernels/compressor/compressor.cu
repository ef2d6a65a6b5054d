/* compressor.cu - the compressor on the GPU. A lane owns 16 bytes of the channels of a row. A warp processes chunks
 * of eight candidates: it loads a chunk at once (256 bytes per lane in flight) and keeps it packed in registers until
 * it is used up. Memory-bound.
 *
 * Up to eight candidates (ratio 4 with overlap): a warp per row, eight rows per CTA, no shared memory. More candidates
 * (ratio 128): a CTA of up to eight warps per row, which combine their maxima and sums. The backward pass then reads
 * all chunks of a warp except the last one a second time, from cache. Every element of a and z belongs to one row, so
 * each is read once, and da and dz are written once.
 *
 * dape: each CTA loops over rows and leaves one set of partial sums in scratch; a second kernel adds the
 * sets in a fixed order. With up to eight candidates the partial sums are kept in registers; otherwise they
 * are accumulated in scratch. */
#include <math.h>

#define PB_COMPRESSOR_FN __host__ __device__ static inline
#include "kernels/compressor/compressor.h"
#include "kernels/compressor/groups.h"
#include "kernels/rmsnorm/rmsnorm_rows.cuh"

namespace
{
/* CHUNK: candidates per chunk. dape is summed in at most MAX_PARTS sets of partial sums, and in at least MIN_PARTS sets
 * even if those need more than parts_bytes. */
enum { CHUNK = 8, WARPS = 8, MAX_PARTS = 256, MIN_PARTS = 32 };
static const size_t parts_bytes = (size_t)32 << 20;

struct pooling {
    pb_groups s;
    const void *a, *z, *dc;
    const float *ape;
    const int32_t *start;
    void *da, *dz, *c;
    float *part; /* [gridDim.x][ratio,C] partial sums; NULL: no dape */
    size_t lda, ldz, ldda, lddz;
    int warps; /* warps per row */
    bool f32;  /* type of c and dc: true: f32; false: bf16 */
};

/* The row that a lane works on. e: the lane's first channel; from: the first unmasked candidate; candidate i is token
 * `token` + i. */
struct row {
    ptrdiff_t token;
    int e, from, b, g;
};

__device__ row row_of(const pooling &p, size_t r, int e)
{
    row w;
    w.b = (int)(r / (size_t)p.s.G), w.g = (int)(r - (size_t)w.b * p.s.G), w.e = e;
    w.from = pb_group_from(&p.s, p.start, w.b, w.g);
    w.token = (ptrdiff_t)w.b * p.s.S + (ptrdiff_t)(w.g - (p.s.overlap ? 1 : 0)) * p.s.ratio;
    return w;
}
__device__ bool own(const pooling &p, int i) { return p.s.overlap && i >= p.s.ratio; }
__device__ int column(const pooling &p, const row &r, int i) { return own(p, i) ? p.s.D + r.e : r.e; }
__device__ size_t cell(const pooling &p, const row &r, int i)
{
    return (size_t)(own(p, i) ? i - p.s.ratio : i) * p.s.C + column(p, r, i);
}
__device__ bool valid(const pooling &p, const row &r, int i) { return i >= r.from && i < p.s.n; }

template <int N> __device__ void load_sums(const float *p, float (&out)[N])
{
    if constexpr (N % 4 == 0) pb_load_f32(p, out);
    else pb_load_vec(p, out);
}
template <int N> __device__ void store_sums(float *p, const float (&in)[N])
{
    if constexpr (N == 1) *p = in[0];
    else
#pragma unroll
        for (int u = 0; u < N; u += 4) pb_store16(p + u, pb_pack((const float(&)[4])in[u]));
}

/* The values a and z of candidates 8k .. 8k+7 in this lane's channels, packed as they are in memory. */
template <class T, bool VEC> struct chunk {
    typedef pb_unit<T, VEC> unit;
    typedef typename unit::raw raw;
    static constexpr int L = unit::n;
    raw a[CHUNK], z[CHUNK];

    __device__ void load(const pooling &p, const row &r, int k)
    {
        const float none[L] = {};
#pragma unroll
        for (int j = 0; j < CHUNK; j++) {
            const int i = k * CHUNK + j, col = column(p, r, i);
            const size_t token = (size_t)(r.token + i);
            const bool in = valid(p, r, i);
            a[j] = in ? *(const raw *)((const T *)p.a + token * p.lda + col) : unit::pack(none);
            z[j] = in ? *(const raw *)((const T *)p.z + token * p.ldz + col) : unit::pack(none);
        }
    }

    __device__ void gate(const pooling &p, const row &r, int i, int j, float (&out)[L]) const
    {
        float bias[L];
        load_sums(p.ape + cell(p, r, i), bias);
        unit::unpack(z[j], out);
#pragma unroll
        for (int u = 0; u < L; u++) out[u] += bias[u];
    }
};

/* State of the online softmax: largest gate, sum of the exponentials, sum of the exponentials times the values. */
template <int L> struct pooled {
    float most[L], sum[L], c[L];
};

__device__ float finite_base(float most) { return most == -INFINITY ? 0 : most; }

/* Adds chunk k to the online softmax state `to`. */
template <class T, bool VEC>
__device__ void add(const pooling &p, const row &r, int k, const chunk<T, VEC> &h, pooled<chunk<T, VEC>::L> &to)
{
    constexpr int L = chunk<T, VEC>::L;
    float top[L], x[L], v[L];
#pragma unroll
    for (int u = 0; u < L; u++) top[u] = to.most[u];
#pragma unroll
    for (int j = 0; j < CHUNK; j++) {
        if (!valid(p, r, k * CHUNK + j)) continue;
        h.gate(p, r, k * CHUNK + j, j, x);
#pragma unroll
        for (int u = 0; u < L; u++) top[u] = fmaxf(top[u], x[u]);
    }
#pragma unroll
    for (int u = 0; u < L; u++) {
        const float f = expf(to.most[u] - finite_base(top[u]));
        to.most[u] = top[u], to.sum[u] *= f, to.c[u] *= f;
    }
#pragma unroll
    for (int j = 0; j < CHUNK; j++) {
        if (!valid(p, r, k * CHUNK + j)) continue;
        h.gate(p, r, k * CHUNK + j, j, x);
        chunk<T, VEC>::unit::unpack(h.a[j], v);
#pragma unroll
        for (int u = 0; u < L; u++) {
            const float w = expf(x[u] - finite_base(top[u]));
            to.sum[u] += w, to.c[u] += w * v[u];
        }
    }
}

/* Combines the softmax states of the warps that share a row, in a fixed order; every warp gets the result. room:
 * [3][L][WARPS][32] floats of shared memory. */
template <int L> __device__ void combine_warps(const pooling &p, float *room, pooled<L> &x)
{
    const int lane = threadIdx.x, warp = threadIdx.y;
    pooled<L> all;
    __syncthreads(); /* room may still be read for the previous row */
#pragma unroll
    for (int u = 0; u < L; u++) {
        room[(u * WARPS + warp) * 32 + lane] = x.most[u];
        room[((L + u) * WARPS + warp) * 32 + lane] = x.sum[u];
        room[((2 * L + u) * WARPS + warp) * 32 + lane] = x.c[u];
    }
    __syncthreads();
#pragma unroll
    for (int u = 0; u < L; u++) {
        all.most[u] = -INFINITY, all.sum[u] = 0, all.c[u] = 0;
        for (int i = 0; i < p.warps; i++) all.most[u] = fmaxf(all.most[u], room[(u * WARPS + i) * 32 + lane]);
        for (int i = 0; i < p.warps; i++) {
            const float f = expf(room[(u * WARPS + i) * 32 + lane] - finite_base(all.most[u]));
            all.sum[u] += f * room[((L + u) * WARPS + i) * 32 + lane];
            all.c[u] += f * room[((2 * L + u) * WARPS + i) * 32 + lane];
        }
    }
    x = all;
}

/* Pools this warp's chunks of a row. Returns the index of the last chunk, which stays in h, or -1 if the warp has no
 * chunk. */
template <class T, bool VEC>
__device__ int pool(const pooling &p, const row &r, int first, chunk<T, VEC> &h, pooled<chunk<T, VEC>::L> &x)
{
    int last = -1;
#pragma unroll
    for (int u = 0; u < chunk<T, VEC>::L; u++) x.most[u] = -INFINITY, x.sum[u] = 0, x.c[u] = 0;
    for (int k = first; k * CHUNK < p.s.n; k += p.warps) {
        h.load(p, r, k);
        add(p, r, k, h, x);
        last = k;
    }
    return last;
}

/* The forward pass. Lanes beyond the channels and warps beyond the rows only take part in barriers. ONE: one warp per
 * row. */
template <class T, bool VEC, bool ONE> __global__ void __launch_bounds__(32 * WARPS, 1) fwd_rows(const pooling p)
{
    constexpr int L = chunk<T, VEC>::L;
    __shared__ float room[ONE ? 1 : 3 * L * WARPS * 32];
    const int e = ((int)blockIdx.y * 32 + (int)threadIdx.x) * L;
    const size_t r = ONE ? (size_t)blockIdx.x * WARPS + threadIdx.y : blockIdx.x;
    chunk<T, VEC> h;
    pooled<L> x = {};
    if (r < p.s.rows && e < p.s.D) pool(p, row_of(p, r, e), ONE ? 0 : (int)threadIdx.y, h, x);
    if (!ONE) combine_warps(p, room, x);
    if (r >= p.s.rows || e >= p.s.D || (!ONE && threadIdx.y)) return;
#pragma unroll
    for (int u = 0; u < L; u++) x.c[u] /= x.sum[u];
    if (p.f32) store_sums((float *)p.c + r * p.s.D + e, x.c);
    else pb_store_vec((__nv_bfloat16 *)p.c + r * p.s.D + e, x.c);
}

/* ---- backward pass ---------------------------------------------------------------------------------------------- */

/* Partial sums of dape. If ONE, they are in registers until all rows of this lane are done. Otherwise they are in
 * scratch: a lane's first row (`begins`) initialises them, the other rows add to them. */
template <int L, bool ONE> struct bias_sums {
    float x[ONE ? CHUNK : 1][L];

    __device__ void add(const pooling &p, const row &r, int i, int j, bool begins, const float (&dz)[L])
    {
        if constexpr (ONE) {
#pragma unroll
            for (int u = 0; u < L; u++) x[j][u] += dz[u];
        } else {
            float *to = p.part + (size_t)blockIdx.x * p.s.ratio * p.s.C + cell(p, r, i), sum[L] = {};
            if (!begins) load_sums(to, sum);
#pragma unroll
            for (int u = 0; u < L; u++) sum[u] += dz[u];
            store_sums(to, sum);
        }
    }
};

/* Computes and stores da and dz of chunk k, and adds dz to the sums of dape. x.sum holds dc / sum here. */
template <class T, bool VEC, bool ONE>
__device__ void spread(const pooling &p, const row &r, int k, const chunk<T, VEC> &h, const pooled<chunk<T, VEC>::L> &x,
                       bool begins, bias_sums<chunk<T, VEC>::L, ONE> &dape)
{
    typedef chunk<T, VEC> chunk_t;
    constexpr int L = chunk_t::L;
#pragma unroll
    for (int j = 0; j < CHUNK; j++) {
        const int i = k * CHUNK + j, col = column(p, r, i);
        const size_t token = (size_t)(r.token + i);
        float da[L], dz[L] = {};
        if (valid(p, r, i)) {
            float v[L];
            h.gate(p, r, i, j, da);
            chunk_t::unit::unpack(h.a[j], v);
#pragma unroll
            for (int u = 0; u < L; u++) {
                da[u] = expf(da[u] - finite_base(x.most[u])) * x.sum[u];
                dz[u] = da[u] * (v[u] - x.c[u]);
            }
            *(typename chunk_t::raw *)((T *)p.da + token * p.ldda + col) = chunk_t::unit::pack(da);
            *(typename chunk_t::raw *)((T *)p.dz + token * p.lddz + col) = chunk_t::unit::pack(dz);
        }
        if (p.part && i < p.s.n) dape.add(p, r, i, j, begins, dz);
    }
}

/* Sets da and dz of the row's own tokens to zero, in this lane's part of the first D columns. Used when no following
 * row pools these columns. */
template <class T, bool VEC> __device__ void clear_first(const pooling &p, const row &r, int first, int step)
{
    typedef chunk<T, VEC> chunk_t;
    const float none[chunk_t::L] = {};
    for (int i = first; i < p.s.ratio; i += step) {
        const size_t token = (size_t)(r.token + p.s.ratio + i);
        *(typename chunk_t::raw *)((T *)p.da + token * p.ldda + r.e) = chunk_t::unit::pack(none);
        *(typename chunk_t::raw *)((T *)p.dz + token * p.lddz + r.e) = chunk_t::unit::pack(none);
    }
}

/* Adds the partial sums of the CTA's warps in a fixed order and stores them. room: [L][WARPS][32] floats of shared
 * memory. */
template <int L>
__device__ void store_part(const pooling &p, const row &r, bool in, const bias_sums<L, true> &dape, float *room)
{
    const int lane = threadIdx.x, warp = threadIdx.y;
#pragma unroll
    for (int j = 0; j < CHUNK; j++) {
        __syncthreads();
#pragma unroll
        for (int u = 0; u < L; u++) room[(u * WARPS + warp) * 32 + lane] = dape.x[j][u];
        __syncthreads();
        if (warp >= L || !in || j >= p.s.n) continue;
        float sum = 0;
        for (int i = 0; i < WARPS; i++) sum += room[(warp * WARPS + i) * 32 + lane];
        p.part[(size_t)blockIdx.x * p.s.ratio * p.s.C + cell(p, r, j) + warp] = sum;
    }
}

template <class T, bool VEC, bool ONE> __global__ void __launch_bounds__(32 * WARPS, 1) bwd_rows(const pooling p)
{
    constexpr int L = chunk<T, VEC>::L;
    __shared__ float room[(ONE ? 1 : 3) * L * WARPS * 32];
    const int e = ((int)blockIdx.y * 32 + (int)threadIdx.x) * L, warp = (int)threadIdx.y, slots = ONE ? WARPS : 1;
    bias_sums<L, ONE> dape = {};
    bool begins = true;
    for (size_t first = (size_t)blockIdx.x * slots; first < p.s.rows; first += (size_t)gridDim.x * slots) {
        const size_t r = first + (ONE ? warp : 0);
        const bool mine = r < p.s.rows && e < p.s.D;
        const row at = row_of(p, mine ? r : 0, mine ? e : 0);
        chunk<T, VEC> h;
        pooled<L> x = {};
        float dc[L] = {};
        int last = -1;
        if (mine) last = pool(p, at, ONE ? 0 : warp, h, x);
        if (!ONE) combine_warps(p, room, x);
        if (!mine) continue;
        if (p.f32) load_sums((const float *)p.dc + r * p.s.D + e, dc);
        else pb_load_vec((const __nv_bfloat16 *)p.dc + r * p.s.D + e, dc);
#pragma unroll
        for (int u = 0; u < L; u++) x.c[u] /= x.sum[u], x.sum[u] = dc[u] / x.sum[u];
        for (int k = last; k >= 0; k -= p.warps) {
            if (k != last) h.load(p, at, k);
            spread<T, VEC, ONE>(p, at, k, h, x, begins, dape);
        }
        if (p.s.overlap && !pb_group_first_used(&p.s, p.start, at.b, at.g))
            clear_first<T, VEC>(p, at, ONE ? 0 : warp, p.warps);
        begins = false;
    }
    if constexpr (ONE)
        if (p.part) store_part(p, row_of(p, 0, e), e < p.s.D, dape, room);
}

/* Sets da and dz to zero for the tokens after the last whole group of each sequence; a CTA per token. */
template <class T> __global__ void __launch_bounds__(256) clear_tail(const pooling p)
{
    const int rest = p.s.S - p.s.G * p.s.ratio, b = (int)blockIdx.x / rest;
    const size_t token = (size_t)b * p.s.S + p.s.G * p.s.ratio + (blockIdx.x - (size_t)b * rest);
    for (int k = threadIdx.x; k < p.s.C; k += 256) {
        ((T *)p.da)[token * p.ldda + k] = pb_from_f32<T>(0);
        ((T *)p.dz)[token * p.lddz + k] = pb_from_f32<T>(0);
    }
}

/* ---- host functions that launch the kernels --------------------------------------------------------------------- */

/* Returns among how many CTAs the backward pass divides the rows; each has its own partial sums of dape. */
int parts_of(const pb_groups *s)
{
    const size_t units = s->n <= CHUNK ? pb_ceil_div(s->rows, WARPS) : s->rows;
    const size_t fit = parts_bytes / ((size_t)s->ratio * s->C * sizeof(float));
    const size_t most = fit < MIN_PARTS ? (size_t)MIN_PARTS : fit > MAX_PARTS ? (size_t)MAX_PARTS : fit;
    return (int)(units < most ? units : most);
}

/* Sets p->warps and returns the CTA size of both kernels. */
dim3 block_of(pooling *p)
{
    const int chunks = (p->s.n + CHUNK - 1) / CHUNK;
    p->warps = chunks == 1 ? 1 : chunks < WARPS ? chunks : WARPS;
    return dim3(32, chunks == 1 ? WARPS : p->warps);
}

/* Returns true if the tensors are aligned for 16-byte vectors. c: the tensor c of the forward pass, or dc. */
template <class T> bool fits(const pooling &p, const void *c)
{
    const size_t L = pb_lanes<T>, out = L * (p.f32 ? sizeof(float) : sizeof(__nv_bfloat16));
    return pb_vectors_fit<T>(p.a, p.s.D, p.lda) && pb_vectors_fit<T>(p.z, p.s.D, p.ldz) && pb_aligned16(p.ape) &&
           (uintptr_t)c % out == 0;
}

template <class T, bool VEC> pb_status fwd_launch(pb_ctx *ctx, pooling p)
{
    const dim3 block = block_of(&p);
    const bool one = p.s.n <= CHUNK;
    const unsigned tiles = (unsigned)pb_ceil_div(p.s.D, 32 * chunk<T, VEC>::L);
    const dim3 grid((unsigned)(one ? pb_ceil_div(p.s.rows, WARPS) : p.s.rows), tiles);
    if (one) fwd_rows<T, VEC, true><<<grid, block, 0, pb_cuda_stream(ctx)>>>(p);
    else fwd_rows<T, VEC, false><<<grid, block, 0, pb_cuda_stream(ctx)>>>(p);
    return pb_cuda_launched(ctx, "compressor fwd_rows");
}

template <class T, bool VEC> pb_status bwd_launch(pb_ctx *ctx, pooling p)
{
    const dim3 block = block_of(&p);
    const dim3 grid((unsigned)parts_of(&p.s), (unsigned)pb_ceil_div(p.s.D, 32 * chunk<T, VEC>::L));
    if (p.s.n <= CHUNK) bwd_rows<T, VEC, true><<<grid, block, 0, pb_cuda_stream(ctx)>>>(p);
    else bwd_rows<T, VEC, false><<<grid, block, 0, pb_cuda_stream(ctx)>>>(p);
    return pb_cuda_launched(ctx, "compressor bwd_rows");
}

template <class T> pb_status fwd(pb_ctx *ctx, const pb_compressor_fwd_args *a)
{
    pooling p = {};
    p.s = pb_groups_of(a->B, a->S, a->D, a->ratio, a->overlap);
    p.a = a->a, p.z = a->z, p.ape = a->ape, p.start = a->start, p.c = a->c;
    p.lda = a->lda, p.ldz = a->ldz, p.f32 = a->dtype == PB_F32;
    if (p.s.rows == 0) return PB_OK;
    return fits<T>(p, p.c) ? fwd_launch<T, true>(ctx, p) : fwd_launch<T, false>(ctx, p);
}

template <class T> pb_status bwd(pb_ctx *ctx, const pb_compressor_bwd_args *a)
{
    pooling p = {};
    p.s = pb_groups_of(a->B, a->S, a->D, a->ratio, a->overlap);
    p.a = a->a, p.z = a->z, p.dc = a->dc, p.ape = a->ape, p.start = a->start, p.da = a->da, p.dz = a->dz;
    p.lda = a->lda, p.ldz = a->ldz, p.ldda = a->ldda, p.lddz = a->lddz, p.f32 = a->dtype == PB_F32;
    p.part = a->dape ? (float *)ctx->scratch : NULL;
    const bool vec =
        fits<T>(p, p.dc) && pb_vectors_fit<T>(p.da, p.s.D, p.ldda) && pb_vectors_fit<T>(p.dz, p.s.D, p.lddz);
    const int rest = a->S - p.s.G * a->ratio, cells = a->ratio * p.s.C;
    if (p.s.rows) PB_TRY((vec ? bwd_launch<T, true>(ctx, p) : bwd_launch<T, false>(ctx, p)));
    if (a->B && rest) {
        clear_tail<T><<<(unsigned)(a->B * rest), 256, 0, pb_cuda_stream(ctx)>>>(p);
        PB_TRY(pb_cuda_launched(ctx, "compressor clear_tail"));
    }
    if (!a->dape) return PB_OK;
    norm_dw_add<<<(unsigned)pb_ceil_div(cells, NORM_COLUMNS), dim3(NORM_COLUMNS, 32), 0, pb_cuda_stream(ctx)>>>(
        p.part, a->dape, p.s.rows ? parts_of(&p.s) : 0, cells, a->accumulate);
    return pb_cuda_launched(ctx, "compressor dape");
}

pb_status run_fwd(pb_ctx *ctx, const void *args)
{
    const pb_compressor_fwd_args *a = static_cast<const pb_compressor_fwd_args *>(args);
    return PB_CUDA_BY_DTYPE(a->in_dtype, fwd, ctx, a);
}

pb_status run_bwd(pb_ctx *ctx, const void *args)
{
    const pb_compressor_bwd_args *a = static_cast<const pb_compressor_bwd_args *>(args);
    return PB_CUDA_BY_DTYPE(a->in_dtype, bwd, ctx, a);
}

size_t bwd_workspace(const void *args)
{
    const pb_compressor_bwd_args *a = static_cast<const pb_compressor_bwd_args *>(args);
    const pb_groups s = pb_groups_of(a->B, a->S, a->D, a->ratio, a->overlap);
    return a->dape ? (size_t)parts_of(&s) * s.ratio * s.C * sizeof(float) : 0;
}
} // namespace

extern "C" {
const pb_impl pb_compressor_fwd_cuda[] = {{.name = "rows", .run = run_fwd}, {0}};
const pb_impl pb_compressor_bwd_cuda[] = {{.name = "rows", .run = run_bwd, .workspace = bwd_workspace}, {0}};
}
