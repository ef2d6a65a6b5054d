/* embedding.cu - table lookup and its gradient on a GPU, one kernel launch each.
 *
 * Forward: copies 16-byte words where the rows allow it. A thread copies one column of words for ROWS tokens. Limited
 * by memory: 2De bytes per token (e: bytes of an element).
 *
 * Backward: deterministic, without atomic additions. CTA b owns the table rows v with v % blocks == b; neighbouring ids
 * have similar frequency, so the load is balanced. Each CTA
 *     1. reads all ids, window by window (they come from L2), and keeps the hits, the tokens whose row it owns;
 *     2. sorts the hits of a window by row, and by t within a row;
 *     3. adds their dy in this order: a thread owns columns and has BWD_LOADS tokens in flight, or RUN of one row;
 *     4. at the end clears its rows that no token hit, unless it accumulates.
 * Limited by memory bandwidth: De + Dw bytes per hit (and Dw more with accumulate), and Dw per row that is only
 * cleared, with w bytes per element of dtable. A dtable in bf16 holds a row's sum between two windows, so the sum is
 * rounded once per window that adds to it. */
#include "kernels/cuda/cuda_pack.cuh"
#include "kernels/embedding/embedding.h"

/* ---- forward pass ----------------------------------------------------------------------------------------------- */

/* Sets w to a bit pattern that is NaN both as f32 and as bf16. */
__device__ static inline void set_nan(uint16_t &w) { w = 0x7fff; }
__device__ static inline void set_nan(uint32_t &w) { w = 0x7fff7fff; }
__device__ static inline void set_nan(uint4 &w) { w = make_uint4(0x7fff7fff, 0x7fff7fff, 0x7fff7fff, 0x7fff7fff); }

template <class WORD, int ROWS>
__global__ void __launch_bounds__(256)
    embedding_rows(const WORD *table, const int32_t *ids, WORD *y, int T, int V, int words, unsigned chunks)
{
    const int k = blockIdx.x % chunks * blockDim.x + threadIdx.x;
    const size_t first = (size_t)(blockIdx.x / chunks) * ROWS;
    WORD w[ROWS];
    int32_t id[ROWS];
    if (k >= words) return;
#pragma unroll
    for (int i = 0; i < ROWS; i++) id[i] = first + i < T ? ids[first + i] : -1;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        set_nan(w[i]);
        if (id[i] >= 0 && id[i] < V) w[i] = table[(size_t)id[i] * words + k];
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        if (first + i < T) y[(first + i) * words + k] = w[i];
}

template <class WORD> static pb_status fwd(pb_ctx *ctx, const pb_embedding_fwd_args *a)
{
    enum { ROWS = 4 };
    const size_t words = a->D * pb_dtype_size(a->dtype) / sizeof(WORD);
    const pb_tiles tiles = pb_tiles_of(words);
    const bool many = (size_t)tiles.chunks * (a->T / ROWS) >= 4 * (size_t)pb_cuda_device_of(ctx)->sms;
    const unsigned grid = tiles.chunks * (unsigned)pb_ceil_div(a->T, many ? ROWS : 1);
    const auto kernel = many ? embedding_rows<WORD, ROWS> : embedding_rows<WORD, 1>;
    kernel<<<grid, tiles.threads, 0, pb_cuda_stream(ctx)>>>((const WORD *)a->table, a->ids, (WORD *)a->y, a->T, a->V,
                                                            (int)words, tiles.chunks);
    return pb_cuda_launched(ctx, "embedding_rows");
}

static pb_status run_fwd(pb_ctx *ctx, const void *args)
{
    const pb_embedding_fwd_args *a = (const pb_embedding_fwd_args *)args;
    const bool quads = pb_aligned16(a->table) && pb_aligned16(a->y) && a->D * pb_dtype_size(a->dtype) % 16 == 0;
    if (a->T == 0) return PB_OK;
    return quads ? fwd<uint4>(ctx, a) : a->dtype == PB_F32 ? fwd<uint32_t>(ctx, a) : fwd<uint16_t>(ctx, a);
}

/* ---- backward pass ---------------------------------------------------------------------------------------------- */

enum {
    BWD_THREADS = 256, /* at most */
    BWD_EACH = 16,     /* ids per thread and window */
    BWD_WINDOW = BWD_THREADS * BWD_EACH,
    BWD_ROWS = 32768, /* largest number of table rows that a CTA can own: each has one bit in `touched` */
    BWD_LOADS = 8,
};

struct hits {
    int row[BWD_WINDOW];        /* table row v of each hit, in the order of t */
    uint16_t token[BWD_WINDOW]; /* t of each hit, minus the first t of the window */
    uint16_t order[BWD_WINDOW]; /* indices of the hits, sorted by (row, t) */
    uint32_t touched[BWD_ROWS / 32];
    int warp[BWD_THREADS / 32];
};

