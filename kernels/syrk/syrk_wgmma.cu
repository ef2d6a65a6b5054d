/* syrk_wgmma.cu - the symmetric product of bf16 matrices on the tensor cores of sm_90a: only tiles on and below the
 * diagonal are computed, and each is stored twice, the second time mirrored. DESIGN.md has the reasons and
 * measurements.
 *
 * The rows of C are divided into blocks of 128. Block row i has the block columns 0..i. They are taken in pairs from
 * the left, as tiles of 128 x 256 elements; if i is even, the block on the diagonal is left over, a tile of 128 x 128
 * whose two operands are the same rows of X. A persistent grid takes all pairs of the batch and then all single blocks,
 * in snake order, so that the work of the SMs differs by one block.
 *
 * Roles:
 *
 *   threads    role                       registers   work
 *   0..127     producer (one thread)      40          TMA loads of X, 64 terms per stage
 *   128..383   consumers, two warpgroups  232         warpgroup g: rows 64 g .. 64 g + 63 of the tile, all its columns
 *
 * A stage in shared memory, K-major (X is [M,K]) or MN-major (trans, X is [K,M]):
 *
 *   a  [128 rows][64 terms]     or  [2][64 terms][64 rows]       rows of C
 *   b  [256 columns][64 terms]  or  [4][64 terms][64 columns]    columns of C; unused for a single block
 *
 * Barriers (struct shared):
 *
 *   mbarrier      arrivals                   waited for by   a completed phase means
 *   full[s]       the producer, TMA bytes    consumers       the stage is in shared memory
 *   empty[s]      8 consumer warps           producer        the stage may be overwritten
 *   named barrier 1 + g: the threads of warpgroup g have written a square of the mirror image
 *
 * Storing. A warpgroup stores its rows in squares of 64 x 64: below the diagonal from registers, and transposed through
 * `square` in shared memory, so that both are stored in rows; on the diagonal once, through `square`, each element
 * above the diagonal from its mirror image; above it not at all. Two squares are used in turn: a thread writes to one
 * only after the barrier of the other, which every thread reaches after it has read the first. A C of f32, or of rows
 * that are not aligned to 16 bytes, is stored element by element from registers.
 *
 * Limits: the tensor cores; for small K the store, which the products of the next tile do not overlap. */
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/cuda/wgmma.cuh"
#include "kernels/syrk/syrk_cuda.h"

