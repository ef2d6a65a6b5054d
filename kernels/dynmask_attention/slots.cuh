/* slots.cuh - for the wgmma kernels of dynmask_attention: the keys and values of each list as a dense matrix, and which
 * queries attend to its rows.
 *
 * All queries of all heads of a group share one list. So gather() copies the rows of k and v that a list names once.
 * BUCKET consecutive slots are put in the order in which their keys leave: in exact mode, most tiles of an earlier bucket
 * then hold only keys that have left, and are skipped. In union mode the order is that of the list. What follows is
 * attention to L consecutive rows, which TMA loads. Each row has a bias, a range of queries, and the key whose gradient it
 * gets.
 *
 * A slot is unused if no query attends to its key. Its rows are zeros and its bias is -inf, so neither a NaN there nor
 * memory beyond the tensors reaches a product. The same must hold for 0 times the value of a key that only other queries
 * attend to. So a row with NaN or infinity is replaced by zeros too, and its bias by NaN: queries that attend to the key
 * get NaN, in all columns, and the others do not. */
#ifndef PB_DYNMASK_SLOTS_CUH
#define PB_DYNMASK_SLOTS_CUH
#include <limits.h>
#include <stddef.h>

#include "kernels/attention/fragments.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/dynmask_attention/dynmask_attention.h"

namespace
{
enum {
    SLOTS = 64,
    SLOT_UNIT = 128 /* lists are padded to a multiple of it with unused slots */,
    BUCKET = 512,
    GATHER_THREADS = 256
};

/* The queries [lo, hi) contain every query that attends to one of some slots; [solid_lo, solid_hi) attend to all of
 * them. */
struct slot_range {
    int lo, hi, solid_lo, solid_hi;
};
/* SLOTS consecutive slots. Query i attends to slot s if from[s] <= i < to[s]; unused: from = INT_MAX, to = 0. `to` is
 * INT_MAX if all queries from `from` on attend to it, those past S included, which are not stored. bias: bias / scale,
 * which is added to products q.k. key: row of the tensors; -1: unused. */
struct alignas(16) slot_block {
    float bias[SLOTS];
    int from[SLOTS], to[SLOTS], key[SLOTS];
    slot_range range;
};
static_assert(sizeof(slot_block) == 4 * SLOTS * 4 + 16 && sizeof(slot_block) % 16 == 0,
              "bulk_load copies whole 16 bytes");

/* The compact form of all lists, in the workspace. */
struct compact {
    bf16 *k, *v;       /* [heads,slots,D] */
    slot_block *block; /* [heads,slots/SLOTS] */
    int heads, slots;  /* B*K; slots of a list, a multiple of SLOT_UNIT */
};

template <class A> compact compact_sizes(const A &a)
{
    return {NULL, NULL, NULL, a.B * a.K, (a.L + SLOT_UNIT - 1) / SLOT_UNIT * SLOT_UNIT};
}
static inline size_t compact_bytes(const compact &c, int D)
{
    return (size_t)c.heads * (c.slots / SLOTS) * (2 * SLOTS * D * sizeof(bf16) + sizeof(slot_block));
}
static inline compact compact_at(void *room, compact c, int D)
{
    c.k = (bf16 *)room, c.v = c.k + (size_t)c.heads * c.slots * D;
    c.block = (slot_block *)(c.v + (size_t)c.heads * c.slots * D);
    return c;
}

/* The arguments of either pass that gather() reads. */
struct list_args {
    const bf16 *k, *v;
    const float *bias;
    const int32_t *list, *until;
    int S, S_kv, K, L;
    size_t ldk, ldv;
    float scale;
};
template <class A> __host__ __device__ list_args list_args_of(const A &a)
{
    return {
        (const bf16 *)a.k, (const bf16 *)a.v, a.bias, a.list, a.until, a.S, a.S_kv, a.K, a.L, a.ldk, a.ldv, a.scale};
}

__device__ inline slot_range both(const slot_range &x, const slot_range &y)
{
    return {min(x.lo, y.lo), max(x.hi, y.hi), max(x.solid_lo, y.solid_lo), min(x.solid_hi, y.solid_hi)};
}

/* A slot: its key, or -1 if it is unused, and its queries. */
struct slot {
    int key, from, to;
    float bias;
};
__device__ inline slot slot_of(const list_args &a, int head, int l)
{
    const slot unused = {-1, INT_MAX, 0, -INFINITY};
    if (l >= a.L) return unused;
    const int key = a.list[(size_t)head * a.L + l], before = a.S_kv - a.S;
    if (key < 0 || key >= a.S_kv) return unused;
    const float bias = a.bias[(size_t)head * a.S_kv + key];
    const int64_t end = (int64_t)a.until[(size_t)head * a.L + l] - before;
    const int from = max(key - before, 0), to = end >= a.S ? INT_MAX : (int)max(end, (int64_t)0);
    return from >= to || bias == -INFINITY ? unused : slot{key, from, to, bias / a.scale};
}

/* Finds the slots of this CTA: `mine` receives those that have the ranks first .. first + SLOTS - 1 in the order of their
 * bucket, which begins at slot l0 and has n slots. Slots of one `to`, or with `to` from LATEST on, keep the order of the
 * list, so the result is unique. All threads must call it. */
__device__ inline void find_slots(slot (&mine)[SLOTS], const list_args &a, int head, int l0, int n, int first)
{
    enum { EACH = BUCKET / GATHER_THREADS, LATEST = INT_MAX / BUCKET };
    __shared__ alignas(16) uint32_t order[BUCKET]; /* `to`, then the number of the slot */
    slot s[EACH];
    int rank[EACH];
    uint32_t own[EACH];
    bool leaves = false;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const int l = e * GATHER_THREADS + threadIdx.x;
        s[e] = slot_of(a, head, l0 + l);
        order[l] = own[e] = l < n ? (uint32_t)min(s[e].to, (int)LATEST) * BUCKET + l : 0xffffffffu;
        leaves |= s[e].key >= 0 && s[e].to != INT_MAX;
        rank[e] = 0;
    }
    const bool sort = __syncthreads_or(leaves); /* else the list is in order already, with unused slots anywhere */
#pragma unroll 4
    for (int m = 0; sort && m < BUCKET; m += 4) {
        const uint4 four = *reinterpret_cast<const uint4 *>(order + m);
#pragma unroll
        for (int e = 0; e < EACH; e++)
            rank[e] += (four.x < own[e]) + (four.y < own[e]) + (four.z < own[e]) + (four.w < own[e]);
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const int l = e * GATHER_THREADS + threadIdx.x, at = sort ? rank[e] : l;
        if (l < n && at >= first && at < first + SLOTS) mine[at - first] = s[e];
    }
    __syncthreads();
}

