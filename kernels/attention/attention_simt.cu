/* attention_simt.cu - attention without tensor cores: any shape, stride and dtype, f32 arithmetic throughout.
 *
 * A CTA of 256 threads computes tiles of 64 x 64 scores, 4 x 4 per thread, and SLICE columns of the outputs, 4 x 8 per
 * thread. A head wider than SLICE is divided over several CTAs, each of which computes the scores again. Thread (x, y)
 * of 16 x 16 has rows 4y .. 4y+3 and columns x, x+16, x+32, x+48 of the scores. Limit: shared-memory reads, one 16-byte
 * and four 4-byte loads for 16 multiply-adds.
 *
 * A masked weight is never multiplied, so a NaN reaches only the queries that attend to it. */
#include "kernels/attention/attention_impls.cuh"

namespace
{
constexpr int THREADS = 256, TILE = 64, SLICE = 128, DEPTH = 16, PITCH = TILE + 4;

struct alignas(16) buffers {
    union {
        struct {
            float a[DEPTH][PITCH], b[DEPTH][PITCH]; /* DEPTH columns of the operands of dot_tile(), transposed */
        } dot;
        float rows[TILE / 4][SLICE]; /* a quarter of the rows that the weights multiply */
    };
    float weight[TILE][PITCH]; /* [summed index][row of the output] */
    int from[TILE], to[TILE];  /* query i of the tile attends to keys [from, to) */
    float lse[TILE], delta[TILE];
};

/* Rows of one head: element (r, d) is p[r * ld + d]; rows from n on do not exist. */
template <class T> struct rows_of {
    const T *p;
    size_t ld;
    int n;
};

__device__ inline int thread_x(void) { return threadIdx.x % 16; }
__device__ inline int thread_y(void) { return threadIdx.x / 16; }

/* Computes c[i][j] = a[a0 + 4y+i] . b[b0 + x+16j]. Rows that do not exist count as zeros. */
template <class T>
__device__ void dot_tile(float (&c)[4][4], const rows_of<T> &a, int a0, const rows_of<T> &b, int b0, int D, buffers &sm)
{
#pragma unroll
    for (int i = 0; i < 16; i++) c[i / 4][i % 4] = 0;
    for (int d0 = 0; d0 < D; d0 += DEPTH) {
        __syncthreads();
        for (int e = threadIdx.x; e < TILE * DEPTH; e += THREADS) {
            const int r = e / DEPTH, d = d0 + e % DEPTH;
            sm.dot.a[e % DEPTH][r] = d < D && a0 + r < a.n ? pb_to_f32(a.p[(a0 + r) * a.ld + d]) : 0;
            sm.dot.b[e % DEPTH][r] = d < D && b0 + r < b.n ? pb_to_f32(b.p[(b0 + r) * b.ld + d]) : 0;
        }
        __syncthreads();
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            const float4 u = *reinterpret_cast<const float4 *>(&sm.dot.a[d][4 * thread_y()]);
            const float x[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float y = sm.dot.b[d][thread_x() + 16 * j];
#pragma unroll
                for (int i = 0; i < 4; i++) c[i][j] = fmaf(x[i], y, c[i][j]);
            }
        }
    }
}

/* Computes out[i][.] += sum_k w_k,4y+i z[z0+k] for columns d0 + 4x .. d0 + 4x + 3 and for the four columns 64 further
 * right. The thread that computed weight (4y+i, x+16j) passes it as w[i][j]. Rows of z with weight 0 are not
 * multiplied. */