namespace
{
typedef __nv_bfloat16 bf16;
enum { BLOCK = 128, TERMS = 64, STAGES = 4, CONSUMERS = 256, THREADS = CONSUMERS + 128 };
enum { PRODUCER_REGS = 40, CONSUMER_REGS = 232 }; /* 128 * 40 + 256 * 232 <= 384 * 168, the registers at launch */
enum { SQUARE = 64, PART = SQUARE * TERMS };      /* PART: elements of [64][64] in shared memory */

struct alignas(1024) stage {
    bf16 a[2 * PART], b[4 * PART];
};
struct alignas(1024) shared {
    stage in[STAGES];
    bf16 square[2][2][PART]; /* [warpgroup][in turn]: the mirror image of a square, rows swizzled as for wgmma */
    uint64_t full[STAGES], empty[STAGES];
};

struct task {
    const void *add; /* [n,M,M] of C's type, or NULL */
    void *c;
    int M, K, blocks; /* blocks: of 128 rows */
    int pairs, tiles; /* pairs: tiles of 128 x 256 in the whole batch; tiles: and of 128 x 128 */
    float alpha, beta;
};

#ifdef PB_SM90_CODE
/* A tile: block row `row`, and block columns col, and col + 1 if `wide`; all in blocks. Not wide: col == row. */
struct tile {
    int matrix, row, col;
    bool wide;
};

/* Before block row i there are i*i/4 pairs. */
__device__ inline tile tile_of(const task &t, int index)
{
    tile x;
    x.wide = index < t.pairs;
    if (!x.wide) {
        const int each = (t.blocks + 1) / 2, k = index - t.pairs;
        x.matrix = k / each, x.row = x.col = k % each * 2;
        return x;
    }
    const int each = t.blocks * t.blocks / 4, k = index % each;
    x.matrix = index / each;
    x.row = (int)sqrtf(4.0f * (float)k + 3);
    while (x.row * x.row / 4 > k) x.row--;
    while ((x.row + 1) * (x.row + 1) / 4 <= k) x.row++;
    x.col = (k - x.row * x.row / 4) * 2;
    return x;
}

/* Loads COUNT * 64 rows of X, from row `first` on, and 64 terms. */
template <bool TRANS, int COUNT>
__device__ inline void load_rows(bf16 *to, const CUtensorMap *map, uint64_t *full, int term, int first, int matrix)
{
    constexpr int EACH = TRANS ? 1 : 2; /* parts in a box of the tensor map */
#pragma unroll
    for (int i = 0; i < COUNT; i += EACH) {
        const int row = first + i * SQUARE;
        if (TRANS) tma_load(to + i * PART, map, full, row, 0, term, matrix);
        else tma_load(to + i * PART, map, full, term, 0, row, matrix);
    }
}

template <bool TRANS> __device__ void produce(shared &sm, const CUtensorMap *map, const task &t)
{
    const int steps = (t.K + TERMS - 1) / TERMS;
    uint32_t loaded = 0; /* stages so far */
    for (int index = (int)blockIdx.x; index < t.tiles; index = next_tile(index)) {
        const tile x = tile_of(t, index);
        const uint32_t bytes = (uint32_t)sizeof(bf16) * (x.wide ? 6 : 2) * PART;
        for (int k = 0; k < steps; k++, loaded++) {
            const uint32_t s = loaded % STAGES;
            barrier_wait(&sm.empty[s], (loaded / STAGES & 1) ^ 1);
            barrier_expect(&sm.full[s], bytes);
            load_rows<TRANS, 2>(sm.in[s].a, map, &sm.full[s], k * TERMS, x.row * BLOCK, x.matrix);
            if (x.wide) load_rows<TRANS, 4>(sm.in[s].b, map, &sm.full[s], k * TERMS, x.col * BLOCK, x.matrix);
        }
    }
}

/* Computes the products of a tile; a and b are descriptors in stage 0. `done` counts the stages so far. */
template <bool TRANS, int NT>
__device__ inline void multiply(float (&c)[NT][4], shared &sm, operand_desc a, operand_desc b, int steps,
                                uint32_t &done)
{
    constexpr uint32_t NEXT = TRANS ? 16 * 128 : 16 * sizeof(bf16); /* bytes of 16 terms */
    const int lane = (int)threadIdx.x % 32;
    for (int k = 0; k < steps; k++, done++) {
        const uint32_t s = done % STAGES;
        barrier_wait(&sm.full[s], done / STAGES & 1);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < TERMS / 16; i++)
            wgmma<TRANS, TRANS>(c, advance_desc(a, s * (uint32_t)sizeof(stage) + i * NEXT),
                                advance_desc(b, s * (uint32_t)sizeof(stage) + i * NEXT), k + i > 0);
        wgmma_commit();
        if (!k) continue;
        wgmma_wait<1>();
        if (lane == 0) barrier_arrive(&sm.empty[(done - 1) % STAGES]);
    }
    wgmma_wait<0>();
    if (lane == 0) barrier_arrive(&sm.empty[(done - 1) % STAGES]);
    wgmma_fence_operand(c);
}

/* ---- storing ---------------------------------------------------------------------------------------------------- */

/* Where a warpgroup's rows of a tile are in C. */
struct place {
    size_t matrix; /* the first element of the matrix */
    int row, col;  /* the first of the warpgroup's 64 rows; the first column of the tile */
};

/* Replaces the sums of four accumulators, from the n-th on, by elements of C: two rows of packed pairs of bf16. `row`:
 * the lane's first row; its second is 8 below. */
