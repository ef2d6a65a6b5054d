/* uniform.cu - seeded random values on a GPU, one kernel launch: a thread generates 16 bytes of w and the corresponding
 * values of master. It writes e bytes per value of size e, and 4 for master. On a GPU whose double rate is half its
 * float rate, the arithmetic of a value (two 64-bit products of the hash, and doubles) takes about as long as these
 * writes; on other GPUs it takes many times as long and is the limit. */
#include "kernels/cuda/cuda_pack.cuh"
#include "kernels/uniform/uniform.h"

/* First computes the same number u in [0,1) as the host function pb_uniform (kernels/engine/bind.c). The caller has
 * done its first step, x = stream * 0xd134... + 0x9e37... + i. Then returns centre + half (2u - 1), as uniform.h states. The
 * _rn intrinsics prevent fusing the product and the sum. */
__device__ static inline float value(uint64_t x, double centre, double half)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    const double u = (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
    return __double2float_rn(__dadd_rn(centre, __dmul_rn(half, 2 * u - 1)));
}

template <class T, bool VEC>
__global__ void __launch_bounds__(256)
    uniform_fill(T *w_, float *master, size_t n, uint64_t base, double centre, double half, bool as_bf16)
{
    typedef pb_unit<T, VEC> unit;
    const size_t k = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    float v[unit::n];
    if (k >= n / unit::n) return;
#pragma unroll
    for (int j = 0; j < unit::n; j++) {
        v[j] = value(base + k * unit::n + j, centre, half);
        if (as_bf16 || sizeof(T) == 2) v[j] = __bfloat162float(__float2bfloat16_rn(v[j]));
    }
    ((typename unit::raw *)w_)[k] = unit::pack(v);
    if (!master) return;
    if (unit::n % 4) master[k] = v[0];
#pragma unroll
    for (int j = 0; j + 4 <= unit::n; j += 4)
        *(float4 *)(master + k * unit::n + j) = make_float4(v[j], v[j + 1], v[j + 2], v[j + 3]);
}

template <class T, bool VEC> static pb_status fill_units(pb_ctx *ctx, const pb_uniform_fill_args *a)
{
    const size_t blocks = pb_ceil_div(a->n / pb_unit<T, VEC>::n, 256);
    const uint64_t base = a->stream * 0xd1342543de82ef95ull + 0x9e3779b97f4a7c15ull + a->first;
    uniform_fill<T, VEC><<<(unsigned)blocks, 256, 0, pb_cuda_stream(ctx)>>>((T *)a->w, a->master, a->n, base, a->centre,
                                                                            a->half, a->as_bf16);
    return pb_cuda_launched(ctx, "uniform_fill");
}

template <class T> static pb_status fill(pb_ctx *ctx, const pb_uniform_fill_args *a)
{
    if (a->n == 0) return PB_OK;
    return pb_vectors_fit<T>(a->w, a->n, a->n) && pb_aligned16(a->master) ? fill_units<T, true>(ctx, a)
                                                                          : fill_units<T, false>(ctx, a);
}

static pb_status run_fill(pb_ctx *ctx, const void *args)
{
    const pb_uniform_fill_args *a = (const pb_uniform_fill_args *)args;
    return PB_CUDA_BY_DTYPE(a->dtype, fill, ctx, a);
}

extern "C" const pb_impl pb_uniform_fill_cuda[] = {{.name = "units", .run = run_fill}, {0}};
