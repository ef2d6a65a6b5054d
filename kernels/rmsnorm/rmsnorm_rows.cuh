/* rmsnorm_rows.cuh - kernels for RMSNorm of rows, with and without a residual; rmsnorm.cu and addnorm.cu launch them.
 *
 * A group of threads computes a row: a power of two below 32, or whole warps. Forward: a row is read once and
 * stays packed in the group's registers between the sum and the result. Backward: each CTA works on several rows
 * in turn, with w and its partial dw in registers. Meanwhile the next row is copied to shared memory; a thread
 * reads only what it copied itself. Each CTA writes one row of partial sums to the scratch memory, and a second
 * small kernel adds these in order.
 *
 * Rows that are too wide, of odd width or not aligned use the *_any kernels, which read memory
 * twice, element by element.
 *
 * Limited by memory bandwidth. Bytes per row of D elements of size e:
 *     forward   2De, with a residual 4De
 *     backward  3De, with a residual 4De; the partial sums (4D per CTA) are negligible */
#ifndef PB_RMSNORM_ROWS_CUH
#define PB_RMSNORM_ROWS_CUH
#include "kernels/cuda/copy_async.cuh"
#include "kernels/cuda/cuda_pack.cuh"

/* Loads L weights from element d on; ones if w is NULL. */
template <int L> __device__ static inline void norm_weights(const float *w, size_t d, float (&out)[L])
{
    if (w) {
        pb_load_f32(w + d, out);
        return;
    }
#pragma unroll
    for (int u = 0; u < L; u++) out[u] = 1;
}

/* The arguments of the kernels. Row r is row r % G of token r / G. With a residual, G is 1 and rows are contiguous
 * (every ld is D). */
template <class T> struct norm_fwd {
    const T *x, *r; /* r NULL: no residual */
    const float *w; /* NULL: ones */
    T *h, *y;       /* h = x + r; unused without a residual */
    float *rstd;
    size_t rows, ldx, ldy;
    int G, D;
    float eps;
};
template <class T> struct norm_bwd {
    const T *dy, *x, *dres; /* dres: gradient that reaches x through the residual; NULL: none */
    const float *w, *rstd;
    T *dx;
    float *dw; /* NULL: w is frozen */
    size_t rows, lddy, ldx, lddx;
    int G, D;
    bool accumulate;
};

enum { NORM_BLOCK = 128, NORM_VECTORS = 4, NORM_PARTS = 1024, NORM_COLUMNS = 32, NORM_AHEAD = 12 };

/* Returns the bytes for the partial sums of dw: at most NORM_PARTS rows of D floats. */
static inline size_t norm_bwd_workspace(size_t rows, int D)
{
    return (rows < (size_t)NORM_PARTS ? rows : (size_t)NORM_PARTS) * D * sizeof(float);
}

/* How a row of `vectors` 16-byte vectors is divided: `group` threads per row, `each` vectors per thread (group * each
 * >= vectors), `block` threads per CTA. */
typedef struct norm_plan {
    int group, each, block;
} norm_plan;
static inline norm_plan norm_plan_of(size_t vectors, size_t rows, int sms)
{
    norm_plan p = {4, 1, NORM_BLOCK};
    while (p.group < 32 && (size_t)p.group < vectors) p.group *= 2;
    if (p.group == 32) p.group = 32 * (int)pb_ceil_div(vectors, 32 * NORM_VECTORS);
    p.each = (int)pb_ceil_div(vectors, p.group);
    /* With few rows, CTAs are small, so that every SM gets work. */
    if (rows * p.group < (size_t)sms * NORM_BLOCK) p.block = 32;
    if (p.block < p.group || NORM_BLOCK % p.group) p.block = p.group;
    return p;
}

__device__ static inline size_t norm_row_at(size_t r, int G, int D, size_t ld)
{
    if (G == 1) return r * ld;
    const size_t token = r >> 32 ? r / G : (uint32_t)r / (uint32_t)G; /* 64-bit division is slow */
    return token * ld + (r - token * G) * D;
}

/* Returns the sum over the group to each of its threads. All threads of the CTA must call it. room: one float per warp
 * of the CTA; it may be overwritten only after another barrier. */