template <int NT>
__device__ inline void finish_quad(const float (&c)[NT][4], int n, const task &t, const place &at, int row,
                                   uint32_t (&up)[4], uint32_t (&low)[4])
{
    const int col = at.col + (n + (int)threadIdx.x % 4) * 8;
    uint32_t old0[4] = {}, old8[4] = {};
    if (t.add) {
        const bf16 *from = static_cast<const bf16 *>(t.add) + at.matrix + (size_t)row * t.M + col;
        if (row < t.M && col < t.M) {
            const uint4 v = *reinterpret_cast<const uint4 *>(from);
            old0[0] = v.x, old0[1] = v.y, old0[2] = v.z, old0[3] = v.w;
        }
        if (row + 8 < t.M && col < t.M) {
            const uint4 v = *reinterpret_cast<const uint4 *>(from + (size_t)8 * t.M);
            old8[0] = v.x, old8[1] = v.y, old8[2] = v.z, old8[3] = v.w;
        }
        transpose_quad(old0), transpose_quad(old8);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 e = make_float2(__uint_as_float(old0[i] << 16), __uint_as_float(old0[i] & 0xffff0000u));
        const float2 f = make_float2(__uint_as_float(old8[i] << 16), __uint_as_float(old8[i] & 0xffff0000u));
        const float(&s)[4] = c[n + i];
        up[i] = pack_bf16(fmaf(t.beta, e.x, t.alpha * s[0]), fmaf(t.beta, e.y, t.alpha * s[1]));
        low[i] = pack_bf16(fmaf(t.beta, f.x, t.alpha * s[2]), fmaf(t.beta, f.y, t.alpha * s[3]));
    }
}

/* Stores 8 x 4 columns of two rows, one uint4 per lane and row. */
__device__ inline void store_quad(const task &t, const place &at, int n, int row, const uint32_t (&up)[4],
                                  const uint32_t (&low)[4])
{
    const int col = at.col + (n + (int)threadIdx.x % 4) * 8;
    uint32_t a[4] = {up[0], up[1], up[2], up[3]}, b[4] = {low[0], low[1], low[2], low[3]};
    transpose_quad(a), transpose_quad(b);
    bf16 *to = static_cast<bf16 *>(t.c) + at.matrix + (size_t)row * t.M + col;
    if (row < t.M && col < t.M) *reinterpret_cast<uint4 *>(to) = make_uint4(a[0], a[1], a[2], a[3]);
    if (row + 8 < t.M && col < t.M)
        *reinterpret_cast<uint4 *>(to + (size_t)8 * t.M) = make_uint4(b[0], b[1], b[2], b[3]);
}

/* Returns element (row, col) of the mirror image: the tile's element in column `row` and row `col` of the square. */
__device__ inline bf16 mirrored(const bf16 *square, int row, int col)
{
    return square[row * SQUARE + ((col / 8 ^ row % 8) * 8 + col % 8)];
}

/* Stores the square of a warpgroup on the diagonal: element (r, c), r >= c, is element (c, r) of the mirror image. */
__device__ inline void store_diagonal(const bf16 *square, const task &t, const place &at)
{
    for (int i = (int)threadIdx.x % 128; i < SQUARE * 8; i += 128) {
        const int r = i / 8, first = i % 8 * 8;
        uint32_t v[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int c = first + 2 * k;
            const bf16 lo = mirrored(square, min(r, c), max(r, c)), hi = mirrored(square, min(r, c + 1), max(r, c + 1));
            v[k] = (uint32_t)__bfloat16_as_ushort(lo) | (uint32_t)__bfloat16_as_ushort(hi) << 16;
        }
        if (at.row + r >= t.M || at.row + first >= t.M) continue;
        *reinterpret_cast<uint4 *>(static_cast<bf16 *>(t.c) + at.matrix + (size_t)(at.row + r) * t.M + at.row + first) =
            make_uint4(v[0], v[1], v[2], v[3]);
    }
}

