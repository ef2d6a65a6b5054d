/* lora_mma.cuh - LoRA in bf16 on tensor cores: two kernels forward, two or four backward, each for all targets.
 *
 * W = n*R is the number of adapter columns of all targets together. R and W are multiples of 16, at most 64. S is the
 * number of splits of a reduction.
 *     forward   down     xa parts [S,T,W] = x a^T, K in S splits
 *               up       xa_i = sum of the S parts, rounded; y_i += scale xa_i b_i^T
 *     backward  from_dy  one pass over dy: dxa parts [S,T,W] = dy b, N in S splits; db parts [T/128,N,R] = dy^T xa
 *               fold     dxa [T,W] = scale sum of the S parts, rounded to bf16; db (+)= scale sum of the T/128 parts
 *               from_x   one pass over x: dx += dxa a; da parts [T/128,W,K] = dxa^T x
 *               fold_da  da (+)= sum of the T/128 parts
 * With at most 128 tokens, fold and fold_da are not needed: from_dy stores db itself; from_x adds the dxa parts while
 * it stages them and stores da itself. All sums have a fixed order, so results are deterministic. Memory-bound: each of
 * x, y, dy and dx is passed over once. */
#ifndef PB_LORA_MMA_CUH
#define PB_LORA_MMA_CUH
#include "kernels/cuda/mma.cuh"
#include "kernels/lora/lora.h"