__device__ static inline float norm_group_sum(float x, int group, float *room)
{
    for (int d = group < 32 ? group / 2 : 16; d > 0; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    if (group <= 32) return x;
    const int warp = threadIdx.x / 32, warps = group / 32, first = warp / warps * warps;
    if (threadIdx.x % 32 == 0) room[warp] = x;
    __syncthreads();
    x = 0;
    for (int i = first; i < first + warps; i++) x += room[i];
    return x;
}

/* ---- forward pass ----------------------------------------------------------------------------------------------- */

template <class T, int EACH, bool ADD> __global__ void __launch_bounds__(1024) norm_fwd_rows(norm_fwd<T> a, int group)
{
    constexpr int L = pb_lanes<T>;
    __shared__ float room[32];
    const int lane = threadIdx.x % group, vectors = a.D / L;
    const size_t r = (size_t)blockIdx.x * (blockDim.x / group) + threadIdx.x / group;
    const bool mine = r < a.rows;
    const size_t at = mine ? norm_row_at(r, a.G, a.D, a.ldx) : 0;
    uint4 h[EACH], res[ADD ? EACH : 1];
    float v[L], sum = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int k = lane + i * group;
        const bool in = mine && k < vectors;
        h[i] = in ? pb_load16(a.x + at + (size_t)k * L) : make_uint4(0, 0, 0, 0);
        if constexpr (ADD) res[i] = in ? pb_load16(a.r + at + (size_t)k * L) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int k = lane + i * group;
        pb_unpack(h[i], v);
        if constexpr (ADD) {
            float add[L];
            pb_unpack(res[i], add);
#pragma unroll
            for (int u = 0; u < L; u++) v[u] += add[u];
            h[i] = pb_pack(v); /* rounded to dtype, as the backward pass will read it */
            pb_unpack(h[i], v);
            if (mine && k < vectors) pb_store16(a.h + at + (size_t)k * L, h[i]);
        }
#pragma unroll
        for (int u = 0; u < L; u++) sum += v[u] * v[u];
    }
    const float rstd = 1 / sqrtf(norm_group_sum(sum, group, room) / (float)a.D + a.eps);
    if (!mine) return;
    if (lane == 0) a.rstd[r] = rstd;
    T *y = a.y + norm_row_at(r, a.G, a.D, a.ldy);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int k = lane + i * group;
        if (k >= vectors) break;
        float w[L];
        norm_weights(a.w, (size_t)k * L, w);
        pb_unpack(h[i], v);
#pragma unroll
        for (int u = 0; u < L; u++) v[u] *= rstd * w[u];
        pb_store16(y + (size_t)k * L, pb_pack(v));
    }
}

/* Kernel for rows of any width: one CTA per row, which reads memory twice. y may be x, and h may be x or r, because
 * each thread reads only elements that it wrote itself. */
template <class T> __global__ void __launch_bounds__(NORM_BLOCK) norm_fwd_any(norm_fwd<T> a)
{
    __shared__ float room[NORM_BLOCK / 32];
    const size_t r = blockIdx.x, at = norm_row_at(r, a.G, a.D, a.ldx), to = norm_row_at(r, a.G, a.D, a.ldy);
    const T *h = a.r ? a.h : a.x;
    float sum = 0;
    for (int d = threadIdx.x; d < a.D; d += NORM_BLOCK) {
        if (a.r) a.h[at + d] = pb_from_f32<T>(pb_to_f32(a.x[at + d]) + pb_to_f32(a.r[at + d]));
        const float v = pb_to_f32(h[at + d]);
        sum += v * v;
    }
    const float rstd = 1 / sqrtf(pb_block_sum<NORM_BLOCK>(sum, room) / (float)a.D + a.eps);
    if (threadIdx.x == 0) a.rstd[r] = rstd;
    for (int d = threadIdx.x; d < a.D; d += NORM_BLOCK)
        a.y[to + d] = pb_from_f32<T>(pb_to_f32(h[at + d]) * (rstd * (a.w ? a.w[d] : 1)));
}

template <class T, bool ADD> static pb_status norm_fwd_launch(pb_ctx *ctx, const norm_fwd<T> &a)
{
    const size_t vectors = a.D / pb_lanes<T>;
    const bool fit = pb_vectors_fit<T>(a.x, a.D, a.ldx) && pb_vectors_fit<T>(a.y, a.D, a.ldy) && pb_aligned16(a.w) &&
                     (!ADD || (pb_aligned16(a.r) && pb_aligned16(a.h)));
    if (a.rows == 0) return PB_OK;
    if (!fit || vectors > 1024 * NORM_VECTORS) {
        norm_fwd_any<T><<<(unsigned)a.rows, NORM_BLOCK, 0, pb_cuda_stream(ctx)>>>(a);
        return pb_cuda_launched(ctx, "norm_fwd_any");
    }
    const norm_plan p = norm_plan_of(vectors, a.rows, pb_cuda_device_of(ctx)->sms);
    const auto kernel = p.each == 1   ? norm_fwd_rows<T, 1, ADD>
                        : p.each == 2 ? norm_fwd_rows<T, 2, ADD>
                        : p.each == 3 ? norm_fwd_rows<T, 3, ADD>
                                      : norm_fwd_rows<T, 4, ADD>;
    const unsigned blocks = (unsigned)pb_ceil_div(a.rows, p.block / p.group);
    kernel<<<blocks, p.block, 0, pb_cuda_stream(ctx)>>>(a, p.group);
    return pb_cuda_launched(ctx, "norm_fwd_rows");
}