template <class T>
__device__ void add_weighted_tile(float (&out)[4][8], const float (&w)[4][4], const rows_of<T> &z, int z0, int d0,
                                  int D, buffers &sm)
{
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 4; j++)
        *reinterpret_cast<float4 *>(&sm.weight[thread_x() + 16 * j][4 * thread_y()]) =
            make_float4(w[0][j], w[1][j], w[2][j], w[3][j]);
    for (int k0 = 0; k0 < TILE && z0 + k0 < z.n; k0 += TILE / 4) {
        __syncthreads();
        for (int e = threadIdx.x; e < TILE / 4 * SLICE; e += THREADS) {
            const int r = z0 + k0 + e / SLICE, d = d0 + e % SLICE;
            sm.rows[e / SLICE][e % SLICE] = r < z.n && d < D ? pb_to_f32(z.p[r * z.ld + d]) : 0;
        }
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < TILE / 4; k++) {
            const float4 u = *reinterpret_cast<const float4 *>(&sm.weight[k0 + k][4 * thread_y()]);
            const float4 l = *reinterpret_cast<const float4 *>(&sm.rows[k][4 * thread_x()]);
            const float4 h = *reinterpret_cast<const float4 *>(&sm.rows[k][64 + 4 * thread_x()]);
            const float x[4] = {u.x, u.y, u.z, u.w}, y[8] = {l.x, l.y, l.z, l.w, h.x, h.y, h.z, h.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (x[i] == 0) continue;
#pragma unroll
                for (int j = 0; j < 8; j++) out[i][j] = fmaf(x[i], y[j], out[i][j]);
            }
        }
    }
}

/* Stores f[i] * out[i][.] to row r0 + 4y+i; the columns are those for which add_weighted_tile computed `out`. */
template <class T>
__device__ void store_tile(const float (&out)[4][8], const float (&f)[4], T *p, size_t ld, int r0, int n, int d0, int D)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int r = r0 + 4 * thread_y() + i;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const int d = d0 + 4 * thread_x() + j % 4 + j / 4 * 64;
            if (r < n && d < D) p[r * ld + d] = pb_from_f32<T>(out[i][j] * f[i]);
        }
    }
}

/* Loads the visible keys, lse and delta of queries [i0, i0+TILE) to sm; lse and delta may be NULL. There are N keys, of
 * which the last S belong to the queries. Returns the range of keys that any of these queries attends to: first and
 * end. */
__device__ int2 load_queries(buffers &sm, const int32_t *start, const float *lse, const float *delta, int i0, int S,
                             int N, bool causal)
{
    const int i = i0 + threadIdx.x;
    __syncthreads();
    if (threadIdx.x < TILE) {
        sm.from[threadIdx.x] = i < S && start ? max(start[i], 0) : 0;
        sm.to[threadIdx.x] = i >= S ? 0 : causal ? N - S + i + 1 : N;
        sm.lse[threadIdx.x] = lse && i < S ? lse[i] : 0;
        sm.delta[threadIdx.x] = delta && i < S ? delta[i] : 0;
    }
    __syncthreads();
    int2 r = make_int2(N, 0);
    for (int q = 0; q < TILE; q++)
        if (sm.from[q] < sm.to[q]) r = make_int2(min(r.x, sm.from[q]), max(r.y, sm.to[q]));
    return r;
}
__device__ inline bool sees(const buffers &sm, int query, int key)
{
    return key >= sm.from[query] && key < sm.to[query];
}

template <class T> __device__ inline rows_of<T> head_of(const void *p, size_t ld, int b, int head, int S, int D)
{
    return {(const T *)p + (size_t)b * S * ld + (size_t)head * D, ld, S};
}

/* The work of this CTA. d0: first column of the output; r0: first row of the tile; b: batch row; head: head. */
struct cta_work {
    int d0, r0, b, head;
};
__device__ inline cta_work work_of_cta(int S, int D, int heads)
{
    const int slices = (D + SLICE - 1) / SLICE, tiles = (S + TILE - 1) / TILE;
    const int tile = blockIdx.x / slices % tiles, bh = blockIdx.x / slices / tiles;
    return {(int)(blockIdx.x % slices) * SLICE, tile * TILE, bh / heads, bh % heads};
}