namespace lora_mma
{
typedef __nv_bfloat16 bf16;
/* FILL: number of CTAs that fills the GPU. CHUNK, TOKENS: columns and tokens that a CTA of the backward kernels
 * processes at a time. PAD: extra elements per row of a shared-memory tile, against bank conflicts. */
enum { PAD = 8, CHUNK = 64, TOKENS = 128, FILL = 264, MAX_SPLITS = 16 };

/* Eight bf16, loaded and stored as one 16-byte vector. */
union vec8 {
    uint4 all;
    uint32_t pair[4];
    bf16 e[8];
};
__device__ static inline vec8 load8(const bf16 *p, bool inside)
{
    vec8 v;
    v.all = inside ? *reinterpret_cast<const uint4 *>(p) : make_uint4(0, 0, 0, 0);
    return v;
}
__device__ static inline void store8(bf16 *p, const vec8 &v) { *reinterpret_cast<uint4 *>(p) = v.all; }

__device__ static inline float4 load4(const float *p) { return *reinterpret_cast<const float4 *>(p); }
__device__ static inline void add4(float4 &sum, float4 x) { sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w; }
/* Returns the sum of n vectors of four floats, `step` floats apart, added in order. */
__device__ static inline float4 sum4(const float *p, int n, size_t step)
{
    float4 sum = load4(p);
    for (int i = 1; i < n; i++) add4(sum, load4(p + (size_t)i * step));
    return sum;
}
__device__ static inline void store4(bf16 *p, float4 x)
{
    const float v[4] = {x.x, x.y, x.z, x.w};
    pb_store_vec<bf16, 4>(p, v);
}
/* to[0..3] = (to +) scale x */
__device__ static inline void put4(float *to, float4 x, float scale, bool accumulate)
{
    float4 *p = reinterpret_cast<float4 *>(to);
    float4 sum = accumulate ? *p : make_float4(0, 0, 0, 0);
    sum.x += scale * x.x, sum.y += scale * x.y, sum.z += scale * x.z, sum.w += scale * x.w;
    *p = sum;
}

__device__ static inline void put2(float *to, float x, float y, float scale, bool accumulate)
{
    float2 *p = reinterpret_cast<float2 *>(to);
    const float2 old = accumulate ? *p : make_float2(0, 0);
    *p = make_float2(old.x + scale * x, old.y + scale * y);
}

/* Returns the number of splits of a reduction, so that blocks * splits CTAs fill the GPU: at most MAX_SPLITS, and at
 * most `units`, so that each split has work. */
static inline int splits_for(size_t blocks, size_t units)
{
    size_t s = blocks ? FILL / blocks : 1;
    if (s > units) s = units;
    return s < 1 ? 1 : s > MAX_SPLITS ? (int)MAX_SPLITS : (int)s;
}

/* ---- forward pass ----------------------------------------------------------------------------------------------- */

/* DOWN_ROWS, DOWN_WARPS: tokens and warps per CTA of down(). DEEP: number of k that a warp processes at a time. */
enum { DOWN_ROWS = 16, DOWN_WARPS = 4, DEEP = 32 };

/* Kernel down computes the parts of xa = x a^T. A CTA owns 16 tokens and one split of K; its warps share the split's
 * runs of 32 k. Each lane loads 16 bytes of a row, that is eight neighbouring k, and uses them as the k fragments of
 * two products. This permutes k, but in the same way for x and a, so the sum over k is unchanged. */
template <int W>
__global__ void __launch_bounds__(32 * DOWN_WARPS, W > 48 ? 3 : 4)
    down(const __grid_constant__ pb_lora_fwd_args f, float *parts)
{
    constexpr int NT = W / 8;
    __shared__ float room[DOWN_WARPS][DOWN_ROWS][W];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, quad = lane / 4, in_quad = lane % 4;
    const int row = (int)blockIdx.x * DOWN_ROWS + quad, runs = (f.K + DEEP - 1) / DEEP;
    const int from = (int)((size_t)runs * blockIdx.y / gridDim.y),
              to = (int)((size_t)runs * (blockIdx.y + 1) / gridDim.y);
    const bf16 *x = static_cast<const bf16 *>(f.x), *a[NT];
    float sum[NT][4] = {};
#pragma unroll
    for (int j = 0; j < NT; j++)
        a[j] = static_cast<const bf16 *>(f.target[8 * j / f.R].a) + (size_t)((8 * j) % f.R + quad) * f.K;
#pragma unroll 2
    for (int run = from + warp; run < to; run += DOWN_WARPS) {
        const int k = run * DEEP + 8 * in_quad;
        const vec8 low = load8(x + (size_t)row * f.K + k, row < f.T && k < f.K);
        const vec8 high = load8(x + (size_t)(row + 8) * f.K + k, row + 8 < f.T && k < f.K);
        const uint32_t first[4] = {low.pair[0], high.pair[0], low.pair[1], high.pair[1]};
        const uint32_t second[4] = {low.pair[2], high.pair[2], low.pair[3], high.pair[3]};
#pragma unroll
        for (int j = 0; j < NT; j++) {
            const vec8 b = load8(a[j] + k, k < f.K);
            pb_mma(sum[j], first, b.pair[0], b.pair[1]);
            pb_mma(sum[j], second, b.pair[2], b.pair[3]);
        }
    }
#pragma unroll
    for (int j = 0; j < NT; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) room[warp][quad + i / 2 * 8][8 * j + 2 * in_quad + i % 2] = sum[j][i];
    __syncthreads();
    for (int e = (int)threadIdx.x; e < DOWN_ROWS * W; e += 32 * DOWN_WARPS) {
        const int r = e / W, c = e % W, token = (int)blockIdx.x * DOWN_ROWS + r;
        float all = 0;
        for (int w = 0; w < DOWN_WARPS; w++) all += room[w][r][c];
        if (token < f.T) parts[((size_t)blockIdx.y * f.T + token) * W + c] = all;
    }
}

/* UP_ROWS, UP_COLS: tokens and columns of the tile of y that a CTA of up() owns. */
enum { UP_ROWS = 64, UP_COLS = 64, UP_THREADS = 128 };

/* Finds the target that tile number `tile` belongs to, and the tile's first column in it (*n0). Tiles have `width`
 * columns and are numbered through all targets in order. */
template <class Target> __device__ int tile_target(const Target *target, int tile, int width, int *n0)
{
    int i = 0;
    for (; tile >= (target[i].N + width - 1) / width; i++) tile -= (target[i].N + width - 1) / width;
    *n0 = tile * width;
    return i;
}

/* Sums xa of 64 tokens from its splits into shared memory, rounded to bf16. keep: also stores it to global memory; only
 * the CTAs of a target's first tile do that. */
template <int R>
__device__ void gather_xa(const pb_lora_fwd_args &f, const float *parts, int splits, int i, bool keep,
                          bf16 (*xs)[R + PAD])
{
    bf16 *xa = static_cast<bf16 *>(f.target[i].xa);
    const int W = f.n * R;
    for (int q = (int)threadIdx.x; q < UP_ROWS * R / 4; q += UP_THREADS) {
        const int r = q / (R / 4), c = q % (R / 4) * 4, token = (int)blockIdx.y * UP_ROWS + r;
        float4 sum = make_float4(0, 0, 0, 0);
        if (token < f.T) sum = sum4(parts + (size_t)token * W + i * R + c, splits, (size_t)f.T * W);
        store4(&xs[r][c], sum);
        if (keep && token < f.T) store4(xa + (size_t)token * R + c, sum);
    }
}

/* Kernel up computes y_i += scale xa_i b_i^T. A CTA owns 64 tokens and 64 columns of one target, a warp 32 x 32 of
 * them. Columns are permuted: column 8t + 2j + b of a warp's 32 is computed as column 2t + b of product j. A lane then
 * holds 8 neighbouring columns of y, which it loads and stores as one vector. */
template <int R>
__global__ void __launch_bounds__(UP_THREADS, 4)
    up(const __grid_constant__ pb_lora_fwd_args f, const float *parts, int splits)
{
    __shared__ alignas(16) bf16 xs[UP_ROWS][R + PAD];
    int n0;
    const int i = tile_target(f.target, (int)blockIdx.x, UP_COLS, &n0);
    const pb_lora_target &target = f.target[i];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, quad = lane / 4, in_quad = lane % 4;
    const int row0 = warp / 2 * 32, col0 = n0 + warp % 2 * 32, col = col0 + 8 * in_quad;
    const bf16 *b = static_cast<const bf16 *>(target.b);
    bf16 *y = static_cast<bf16 *>(target.y);
    vec8 old[4];
    float sum[2][4][4] = {};
#pragma unroll
    for (int m = 0; m < 4; m++) { /* rows quad, quad+8, quad+16, quad+24 of the warp's 32 */
        const int token = (int)blockIdx.y * UP_ROWS + row0 + 8 * m + quad;
        old[m] = load8(y + (size_t)token * target.ldy + col, token < f.T && col < target.N);
    }
    gather_xa<R>(f, parts, splits, i, n0 == 0, xs);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < R; k += 16) {
        uint2 x[4];
#pragma unroll
        for (int m = 0; m < 4; m++) x[m] = *reinterpret_cast<const uint2 *>(&xs[row0 + 8 * m + quad][k + 4 * in_quad]);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int n = col0 + quad / 2 * 8 + 2 * j + quad % 2;
            uint2 w = make_uint2(0, 0);
            if (n < target.N) w = *reinterpret_cast<const uint2 *>(b + (size_t)n * R + k + 4 * in_quad);
#pragma unroll
            for (int m = 0; m < 2; m++) {
                const uint32_t frag[4] = {x[2 * m].x, x[2 * m + 1].x, x[2 * m].y, x[2 * m + 1].y};
                pb_mma(sum[m][j], frag, w.x, w.y);
            }
        }
    }
