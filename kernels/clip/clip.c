/* clip.c - gradient clipping: the references in double precision, and the pb_op descriptors of the four ops. */
#include "kernels/clip/clip.h"

#include <math.h>

#include "kernels/cpu/chunks.h"
#include "kernels/cpu/cpu.h"

/* ---- reference in double precision ---------------------------------------------------------- */

/* Writes the sum of squares of each run of x. The last slots may be empty, because run lengths are rounded up. */
static void sum_slots(const void *x, pb_dtype t, size_t n, size_t run, int slots, float *partial)
{
    for (int s = 0; s < slots; s++) {
        double sum = 0;
        for (size_t i = s * run; i < (s + 1) * run && i < n; i++) sum += pb_load(x, i, t) * pb_load(x, i, t);
        partial[s] = (float)sum;
    }
}

static pb_status sqsum_ref(pb_ctx *ctx, const void *args)
{
    const pb_clip_sqsum_args *a = args;
    (void)ctx;
    sum_slots(a->x, PB_F32, a->n, a->run ? a->run : pb_clip_run(a->n), pb_clip_sqsum_slots(a), a->partial);
    return PB_OK;
}

static pb_status reduce_ref(pb_ctx *ctx, const void *args)
{
    const pb_clip_reduce_args *a = args;
    double sum = 0;
    (void)ctx;
    for (int s = 0; s < a->slots; s++) sum += (double)a->partial[s];
    const double carried = a->loss_scale ? (double)a->loss_scale[0] : 1;
    const double norm = sqrt(sum) / carried, max = (double)a->max_norm;
    const bool finite = isfinite((float)norm);
    *a->state = (pb_clip_state){
        .scale = finite ? (float)((norm > max ? max / norm : 1) / carried) : 1.0f,
        .norm = (float)norm,
        .skip = finite ? 0.0f : 1.0f,
    };
    return PB_OK;
}

static void scale_all(void *x, pb_dtype t, size_t n, const pb_clip_state *state)
{
    for (size_t i = 0; state->scale != 1 && i < n; i++) pb_store(x, i, t, pb_load(x, i, t) * (double)state->scale);
}

static pb_status scale_ref(pb_ctx *ctx, const void *args)
{
    const pb_clip_scale_args *a = args;
    (void)ctx;
    scale_all(a->x, PB_F32, a->n, a->state);
    return PB_OK;
}

static pb_status multi_ref(pb_ctx *ctx, const void *args)
{
    const pb_clip_multi_args *a = args;
    float *partial = a->partial;
    for (int i = 0; i < a->n; i++) {
        const pb_clip_entry *e = &a->list[i];
        const int slots = pb_clip_slots(e->n);
        sum_slots(e->x, e->dtype, e->n, pb_clip_run(e->n), slots, partial);
        partial += slots;
    }
    PB_TRY(reduce_ref(ctx, &(pb_clip_reduce_args){.partial = a->partial,
                                                  .loss_scale = a->loss_scale,
                                                  .state = a->state,
                                                  .slots = a->slots,
                                                  .max_norm = a->max_norm}));
    for (int i = 0; a->apply && i < a->n; i++) scale_all(a->list[i].x, a->list[i].dtype, a->list[i].n, a->state);
    return PB_OK;
}

/* ---- CPU implementations, best first, and the workspace that each needs ---------------------- */

PB_FAST_DECLARE(pb_clip_sqsum)
PB_FAST_DECLARE(pb_clip_reduce)
PB_FAST_DECLARE(pb_clip_scale)
PB_FAST_DECLARE(pb_clip_multi)

static size_t multi_workspace(const void *args) { return pb_chunks_workspace(((const pb_clip_multi_args *)args)->n); }

const pb_impl pb_clip_sqsum_cpu[] = {PB_FAST_IMPLS(pb_clip_sqsum){"ref", sqsum_ref}, {0}};
const pb_impl pb_clip_reduce_cpu[] = {PB_FAST_IMPLS(pb_clip_reduce){"ref", reduce_ref}, {0}};
const pb_impl pb_clip_scale_cpu[] = {PB_FAST_IMPLS(pb_clip_scale){"ref", scale_ref}, {0}};
const pb_impl pb_clip_multi_cpu[] = {PB_FAST_IMPLS(pb_clip_multi, .workspace = multi_workspace){"ref", multi_ref}, {0}};

/* ---- op descriptors (pb_op): shapes, argument checks, inputs, costs --------------------------- */

static pb_status sqsum_check(const void *args)
{
    const pb_clip_sqsum_args *a = args;
    if (a->run % 64) return pb_fail(PB_EINVAL, "clip_sqsum: run=%zu, need a multiple of 64", a->run);
    return a->n ? PB_OK : pb_fail(PB_EINVAL, "clip_sqsum: n=0, need n >= 1: do not call it for an empty buffer");
}