/* Returns the sum of x over the 16 threads of a row to each of them. row_max does the same for the maximum. */
__device__ inline float row_sum(float x)
{
    for (int d = 8; d > 0; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}
__device__ inline float row_max(float x)
{
    for (int d = 8; d > 0; d >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}

template <class T> __global__ __launch_bounds__(THREADS, 1) void fwd_kernel(const pb_attention_fwd_args a)
{
    __shared__ buffers sm;
    const cta_work own = work_of_cta(a.S, a.D, a.H);
    const int kv = own.head / (a.H / a.K);
    const size_t stat = ((size_t)own.b * a.H + own.head) * a.S;
    const rows_of<T> q = head_of<T>(a.q, a.ldq, own.b, own.head, a.S, a.D);
    const int N = a.keys ? a.keys : a.S;
    const rows_of<T> k = head_of<T>(a.k, a.ldk, own.b, kv, N, a.D), v = head_of<T>(a.v, a.ldv, own.b, kv, N, a.D);
    const int2 range =
        load_queries(sm, a.start ? a.start + (size_t)own.b * a.S : NULL, NULL, NULL, own.r0, a.S, N, a.causal);
    float o[4][8] = {}, top[4], sum[4] = {};
    for (int i = 0; i < 4; i++) top[i] = -INFINITY;
    for (int j0 = range.x; j0 < range.y; j0 += TILE) {
        float s[4][4];
        dot_tile(s, q, own.r0, k, j0, a.D, sm);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int query = 4 * thread_y() + i;
            float most = top[i], total = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                s[i][j] = sees(sm, query, j0 + thread_x() + 16 * j) ? s[i][j] * a.scale : -INFINITY;
                most = fmaxf(most, s[i][j]);
            }
            most = row_max(most);
            const float base = most == -INFINITY ? 0 : most, keep = expf(top[i] - base);
#pragma unroll
            for (int j = 0; j < 4; j++) total += s[i][j] = expf(s[i][j] - base);
            top[i] = most;
            sum[i] = sum[i] * keep + row_sum(total);
#pragma unroll
            for (int d = 0; d < 8; d++) o[i][d] *= keep;
        }
        add_weighted_tile(o, s, v, j0, own.d0, a.D, sm);
    }
    float f[4];
    for (int i = 0; i < 4; i++) {
        const int r = own.r0 + 4 * thread_y() + i;
        f[i] = sum[i] == 0 ? 0 : 1 / sum[i];
        if (r < a.S && own.d0 == 0 && thread_x() == 0)
            a.lse[stat + r] = sum[i] == 0 ? -INFINITY : top[i] + logf(sum[i]);
    }
    T *to = (T *)a.o + (size_t)own.b * a.S * a.ldo + (size_t)own.head * a.D;
    store_tile<T>(o, f, to, a.ldo, own.r0, a.S, own.d0, a.D);
}

/* Replaces the scores in s by softmax weights p. KEYS: rows of s are keys; otherwise they are queries. */
template <bool KEYS> __device__ inline void weigh(float (&s)[4][4], const buffers &sm, float scale, int key0)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int row = 4 * thread_y() + i, col = thread_x() + 16 * j;
            const int query = KEYS ? col : row, key = key0 + (KEYS ? row : col);
            s[i][j] = sees(sm, query, key) ? expf(s[i][j] * scale - sm.lse[query]) : 0;
        }
}
/* Turns weights p into ds = p (dp - delta), or 0 where masked. */
template <bool KEYS>
__device__ inline void differentiate(float (&p)[4][4], const float (&dp)[4][4], const buffers &sm, int key0)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int row = 4 * thread_y() + i, col = thread_x() + 16 * j;
            const int query = KEYS ? col : row, key = key0 + (KEYS ? row : col);
            p[i][j] = sees(sm, query, key) ? p[i][j] * (dp[i][j] - sm.delta[query]) : 0;
        }
}

