/* clip_fast.c - vectorised gradient clipping. The unit of work is a slot, one partial sum (clip.h): one thread sums it
 * in a fixed order, and threads take slots dynamically. Limited by memory bandwidth. */
#include <math.h>

#include "kernels/clip/clip.h"
#include "kernels/cpu/chunks.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

typedef struct range {
    size_t first, end;
} range;

static inline range range_of(size_t n, size_t run, size_t slot)
{
    size_t first = slot * run < n ? slot * run : n;
    return (range){first, n - first < run ? n : first + run};
}

static inline range slot_range(size_t n, size_t slot) { return range_of(n, pb_clip_run(n), slot); }

PB_INLINE float sum_typed(const void *x, pb_dtype t, range r)
{
    enum { ACC = 8 }; /* independent sums, to hide the latency of the additions */
    vf s[ACC] = {0};
    size_t i = r.first;
    for (; i + ACC * PB_VLEN <= r.end; i += ACC * PB_VLEN)
        for (size_t k = 0; k < ACC; k++) {
            vf v = vf_load(x, i + k * PB_VLEN, t);
            s[k] += v * v;
        }
    for (; i < r.end; i += PB_VLEN) {
        vf v = vf_get(x, i, t, r.end - i < PB_VLEN ? (int)(r.end - i) : PB_VLEN);
        s[0] += v * v;
    }
    return vf_sum(((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])));
}

static inline float sum_range(const void *x, pb_dtype t, range r)
{
    return t == PB_BF16 ? sum_typed(x, PB_BF16, r) : sum_typed(x, PB_F32, r);
}

PB_INLINE void scale_typed(void *x, pb_dtype t, range r, float scale)
{
    for (size_t i = r.first; i < r.end; i += PB_VLEN) {
        const int n = r.end - i < PB_VLEN ? (int)(r.end - i) : PB_VLEN;
        vf_put(x, i, t, vf_get(x, i, t, n) * scale, n);
    }
}

static inline void scale_range(void *x, pb_dtype t, range r, float scale)
{
    if (t == PB_BF16) scale_typed(x, PB_BF16, r, scale);
    else scale_typed(x, PB_F32, r, scale);
}

pb_status PB_FAST(pb_clip_sqsum)(pb_ctx *ctx, const void *args)
{
    const pb_clip_sqsum_args *a = args;
    const int slots = pb_clip_sqsum_slots(a);
    const size_t run = a->run ? a->run : pb_clip_run(a->n);
    (void)ctx;
#pragma omp parallel for schedule(dynamic) if (a->n > 65536)
    for (int s = 0; s < slots; s++) a->partial[s] = sum_range(a->x, PB_F32, range_of(a->n, run, (size_t)s));
    return PB_OK;
}

static inline void reduce(const float *partial, int slots, const float *loss_scale, float max_norm,
                          pb_clip_state *state)
{
    enum { ACC = 8 };
    double s[ACC] = {0};
    int i = 0;
    for (; i + ACC <= slots; i += ACC)
        for (int k = 0; k < ACC; k++) s[k] += (double)partial[i + k];
    for (; i < slots; i++) s[0] += (double)partial[i];
    const double carried = loss_scale ? (double)*loss_scale : 1, max = (double)max_norm;
    const double norm = sqrt(((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))) / carried;
    const bool finite = isfinite((float)norm);
    *state = (pb_clip_state){.scale = finite ? (float)((norm > max ? max / norm : 1) / carried) : 1,
                             .norm = (float)norm,
                             .skip = finite ? 0 : 1};
}

pb_status PB_FAST(pb_clip_reduce)(pb_ctx *ctx, const void *args)
{
    const pb_clip_reduce_args *a = args;
    (void)ctx;
    reduce(a->partial, a->slots, a->loss_scale, a->max_norm, a->state);
    return PB_OK;
}

pb_status PB_FAST(pb_clip_scale)(pb_ctx *ctx, const void *args)
{
    const pb_clip_scale_args *a = args;
    const int slots = pb_clip_slots(a->n);
    (void)ctx;
    if (a->state->scale == 1) return PB_OK;
#pragma omp parallel for schedule(dynamic) if (a->n > 65536)
    for (int s = 0; s < slots; s++) scale_range(a->x, PB_F32, slot_range(a->n, (size_t)s), a->state->scale);
    return PB_OK;
}

pb_status PB_FAST(pb_clip_multi)(pb_ctx *ctx, const void *args)
{
    const pb_clip_multi_args *a = args;
    size_t *first = ctx->scratch; /* first[i]: number of partial sums of the buffers before buffer i */
    first[0] = 0;
    for (int i = 0; i < a->n; i++) first[i + 1] = first[i] + (size_t)pb_clip_slots(a->list[i].n);
    const size_t slots = first[a->n];
#pragma omp parallel if (slots > 32)
    {
#pragma omp for schedule(dynamic, 4)
        for (size_t s = 0; s < slots; s++) {
            int i = pb_chunk_tensor(first, a->n, s);
            a->partial[s] = sum_range(a->list[i].x, a->list[i].dtype, slot_range(a->list[i].n, s - first[i]));
        }
#pragma omp single
        reduce(a->partial, (int)slots, a->loss_scale, a->max_norm, a->state);
        if (a->apply && a->state->scale != 1) {
#pragma omp for schedule(dynamic, 4)
            for (size_t s = 0; s < slots; s++) {
                int i = pb_chunk_tensor(first, a->n, s);
                scale_range(a->list[i].x, a->list[i].dtype, slot_range(a->list[i].n, s - first[i]), a->state->scale);
            }
        }
    }
    return PB_OK;
}
