/* cuda_pack.cuh - 16 bytes of f32 or bf16 in four registers: load, unpack to f32, pack again. Kernels that keep rows in
 * registers keep them packed, because bf16 takes half the registers of f32. Also the grid of elementwise kernels. */
#ifndef PB_CUDA_PACK_CUH
#define PB_CUDA_PACK_CUH
#include "kernels/cuda/cuda.cuh"

__device__ static inline uint4 pb_load16(const void *p) { return *(const uint4 *)p; }
__device__ static inline void pb_store16(void *p, uint4 x) { *(uint4 *)p = x; }
/* Streaming store, for outputs that are much larger than L2 or that are not read soon. */
__device__ static inline void pb_stream16(void *p, uint4 x) { __stcs((uint4 *)p, x); }

__device__ static inline void pb_unpack(uint4 x, float (&out)[4])
{
    out[0] = __uint_as_float(x.x), out[1] = __uint_as_float(x.y);
    out[2] = __uint_as_float(x.z), out[3] = __uint_as_float(x.w);
}
__device__ static inline void pb_unpack(uint4 x, float (&out)[8])
{
    const uint32_t w[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        out[2 * i] = __uint_as_float(w[i] << 16);
        out[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
    }
}

__device__ static inline uint4 pb_pack(const float (&in)[4])
{
    return make_uint4(__float_as_uint(in[0]), __float_as_uint(in[1]), __float_as_uint(in[2]), __float_as_uint(in[3]));
}
__device__ static inline uint32_t pb_pack_pair(float low, float high)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)&pair;
}
__device__ static inline uint4 pb_pack(const float (&in)[8])
{
    return make_uint4(pb_pack_pair(in[0], in[1]), pb_pack_pair(in[2], in[3]), pb_pack_pair(in[4], in[5]),
                      pb_pack_pair(in[6], in[7]));
}

/* Loads N consecutive f32 from p, which is aligned to 16 bytes. */
template <int N> __device__ static inline void pb_load_f32(const float *p, float (&out)[N])
{
    static_assert(N % 4 == 0, "whole quads");
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const float4 x = *(const float4 *)(p + i);
        out[i] = x.x, out[i + 1] = x.y, out[i + 2] = x.z, out[i + 3] = x.w;
    }
}

/* The unit that one thread loads and stores in one access: 16 bytes if VEC, otherwise one element, for rows that are
 * not aligned for vectors. */
template <class T, bool VEC> struct pb_unit {
    static constexpr int n = pb_lanes<T>;
    typedef uint4 raw;
    __device__ static void unpack(raw x, float (&out)[n]) { pb_unpack(x, out); }
    __device__ static raw pack(const float (&in)[n]) { return pb_pack(in); }
};
template <class T> struct pb_unit<T, false> {
    static constexpr int n = 1;
    typedef T raw;
    __device__ static void unpack(raw x, float (&out)[1]) { out[0] = pb_to_f32(x); }
    __device__ static raw pack(const float (&in)[1]) { return pb_from_f32<T>(in[0]); }
};

static inline bool pb_aligned16(const void *p) { return (uintptr_t)p % 16 == 0; }
static inline size_t pb_ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

/* The grid for elementwise kernels on rows of n units. A row is divided into `chunks` chunks of at most 256 units, one
 * unit per thread. CTA x works on chunk x % chunks in each row of row group x / chunks, so that a thread has
 * independent loads of several rows in flight. */
typedef struct pb_tiles {
    unsigned threads, chunks;
} pb_tiles;
static inline pb_tiles pb_tiles_of(size_t n)
{
    const size_t chunks = pb_ceil_div(n, 256), threads = pb_ceil_div(n, chunks);
    return {(unsigned)(pb_ceil_div(threads, 32) * 32), (unsigned)chunks};
}
#endif