/* Writes the hits of CTA `me` among ids[0..n) to row and token. Returns their number to every thread. */
__device__ static int find_hits(hits *s, const int32_t *ids, int n, int V, uint32_t blocks, uint32_t me)
{
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first = threadIdx.x * BWD_EACH;
    uint32_t mask = 0;
#pragma unroll
    for (int i = 0; i < BWD_EACH; i++) {
        const int32_t id = first + i < n ? ids[first + i] : -1;
        if (id >= 0 && id < V && ((uint32_t)id & (blocks - 1)) == me) mask |= 1u << i;
    }
    int upto = __popc(mask);
    for (int d = 1; d < 32; d *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, upto, d);
        if (lane >= d) upto += other;
    }
    if (lane == 31) s->warp[warp] = upto;
    __syncthreads();
    int before = 0, all = 0;
    for (int i = 0; i < warps; i++) {
        if (i < warp) before += s->warp[i];
        all += s->warp[i];
    }
    int at = before + upto - __popc(mask);
    for (; mask; mask &= mask - 1) {
        const int i = first + __ffs(mask) - 1;
        s->row[at] = ids[i];
        s->token[at++] = (uint16_t)i;
    }
    __syncthreads();
    return all;
}

/* Sorts the hits by rank: the position of a hit in `order` is the number of hits that precede it by (row, t). */
__device__ static void sort_hits(hits *s, int n)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const int row = s->row[i];
        int rank = 0;
        for (int j = 0; j < n; j++) rank += s->row[j] < row || (s->row[j] == row && j < i);
        s->order[rank] = (uint16_t)i;
    }
    __syncthreads();
}

__device__ static inline bool touched(const hits *s, int local) { return s->touched[local / 32] >> (local % 32) & 1; }

/* N neighbouring columns, summed in f32 by one thread. T and W: types of dy and dtable. */
template <class T, class W, int N> struct columns {
    enum { RUN = sizeof(pb_vec<T, N>) >= 16 ? 8 : 12 }; /* more would spill registers */

    /* Adds RUN hits of one table row: the sorted hits from number i on. Most hits of a CTA that owns a frequent id, such
     * as that of the space, are of that id, and the CTA mostly waits for their rows, so many are loaded at a time. */
    __device__ static void add_run(const pb_embedding_bwd_args &a, const hits *s, int i, const T *dy, W *dtable,
                                   int shift, float (&sum)[N], int &open)
    {
        const int row = s->row[s->order[i]];
        pb_vec<T, N> x[RUN];
#pragma unroll
        for (int u = 0; u < RUN; u++) x[u] = *(const pb_vec<T, N> *)(dy + (size_t)s->token[s->order[i + u]] * a.D);
        if (row != open) {
            if (open >= 0) pb_store_vec(dtable + (size_t)open * a.D, sum);
            open = row;
            const bool adds = a.accumulate || touched(s, row >> shift);
#pragma unroll
            for (int c = 0; c < N; c++) sum[c] = adds ? pb_to_f32(dtable[(size_t)row * a.D + c]) : 0;
        }
#pragma unroll
        for (int u = 0; u < RUN; u++)
#pragma unroll
            for (int c = 0; c < N; c++) sum[c] += pb_to_f32(x[u].v[c]);
    }

    /* Adds the n sorted hits of a window to columns d..d+N-1. `window`: its first t; `shift`:
     * log2 of the number of CTAs. */
    __device__ static void add(const pb_embedding_bwd_args &a, const hits *s, int n, size_t window, int d, int shift)
    {
        const T *dy = (const T *)a.dy + window * a.D + d;
        W *dtable = (W *)a.dtable + d;
        float sum[N];
        int open = -1; /* table row whose gradient `sum` accumulates; -1: none yet */
        for (int i = 0, step; i < n; i += step) {
            if (i + RUN <= n && s->row[s->order[i]] == s->row[s->order[i + RUN - 1]]) {
                add_run(a, s, i, dy, dtable, shift, sum, open);
                step = RUN;
                continue;
            }
            step = BWD_LOADS;
            pb_vec<T, N> x[BWD_LOADS];
            pb_vec<W, N> base[BWD_LOADS];
            int row[BWD_LOADS];
#pragma unroll
            for (int u = 0; u < BWD_LOADS; u++) {
                if (i + u >= n) break;
                const int hit = s->order[i + u];
                row[u] = s->row[hit];
                x[u] = *(const pb_vec<T, N> *)(dy + (size_t)s->token[hit] * a.D);
                const bool starts = i + u == 0 || s->row[s->order[i + u - 1]] != row[u];
#pragma unroll
                for (int c = 0; c < N; c++) base[u].v[c] = W(0.0f);
                if (starts && (a.accumulate || touched(s, row[u] >> shift)))
                    base[u] = *(const pb_vec<W, N> *)(dtable + (size_t)row[u] * a.D);
            }
#pragma unroll
            for (int u = 0; u < BWD_LOADS; u++) {
                if (i + u >= n) break;
                if (row[u] != open) {
                    if (open >= 0) pb_store_vec(dtable + (size_t)open * a.D, sum);
                    open = row[u];
#pragma unroll
                    for (int c = 0; c < N; c++) sum[c] = pb_to_f32(base[u].v[c]);
                }
#pragma unroll
                for (int c = 0; c < N; c++) sum[c] += pb_to_f32(x[u].v[c]);
            }
        }
        if (open >= 0) pb_store_vec(dtable + (size_t)open * a.D, sum);
    }
};

