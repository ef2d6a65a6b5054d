/* mla_sums.cuh - clears the f32 sums of dkv, to which many CTAs then add, and afterwards writes them to dkv, rounded to
 * bf16 or, with `wide`, as they are. */
#ifndef PB_MLA_SUMS_CUH
#define PB_MLA_SUMS_CUH
#include "kernels/sparse_mla/mla_tiles.cuh"

/* Order in which a row of sums stores its columns. BY_COLUMNS: ascending. BY_QUADS: in every 16 columns, thread t of a
 * quad holds columns 2t, 2t+1, 2t+8 and 2t+9 in its accumulators; these are stored contiguously, from position 4t on,
 * so that one 16-byte reduction adds them. quad_column(k) is the column that is stored at position k of the 16. */
enum mla_order { BY_COLUMNS, BY_QUADS };
__host__ __device__ static constexpr int quad_column(int k) { return k / 4 * 2 + k % 4 / 2 * 8 + k % 2; }

template <mla_order ORDER> constexpr int mla_sums_wide = ORDER == BY_QUADS ? 16 : 8; /* columns per thread; divides D */

static __global__ __launch_bounds__(MLA_THREADS) void mla_clear_kernel(float *x, size_t n)
{
    constexpr int WIDE = mla_sums_wide<BY_COLUMNS>;
    const size_t i = ((size_t)blockIdx.x * MLA_THREADS + threadIdx.x) * WIDE;
    const float none[4] = {};
    if (i >= n) return;
    pb_store_vec<float, 4>(x + i, none);
    pb_store_vec<float, 4>(x + i + 4, none);
}

static __device__ inline void mla_store_8(bf16 *to, const float (&v)[8]) { pb_store_vec<bf16, 8>(to, v); }
static __device__ inline void mla_store_8(float *to, const float (&v)[8])
{
#pragma unroll
    for (int i = 0; i < 8; i += 4) {
        const float four[4] = {v[i], v[i + 1], v[i + 2], v[i + 3]};
        pb_store_vec<float, 4>(to + i, four);
    }
}

template <mla_order ORDER, class TO>
static __global__ __launch_bounds__(MLA_THREADS) void mla_round_kernel(TO *to, const float *x, size_t n)
{
    constexpr int WIDE = mla_sums_wide<ORDER>;
    const size_t i = ((size_t)blockIdx.x * MLA_THREADS + threadIdx.x) * WIDE;
    float w[WIDE], v[WIDE / 8][8];
    if (i >= n) return;
    pb_load_vec<float, WIDE>(x + i, w);
#pragma unroll
    for (int k = 0; k < WIDE; k++) {
        const int at = ORDER == BY_QUADS ? quad_column(k) : k;
        v[at / 8][at % 8] = w[k];
    }
#pragma unroll
    for (int c = 0; c < WIDE / 8; c++) mla_store_8(to + i + c * 8, v[c]);
}

static inline size_t mla_sums_of(const pb_mla &p) { return (size_t)p.B * p.S_kv * p.D; }

static inline unsigned mla_sums_blocks(size_t n, int wide)
{
    return (unsigned)((n / wide + MLA_THREADS - 1) / MLA_THREADS);
}

static inline pb_status mla_clear(pb_ctx *ctx, const pb_mla &p, float *sum)
{
    const size_t n = mla_sums_of(p);
    const unsigned blocks = mla_sums_blocks(n, mla_sums_wide<BY_COLUMNS>);
    mla_clear_kernel<<<blocks, MLA_THREADS, 0, pb_cuda_stream(ctx)>>>(sum, n);
    return pb_cuda_launched(ctx, "mla_bwd zero");
}
template <mla_order ORDER> static inline pb_status mla_round(pb_ctx *ctx, const pb_mla &p, const float *sum)
{
    const size_t n = mla_sums_of(p);
    const unsigned blocks = mla_sums_blocks(n, mla_sums_wide<ORDER>);
    if (p.wide) mla_round_kernel<ORDER, float><<<blocks, MLA_THREADS, 0, pb_cuda_stream(ctx)>>>((float *)p.dkv, sum, n);
    else mla_round_kernel<ORDER, bf16><<<blocks, MLA_THREADS, 0, pb_cuda_stream(ctx)>>>((bf16 *)p.dkv, sum, n);
    return pb_cuda_launched(ctx, "mla_bwd round");
}
#endif
