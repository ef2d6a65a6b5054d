/* wgmma_bwd_ends.cuh - the kernels before and after bwd_kernel of attention_wgmma_bwd.cu, and the layout of the
 * workspace. stats_kernel computes lse and delta per tile of queries; round_kernel adds f32 sums and stores dq in bf16,
 * dk and dv in bf16 or f32. */
#ifndef PB_ATTENTION_WGMMA_BWD_ENDS_CUH
#define PB_ATTENTION_WGMMA_BWD_ENDS_CUH
#define PB_CUT_FN __host__ __device__ static inline
#include "kernels/attention/cut.h"
#include "kernels/attention/fragments.cuh"

namespace
{
constexpr int KEYS = PB_CUT_KEYS;
constexpr int DQ_TILE = 64 * 128; /* elements of a tile of dq, for either D */
/* Elements of a panel: 64 rows and 64 columns, which a warpgroup holds in 8 column tiles. The four elements that thread
 * t holds of column tile n are at float4 index n * 128 + t. */
constexpr int PANEL = 64 * 64;

template <int D> constexpr int QUERIES = DQ_TILE / D;

/* Values per query of a tile: lse2 = lse * log2(e) (+inf for queries without visible keys and past S, which makes every
 * weight 0), delta, and the first visible key. */
template <int D> struct query_stats {
    float lse2[QUERIES<D>], delta[QUERIES<D>];
    int from[QUERIES<D>];
};

/* The workspace. Tile m of head h of batch row b has number (b*H + h) * tiles + m. Part p of block of keys j of key
 * head k in batch row b has number (parts before j + p) * B*K + b*K + k. */
template <int D> struct scratch {
    pb_cut cut;
    float *dq;  /* [B*H*tiles][DQ_TILE] */
    float *dkv; /* [parts][2][KEYS*D] partial sums of dk, then dv; unused for a block of keys with one part */
    query_stats<D> *stats;
    int *turns; /* per tile: how many CTAs have added to dq; last entry: how many CTAs have started */
    int tiles, count;
    bool whole; /* every block of keys has one part: dkv is unused */
    bool inner; /* bwd_kernel computes query_stats itself, and stats_kernel does not run */
};

template <int D> pb_cut_shape cut_shape(const pb_attention_bwd_args &a, bool by_heads)
{
    return {a.B * a.K, a.S, pb_attention_bwd_keys(&a), a.H / a.K, QUERIES<D>, a.causal, by_heads};
}
template <int D> size_t room_bytes(const pb_attention_bwd_args &a)
{
    const pb_cut_shape s = cut_shape<D>(a, false);
    const size_t count = (size_t)pb_cut_up(a.S, QUERIES<D>) * a.B * a.H;
    return count * (DQ_TILE * sizeof(float) + sizeof(query_stats<D>) + sizeof(int)) + sizeof(int) +
           (size_t)pb_cut_room(&s) * 2 * KEYS * D * sizeof(float);
}
template <int D> scratch<D> lay_out(void *base, const pb_attention_bwd_args &a, const pb_cut &cut)
{
    const int tiles = (a.S + QUERIES<D> - 1) / QUERIES<D>, count = tiles * a.B * a.H;
    float *dq = (float *)base, *dkv = dq + (size_t)count * DQ_TILE;
    const pb_cut_shape s = cut_shape<D>(a, false);
    const size_t sums = (size_t)pb_cut_room(&s) * 2 * KEYS * D;
    query_stats<D> *stats = (query_stats<D> *)(dkv + sums);
    return {cut, dq, dkv, stats, (int *)(stats + count), tiles, count, pb_cut_is_whole(&cut), false};
}

/* Threads per query in find_stats. */
template <int D> constexpr int LANES = D / 8;

/* Computes lse2, delta and `from` of a tile with DQ_TILE/8 threads; the caller is thread u of these. A thread covers 8
 * columns of one query, and the first of the LANES threads of a query writes. All 32 lanes must call it. bh: b*H + h;
 * i0: first query of the tile. */
template <int D>
__device__ inline void find_stats(query_stats<D> &to, const pb_attention_bwd_args &a, int bh, int i0, int u)
{
    const int at = u / LANES<D>, i = i0 + at, b = bh / a.H, col = (bh % a.H) * D + u % LANES<D> * 8;
    const size_t token = (size_t)b * a.S + i;
    float x[8] = {}, y[8] = {}, sum = 0;
    if (i < a.S) {
        pb_load_vec<bf16, 8>((const bf16 *)a.dO + token * a.lddo + col, x);
        pb_load_vec<bf16, 8>((const bf16 *)a.o + token * a.ldo + col, y);
    }
#pragma unroll
    for (int d = 0; d < 8; d++) sum = fmaf(x[d], y[d], sum);
#pragma unroll
    for (int d = LANES<D> / 2; d > 0; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (u % LANES<D>) return;
    const float lse = i < a.S ? a.lse[(size_t)bh * a.S + i] : -INFINITY;
    to.lse2[at] = lse == -INFINITY ? INFINITY : lse * LOG2E;
    to.delta[at] = sum;
    to.from[at] = a.start && i < a.S ? max(a.start[token], 0) : 0;
}

/* Kernel stats_kernel computes the query_stats of every tile, with STATS_BLOCKS CTAs per tile. It also sets room.turns
 * and, if `clear`, the sums of dq to 0. */
constexpr int STATS_BLOCKS = DQ_TILE / 8 / 256;
template <int D>
__global__ __launch_bounds__(256) void stats_kernel(const pb_attention_bwd_args a, const scratch<D> room, bool clear)
{
    const size_t id = (size_t)blockIdx.x * 256 + threadIdx.x;
    const int tile = blockIdx.x / STATS_BLOCKS;
    if (id <= room.count) room.turns[id] = 0;
    if (clear) {
        float4 *dq = (float4 *)room.dq + (size_t)blockIdx.x * 512 + threadIdx.x;
        dq[0] = dq[256] = make_float4(0, 0, 0, 0);
    }
    find_stats<D>(room.stats[tile], a, tile / room.tiles, tile % room.tiles * QUERIES<D>,
                  blockIdx.x % STATS_BLOCKS * 256 + threadIdx.x);
}

/* ---- after bwd_kernel ------------------------------------------------------------------------------------------- */

/* Destination of a panel: 64 columns of up to 64 rows of bf16, ld apart, multiplied by scale. */
struct target {
    bf16 *to;
    size_t ld;
    int rows;
    float scale;
};
/* Adds to `sum` the 16 elements of a panel that this thread handles. Thread u = 8g + n of 64 handles the eight columns
 * of tile n in rows g and g+8 of the 16 rows of `warp`. */
__device__ inline void add_panel(float (&sum)[16], const float *panel, int warp, int u)
{
    const float4 *from = (const float4 *)panel + u % 8 * 128 + warp * 32 + u / 8 * 4;
#pragma unroll
    for (int t = 0; t < 4; t++) {
        const float4 x = from[t];
        sum[2 * t] += x.x, sum[2 * t + 1] += x.y, sum[8 + 2 * t] += x.z, sum[8 + 2 * t + 1] += x.w;
    }
}
__device__ inline void round_panel(const float (&sum)[16], const target &out, int warp, int u)
{
    const int row = warp * 16 + u / 8;
    float low[8], high[8];
    bf16 *to = out.to + row * out.ld + u % 8 * 8;
#pragma unroll
    for (int e = 0; e < 8; e++) low[e] = out.scale * sum[e], high[e] = out.scale * sum[8 + e];
    if (row < out.rows) pb_store_vec<bf16, 8>(to, low);
    if (row + 8 < out.rows) pb_store_vec<bf16, 8>(to + 8 * out.ld, high);
}

/* Stores the same elements as f32. */
__device__ inline void store_panel(const float (&sum)[16], float *to, size_t ld, int rows, float scale, int warp, int u)
{
    const int row = warp * 16 + u / 8;
    to += row * ld + u % 8 * 8;
#pragma unroll
    for (int e = 0; e < 8; e++) {
        if (row < rows) to[e] = scale * sum[e];
        if (row + 8 < rows) to[8 * ld + e] = scale * sum[8 + e];
    }
}

/* A CTA rounds one panel of dq, which is half of a tile, to bf16. */
template <int D> __device__ inline void dq_panel(const pb_attention_bwd_args &a, const scratch<D> &room, int id)
{
    const int tile = id / 2, half = id % 2, bh = tile / room.tiles, b = bh / a.H, h = bh % a.H;
    const int i0 = tile % room.tiles * QUERIES<D>, row = i0 + (D == 64 ? half * 64 : 0);
    const key_range r = keys_of_tile<QUERIES<D>>(a.start ? a.start + (size_t)b * a.S : NULL, i0, shape_of(a));
    bf16 *to = (bf16 *)a.dq + ((size_t)b * a.S + row) * a.lddq + h * D + (D == 64 ? 0 : half * 64);
    float sum[16] = {};
    if (r.lo < r.hi) /* else no CTA has added to the sums of this tile, and they may be uninitialised */
        add_panel(sum, room.dq + ((size_t)tile * 2 + half) * PANEL, threadIdx.x / 64, threadIdx.x % 64);
    round_panel(sum, {to, a.lddq, a.S - row, a.scale}, threadIdx.x / 64, threadIdx.x % 64);
}

/* A CTA adds the parts of 16 rows of one panel of dk or dv, and stores the sums, rounded to bf16 unless a.wide. Each
 * quarter of the CTA adds every fourth part; then the quarters are added in fixed order, so the result is
 * deterministic. */
template <int D> __device__ inline void dkv_panel(const pb_attention_bwd_args &a, const scratch<D> &room, int id)
{
    constexpr int ACROSS = D / 64, PANELS = 4 * ACROSS; /* 4: dk and dv, each of two warpgroups */
    __shared__ float quarters[3][16][64];
    const int heads = a.B * a.K, warp = id % 4, panel = id / 4 % PANELS, bk = id / 4 / PANELS % heads;
    const int j = id / 4 / PANELS / heads, parts = pb_cut_parts(&room.cut, j), quarter = threadIdx.x / 64;
    const int row = j * KEYS + panel / ACROSS % 2 * 64, u = threadIdx.x % 64;
    const bool of_v = panel >= PANELS / 2;
    const size_t first = (size_t)pb_cut_before(&room.cut, j) * heads + bk, token = (size_t)(bk / a.K) * a.keys + row;
    const int col = bk % a.K * D + panel % ACROSS * 64;
    float sum[16] = {};
    if (parts == 1) return; /* bwd_kernel has stored dk and dv already */
    for (int p = quarter; p < parts; p += 4)
        add_panel(sum, room.dkv + ((first + (size_t)p * heads) * PANELS + panel) * PANEL, warp, u);
#pragma unroll
    for (int e = 0; e < 16 && quarter > 0; e++) quarters[quarter - 1][e][u] = sum[e];
    __syncthreads();
    if (quarter > 0) return;
#pragma unroll
    for (int e = 0; e < 16; e++) sum[e] = (sum[e] + quarters[0][e][u]) + (quarters[1][e][u] + quarters[2][e][u]);
    const size_t ld = of_v ? a.lddv : a.lddk;
    const float scale = of_v ? 1 : a.scale;
    void *to = of_v ? a.dv : a.dk;
    if (a.wide) store_panel(sum, (float *)to + token * ld + col, ld, a.keys - row, scale, warp, u);
    else round_panel(sum, {(bf16 *)to + token * ld + col, ld, a.keys - row, scale}, warp, u);
}

/* The first dq_blocks CTAs round dq, the others add dk and dv. */
template <int D>
__global__ __launch_bounds__(256) void round_kernel(const pb_attention_bwd_args a, const scratch<D> room, int dq_blocks)
{
    const int id = (int)blockIdx.x;
    if (id < dq_blocks) dq_panel<D>(a, room, id);
    else dkv_panel<D>(a, room, id - dq_blocks);
}
} // namespace
#endif