/* Kernel embedding_add: each CTA sums the gradients of its own table rows. Row v belongs to CTA v % (1 << shift). The
 * grid has fewer CTAs if V is smaller. */
template <class T, class W, int N>
__global__ void __launch_bounds__(BWD_THREADS, 2) embedding_add(pb_embedding_bwd_args a, int shift)
{
    __shared__ hits s;
    const int step = blockDim.x * N, window = blockDim.x * BWD_EACH;
    const uint32_t blocks = 1u << shift;
    for (int i = threadIdx.x; i < BWD_ROWS / 32; i += blockDim.x) s.touched[i] = 0;
    __syncthreads();
    for (size_t t = 0; t < a.T; t += window) {
        const int left = a.T - t < window ? (int)(a.T - t) : window;
        const int n = find_hits(&s, a.ids + t, left, a.V, blocks, blockIdx.x);
        if (n == 0) continue;
        sort_hits(&s, n);
        for (int d = threadIdx.x * N; d < a.D; d += step) columns<T, W, N>::add(a, &s, n, t, d, shift);
        __syncthreads(); /* the adds above must have read `touched` before it is updated for the next window */
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            const int local = s.row[i] >> shift;
            atomicOr(&s.touched[local / 32], 1u << (local % 32));
        }
        __syncthreads();
    }
    if (a.accumulate) return;
    for (size_t v = blockIdx.x; v < a.V; v += blocks) {
        if (touched(&s, (int)(v >> shift))) continue;
        const float zero[N] = {};
        for (int d = threadIdx.x * N; d < a.D; d += step) pb_store_vec((W *)a.dtable + v * a.D + d, zero);
    }
}

template <class T, class W, int N> static pb_status bwd_units(pb_ctx *ctx, const pb_embedding_bwd_args *a)
{
    const size_t units = pb_ceil_div(a->D, N), passes = pb_ceil_div(units, BWD_THREADS);
    const unsigned threads = (unsigned)pb_ceil_div(pb_ceil_div(units, passes), 32) * 32;
    int shift = 9; /* 512 CTAs: about four per SM */
    while (pb_ceil_div(a->V, (size_t)1 << shift) > BWD_ROWS) shift++;
    const unsigned grid = a->V < 1 << shift ? a->V : 1u << shift;
    embedding_add<T, W, N><<<grid, threads, 0, pb_cuda_stream(ctx)>>>(*a, shift);
    return pb_cuda_launched(ctx, "embedding_add");
}

template <class T, class W> static pb_status bwd_into(pb_ctx *ctx, const pb_embedding_bwd_args *a)
{
    const bool quads = a->D % 4 == 0 && pb_aligned16(a->dy) && pb_aligned16(a->dtable);
    return quads ? bwd_units<T, W, 4>(ctx, a) : bwd_units<T, W, 1>(ctx, a);
}

template <class T> static pb_status bwd(pb_ctx *ctx, const pb_embedding_bwd_args *a)
{
    return a->table_dtype == PB_BF16 ? bwd_into<T, __nv_bfloat16>(ctx, a) : bwd_into<T, float>(ctx, a);
}

static pb_status run_bwd(pb_ctx *ctx, const void *args)
{
    const pb_embedding_bwd_args *a = (const pb_embedding_bwd_args *)args;
    if (a->T == 0 && a->accumulate) return PB_OK;
    return PB_CUDA_BY_DTYPE(a->dtype, bwd, ctx, a);
}

extern "C" const pb_impl pb_embedding_fwd_cuda[] = {{.name = "rows", .run = run_fwd}, {0}};
extern "C" const pb_impl pb_embedding_bwd_cuda[] = {{.name = "sorted", .run = run_bwd}, {0}};