/* ---- backward pass ---------------------------------------------------------------------------------------------- */

/* Adds the dw of a CTA's groups in the order of the groups and stores the result in `part` [D]. Each thread has EACH
 * vectors. sums: [EACH,L,threads] of shared memory. */
template <int EACH, int L>
__device__ static inline void norm_dw_store(float (&dw)[EACH][L], float *sums, float *part, int group, int vectors)
{
    const int groups = blockDim.x / group, lane = threadIdx.x % group;
    if (groups > 1) {
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int u = 0; u < L; u++) sums[(i * L + u) * blockDim.x + threadIdx.x] = dw[i][u];
        __syncthreads();
        if (threadIdx.x >= group) return;
#pragma unroll 1
        for (int g = 1; g < groups; g++)
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int u = 0; u < L; u++) dw[i][u] += sums[(i * L + u) * blockDim.x + g * group + lane];
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int k = lane + i * group;
        if (k >= vectors) break;
#pragma unroll
        for (int u = 0; u < L; u += 4) pb_store16(part + (size_t)k * L + u, pb_pack((const float(&)[4])dw[i][u]));
    }
}

/* Bytes of shared memory per thread, in which the thread keeps its vectors of two rows. */
template <int EACH, bool ADD> constexpr size_t norm_bwd_room = 2 * (ADD ? 3 : 2) * EACH * sizeof(uint4);

/* Starts the asynchronous copies of this thread's vectors of row r; zeros if r is past the last row.
 * slot: [2 or 3,EACH,threads]. */
template <class T, int EACH, bool ADD>
__device__ static inline void norm_bwd_fetch(const norm_bwd<T> &a, size_t r, int group, uint4 *slot)
{
    constexpr int L = pb_lanes<T>;
    const int lane = threadIdx.x % group, vectors = a.D / L;
    const bool mine = r < a.rows;
    const size_t x = mine ? norm_row_at(r, a.G, a.D, a.ldx) : 0, dy = mine ? norm_row_at(r, a.G, a.D, a.lddy) : 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int k = lane + i * group;
        const bool in = mine && k < vectors;
        const size_t at = in ? (size_t)k * L : 0;
        copy_async(slot + i * blockDim.x, a.dy + dy + at, in);
        copy_async(slot + (EACH + i) * blockDim.x, a.x + x + at, in);
        if constexpr (ADD) copy_async(slot + (2 * EACH + i) * blockDim.x, a.dres + x + at, in);
    }
    copy_commit();
}

/* Computes dx of all rows. If `part` is not NULL, CTA i also writes its partial sums of dw to row i of it. dx
 * may be dy or dres: a row is read before it is written, and by one group only. Vectors past the end of a row
 * are zeros and add nothing. */