#pragma unroll
    for (int m = 0; m < 4; m++) {
        const int token = (int)blockIdx.y * UP_ROWS + row0 + 8 * m + quad;
        if (token >= f.T || col >= target.N) continue;
#pragma unroll
        for (int e = 0; e < 8; e++)
            old[m].e[e] = pb_from_f32<bf16>(pb_to_f32(old[m].e[e]) + f.scale * sum[m / 2][e / 2][m % 2 * 2 + e % 2]);
        store8(y + (size_t)token * target.ldy + col, old[m]);
    }
}

/* ---- backward pass ---------------------------------------------------------------------------------------------- */

/* Layout of the backward pass's scratch. The comment at the top of the file says what the arrays are. */
struct bwd_room {
    float *dxa_parts;             /* [S,T,W] */
    float *db_parts[PB_LORA_MAX]; /* [T/TOKENS,N,R] each */
    float *da_parts;              /* [T/TOKENS,W,K] */
    bf16 *dxa;                    /* [T,W] */
    int splits, token_blocks;
};

/* Copies rows x cols of p into a tile in shared memory. Elements outside the matrix become
 * zero. cols is a multiple of 8. */
template <int LD>
__device__ void stage(const bf16 *p, size_t ld, int rows_left, int cols_left, int rows, int cols, bf16 (*tile)[LD])
{
    const int each = cols / 8;
    for (int q = (int)threadIdx.x; q < rows * each; q += (int)blockDim.x) {
        const int r = q / each, c = q % each * 8;
        store8(&tile[r][c], load8(p + (size_t)r * ld + c, r < rows_left && c < cols_left));
    }
}