/* Writes the slots of a block, except for their biases, and the range of all of them. All threads must call it. */
__device__ inline void write_slots(slot_block &to, const slot (&mine)[SLOTS])
{
    __shared__ slot_range of_warp[2];
    const int t = threadIdx.x;
    if (t < SLOTS) {
        const slot s = mine[t];
        slot_range r = {s.from, s.to, s.from, s.to};
        to.from[t] = s.from, to.to[t] = s.to, to.key[t] = s.key;
#pragma unroll
        for (int d = 16; d > 0; d >>= 1)
            r = both(r, {__shfl_xor_sync(0xffffffffu, r.lo, d), __shfl_xor_sync(0xffffffffu, r.hi, d),
                         __shfl_xor_sync(0xffffffffu, r.solid_lo, d), __shfl_xor_sync(0xffffffffu, r.solid_hi, d)});
        if (t % 32 == 0) of_warp[t / 32] = r;
    }
    __syncthreads();
    if (t == 0) to.range = both(of_warp[0], of_warp[1]);
}

/* True if one of eight bf16 is NaN or infinite: all bits of the exponent are set. */
__device__ inline bool any_not_finite(const uint4 &x)
{
    const uint32_t part[4] = {x.x, x.y, x.z, x.w};
    bool any = false;
#pragma unroll
    for (int e = 0; e < 4; e++) any |= (part[e] & 0x7f80u) == 0x7f80u || (part[e] & 0x7f800000u) == 0x7f800000u;
    return any;
}

/* Gathers SLOTS slots of one list, block number n of all lists, and ranks all slots of their bucket; D/8 threads copy a
 * row. All threads of the CTA must call it. */