template <class T, int EACH, bool ADD>
__global__ void __launch_bounds__(256, 2) norm_bwd_rows(norm_bwd<T> a, float *part, int group)
{
    constexpr int L = pb_lanes<T>, SLOT = (ADD ? 3 : 2) * EACH;
    extern __shared__ uint4 shared[]; /* [2,SLOT,threads]; reused for the sums of dw */
    __shared__ float room[2][8];
    const int lane = threadIdx.x % group, vectors = a.D / L, groups = blockDim.x / group;
    const size_t step = (size_t)gridDim.x * groups;
    size_t first = (size_t)blockIdx.x * groups, r = first + threadIdx.x / group;
    float dw[EACH][L] = {}, w[EACH][L] = {}, rstd = r < a.rows ? a.rstd[r] : 0;
    norm_bwd_fetch<T, EACH, ADD>(a, r, group, shared + threadIdx.x);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (lane + i * group < vectors) norm_weights(a.w, (size_t)(lane + i * group) * L, w[i]);
    for (int odd = 0; first < a.rows; first += step, r += step, odd ^= 1) {
        const uint4 *slot = shared + odd * SLOT * blockDim.x + threadIdx.x;
        const float rstd_next = r + step < a.rows ? a.rstd[r + step] : 0;
        norm_bwd_fetch<T, EACH, ADD>(a, r + step, group, shared + (odd ^ 1) * SLOT * blockDim.x + threadIdx.x);
        copy_wait<1>();
        float dot = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            float g[L], xh[L];
            pb_unpack(slot[i * blockDim.x], g), pb_unpack(slot[(EACH + i) * blockDim.x], xh);
#pragma unroll
            for (int u = 0; u < L; u++) {
                const float p = g[u] * (xh[u] * rstd);
                dw[i][u] += p;
                dot += p * w[i][u];
            }
        }
        const float c = norm_group_sum(dot, group, room[odd]) / (float)a.D * rstd;
        T *dx = a.dx + (r < a.rows ? norm_row_at(r, a.G, a.D, a.lddx) : 0);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int k = lane + i * group;
            if (r >= a.rows || k >= vectors) break;
            float g[L], xh[L];
            pb_unpack(slot[i * blockDim.x], g), pb_unpack(slot[(EACH + i) * blockDim.x], xh);
#pragma unroll
            for (int u = 0; u < L; u++) g[u] = (g[u] * w[i][u] - xh[u] * c) * rstd;
            if constexpr (ADD) {
                pb_unpack(slot[(2 * EACH + i) * blockDim.x], xh);
#pragma unroll
                for (int u = 0; u < L; u++) g[u] += xh[u];
            }
            pb_store16(dx + (size_t)k * L, pb_pack(g));
        }
        rstd = rstd_next;
    }
    copy_wait<0>();
    __syncthreads();
    if (part) norm_dw_store(dw, (float *)shared, part + (size_t)blockIdx.x * a.D, group, vectors);
}

/* Adds the `parts` rows of partial sums to dw in a fixed order. Warp i of a CTA adds rows i, i+32, ... of 32 columns,
 * with NORM_AHEAD loads in flight. Then the sums of the warps are added in order. */
__global__ static void __launch_bounds__(1024)
    norm_dw_add(const float *part, float *dw, int parts, int D, bool accumulate)
{
    __shared__ float sums[32][NORM_COLUMNS + 1];
    const int d = blockIdx.x * NORM_COLUMNS + threadIdx.x;
    float sum = 0;
    for (int p = threadIdx.y; d < D && p < parts; p += 32 * NORM_AHEAD) {
        float x[NORM_AHEAD];
#pragma unroll
        for (int i = 0; i < NORM_AHEAD; i++) x[i] = p + 32 * i < parts ? part[((size_t)p + 32 * i) * D + d] : 0;
#pragma unroll
        for (int i = 0; i < NORM_AHEAD; i++) sum += x[i];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || d >= D) return;
    for (int i = 1; i < 32; i++) sum += sums[i][threadIdx.x];
    dw[d] = accumulate ? dw[d] + sum : sum;
}

/* Kernel for rows of any width: row blockIdx.y of `part` gets the sum over its run of rows; one thread per column. */
template <class T> __global__ void __launch_bounds__(NORM_BLOCK) norm_dw_any(norm_bwd<T> a, float *part)
{
    const int d = blockIdx.x * NORM_BLOCK + threadIdx.x;
    const size_t first = a.rows * blockIdx.y / gridDim.y, end = a.rows * (blockIdx.y + 1) / gridDim.y;
    if (d >= a.D) return;
    float sum = 0;
    for (size_t r = first; r < end; r++)
        sum += pb_to_f32(a.dy[norm_row_at(r, a.G, a.D, a.lddy) + d]) *
               (pb_to_f32(a.x[norm_row_at(r, a.G, a.D, a.ldx) + d]) * a.rstd[r]);
    part[(size_t)blockIdx.y * a.D + d] = sum;
}

/* Kernel for rows of any width: one CTA per row, which reads memory twice. A thread overwrites only elements that no
 * other thread reads. */
template <class T> __global__ void __launch_bounds__(NORM_BLOCK) norm_dx_any(norm_bwd<T> a)
{
    __shared__ float room[NORM_BLOCK / 32];
    const size_t r = blockIdx.x, x = norm_row_at(r, a.G, a.D, a.ldx);
    const size_t dy = norm_row_at(r, a.G, a.D, a.lddy), dx = norm_row_at(r, a.G, a.D, a.lddx);
    const float rstd = a.rstd[r];
    float dot = 0;
    for (int d = threadIdx.x; d < a.D; d += NORM_BLOCK)
        dot += pb_to_f32(a.dy[dy + d]) * (pb_to_f32(a.x[x + d]) * rstd) * (a.w ? a.w[d] : 1);
    const float c = pb_block_sum<NORM_BLOCK>(dot, room) / (float)a.D;
    for (int d = threadIdx.x; d < a.D; d += NORM_BLOCK) {
        float g = (pb_to_f32(a.dy[dy + d]) * (a.w ? a.w[d] : 1) - pb_to_f32(a.x[x + d]) * rstd * c) * rstd;
        if (a.dres) g += pb_to_f32(a.dres[x + d]);
        a.dx[dx + d] = pb_from_f32<T>(g);
    }
}