/* Computes c += x y. x is [16,DEEP], a range of rows of a tile; y is a whole tile [DEEP,WIDE]. Tile rows have PAD extra
 * elements. */
template <int DEEP, int WIDE>
__device__ static inline void add_product(float (&c)[WIDE / 8][4], const bf16 (*x)[DEEP + PAD],
                                          const bf16 (&y)[DEEP][WIDE + PAD])
{
#pragma unroll
    for (int k = 0; k < DEEP; k += 16) {
        uint32_t a[4], b[4];
        pb_load_a(a, &x[0][k], DEEP + PAD);
#pragma unroll
        for (int n = 0; n < WIDE; n += 16) {
            pb_load_b2(b, &y[k][n], WIDE + PAD);
            pb_mma(c[n / 8], a, b[0], b[1]);
            pb_mma(c[n / 8 + 1], a, b[2], b[3]);
        }
    }
}

/* Kernel from_dy computes the parts of dxa and db from dy. A CTA owns 128 tokens and one split of a target's columns,
 * in chunks of 64. For dxa a warp owns 16 tokens; for db it owns 16 columns and half of R. ONE: there is a single token
 * tile, so db is stored directly. */
template <int R, bool ONE>
__global__ void __launch_bounds__(256, ONE ? 1 : 2)
    from_dy(const __grid_constant__ pb_lora_bwd_args a, const __grid_constant__ bwd_room room)
{
    __shared__ alignas(16) bf16 dys[TOKENS][CHUNK + PAD], bs[CHUNK][R + PAD], xs[TOKENS][R + PAD];
    const int i = (int)blockIdx.x / room.splits, split = (int)blockIdx.x % room.splits;
    const int token0 = ONE ? 0 : (int)blockIdx.y * TOKENS;
    const pb_lora_grad &target = a.target[i];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, quad = lane / 4, in_quad = lane % 4;
    const int chunks = (target.N + CHUNK - 1) / CHUNK, left = a.T - token0;
    const int from = chunks * split / room.splits, to = chunks * (split + 1) / room.splits, half = warp / 4 * (R / 2);
    const bf16 *dy = static_cast<const bf16 *>(target.dy) + (size_t)token0 * target.lddy;
    float dxa[R / 8][4] = {};
    stage(static_cast<const bf16 *>(target.xa) + (size_t)token0 * R, R, left, R, TOKENS, R, xs);
    for (int chunk = from; chunk < to; chunk++) {
        const int n0 = chunk * CHUNK;
        float db[R / 16][4] = {};
        __syncthreads();
        stage(dy + n0, target.lddy, left, target.N - n0, TOKENS, CHUNK, dys);
        stage(static_cast<const bf16 *>(target.b) + (size_t)n0 * R, R, target.N - n0, R, CHUNK, R, bs);
        __syncthreads();
        add_product<CHUNK, R>(dxa, &dys[16 * warp], bs);
#pragma unroll
        for (int k = 0; k < TOKENS; k += 32) {
            uint32_t x[4], next[4], w[4];
            pb_load_a_trans(x, &dys[k][warp % 4 * 16], CHUNK + PAD);
            pb_load_a_trans(next, &dys[k + 16][warp % 4 * 16], CHUNK + PAD);
#pragma unroll
            for (int n = 0; n < R / 2; n += 8) {
                pb_load_b_deep(w, &xs[k][half + n], R + PAD);
                pb_mma(db[n / 8], x, w[0], w[1]);
                pb_mma(db[n / 8], next, w[2], w[3]);
            }
        }
#pragma unroll
        for (int e = 0; e < R / 16 * 2; e++) {
            const int n = n0 + warp % 4 * 16 + quad + e % 2 * 8;
            float *to_db = ONE ? target.db : room.db_parts[i] + (size_t)blockIdx.y * target.N * R;
            to_db += (size_t)n * R + half + e / 2 * 8 + 2 * in_quad;
            if (n < target.N)
                put2(to_db, db[e / 2][e % 2 * 2], db[e / 2][e % 2 * 2 + 1], ONE ? a.scale : 1, ONE && a.accumulate);
        }
    }
#pragma unroll
    for (int e = 0; e < R / 8 * 2; e++) {
        const int token = token0 + 16 * warp + quad + e % 2 * 8;
        float *to_dxa = room.dxa_parts + ((size_t)split * a.T + token) * (a.n * R) + i * R + e / 2 * 8 + 2 * in_quad;
        if (token < a.T)
            *reinterpret_cast<float2 *>(to_dxa) = make_float2(dxa[e / 2][e % 2 * 2], dxa[e / 2][e % 2 * 2 + 1]);
    }
}