/* Stores the mirror image of the square that begins in column `col`. */
__device__ inline void store_mirror(const bf16 *square, const task &t, const place &at, int col)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int r = (int)threadIdx.x % 128 / 8 + 16 * i, chunk = (int)threadIdx.x % 8;
        if (col + r >= t.M || at.row + chunk * 8 >= t.M) continue;
        const uint4 v = *reinterpret_cast<const uint4 *>(square + r * SQUARE + (chunk ^ r % 8) * 8);
        *reinterpret_cast<uint4 *>(static_cast<bf16 *>(t.c) + at.matrix + (size_t)(col + r) * t.M + at.row +
                                   chunk * 8) = v;
    }
}

/* Stores a warpgroup's rows of a tile. Rows of C are aligned to 16 bytes. `turn`: the squares that it stored so far. */
template <int NT>
__device__ inline void store_squares(const float (&c)[NT][4], shared &sm, const task &t, const place &at, int group,
                                     uint32_t &turn)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4, row = at.row + warp * 16 + lane / 4;
    if (at.row >= t.M) return; /* all threads of the warpgroup return */
#pragma unroll
    for (int q = 0; q < NT / 8; q++) {
        const int col = at.col + q * SQUARE;
        if (col > at.row) break;
        bf16 *square = sm.square[group][turn++ % 2];
#pragma unroll
        for (int n = 0; n < 8; n += 4) {
            uint32_t up[4], low[4];
            finish_quad(c, 8 * q + n, t, at, row, up, low);
            if (col < at.row) store_quad(t, at, 8 * q + n, row, up, low);
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                const uint32_t two[4] = {up[i], low[i], up[i + 1], low[i + 1]};
                store_transposed(square, two, (n + i) * 8 + lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2);
            }
        }
        named_sync(1 + group, 128);
        if (col < at.row) store_mirror(square, t, at, col);
        else store_diagonal(square, t, at);
    }
}

/* Stores the accumulators one element at a time: works for any layout of C. */
template <class T, int NT>
__device__ inline void store_elements(const float (&c)[NT][4], const task &t, const place &at)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4, row = at.row + warp * 16 + lane / 4;
    T *const to = static_cast<T *>(t.c) + at.matrix;
    const T *const add = t.add ? static_cast<const T *>(t.add) + at.matrix : NULL;
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int i = row + e / 2 * 8, j = at.col + 8 * n + lane % 4 * 2 + e % 2;
            if (i >= t.M || j > i) continue;
            const size_t here = (size_t)i * t.M + j;
            float v = t.alpha * c[n][e];
            if (add) v = fmaf(t.beta, pb_to_f32(add[here]), v);
            to[here] = to[(size_t)j * t.M + i] = pb_from_f32<T>(v);
        }
}

template <class T, bool SQUARES, int NT>
__device__ inline void store(const float (&c)[NT][4], shared &sm, const task &t, const place &at, int group,
                             uint32_t &turn)
{
    if (SQUARES) store_squares(c, sm, t, at, group, turn);
    else store_elements<T>(c, t, at);
}

/* T: the type of C; SQUARES: it is bf16 with rows aligned to 16 bytes. */
template <class T, bool TRANS, bool SQUARES> __device__ void consume(shared &sm, const task &t)
{
    const int group = warpgroup() - 1, steps = (t.K + TERMS - 1) / TERMS;
    const bf16 *rows = sm.in[0].a + group * PART;
    const operand_desc a = TRANS ? mn_major_desc(rows, PART * sizeof(bf16)) : k_major_desc(rows);
    const operand_desc own = TRANS ? mn_major_desc(sm.in[0].a, PART * sizeof(bf16)) : k_major_desc(sm.in[0].a);
    const operand_desc b = TRANS ? mn_major_desc(sm.in[0].b, PART * sizeof(bf16)) : k_major_desc(sm.in[0].b);
    uint32_t done = 0, turn = 0;
    for (int index = (int)blockIdx.x; index < t.tiles; index = next_tile(index)) {
        const tile x = tile_of(t, index);
        const place at = {(size_t)x.matrix * t.M * t.M, x.row * BLOCK + group * SQUARE, x.col * BLOCK};
        if (x.wide) {
            float c[32][4];
            multiply<TRANS>(c, sm, a, b, steps, done);
            store<T, SQUARES>(c, sm, t, at, group, turn);
        } else {
            float c[16][4];
            multiply<TRANS>(c, sm, a, own, steps, done);
            store<T, SQUARES>(c, sm, t, at, group, turn);
        }
    }
}
#endif