static pb_status reduce_check(const void *args)
{
    const pb_clip_reduce_args *a = args;
    if (a->slots < 0) return pb_fail(PB_EINVAL, "clip_reduce: slots=%d, need slots >= 0", a->slots);
    if (!(a->max_norm > 0)) return pb_fail(PB_EINVAL, "clip_reduce: max_norm=%g, need > 0", (double)a->max_norm);
    return PB_OK;
}

static pb_status multi_check(const void *args)
{
    const pb_clip_multi_args *a = args;
    if (a->n < 0 || a->slots < 0)
        return pb_fail(PB_EINVAL, "clip_multi: n=%d slots=%d, need n, slots >= 0", a->n, a->slots);
    if (!(a->max_norm > 0)) return pb_fail(PB_EINVAL, "clip_multi: max_norm=%g, need > 0", (double)a->max_norm);
    return PB_OK;
}

static pb_status sqsum_bind(pb_binder *b, const int *dim, void *args)
{
    pb_clip_sqsum_args a = {.n = (size_t)dim[0] * dim[1]};
    a.x = pb_in(b, "x", PB_F32, a.n);
    a.partial = pb_out(b, "partial", PB_F32, pb_clip_sqsum_slots(&a));
    *(pb_clip_sqsum_args *)args = a;
    return b->status;
}

/* Returns the argument loss_scale for a test shape: a tensor [1] with the value 48 if the shape has c = 2, else NULL
 * (no loss scale). */
static const float *bind_loss_scale(pb_binder *b, int c)
{
    const float scale = 48;
    return c == 2 ? pb_in_raw(b, "loss_scale", &scale, sizeof scale) : NULL;
}

static pb_status reduce_bind(pb_binder *b, const int *dim, void *args)
{
    int slots = dim[0] * dim[1];
    *(pb_clip_reduce_args *)args = (pb_clip_reduce_args){
        .partial = pb_in_range(b, "partial", PB_F32, slots, 0, 100),
        .state = pb_out(b, "state", PB_F32, sizeof(pb_clip_state) / sizeof(float)),
        .loss_scale = bind_loss_scale(b, dim[2]),
        .slots = slots,
        .max_norm = dim[2] ? 1.0f : INFINITY,
    };
    return b->status;
}

static pb_status scale_bind(pb_binder *b, const int *dim, void *args)
{
    size_t n = (size_t)dim[0] * dim[1];
    const pb_clip_state state = {.scale = dim[2] ? 0.3f : 1, .norm = 2};
    *(pb_clip_scale_args *)args = (pb_clip_scale_args){
        .x = pb_inout(b, "x", PB_F32, n, -1, 1), .state = pb_in_raw(b, "state", &state, sizeof state), .n = n};
    return b->status;
}

/* Makes N buffers of very different sizes, as a model has them: one large, one empty, one of a single element, and N-3
 * small ones. */
static pb_status multi_bind(pb_binder *b, const int *dim, void *args)
{
    enum { MAX = 12 };
    static const char *const names[MAX] = {"x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11"};
    pb_clip_entry list[MAX] = {0};
    size_t elements = 0, bf16 = 0;
    int n = dim[0], slots = 0;
    if (n > MAX) return pb_fail(PB_EINVAL, "clip_multi: the shape asks for more than %d buffers", MAX);
    for (int i = 0; i < n; i++) {
        const size_t size = i == 0 ? (size_t)dim[1] * dim[2] : i == 1 ? 0 : i == 2 ? 1 : 500 + 9 * (size_t)i;
        const pb_dtype dtype = dim[4] > 1 && i % 3 == 0 ? PB_BF16 : PB_F32;
        list[i] = pb_clip_buffer(size ? pb_inout(b, names[i], dtype, size, -1, 1) : NULL, size, dtype);
        bf16 += list[i].dtype == PB_BF16 ? list[i].n : 0;
        slots += pb_clip_slots(list[i].n);
        elements += list[i].n;
    }
    *(pb_clip_multi_args *)args = (pb_clip_multi_args){
        .list = pb_in_raw(b, "list", list, n * sizeof *list),
        .state = pb_out(b, "state", PB_F32, sizeof(pb_clip_state) / sizeof(float)),
        .partial = pb_out(b, "partial", PB_F32, slots),
        .loss_scale = bind_loss_scale(b, dim[3]),
        .elements = elements,
        .bf16_elements = bf16,
        .n = n,
        .slots = slots,
        .max_norm = dim[3] ? 0.1f : INFINITY,
        .apply = dim[4] % 2,
    };
    return b->status;
}

static pb_cost sqsum_cost(const void *args)
{
    double n = (double)((const pb_clip_sqsum_args *)args)->n;
    return (pb_cost){.flops = 2 * n, .bytes = 4 * n};
}

static pb_cost reduce_cost(const void *args)
{
    double n = (double)((const pb_clip_reduce_args *)args)->slots;
    return (pb_cost){.flops = n, .bytes = 4 * n};
}

static pb_cost scale_cost(const void *args)
{
    double n = (double)((const pb_clip_scale_args *)args)->n;
    return (pb_cost){.flops = n, .bytes = 8 * n};
}

