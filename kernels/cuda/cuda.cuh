/* cuda.cuh - shared by every .cu file: error checks, 16-byte vectors, conversions and reductions. */
#ifndef PB_CUDA_CUH
#define PB_CUDA_CUH
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "kernels/engine/gpu_check.h"
#include "kernels/engine/op.h"

/* Turns a failed runtime call into a status: ENOMEM, with the free memory in the message, or else EDEVICE. It also
 * clears the runtime's last error, so that the next launch does not report it. */
pb_status pb_cuda_failed(cudaError_t e, const char *call);
#define PB_CUDA_TRY(call)                                                                                              \
    do {                                                                                                               \
        const cudaError_t pb_e_ = (call);                                                                              \
        if (pb_e_ != cudaSuccess) return pb_cuda_failed(pb_e_, #call);                                                 \
    } while (0)
/* Calls cudaMalloc. The error message says how many bytes were requested and how many are free. */
pb_status pb_cuda_malloc(size_t bytes, void **out);

static inline cudaStream_t pb_cuda_stream(pb_ctx *ctx) { return (cudaStream_t)ctx->stream; }

/* Facts of ctx's device, read once when the device is opened. */
typedef struct pb_cuda_device {
    int sms, cc;   /* number of SMs; compute capability times 10 */
    size_t shared; /* most bytes of shared memory that one CTA may use */
    size_t l2;
} pb_cuda_device;
const pb_cuda_device *pb_cuda_device_of(const pb_ctx *ctx);
/* The number of SMs for which a kernel should divide its work: those that collectives next to it leave free. With
 * ctx->deterministic all SMs, so that the order of sums does not depend on collectives. */
static inline int pb_cuda_free_sms(const pb_ctx *ctx)
{
    return pb_cuda_device_of(ctx)->sms - (ctx->deterministic ? 0 : ctx->busy_sms);
}
/* For `available` of an implementation: true if the current device runs code compiled for sm_90a. */
bool pb_cuda_has_sm90(void);
/* For `accepts` of an implementation: the most bytes of shared memory that one CTA may use on the current device.
 * Without a device: PB_GPU_LEAST_SHARED. PB_CAPABILITY changes what both functions return; see gpu_check.h. */
size_t pb_cuda_shared(void);

/* Allows a kernel `bytes` of dynamic shared memory; CUDA requires this above 48 KB, static shared memory included. */
template <class K> static inline pb_status pb_cuda_allow_shared(K *kernel, size_t bytes)
{
    PB_CUDA_TRY(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    return PB_OK;
}

/* Call it after kernel<<<..., pb_cuda_stream(ctx)>>>. It counts the launch, in ctx->tally under the name `what`, and
 * returns the error of the launch as a status. */
static inline pb_status pb_cuda_launched(pb_ctx *ctx, const char *what)
{
    const cudaError_t e = cudaGetLastError();
    ctx->counts.kernel_launches++;
    pb_tally_add(ctx->tally, what, "");
    if (e != cudaSuccess) return pb_fail(PB_EDEVICE, "cuda: the launch of %s failed: %s", what, cudaGetErrorString(e));
    return PB_OK;
}

/* ---- element types ------------------------------------------------------------------------------------------ */

/* Calls fn<float>(...) or fn<__nv_bfloat16>(...), depending on `dtype`. */
#define PB_CUDA_BY_DTYPE(dtype, fn, ...) ((dtype) == PB_F32 ? fn<float>(__VA_ARGS__) : fn<__nv_bfloat16>(__VA_ARGS__))

__device__ static inline float pb_to_f32(float x) { return x; }
__device__ static inline float pb_to_f32(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class T> __device__ static inline T pb_from_f32(float x);
template <> __device__ inline float pb_from_f32<float>(float x) { return x; }
template <> __device__ inline __nv_bfloat16 pb_from_f32<__nv_bfloat16>(float x) { return __float2bfloat16_rn(x); }

/* Computes 2^x to 2 ulp; -inf gives 0. */
__device__ static inline float pb_exp2_fast(float x)
{
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

/* A vector of N consecutive elements, loaded or stored in one access; 16 bytes when N is pb_lanes<T>. */
template <class T, int N> struct alignas(sizeof(T) * N) pb_vec {
    T v[N];
};
template <class T> constexpr int pb_lanes = 16 / (int)sizeof(T);

template <class T, int N> __device__ static inline void pb_load_vec(const T *p, float (&out)[N])
{
    const pb_vec<T, N> x = *reinterpret_cast<const pb_vec<T, N> *>(p);
#pragma unroll
    for (int i = 0; i < N; i++) out[i] = pb_to_f32(x.v[i]);
}
template <class T, int N> __device__ static inline void pb_store_vec(T *p, const float (&in)[N])
{
    pb_vec<T, N> x;
#pragma unroll
    for (int i = 0; i < N; i++) x.v[i] = pb_from_f32<T>(in[i]);
    *reinterpret_cast<pb_vec<T, N> *>(p) = x;
}
/* True if rows of n elements, ld apart, beginning at p, can be accessed as 16-byte vectors. */
template <class T> static inline bool pb_vectors_fit(const void *p, size_t n, size_t ld)
{
    return (uintptr_t)p % 16 == 0 && n % pb_lanes<T> == 0 && ld % pb_lanes<T> == 0;
}

/* ---- reductions: all threads of the warp or CTA must take part; the order is fixed ----------------------------- */

__device__ static inline float pb_warp_sum(float x)
{
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}
__device__ static inline float pb_warp_max(float x)
{
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}
/* Returns the sum over a CTA of THREADS threads (a multiple of 32) to each of them. `room` is [THREADS/32] floats of
 * shared memory, free for reuse after the call. */
template <int THREADS> __device__ static inline float pb_block_sum(float x, float *room)
{
    static_assert(THREADS % 32 == 0 && THREADS <= 1024, "whole warps");
    x = pb_warp_sum(x);
    if (THREADS == 32) return x;
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++) sum += room[i];
    __syncthreads();
    return sum;
}
#endif