/* Kernel fold adds the parts of dxa and db. A thread owns four neighbouring elements. Threads are numbered through the
 * elements of dxa, then db_0, db_1, ... */
static __global__ void __launch_bounds__(256)
    fold(const __grid_constant__ pb_lora_bwd_args a, const __grid_constant__ bwd_room room)
{
    const size_t width = (size_t)a.T * (size_t)(a.n * a.R);
    size_t e = 4 * ((size_t)blockIdx.x * 256 + threadIdx.x);
    if (e < width) {
        float4 sum = sum4(room.dxa_parts + e, room.splits, width);
        sum.x *= a.scale, sum.y *= a.scale, sum.z *= a.scale, sum.w *= a.scale;
        store4(room.dxa + e, sum);
        return;
    }
    e -= width;
    for (int i = 0; i < a.n; i++) {
        const size_t size = (size_t)a.target[i].N * (size_t)a.R;
        if (e < size) {
            put4(a.target[i].db + e, sum4(room.db_parts[i] + e, room.token_blocks, size), a.scale, a.accumulate);
            return;
        }
        e -= size;
    }
}

/* Copies 64 columns of all a_i from k0 on to shared memory. They are permuted as in up(), so that a lane's results are
 * neighbouring columns of dx. */
template <int W> __device__ void stage_a(const pb_lora_bwd_args &f, int k0, bf16 (*as)[CHUNK + PAD])
{
    for (int q = (int)threadIdx.x; q < W * CHUNK / 8; q += 256) {
        const int w = q / (CHUNK / 8), v = q % (CHUNK / 8), k = k0 + 8 * v;
        const bf16 *a = static_cast<const bf16 *>(f.target[w / f.R].a) + (size_t)(w % f.R) * f.K;
        const vec8 x = load8(a + k, k < f.K);
#pragma unroll
        for (int j = 0; j < 4; j++) *reinterpret_cast<uint32_t *>(&as[w][v / 4 * 32 + 8 * j + v % 4 * 2]) = x.pair[j];
    }
}

/* Sums dxa of all tokens (at most 128) from its splits into a tile, scaled and rounded to bf16. */
template <int W> __device__ void gather_dxa(const pb_lora_bwd_args &f, const bwd_room &room, bf16 (*tile)[W + PAD])
{
    for (int q = (int)threadIdx.x; q < TOKENS * W / 4; q += 256) {
        const int r = q / (W / 4), c = q % (W / 4) * 4;
        float4 sum = make_float4(0, 0, 0, 0);
        if (r < f.T) sum = sum4(room.dxa_parts + (size_t)r * W + c, room.splits, (size_t)f.T * W);
        sum.x *= f.scale, sum.y *= f.scale, sum.z *= f.scale, sum.w *= f.scale;
        store4(&tile[r][c], sum);
    }
}