/* G: dtype of dk and dv. */
template <class T, class G>
__global__ __launch_bounds__(THREADS, 1) void dkv_kernel(const pb_attention_bwd_args a, const float *delta)
{
    __shared__ buffers sm;
    const int N = a.keys ? a.keys : a.S, group = a.H / a.K;
    const cta_work own = work_of_cta(N, a.D, a.K);
    const rows_of<T> k = head_of<T>(a.k, a.ldk, own.b, own.head, N, a.D);
    const rows_of<T> v = head_of<T>(a.v, a.ldv, own.b, own.head, N, a.D);
    const int32_t *start = a.start ? a.start + (size_t)own.b * a.S : NULL;
    float dk[4][8] = {}, dv[4][8] = {};
    for (int h = own.head * group; h < (own.head + 1) * group; h++) {
        const size_t stat = ((size_t)own.b * a.H + h) * a.S;
        const rows_of<T> q = head_of<T>(a.q, a.ldq, own.b, h, a.S, a.D);
        const rows_of<T> dO = head_of<T>(a.dO, a.lddo, own.b, h, a.S, a.D);
        const int first = a.causal ? max(own.r0 - (N - a.S), 0) / TILE * TILE : 0;
        for (int i0 = first; i0 < a.S; i0 += TILE) {
            const int2 range = load_queries(sm, start, a.lse + stat, delta + stat, i0, a.S, N, a.causal);
            if (range.x >= own.r0 + TILE || range.y <= own.r0) continue;
            float s[4][4], dp[4][4];
            dot_tile(s, k, own.r0, q, i0, a.D, sm);
            weigh<true>(s, sm, a.scale, own.r0);
            add_weighted_tile(dv, s, dO, i0, own.d0, a.D, sm);
            dot_tile(dp, v, own.r0, dO, i0, a.D, sm);
            differentiate<true>(s, dp, sm, own.r0);
            add_weighted_tile(dk, s, q, i0, own.d0, a.D, sm);
        }
    }
    const float one[4] = {1, 1, 1, 1}, scale[4] = {a.scale, a.scale, a.scale, a.scale};
    const size_t row = (size_t)own.b * N, head = (size_t)own.head * a.D;
    store_tile<G>(dk, scale, (G *)a.dk + row * a.lddk + head, a.lddk, own.r0, N, own.d0, a.D);
    store_tile<G>(dv, one, (G *)a.dv + row * a.lddv + head, a.lddv, own.r0, N, own.d0, a.D);
}

template <class T>
__global__ __launch_bounds__(THREADS, 1) void dq_kernel(const pb_attention_bwd_args a, const float *delta)
{
    __shared__ buffers sm;
    const cta_work own = work_of_cta(a.S, a.D, a.H);
    const int kv = own.head / (a.H / a.K);
    const size_t stat = ((size_t)own.b * a.H + own.head) * a.S, row = (size_t)own.b * a.S;
    const rows_of<T> q = head_of<T>(a.q, a.ldq, own.b, own.head, a.S, a.D);
    const rows_of<T> dO = head_of<T>(a.dO, a.lddo, own.b, own.head, a.S, a.D);
    const int N = a.keys ? a.keys : a.S;
    const rows_of<T> k = head_of<T>(a.k, a.ldk, own.b, kv, N, a.D), v = head_of<T>(a.v, a.ldv, own.b, kv, N, a.D);
    const int2 range =
        load_queries(sm, a.start ? a.start + row : NULL, a.lse + stat, delta + stat, own.r0, a.S, N, a.causal);
    float dq[4][8] = {};
    for (int j0 = range.x; j0 < range.y; j0 += TILE) {
        float s[4][4], dp[4][4];
        dot_tile(s, q, own.r0, k, j0, a.D, sm);
        weigh<false>(s, sm, a.scale, j0);
        dot_tile(dp, dO, own.r0, v, j0, a.D, sm);
        differentiate<false>(s, dp, sm, j0);
        add_weighted_tile(dq, s, k, j0, own.d0, a.D, sm);
    }
    const float scale[4] = {a.scale, a.scale, a.scale, a.scale};
    T *to = (T *)a.dq + row * a.lddq + (size_t)own.head * a.D;
    store_tile<T>(dq, scale, to, a.lddq, own.r0, a.S, own.d0, a.D);
}

/* Computes delta[b,h,i] = sum_d do_i o_i with `lanes` threads (a power of two up to 32) per row of do and o. A thread
 * loads N elements at a time. */
