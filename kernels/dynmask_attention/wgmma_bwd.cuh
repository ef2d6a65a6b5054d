/* wgmma_bwd.cuh - what the kernels of the wgmma backward pass of dynmask_attention share: the workspace, the barriers, and
 * the TMA descriptors. The head comment of dynmask_attention_wgmma_bwd.cu describes the pass. */
#ifndef PB_DYNMASK_WGMMA_BWD_CUH
#define PB_DYNMASK_WGMMA_BWD_CUH
#include "kernels/attention/attention_impls.cuh"
#include "kernels/attention/wgmma_bwd_ends.cuh"
#include "kernels/attention/wgmma_tiles.cuh"
#include "kernels/dynmask_attention/dynmask_attention_impls.cuh"
#include "kernels/dynmask_attention/slots.cuh"

namespace
{
enum { STAGES = 4, CONSUMERS = 256, CONSUMER_WARPS = 8, THREADS = 384 };
static_assert(SLOT_UNIT % KEYS == 0 && KEYS == 2 * SLOTS, "each consumer warpgroup owns one block of slots");

/* A tile of queries. clear: 1 if rows of q and do must be cleared (see clear_rows). */
template <int D> struct alignas(16) query_tile {
    query_stats<D> stats;
    int clear;
};

/* The mbarriers of either kernel; the comment at the top of dynmask_attention_wgmma_bwd.cu says who arrives. */
struct barriers {
    uint64_t own_full, first_full[STAGES], second_full[STAGES], first_empty[STAGES], second_empty[STAGES];
};

/* How the keys of a list are divided among the CTAs of dkv_kernel, and the workspace. Part p of block of slots j of list
 * n has number (j * parts + p) * lists + n. */
template <int D> struct workspace {
    compact lists;
    query_tile<D> *queries; /* [B,H,tiles] */
    float *dkv;             /* [numbers][2][KEYS*D] partial sums of dk, then dv, in accumulator order; parts > 1 only */
    float *dbias;           /* [numbers][KEYS] */
    int tiles, blocks, parts;
};
/* The parts that the work of a block of slots is divided into: enough for every GPU, and at most one for each tile of
 * queries. The number depends only on the shape and on `keep`, so the order of sums does not change with the GPU.
 *
 * If a list has at most `keep` slots, no key need leave. Then a causal mask gives the first block about twice the average
 * work, and the blocks, longest first, fill a GPU evenly without parts from twice as many blocks as SMs on: PAIRED_CTAS,
 * two for each of the 132 SMs of an H200. Otherwise the work of a block depends on when its keys leave, and more parts of
 * equal work are needed. */
constexpr int PAIRED_CTAS = 264, ENOUGH_CTAS = 528, MOST_PARTS = 16;
inline int parts_of(const pb_dynmask_attention_bwd_args &a, long ctas, int tiles)
{
    const long most = min((long)MOST_PARTS, (long)tiles * (a.H / a.K));
    const long want = a.L <= a.keep ? (PAIRED_CTAS + ctas / 2) / ctas : (ENOUGH_CTAS + ctas - 1) / ctas;
    return (int)max(1L, min(most, want));
}
template <int D> workspace<D> lay_out(void *base, const pb_dynmask_attention_bwd_args &a)
{
    workspace<D> s = {compact_at(base, compact_sizes(a), D), NULL, NULL, NULL,
                      (a.S + QUERIES<D> - 1) / QUERIES<D>,   0,    1};
    s.blocks = s.lists.slots / KEYS;
    const long ctas = (long)s.blocks * s.lists.heads;
    s.parts = parts_of(a, ctas, s.tiles);
    s.queries = (query_tile<D> *)((char *)base + compact_bytes(s.lists, D));
    s.dkv = (float *)(s.queries + (size_t)a.B * a.H * s.tiles);
    s.dbias = s.dkv + (s.parts > 1 ? (size_t)ctas * s.parts * 2 * KEYS * D : 0);
    return s;
}
template <int D> size_t room_bytes(const pb_dynmask_attention_bwd_args &a)
{
    const workspace<D> s = lay_out<D>(NULL, a);
    const size_t sums =
        s.parts > 1 ? (size_t)s.blocks * s.lists.heads * s.parts * (2 * D + 1) * KEYS * sizeof(float) : 0;
    return compact_bytes(s.lists, D) + (size_t)a.B * a.H * s.tiles * sizeof(query_tile<D>) + sums;
}

/* The work of a CTA of dkv_kernel: slot block `block` of list `list`, and query tiles n = part, part + parts, ... < total.
 * Tile n is tile m + n % count of head h + n / count. */
struct dkv_work {
    int list, block, part, b, kv, h, m, count, total;
};
template <int D>
__device__ inline dkv_work dkv_work_of_cta(int number, const pb_dynmask_attention_bwd_args &a, const workspace<D> &room)
{
    dkv_work own;
    own.list = number % room.lists.heads, own.part = number / room.lists.heads % room.parts;
    own.block = number / room.lists.heads / room.parts;
    own.b = own.list / a.K, own.kv = own.list % a.K, own.h = own.kv * (a.H / a.K);
    const slot_range r = range_of<KEYS>(room.lists.block + ((size_t)own.list * room.blocks + own.block) * 2);
    own.m = r.lo / QUERIES<D>;
    own.count = r.lo < r.hi ? (min(r.hi, a.S) + QUERIES<D> - 1) / QUERIES<D> - own.m : 0;
    own.total = own.count * (a.H / a.K);
    return own;
}

struct bwd_maps {
    CUtensorMap q, dO, k, v;
};

template <int D>
pb_status maps_of(bwd_maps &m, const pb_dynmask_attention_bwd_args &a, const compact &c, int queries, int slots)
{
    PB_TRY(tensor_map(&m.q, a.q, a.ldq, a.B, a.S, a.H, D, queries));
    PB_TRY(tensor_map(&m.dO, a.dO, a.lddo, a.B, a.S, a.H, D, queries));
    PB_TRY(slot_map(&m.k, c.k, c, D, slots));
    return slot_map(&m.v, c.v, c, D, slots);
}

#ifdef PB_SM90_CODE
typedef stage_ring<STAGES> ring_position;

__device__ inline void init(barriers &b)
{
    barrier_init(&b.own_full, 1);
    for (int s = 0; s < STAGES; s++) {
        barrier_init(&b.first_full[s], 1), barrier_init(&b.first_empty[s], CONSUMER_WARPS * WARP_ARRIVES);
        barrier_init(&b.second_full[s], 1), barrier_init(&b.second_empty[s], CONSUMER_WARPS * WARP_ARRIVES);
    }
    barrier_inits_done();
}
#endif
} // namespace
#endif
