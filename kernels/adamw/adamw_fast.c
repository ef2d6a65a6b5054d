/* adamw_fast.c - the vectorised AdamW step: all tensors are divided into chunks, which threads take dynamically.
 * Limited by memory bandwidth: 28 bytes per element in f32. */
#include <math.h>

#include "kernels/adamw/adamw.h"
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
PB_INLINE void update(const pb_adamw_entry *e, float *p, void *w, const coefs *c, size_t i, int n)
{
    vf g = vf_get(e->grad, i, PB_F32, n) * c->scale;
    vf m = vf_get(e->m, i, PB_F32, n) * c->b1 + g * c->one_b1;
    vf v = vf_get(e->v, i, PB_F32, n) * c->b2 + g * g * c->one_b2;
    vf x = vf_get(p, i, PB_F32, n) * c->keep - m * c->rate / (vf_sqrt(v) * c->unbias2 + c->eps);
    vf_put(e->m, i, PB_F32, m, n);
    vf_put(e->v, i, PB_F32, v, n);
    vf_put(p, i, PB_F32, x, n);
    if (w) vf_put(w, i, PB_BF16, x, n);
}

PB_INLINE void update_range(const pb_adamw_entry *e, float *p, void *w, const coefs *c, size_t i, size_t end)
{
    for (; i + PB_VLEN <= end; i += PB_VLEN) update(e, p, w, c, i, PB_VLEN);
    if (i < end) update(e, p, w, c, i, (int)(end - i));
}

static inline void update_chunk(const pb_adamw_step_args *a, const pb_adamw_entry *e, size_t chunk)
{
    const coefs c = coefs_of(a, e);
    const size_t i = chunk * CHUNK, end = e->n - i < CHUNK ? e->n : i + CHUNK;
    if (!e->master) update_range(e, e->w, NULL, &c, i, end);
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