/* Kernel from_x adds dxa a to dx and computes the parts of da. A CTA owns 128 tokens and 64 columns of x and dx. For dx
 * a warp owns 16 tokens, for da 8 columns. */
template <int W>
__global__ void __launch_bounds__(256, 2)
    from_x(const __grid_constant__ pb_lora_bwd_args f, const __grid_constant__ bwd_room room)
{
    __shared__ alignas(16) bf16 xs[TOKENS][CHUNK + PAD], as[W][CHUNK + PAD], ds[TOKENS][W + PAD];
    const int k0 = (int)blockIdx.x * CHUNK, token0 = (int)blockIdx.y * TOKENS, left = f.T - token0;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, quad = lane / 4, in_quad = lane % 4;
    bf16 *dx = static_cast<bf16 *>(f.dx);
    vec8 old[2][2];
    float sum[8][4] = {}, da[W / 16][4] = {};
#pragma unroll
    for (int m = 0; m < 4; m++) { /* m / 2: row quad or quad+8 of the warp's 16; m % 2: which half of the 64 columns */
        const int token = token0 + 16 * warp + quad + m / 2 * 8, k = k0 + m % 2 * 32 + 8 * in_quad;
        old[m / 2][m % 2] = load8(dx + (size_t)token * f.K + k, token < f.T && k < f.K);
    }
    stage(static_cast<const bf16 *>(f.x) + (size_t)token0 * f.K + k0, f.K, left, f.K - k0, TOKENS, CHUNK, xs);
    if (gridDim.y == 1) gather_dxa<W>(f, room, ds);
    else stage(room.dxa + (size_t)token0 * W, W, left, W, TOKENS, W, ds);
    stage_a<W>(f, k0, as);
    __syncthreads();
    add_product<W, CHUNK>(sum, &ds[16 * warp], as);
#pragma unroll
    for (int m = 0; m < 4; m++) {
        const int token = token0 + 16 * warp + quad + m / 2 * 8, k = k0 + m % 2 * 32 + 8 * in_quad;
        vec8 v = old[m / 2][m % 2];
        if (token >= f.T || k >= f.K) continue;
#pragma unroll
        for (int e = 0; e < 8; e++)
            v.e[e] = pb_from_f32<bf16>(pb_to_f32(v.e[e]) + sum[m % 2 * 4 + e / 2][m / 2 * 2 + e % 2]);
        store8(dx + (size_t)token * f.K + k, v);
    }
#pragma unroll
    for (int k = 0; k < TOKENS; k += 32) {
        uint32_t x[4], d[4];
        pb_load_b_deep(x, &xs[k][8 * warp], CHUNK + PAD);
#pragma unroll
        for (int w = 0; w < W; w += 16) {
            pb_load_a_trans(d, &ds[k][w], W + PAD);
            pb_mma(da[w / 16], d, x[0], x[1]);
            pb_load_a_trans(d, &ds[k + 16][w], W + PAD);
            pb_mma(da[w / 16], d, x[2], x[3]);
        }
    }
#pragma unroll
    for (int e = 0; e < W / 16 * 2; e++) {
        const int w = e / 2 * 16 + quad + e % 2 * 8, k = k0 + 8 * warp + 2 * in_quad;
        float *to = gridDim.y == 1 ? f.target[w / f.R].da + (size_t)(w % f.R) * f.K
                                   : room.da_parts + ((size_t)blockIdx.y * W + w) * f.K;
        if (k < f.K) put2(to + k, da[e / 2][e % 2 * 2], da[e / 2][e % 2 * 2 + 1], 1, gridDim.y == 1 && f.accumulate);
    }
}

static __global__ void __launch_bounds__(256)
    fold_da(const __grid_constant__ pb_lora_bwd_args a, const __grid_constant__ bwd_room room)
{
    const size_t each = (size_t)a.R * (size_t)a.K, all = each * (size_t)a.n;
    const size_t e = 4 * ((size_t)blockIdx.x * 256 + threadIdx.x);
    if (e >= all) return;
    put4(a.target[e / each].da + e % each, sum4(room.da_parts + e, room.token_blocks, all), 1, a.accumulate);
}
} // namespace lora_mma
#endif
