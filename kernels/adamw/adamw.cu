/* adamw.cu - the AdamW step on a GPU in two kernel launches. The first, of one warp, checks the clip states and the
 * loss, increments the step number, and writes the coefficients that all tensors share to the scratch memory. It is a
 * launch of its own because the state must not change while CTAs of the update still read it. The second updates all
 * tensors.
 *
 * The tensors are divided into chunks. Persistent grid: each CTA takes every n-th chunk. A thread has four independent
 * 16-byte loads in flight. Limited by memory bandwidth: 28 bytes per element, 30 for bf16 weights with f32 masters. */
#include <math.h>

#include "kernels/adamw/adamw.h"
#include "kernels/cuda/cuda_list.cuh"
#include "kernels/cuda/cuda_pack.cuh"

enum { THREADS = 256, CHUNK = 16 * THREADS, BLOCKS = 4 }; /* BLOCKS: CTAs per SM */

/* The coefficients that adamw_begin writes to the scratch memory for adamw_update. */
struct shared_coefs {
    double lr;
    float rate;    /* lr / (1 - b1^t) */
    float unbias2; /* 1 / sqrt(1 - b2^t) */
    int skip;
};

__global__ static void __launch_bounds__(32) adamw_begin(pb_adamw_step_args a, shared_coefs *c)
{
    bool skip = a.loss && !isfinite(*a.loss);
    for (int i = threadIdx.x; i < a.nclip; i += 32) skip = skip || a.clip[i].skip != 0;
    skip = __any_sync(0xffffffffu, skip);
    if (threadIdx.x != 0) return;
    const bool guarded = a.guard && *a.guard != 0;
    c->skip = skip || guarded;
    if (c->skip) {
        a.state->skipped++;
        if (!skip) a.state->guarded++;
        return;
    }
    const double t = ++a.state->step;
    c->lr = (double)a.state->lr;
    c->rate = (float)(c->lr / (1 - pow((double)a.beta1, t)));
    c->unbias2 = (float)(1 / sqrt(1 - pow((double)a.beta2, t)));
}

/* The argument of adamw_update. It is passed by value, so that values which are constant for a call are in constant
 * memory and need no registers. */
struct step_call {
    pb_adamw_step_args a;
    float one_b1, one_b2; /* 1 - beta, rounded once */
};

/* The coefficients of the update that are equal for all elements of a tensor. */
struct coefs {
    float scale, keep, rate, unbias2;
};

__device__ static inline void update(float &p, float g, float &m, float &v, const step_call &s, const coefs &c)
{
    g *= c.scale;
    m = m * s.a.beta1 + g * s.one_b1;
    v = v * s.a.beta2 + g * g * s.one_b2;
    p = p * c.keep - m * c.rate / (sqrtf(v) * c.unbias2 + s.a.eps);
}

__device__ static inline void round_to(const pb_adamw_entry &e, size_t i, float p)
{
    if (e.dtype == PB_BF16) ((__nv_bfloat16 *)e.w)[i] = pb_from_f32<__nv_bfloat16>(p);
    else ((float *)e.w)[i] = p;
}

__device__ static inline void update_one(const pb_adamw_entry &e, float *p, size_t i, const step_call &s,
                                         const coefs &c)
{
    update(p[i], e.grad[i], e.m[i], e.v[i], s, c);
    if (e.master) round_to(e, i, p[i]);
}

/* Updates four elements, from i (a multiple of 4) on. All arrays of the tensor are aligned to 16 bytes. */
__device__ static inline void update_quad(const pb_adamw_entry &e, float *p, size_t i, const step_call &s,
                                          const coefs &c)
{
    float4 x = *(float4 *)(p + i), m = *(float4 *)(e.m + i), v = *(float4 *)(e.v + i);
    const float4 g = *(const float4 *)(e.grad + i);
    update(x.x, g.x, m.x, v.x, s, c), update(x.y, g.y, m.y, v.y, s, c);
    update(x.z, g.z, m.z, v.z, s, c), update(x.w, g.w, m.w, v.w, s, c);
    *(float4 *)(p + i) = x, *(float4 *)(e.m + i) = m, *(float4 *)(e.v + i) = v;
    if (!e.master) return;
    if (e.dtype == PB_F32) *(float4 *)((float *)e.w + i) = x;
    else *(uint2 *)((__nv_bfloat16 *)e.w + i) = make_uint2(pb_pack_pair(x.x, x.y), pb_pack_pair(x.z, x.w));
}

/* Returns the gradient scale s of adamw.h. With a clip state it is the state's scale, or 1 if the gradients were scaled
 * in place before. Without a clip state it is 1 / loss scale. */
__device__ static inline float scale_of(const pb_adamw_step_args &a, const pb_adamw_entry &e)
{
    if (e.clip < 0) return a.loss_scale ? 1 / a.loss_scale[0] : 1;
    return a.scale_gradients ? a.clip[e.clip].scale : 1;
}

__global__ static void __launch_bounds__(THREADS, BLOCKS) adamw_update(step_call s, const shared_coefs *shared)
{
    pb_list_cursor cursor = {};
    if (shared->skip) return;
    for (uint32_t chunk = blockIdx.x;; chunk += gridDim.x) {
        uint32_t within;
        const int i = pb_list_find(&cursor, s.a.n, chunk, &within,
                                   [&](int k) { return (uint32_t)((s.a.list[k].n + CHUNK - 1) / CHUNK); });
        if (i < 0) return;
        const pb_adamw_entry e = s.a.list[i];
        const coefs c = {scale_of(s.a, e), (float)(1 - shared->lr * (double)e.decay), shared->rate, shared->unbias2};
        float *p = e.master ? e.master : (float *)e.w;
        const size_t first = (size_t)within * CHUNK, n = e.n - first < CHUNK ? e.n - first : CHUNK;
        const uintptr_t all = (uintptr_t)p | (uintptr_t)e.grad | (uintptr_t)e.m | (uintptr_t)e.v | (uintptr_t)e.w;
        const size_t quads = all % 16 == 0 ? n / 4 : 0;
        for (size_t k = threadIdx.x; k < quads; k += THREADS) update_quad(e, p, first + 4 * k, s, c);
        for (size_t k = first + 4 * quads + threadIdx.x; k < first + n; k += THREADS) update_one(e, p, k, s, c);
    }
}

static pb_status run_step(pb_ctx *ctx, const void *args)
{
    const pb_adamw_step_args *a = (const pb_adamw_step_args *)args;
    const step_call s = {*a, (float)(1 - (double)a->beta1), (float)(1 - (double)a->beta2)};
    shared_coefs *shared = (shared_coefs *)ctx->scratch;
    adamw_begin<<<1, 32, 0, pb_cuda_stream(ctx)>>>(*a, shared);
    PB_TRY(pb_cuda_launched(ctx, "adamw_begin"));
    if (a->n == 0) return PB_OK;
    adamw_update<<<BLOCKS *(unsigned)pb_cuda_device_of(ctx)->sms, THREADS, 0, pb_cuda_stream(ctx)>>>(s, shared);
    return pb_cuda_launched(ctx, "adamw_update");
}

static size_t step_workspace(const void *) { return sizeof(shared_coefs); }

extern "C" const pb_impl pb_adamw_step_cuda[] = {
    {.name = "chunks", .run = run_step, .workspace = step_workspace},
    {0},
};