template <class T, int N>
__global__ __launch_bounds__(THREADS, 1) void delta_kernel(const pb_attention_bwd_args a, float *delta, int lanes)
{
    const size_t r = ((size_t)blockIdx.x * THREADS + threadIdx.x) / lanes, rows = (size_t)a.B * a.S * a.H;
    const size_t token = min(r, rows - 1) / a.H, h = min(r, rows - 1) % a.H;
    const T *x = (const T *)a.dO + token * a.lddo + h * a.D, *y = (const T *)a.o + token * a.ldo + h * a.D;
    float sum = 0;
    for (int d = threadIdx.x % lanes * N; d < a.D; d += lanes * N) {
        float u[N], w[N];
        pb_load_vec<T, N>(x + d, u), pb_load_vec<T, N>(y + d, w);
#pragma unroll
        for (int i = 0; i < N; i++) sum = fmaf(u[i], w[i], sum);
    }
    for (int d = lanes / 2; d > 0; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (r < rows && threadIdx.x % lanes == 0) delta[(token / a.S * a.H + h) * a.S + token % a.S] = sum;
}

template <class T, int N> pb_status delta_launch(pb_ctx *ctx, const pb_attention_bwd_args &a, float *delta)
{
    int lanes = 1;
    while (lanes < 32 && lanes * N < a.D) lanes *= 2;
    const size_t rows = (size_t)a.B * a.S * a.H, blocks = (rows * lanes + THREADS - 1) / THREADS;
    delta_kernel<T, N><<<(unsigned)blocks, THREADS, 0, pb_cuda_stream(ctx)>>>(a, delta, lanes);
    return pb_cuda_launched(ctx, "attention_bwd delta");
}

template <class T> pb_status delta_run(pb_ctx *ctx, const pb_attention_bwd_args *a, float *delta)
{
    const bool vectors = pb_vectors_fit<T>(a->dO, a->D, a->lddo) && pb_vectors_fit<T>(a->o, a->D, a->ldo);
    return vectors ? delta_launch<T, pb_lanes<T>>(ctx, *a, delta) : delta_launch<T, 1>(ctx, *a, delta);
}

unsigned blocks_of(int B, int heads, int S, int D)
{
    return (unsigned)((size_t)B * heads * ((S + TILE - 1) / TILE) * ((D + SLICE - 1) / SLICE));
}

template <class T> pb_status fwd_run(pb_ctx *ctx, const pb_attention_fwd_args *a)
{
    fwd_kernel<T><<<blocks_of(a->B, a->H, a->S, a->D), THREADS, 0, pb_cuda_stream(ctx)>>>(*a);
    return pb_cuda_launched(ctx, "attention_fwd simt");
}

template <class T> pb_status bwd_run(pb_ctx *ctx, const pb_attention_bwd_args *a)
{
    float *delta = (float *)ctx->scratch; /* [B,H,S] */
    PB_TRY(pb_attention_delta_cuda(ctx, a, delta));
    const unsigned blocks = blocks_of(a->B, a->K, pb_attention_bwd_keys(a), a->D);
    if (a->wide) dkv_kernel<T, float><<<blocks, THREADS, 0, pb_cuda_stream(ctx)>>>(*a, delta);
    else dkv_kernel<T, T><<<blocks, THREADS, 0, pb_cuda_stream(ctx)>>>(*a, delta);
    PB_TRY(pb_cuda_launched(ctx, "attention_bwd simt, dk and dv"));
    dq_kernel<T><<<blocks_of(a->B, a->H, a->S, a->D), THREADS, 0, pb_cuda_stream(ctx)>>>(*a, delta);
    return pb_cuda_launched(ctx, "attention_bwd simt, dq");
}
} // namespace

pb_status pb_attention_delta_cuda(pb_ctx *ctx, const pb_attention_bwd_args *a, float *delta)
{
    return PB_CUDA_BY_DTYPE(a->dtype, delta_run, ctx, a, delta);
}

pb_status pb_attention_fwd_simt(pb_ctx *ctx, const void *args)
{
    const pb_attention_fwd_args *a = (const pb_attention_fwd_args *)args;
    return PB_CUDA_BY_DTYPE(a->dtype, fwd_run, ctx, a);
}

pb_status pb_attention_bwd_simt(pb_ctx *ctx, const void *args)
{
    const pb_attention_bwd_args *a = (const pb_attention_bwd_args *)args;
    return PB_CUDA_BY_DTYPE(a->dtype, bwd_run, ctx, a);
}
