/* adamw_fast.c - the vectorised AdamW step: all tensors are divided into chunks, which threads take dynamically.
 * Limited by memory bandwidth: 28 bytes per element in f32. */
#include <math.h>

#include "kernels/adamw/adamw.h"
#include "kernels/adamw/moments.h"
#include "kernels/adamw/skips.h"
#include "kernels/cpu/chunks.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

enum { CHUNK = 16384 }; /* elements: long enough for the prefetchers, short enough to balance the load */

/* The coefficients of the update that are equal for all elements of a tensor. */
typedef struct coefs {
    float b1, one_b1, b2, one_b2, scale;
    float keep;    /* 1 - lr wd */
    float rate;    /* lr / (1 - b1^t) */
    float unbias2; /* 1 / sqrt(1 - b2^t) */
    float eps;
} coefs;

/* Returns the gradient scale s of adamw.h. With a clip state it is the state's scale, or 1 if the gradients were scaled
 * in place before. Without a clip state it is 1 / loss scale. */
static inline float scale_of(const pb_adamw_step_args *a, const pb_adamw_entry *e)
{
    if (e->clip < 0) return a->loss_scale ? 1 / a->loss_scale[0] : 1;
    return a->scale_gradients ? a->clip[e->clip].scale : 1;
}

static inline coefs coefs_of(const pb_adamw_step_args *a, const pb_adamw_entry *e)
{
    const double b1 = (double)a->beta1, b2 = (double)a->beta2, lr = (double)a->state->lr, t = a->state->step;
    return (coefs){.b1 = a->beta1,
                   .one_b1 = (float)(1 - b1),
                   .b2 = a->beta2,
                   .one_b2 = (float)(1 - b2),
                   .scale = scale_of(a, e),
                   .keep = (float)(1 - lr * (double)e->decay),
                   .rate = (float)(lr / (1 - pow(b1, t))),
                   .unbias2 = (float)(1 / sqrt(1 - pow(b2, t))),
                   .eps = a->eps};
}

/* Updates elements i .. i+n-1 of p, n <= PB_VLEN. If w is not NULL, it receives the new values rounded to bf16. */
PB_INLINE void update(const pb_adamw_entry *e, pb_dtype grads, float *p, void *w, const coefs *c, size_t i, int n)
{
    vf g = vf_get(e->grad, i, grads, n) * c->scale;
    vf m = vf_get(e->m, i, PB_F32, n) * c->b1 + g * c->one_b1;
    vf v = vf_get(e->v, i, PB_F32, n) * c->b2 + g * g * c->one_b2;
    vf x = vf_get(p, i, PB_F32, n) * c->keep - m * c->rate / (vf_sqrt(v) * c->unbias2 + c->eps);
    vf_put(e->m, i, PB_F32, m, n);
    vf_put(e->v, i, PB_F32, v, n);
    vf_put(p, i, PB_F32, x, n);
    if (w) vf_put(w, i, PB_BF16, x, n);
}

PB_INLINE void update_grads(const pb_adamw_entry *e, pb_dtype grads, float *p, void *w, const coefs *c, size_t i,
                            size_t end)
{
    for (; i + PB_VLEN <= end; i += PB_VLEN) update(e, grads, p, w, c, i, PB_VLEN);
    if (i < end) update(e, grads, p, w, c, i, (int)(end - i));
}

PB_INLINE void update_range(const pb_adamw_entry *e, float *p, void *w, const coefs *c, size_t i, size_t end)
{
    if (e->grad_dtype == PB_BF16) update_grads(e, PB_BF16, p, w, c, i, end);
    else update_grads(e, PB_F32, p, w, c, i, end);
}

/* The moments of a block of 256 elements, which are computed in f32. */
typedef struct moments {
    float m[PB_ADAMW_BLOCK], v[PB_ADAMW_BLOCK];
} moments;

/* Updates the n weights from element i on with the moments x. */
PB_INLINE void move_block(const pb_adamw_entry *e, const moments *x, const coefs *c, size_t i, size_t n)
{
    float *p = e->master ? e->master : e->w;
    for (size_t k = 0; k < n; k += PB_VLEN) {
        const int some = n - k < PB_VLEN ? (int)(n - k) : PB_VLEN;
        const vf m = vf_get(x->m, k, PB_F32, some), v = vf_get(x->v, k, PB_F32, some);
        const vf y = vf_get(p, i + k, PB_F32, some) * c->keep - m * c->rate / (vf_sqrt(v) * c->unbias2 + c->eps);
        vf_put(p, i + k, PB_F32, y, some);
        if (e->master) vf_put(e->w, i + k, e->dtype, y, some);
    }
}