template <class T, bool TRANS, bool SQUARES>
__global__ __launch_bounds__(THREADS, 1) void triangle(const __grid_constant__ CUtensorMap map,
                                                       const __grid_constant__ task t)
{
#ifdef PB_SM90_CODE
    extern __shared__ unsigned char smem[];
    shared &sm = *reinterpret_cast<shared *>(smem + (1024 - smem_address(smem) % 1024) % 1024);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            barrier_init(&sm.full[s], 1);
            barrier_init(&sm.empty[s], CONSUMERS / 32);
        }
        barrier_inits_done();
        tensor_map_prefetch(&map);
    }
    __syncthreads();
    if (warpgroup() == 0) {
        registers_fewer<PRODUCER_REGS>();
        if (threadIdx.x == 0) produce<TRANS>(sm, &map, t);
    } else {
        registers_more<CONSUMER_REGS>();
        consume<T, TRANS, SQUARES>(sm, t);
    }
#endif
}

template <class T, bool TRANS, bool SQUARES> pb_status launch(pb_ctx *ctx, const CUtensorMap &map, const task &t)
{
    constexpr size_t bytes = sizeof(shared) + 1024; /* 1024: dynamic shared memory may start unaligned */
    const int sms = pb_cuda_device_of(ctx)->sms, grid = t.tiles < sms ? t.tiles : sms;
    PB_TRY(pb_cuda_allow_shared(triangle<T, TRANS, SQUARES>, bytes));
    triangle<T, TRANS, SQUARES><<<(unsigned)grid, THREADS, bytes, pb_cuda_stream(ctx)>>>(map, t);
    return pb_cuda_launched(ctx, "syrk wgmma");
}

template <bool TRANS> pb_status by_type(pb_ctx *ctx, const CUtensorMap &map, const task &t, pb_dtype type)
{
    const bool aligned = t.M % 8 == 0 && ((uintptr_t)t.c | (uintptr_t)t.add) % 16 == 0;
    if (type == PB_F32) return launch<float, TRANS, false>(ctx, map, t);
    if (aligned) return launch<bf16, TRANS, true>(ctx, map, t);
    return launch<bf16, TRANS, false>(ctx, map, t);
}
} // namespace

bool pb_syrk_wgmma_takes(const void *args)
{
    const pb_syrk_product_args *a = static_cast<const pb_syrk_product_args *>(args);
    return a->dtype == PB_BF16 && a->K > 0 && (a->trans ? a->M : a->K) % 8 == 0 && (uintptr_t)a->x % 16 == 0;
}

pb_status pb_syrk_wgmma(pb_ctx *ctx, const void *args)
{
    const pb_syrk_product_args *a = static_cast<const pb_syrk_product_args *>(args);
    const int blocks = (a->M + BLOCK - 1) / BLOCK, pairs = a->n * (blocks * blocks / 4);
    const task t = {a->add, a->c, a->M, a->K, blocks, pairs, pairs + a->n * ((blocks + 1) / 2), a->alpha, a->beta};
    CUtensorMap map;
    if (!a->n || !a->M) return PB_OK;
    if (a->trans) PB_TRY(tensor_map(&map, a->x, (size_t)a->M, a->n, a->K, 1, a->M, TERMS));
    else PB_TRY(tensor_map(&map, a->x, (size_t)a->K, a->n, a->M, 1, a->K, BLOCK));
    return a->trans ? by_type<true>(ctx, map, t, a->c_dtype) : by_type<false>(ctx, map, t, a->c_dtype);
}