/* The norm reads every element once. Scaling reads it once more and writes it. */
static pb_cost multi_cost(const void *args)
{
    const pb_clip_multi_args *a = args;
    const double n = (double)a->elements, bytes = 4 * n - 2 * (double)a->bf16_elements;
    return (pb_cost){.flops = (a->apply ? 3 : 2) * n, .bytes = (a->apply ? 3 : 1) * bytes};
}

static const pb_dims plain_edge[] = {{1, 7}, {1, 1}, {3, 341}, {1, 1024}, {1, 1025}, {5, 1001}, {1, 300000}, {0}};
static const pb_dims plain_grid[] = {{1, 576}, {49152, 576}, {151936, 896}, {0}};
static const pb_dims state_edge[] = {{1, 7, 1}, {1, 1, 1}, {3, 341}, {5, 200, 1}, {1, 66000, 1}, {0}};
static const pb_dims reduce_edge[] = {{1, 7, 1}, {1, 1, 1}, {3, 341}, {5, 200, 1}, {5, 200, 2}, {1, 66000, 1}, {0}};
static const pb_dims scale_grid[] = {{1, 576, 1}, {49152, 576, 1}, {151936, 896, 1}, {0}};
static const pb_dims reduce_grid[] = {{272, 256, 1}, {0}};
static const pb_dims multi_edge[] = {
    {4, 1, 7, 1, 1},
    {4, 3, 5, 0, 1},
    {1, 1, 1, 1, 1},
    {2, 3, 1000, 1, 0},
    {12, 7, 40000, 1, 1},
    {12, 7, 40000, 2, 1},
    {12, 1, 3000, 1, 0},
    {4, 1, 7, 1, 3},
    {12, 7, 40000, 1, 3},
    {12, 1, 30001, 2, 2},
    {0},
};
static const pb_dims multi_grid[] = {{12, 49152, 576, 1, 1}, {12, 151936, 896, 1, 0}, {0}};
/* 128 million elements. */
static const pb_dims plain_device_grid[] = {{125000, 1024}, {0}};
static const pb_dims scale_device_grid[] = {{125000, 1024, 1}, {0}};

const pb_op pb_op_clip_sqsum = {
    .name = "clip_sqsum",
    .axes = "SD",
    .edge = plain_edge,
    .grid = plain_grid,
    .device_grid = plain_device_grid,
    .args_size = sizeof(pb_clip_sqsum_args),
    .impls = PB_BOTH_BACKENDS(clip, sqsum),
    .check = sqsum_check,
    .bind = sqsum_bind,
    .cost = sqsum_cost,
    .tol = {[PB_F32] = 1e-6},
    .f32_only = true,
};
/* Axis c of the shapes below: c = 0: max_norm is Inf; c = 1: max_norm is below the norm, so gradients are clipped;
 * c = 2: like c = 1, and with a loss scale. */
const pb_op pb_op_clip_reduce = {
    .name = "clip_reduce",
    .axes = "SDc",
    .edge = reduce_edge,
    .grid = reduce_grid,
    .args_size = sizeof(pb_clip_reduce_args),
    .numbers = (const pb_number[]){PB_NUMBER(pb_clip_reduce_args, max_norm), {0}},
    .impls = PB_BOTH_BACKENDS(clip, reduce),
    .check = reduce_check,
    .bind = reduce_bind,
    .cost = reduce_cost,
    .tol = {[PB_F32] = 1e-6},
    .f32_only = true,
};
/* Axis c of the shapes below: c = 1: the scale is not 1; c = 0: the scale is 1, so nothing is written. */
const pb_op pb_op_clip_scale = {
    .name = "clip_scale",
    .axes = "SDc",
    .edge = state_edge,
    .grid = scale_grid,
    .device_grid = scale_device_grid,
    .args_size = sizeof(pb_clip_scale_args),
    .impls = PB_BOTH_BACKENDS(clip, scale),
    .bind = scale_bind,
    .cost = scale_cost,
    .tol = {[PB_F32] = 0}, /* exact: the reference and the implementations both round one product once */
    .f32_only = true,
};
/* Axes of the shapes below: N: number of buffers; c: see pb_op_clip_reduce; a = 1, 3: the op also scales the buffers;
 * a = 2, 3: every third buffer, the largest included, is in bf16. */
const pb_op pb_op_clip_multi = {
    .name = "clip_multi",
    .axes = "NSDca",
    .edge = multi_edge,
    .grid = multi_grid,
    .args_size = sizeof(pb_clip_multi_args),
    .numbers = (const pb_number[]){PB_NUMBER(pb_clip_multi_args, max_norm), {0}},
    .impls = PB_BOTH_BACKENDS(clip, multi),
    .check = multi_check,
    .bind = multi_bind,
    .cost = multi_cost,
    .tol = {[PB_F32] = 1e-6},
    .f32_only = true,
};