template <class T> static pb_status norm_bwd_any(pb_ctx *ctx, const norm_bwd<T> &a, int *parts)
{
    *parts = (int)(a.rows < 256 ? a.rows : 256);
    if (a.dw) { /* before dx, which may overwrite dy */
        const dim3 grid((unsigned)pb_ceil_div(a.D, NORM_BLOCK), *parts);
        norm_dw_any<T><<<grid, NORM_BLOCK, 0, pb_cuda_stream(ctx)>>>(a, (float *)ctx->scratch);
        PB_TRY(pb_cuda_launched(ctx, "norm_dw_any"));
    }
    norm_dx_any<T><<<(unsigned)a.rows, NORM_BLOCK, 0, pb_cuda_stream(ctx)>>>(a);
    return pb_cuda_launched(ctx, "norm_dx_any");
}

template <class T, int EACH, bool ADD>
static pb_status norm_bwd_blocks(pb_ctx *ctx, const norm_bwd<T> &a, norm_plan p, int blocks)
{
    const auto kernel = norm_bwd_rows<T, EACH, ADD>;
    const size_t bytes = norm_bwd_room<EACH, ADD> * p.block;
    static_assert(norm_bwd_room<EACH, ADD> * 256 + 64 <= PB_GPU_LEAST_SHARED, "a CTA of 256 threads fits every GPU");
    PB_TRY(pb_cuda_allow_shared(kernel, bytes));
    kernel<<<(unsigned)blocks, p.block, bytes, pb_cuda_stream(ctx)>>>(a, a.dw ? (float *)ctx->scratch : NULL, p.group);
    return pb_cuda_launched(ctx, "norm_bwd_rows");
}

template <class T, bool ADD> static pb_status norm_bwd_vectors(pb_ctx *ctx, const norm_bwd<T> &a, int *parts)
{
    const int sms = pb_cuda_device_of(ctx)->sms;
    norm_plan p = norm_plan_of(a.D / pb_lanes<T>, a.rows, sms);
    /* A CTA takes two rows at a time if enough CTAs remain: this halves the number of partial sums. */
    if (p.group == NORM_BLOCK && a.rows >= (size_t)sms * 4) p.block = 2 * NORM_BLOCK;
    /* 512 threads per SM: these have enough registers with every value of EACH. */
    size_t blocks = pb_ceil_div(a.rows, p.block / p.group), most = (size_t)sms * (512 / p.block);
    if (most > NORM_PARTS) most = NORM_PARTS;
    if (blocks > most) blocks = most;
    *parts = (int)blocks;
    return p.each == 1   ? norm_bwd_blocks<T, 1, ADD>(ctx, a, p, *parts)
           : p.each == 2 ? norm_bwd_blocks<T, 2, ADD>(ctx, a, p, *parts)
           : p.each == 3 ? norm_bwd_blocks<T, 3, ADD>(ctx, a, p, *parts)
                         : norm_bwd_blocks<T, 4, ADD>(ctx, a, p, *parts);
}

template <class T, bool ADD> static pb_status norm_bwd_launch(pb_ctx *ctx, const norm_bwd<T> &a)
{
    const bool fit = pb_vectors_fit<T>(a.dy, a.D, a.lddy) && pb_vectors_fit<T>(a.x, a.D, a.ldx) &&
                     pb_vectors_fit<T>(a.dx, a.D, a.lddx) && pb_aligned16(a.w) && (!ADD || pb_aligned16(a.dres));
    int parts = 0;
    if (a.rows) {
        if (fit && a.D / pb_lanes<T> <= 256 * NORM_VECTORS) PB_TRY((norm_bwd_vectors<T, ADD>(ctx, a, &parts)));
        else PB_TRY(norm_bwd_any<T>(ctx, a, &parts));
    }
    if (!a.dw) return PB_OK;
    norm_dw_add<<<(unsigned)pb_ceil_div(a.D, NORM_COLUMNS), dim3(NORM_COLUMNS, 32), 0, pb_cuda_stream(ctx)>>>(
        (const float *)ctx->scratch, a.dw, parts, a.D, a.accumulate);
    return pb_cuda_launched(ctx, "norm_dw_add");
}
#endif