static inline void next_moments(const pb_adamw_entry *e, moments *x, const coefs *c, size_t i, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        const float g = c->scale * (e->grad_dtype == PB_BF16 ? pb_adamw_widen(((const uint16_t *)e->grad)[i + k])
                                                             : ((const float *)e->grad)[i + k]);
        x->m[k] = pb_adamw_next_m(x->m[k], g, c->b1, c->one_b1);
        x->v[k] = pb_adamw_next_v(x->v[k], g, c->b2, c->one_b2);
    }
    move_block(e, x, c, i, n);
}

static inline void update_bf16(const pb_adamw_entry *e, const coefs *c, uint32_t key, size_t i, size_t n)
{
    uint16_t *m = (uint16_t *)e->m + i, *v = (uint16_t *)e->v + i;
    moments x;
    for (size_t k = 0; k < n; k++) x.m[k] = pb_adamw_widen(m[k]), x.v[k] = pb_adamw_widen(v[k]);
    next_moments(e, &x, c, i, n);
    for (size_t k = 0; k < n; k++) {
        const uint32_t random = pb_adamw_random(key, e->first + (uint32_t)(i + k));
        m[k] = pb_adamw_round(x.m[k], random);
        v[k] = pb_adamw_round(x.v[k], random >> 16);
    }
}

static inline float largest(const float *x, size_t n)
{
    float max = 0;
    for (size_t k = 0; k < n; k++) max = fabsf(x[k]) > max ? fabsf(x[k]) : max;
    return max;
}

static inline void update_8bit(const pb_adamw_entry *e, const coefs *c, const float *maps, size_t i, size_t n)
{
    const float *map_m = maps, *map_v = maps + 256;
    uint8_t *m = (uint8_t *)e->m + i, *v = (uint8_t *)e->v + i;
    float *m_max = pb_adamw_absmax(e->m, e->n) + i / PB_ADAMW_BLOCK;
    float *v_max = pb_adamw_absmax(e->v, e->n) + i / PB_ADAMW_BLOCK;
    moments x;
    for (size_t k = 0; k < n; k++) x.m[k] = map_m[m[k]] * *m_max, x.v[k] = map_v[v[k]] * *v_max;
    next_moments(e, &x, c, i, n);
    *m_max = largest(x.m, n);
    *v_max = largest(x.v, n);
    for (size_t k = 0; k < n; k++) m[k] = pb_adamw_code_m(map_m, x.m[k], *m_max);
    for (size_t k = 0; k < n; k++) v[k] = pb_adamw_code_v(map_v, x.v[k], *v_max);
}

static inline void update_blocks(const pb_adamw_step_args *a, const pb_adamw_entry *e, const coefs *c, size_t i,
                                 size_t end)
{
    const uint32_t key = pb_adamw_mix((uint32_t)a->state->step);
    for (; i < end; i += PB_ADAMW_BLOCK) {
        const size_t n = end - i < PB_ADAMW_BLOCK ? end - i : PB_ADAMW_BLOCK;
        if (e->format == PB_ADAMW_BF16) update_bf16(e, c, key, i, n);
        else update_8bit(e, c, a->maps, i, n);
    }
}

static inline void update_chunk(const pb_adamw_step_args *a, const pb_adamw_entry *e, size_t chunk)
{
    const coefs c = coefs_of(a, e);
    const size_t i = chunk * CHUNK, end = e->n - i < CHUNK ? e->n : i + CHUNK;
    if (e->format != PB_ADAMW_F32) update_blocks(a, e, &c, i, end);
    else if (!e->master) update_range(e, e->w, NULL, &c, i, end);
    else if (e->dtype == PB_BF16) update_range(e, e->master, e->w, &c, i, end);
    else {
        update_range(e, e->master, NULL, &c, i, end);
        memcpy((float *)e->w + i, e->master + i, (end - i) * sizeof(float));
    }
}

pb_status PB_FAST(pb_adamw_step)(pb_ctx *ctx, const void *args)
{
    const pb_adamw_step_args *a = args;
    size_t *first = ctx->scratch; /* number of chunks before each tensor */
    if (pb_adamw_skips(a)) {
        pb_adamw_count_skipped(a);
        return PB_OK;
    }
    a->state->step++;
    first[0] = 0;
    for (int i = 0; i < a->n; i++) first[i + 1] = first[i] + (a->list[i].n + CHUNK - 1) / CHUNK;
    const size_t chunks = first[a->n];
#pragma omp parallel for schedule(dynamic) if (chunks > 1)
    for (size_t k = 0; k < chunks; k++) {
        const int i = pb_chunk_tensor(first, a->n, k);
        update_chunk(a, &a->list[i], k - first[i]);
    }
    return PB_OK;
}