template <int D> __device__ inline void gather(const list_args &a, const compact &to, int n)
{
    constexpr int LANES = D / 8;
    static_assert(32 % LANES == 0, "the threads of a row are in one warp");
    __shared__ slot mine[SLOTS];
    const int blocks = to.slots / SLOTS, head = n / blocks, l0 = n % blocks * SLOTS;
    const int lane = threadIdx.x % LANES, b = head / a.K, col = head % a.K * D + lane * 8;
    slot_block &block = to.block[n];
    const int bucket = l0 / BUCKET * BUCKET;
    find_slots(mine, a, head, bucket, min((int)BUCKET, to.slots - bucket), l0 - bucket);
    write_slots(block, mine);
#pragma unroll
    for (int r = threadIdx.x / LANES; r < SLOTS; r += GATHER_THREADS / LANES) {
        const size_t row = ((size_t)head * to.slots + l0 + r) * D + lane * 8, token = (size_t)b * a.S_kv + mine[r].key;
        uint4 k = make_uint4(0, 0, 0, 0), v = k;
        if (mine[r].key >= 0) {
            k = *reinterpret_cast<const uint4 *>(a.k + token * a.ldk + col);
            v = *reinterpret_cast<const uint4 *>(a.v + token * a.ldv + col);
        }
        const uint32_t bad = __ballot_sync(0xffffffffu, any_not_finite(k) || any_not_finite(v));
        const bool nan = bad >> threadIdx.x % 32 / LANES * LANES & ((1u << LANES) - 1);
        if (nan) k = v = make_uint4(0, 0, 0, 0);
        *reinterpret_cast<uint4 *>(to.k + row) = k, *reinterpret_cast<uint4 *>(to.v + row) = v;
        if (lane == 0) block.bias[r] = nan ? NAN : mine[r].bias;
    }
}

/* Returns the number of CTAs that gather all lists. */
static inline unsigned gather_ctas(const compact &to) { return (unsigned)(to.heads * (to.slots / SLOTS)); }

/* Makes the TMA descriptor of the gathered keys or values: slots are tokens, and lists are batch rows. */
static inline pb_status slot_map(CUtensorMap *map, const bf16 *rows, const compact &c, int D, int box)
{
    return tensor_map(map, rows, D, c.heads, c.slots, 1, D, box);
}

/* Returns the range of N slots, the first of which is in *block. */
template <int N> __device__ inline slot_range range_of(const slot_block *block)
{
    slot_range r = block[0].range;
#pragma unroll
    for (int n = 1; n < N / SLOTS; n++) r = both(r, block[n].range);
    return r;
}

/* Iterates over the tiles of N slots of a list that a query in [i0, i1) may attend to, from the last to the first. A warp
 * looks at 32 tiles at once: all 32 lanes must call next(), and get the same result. */
template <int N> struct slot_tiles {
    const slot_block *block;
    int slots, i0, i1, tile, base; /* tile: the current one; tiles from `base` on have been looked at */
    uint32_t left;                 /* bit n: tile base + n is still to come */
    __device__ slot_tiles(const compact &c, int head, int first, int end)
        : block(c.block + (size_t)head * (c.slots / SLOTS)), slots(c.slots), i0(first), i1(end), tile(0),
          base((c.slots / N + 31) / 32 * 32), left(0)
    {
    }
    __device__ bool next(void)
    {
        while (!left) {
            if (base == 0) return false;
            base -= 32;
            const int n = base + threadIdx.x % 32;
            bool seen = n < slots / N;
            if (seen) {
                const slot_range r = range_of<N>(block + n * (N / SLOTS));
                seen = r.lo < i1 && r.hi > i0;
            }
            left = __ballot_sync(0xffffffffu, seen);
        }
        const int bit = 31 - __clz((int)left);
        left ^= 1u << bit, tile = base + bit;
        return true;
    }
};

/* Sets accumulators to the biases of their columns, which are N slots. */
template <int N> __device__ inline void fill_columns(float (&s)[N / 8][4], const slot_block (&slots)[N / SLOTS])
{
    const unsigned lane = threadIdx.x % 32, col = lane % 4 * 2; /* of the accumulator tile */
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        const float2 bias = *reinterpret_cast<const float2 *>(&slots[n / 8].bias[n % 8 * 8 + col]);
        s[n][0] = s[n][2] = bias.x, s[n][1] = s[n][3] = bias.y;
    }
}

/* True if all `queries` queries from i0 on attend to all slots of the range. */
__device__ inline bool all_attend(const slot_range &r, int i0, int queries)
{
    return r.solid_lo <= i0 && i0 + queries <= r.solid_hi;
}
} // namespace
#endif
