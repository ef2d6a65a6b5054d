/* adamw.c - the AdamW step: the reference in double precision, and the op's pb_op descriptor. */
#include "kernels/adamw/adamw.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/adamw/moments.h"
#include "kernels/adamw/skips.h"
#include "kernels/cpu/chunks.h"
#include "kernels/cpu/cpu.h"
#include "kernels/nf4/nf4.h"

_Static_assert(sizeof(pb_adamw_entry) == 64, "lists of tensors, and with them held memory, would grow");

void pb_adamw_maps(float maps[2][256])
{
    pb_dynamic_map(true, maps[0]);
    pb_dynamic_map(false, maps[1]);
}

/* ---- reference in double precision ---------------------------------------------------------- */

/* Returns the gradient scale s of adamw.h. With a clip state it is the state's scale, or 1 if the gradients were scaled
 * in place before. Without a clip state it is 1 / loss scale. */
static double scale_of(const pb_adamw_step_args *a, const pb_adamw_entry *e)
{
    if (e->clip < 0) return a->loss_scale ? 1 / (double)a->loss_scale[0] : 1;
    return a->scale_gradients ? (double)a->clip[e->clip].scale : 1;
}

/* Updates weight i with the moments m and v. */
static void move_ref(const pb_adamw_step_args *a, const pb_adamw_entry *e, size_t i, double m, double v)
{
    const double lr = (double)a->state->lr, t = a->state->step;
    float *p = e->master ? e->master : e->w;
    const double step =
        m / (1 - pow((double)a->beta1, t)) / (sqrt(v / (1 - pow((double)a->beta2, t))) + (double)a->eps);
    p[i] = (float)((double)p[i] - lr * ((double)e->decay * (double)p[i] + step));
    if (e->master) pb_store(e->w, i, e->dtype, (double)p[i]);
}

static void update_f32(const pb_adamw_step_args *a, const pb_adamw_entry *e)
{
    const double b1 = (double)a->beta1, b2 = (double)a->beta2, scale = scale_of(a, e);
    float *m = e->m, *v = e->v;
    for (size_t i = 0; i < e->n; i++) {
        const double g = scale * pb_load(e->grad, i, e->grad_dtype);
        const double next_m = b1 * (double)m[i] + (1 - b1) * g, next_v = b2 * (double)v[i] + (1 - b2) * g * g;
        m[i] = (float)next_m;
        v[i] = (float)next_v;
        move_ref(a, e, i, next_m, next_v);
    }
}

/* Computes the moments of element i from those before the step, in f32 as moments.h says, and updates the weight. */
static void next_narrow(const pb_adamw_step_args *a, const pb_adamw_entry *e, size_t i, float *m, float *v)
{
    const float g = (float)scale_of(a, e) * (float)pb_load(e->grad, i, e->grad_dtype);
    *m = pb_adamw_next_m(*m, g, a->beta1, (float)(1 - (double)a->beta1));
    *v = pb_adamw_next_v(*v, g, a->beta2, (float)(1 - (double)a->beta2));
    move_ref(a, e, i, (double)*m, (double)*v);
}

static void update_bf16(const pb_adamw_step_args *a, const pb_adamw_entry *e)
{
    const uint32_t key = pb_adamw_mix((uint32_t)a->state->step);
    uint16_t *m16 = e->m, *v16 = e->v;
    for (size_t i = 0; i < e->n; i++) {
        const uint32_t random = pb_adamw_random(key, e->first + (uint32_t)i);
        float m = pb_adamw_widen(m16[i]), v = pb_adamw_widen(v16[i]);
        next_narrow(a, e, i, &m, &v);
        m16[i] = pb_adamw_round(m, random);
        v16[i] = pb_adamw_round(v, random >> 16);
    }
}

/* Updates the n elements of a block, n <= 256, from element `first` on. */
static void update_block(const pb_adamw_step_args *a, const pb_adamw_entry *e, size_t first, size_t n)
{
    const float *map_m = a->maps, *map_v = a->maps + 256;
    uint8_t *m8 = (uint8_t *)e->m + first, *v8 = (uint8_t *)e->v + first;
    float *m_max = pb_adamw_absmax(e->m, e->n) + first / PB_ADAMW_BLOCK;
    float *v_max = pb_adamw_absmax(e->v, e->n) + first / PB_ADAMW_BLOCK;
    float m[PB_ADAMW_BLOCK], v[PB_ADAMW_BLOCK], m_new = 0, v_new = 0;
    for (size_t i = 0; i < n; i++) {
        m[i] = map_m[m8[i]] * *m_max;
        v[i] = map_v[v8[i]] * *v_max;
        next_narrow(a, e, first + i, &m[i], &v[i]);
        m_new = fmaxf(m_new, fabsf(m[i]));
        v_new = fmaxf(v_new, v[i]);
    }
    for (size_t i = 0; i < n; i++) {
        m8[i] = pb_adamw_code_m(map_m, m[i], m_new);
        v8[i] = pb_adamw_code_v(map_v, v[i], v_new);
    }
    *m_max = m_new;
    *v_max = v_new;
}

static void update_ref(const pb_adamw_step_args *a, const pb_adamw_entry *e)
{
    if (e->format == PB_ADAMW_F32) update_f32(a, e);
    else if (e->format == PB_ADAMW_BF16) update_bf16(a, e);
    else
        for (size_t i = 0; i < e->n; i += PB_ADAMW_BLOCK)
            update_block(a, e, i, e->n - i < PB_ADAMW_BLOCK ? e->n - i : PB_ADAMW_BLOCK);
}

static pb_status step_ref(pb_ctx *ctx, const void *args)
{
    const pb_adamw_step_args *a = args;
    (void)ctx;
    if (pb_adamw_skips(a)) {
        pb_adamw_count_skipped(a);
        return PB_OK;
    }
    a->state->step++;
    for (int i = 0; i < a->n; i++) update_ref(a, &a->list[i]);
    return PB_OK;
}

/* ---- CPU implementations, best first, and the workspace that each needs ---------------------- */

PB_FAST_DECLARE(pb_adamw_step)

static size_t step_workspace(const void *args) { return pb_chunks_workspace(((const pb_adamw_step_args *)args)->n); }

const pb_impl pb_adamw_step_cpu[] = {PB_FAST_IMPLS(pb_adamw_step, .workspace = step_workspace){"ref", step_ref}, {0}};

/* ---- op descriptor (pb_op): shapes, argument checks, inputs, costs ---------------------------- */

/* Axes of the shapes below:
 *     N     number of tensors; the first has S*D elements
 *     b     1: bf16 weights with f32 masters; 2: the same with moments in bf16; 3: with moments in 8 bits
 *     g     1, 3: the argument scale_gradients is true; 2, 3: the gradients of the first tensor are in bf16
 *     c     0: no clip states, no loss; 1: clip states; 2: clip states, the second says skip; 3: no clip states, but a
 *           loss scale; 4: clip states, and the loss is infinite; 5: the guard says skip
 *     t     completed steps */
static const pb_dims edge[] = {
    {3, 1, 7, 1, 1, 1, 0},       {3, 1, 7, 0, 0, 0, 0},
    {1, 1, 1, 0, 1, 1, 3},       {2, 5, 40, 0, 0, 1, 9},
    {4, 3, 5, 0, 1, 2, 4},       {4, 9, 9, 1, 0, 0, 99},
    {3, 1, 50001, 0, 1, 1, 999}, {4, 3, 50, 1, 0, 3, 2},
    {2, 3, 5, 0, 1, 4, 4},       {2, 3, 5, 0, 1, 5, 4},
    {3, 1, 255, 2, 1, 1, 0},     {4, 3, 5501, 2, 1, 1, 4},
    {4, 1, 50001, 2, 0, 3, 99},  {3, 1, 256, 3, 1, 1, 0},
    {4, 3, 5501, 3, 1, 1, 4},    {4, 1, 50001, 3, 0, 3, 99},
    {3, 1, 7, 1, 3, 1, 0},       {4, 9, 9, 0, 2, 0, 99},
    {3, 1, 50001, 1, 3, 1, 999}, {4, 3, 5501, 2, 3, 1, 4},
    {4, 3, 5501, 3, 3, 1, 4},    {0},
};
static const pb_dims grid[] = {{4, 49152, 576, 0, 0, 0, 10},
                               {4, 49152, 576, 1, 1, 1, 10},
                               {4, 49152, 576, 2, 1, 1, 10},
                               {4, 49152, 576, 3, 1, 1, 10},
                               {0}};
static const pb_dims device_grid[] = {{1, 125000, 1024, 0, 0, 0, 10}, {1, 125000, 1024, 1, 1, 1, 10},
                                      {1, 125000, 1024, 1, 3, 1, 10}, {1, 125000, 1024, 2, 1, 1, 10},
                                      {1, 125000, 1024, 3, 1, 1, 10}, {0}};

static pb_status step_check(const void *args)
{
    const pb_adamw_step_args *a = args;
    if (a->n < 0 || a->nclip < 0) return pb_fail(PB_EINVAL, "adamw: n=%d nclip=%d, need n, nclip >= 0", a->n, a->nclip);
    if (a->nclip && !a->clip) return pb_fail(PB_EINVAL, "adamw: nclip=%d, but clip is NULL", a->nclip);
    if (!(a->beta1 >= 0 && a->beta1 < 1 && a->beta2 >= 0 && a->beta2 < 1))
        return pb_fail(PB_EINVAL, "adamw: beta1=%g beta2=%g, need 0 <= beta < 1", (double)a->beta1, (double)a->beta2);
    if (!(a->eps > 0)) return pb_fail(PB_EINVAL, "adamw: eps=%g, need > 0", (double)a->eps);
    if (a->maps && !a->narrow) return pb_fail(PB_EINVAL, "adamw: maps of 8-bit moments, but narrow is false");
    return PB_OK;
}

/* Makes n moments in 8 bits with random codes and absmax up to 0.1; x is 0 for m, 1 for v. */
static void *bind_codes(pb_binder *b, const char *name, uint64_t x, size_t n)
{
    const size_t bytes = pb_adamw_moment_bytes(PB_ADAMW_8BIT, n), given = pb_to_compute(b, n);
    uint8_t *codes = calloc(1, bytes);
    if (!codes) {
        b->status = pb_fail(PB_ENOMEM, "adamw: no memory for the moments of a test");
        return NULL;
    }
#pragma omp parallel for
    for (size_t i = 0; i < given; i++) codes[i] = (uint8_t)(256 * pb_uniform(b->seed + 2 * x, i));
    float *absmax = pb_adamw_absmax(codes, n);
    for (size_t i = 0; i * PB_ADAMW_BLOCK < given; i++) absmax[i] = (float)(0.1 * pb_uniform(b->seed + 2 * x + 1, i));
    void *out = pb_inout_raw(b, name, codes, bytes);
    free(codes);
    return out;
}

/* Binds the moments of tensor i. Those in 8 bits are compared byte by byte. */
static void bind_moments(pb_binder *b, int i, pb_adamw_format format, pb_adamw_entry *e)
{
    static const char *const names[][2] = {{"m0", "v0"}, {"m1", "v1"}, {"m2", "v2"}, {"m3", "v3"}};
    const pb_dtype dtype = format == PB_ADAMW_F32 ? PB_F32 : PB_BF16;
    e->format = format;
    e->first = 1000003u * (uint32_t)i;
    if (format == PB_ADAMW_8BIT) {
        e->m = bind_codes(b, names[i][0], 0, e->n);
        e->v = bind_codes(b, names[i][1], 1, e->n);
        return;
    }
    e->m = pb_inout(b, names[i][0], dtype, e->n, -0.1, 0.1);
    e->v = pb_inout(b, names[i][1], dtype, e->n, 0, 0.1);
}

/* Makes tensor i of a test's list. Tensors with odd i have no weight decay and are not clipped; tensor 1 is empty,
 * tensor 2 has f32 moments. */
static pb_adamw_entry bind_entry(pb_binder *b, int i, size_t n, bool bf16, bool clipped, pb_adamw_format format,
                                 pb_dtype grads)
{
    enum { MAX = 4 };
    static const char *const names[MAX][3] = {
        {"w0", "master0", "grad0"},
        {"w1", "master1", "grad1"},
        {"w2", "master2", "grad2"},
        {"w3", "master3", "grad3"},
    };
    pb_adamw_entry e = {.n = n, .dtype = bf16 ? PB_BF16 : PB_F32, .clip = clipped ? 0 : -1, .decay = i % 2 ? 0 : 0.1f};
    if (n == 0 || i >= MAX) return e;
    e.w = bf16 ? pb_out(b, names[i][0], PB_BF16, n) : pb_inout(b, names[i][0], PB_F32, n, -1, 1);
    if (bf16) e.master = pb_inout(b, names[i][1], PB_F32, n, -1, 1);
    e.grad = pb_in(b, names[i][2], grads, n);
    e.grad_dtype = grads;
    bind_moments(b, i, format, &e);
    return e;
}

static pb_status step_bind(pb_binder *b, const int *dim, void *args)
{
    pb_adamw_entry list[4] = {0};
    const pb_clip_state clip[2] = {{.scale = 0.25f, .norm = 4}, {.scale = 1, .norm = 0.5f, .skip = dim[5] == 2}};
    const pb_adamw_state state = {.lr = 0.01f, .step = dim[6], .skipped = 2};
    if (dim[0] > 4) return pb_fail(PB_EINVAL, "adamw: the shape asks for more than 4 tensors");
    const bool clipped = dim[5] == 1 || dim[5] == 2 || dim[5] == 4;
    const float loss_scale = 48, loss = dim[5] == 4 ? -INFINITY : 3.5f, guard = dim[5] == 5;
    const pb_adamw_format format = dim[3] > 1 ? (pb_adamw_format)(dim[3] - 1) : PB_ADAMW_F32;
    float maps[2][256];
    size_t elements = 0;
    pb_adamw_maps(maps);
    for (int i = 0; i < dim[0]; i++) {
        size_t n = i == 0 ? (size_t)dim[1] * dim[2] : i == 1 ? 0 : 30 + (size_t)i;
        list[i] = bind_entry(b, i, n, dim[3] && i != 3, clipped && i % 2 == 0, i == 2 ? PB_ADAMW_F32 : format,
                             i == 0 && dim[4] > 1 ? PB_BF16 : PB_F32);
        elements += n;
    }
    *(pb_adamw_step_args *)args = (pb_adamw_step_args){
        .list = pb_in_raw(b, "list", list, dim[0] * sizeof *list),
        .clip = clipped ? pb_in_raw(b, "clip", clip, sizeof clip) : NULL,
        .state = pb_inout_raw(b, "state", &state, sizeof state),
        .loss_scale = dim[5] == 3 ? pb_in_raw(b, "loss_scale", &loss_scale, sizeof loss_scale) : NULL,
        .loss = dim[5] ? pb_in_raw(b, "loss", &loss, sizeof loss) : NULL,
        .guard = dim[5] >= 4 ? pb_in_raw(b, "guard", &guard, sizeof guard) : NULL,
        .maps = format == PB_ADAMW_8BIT ? pb_in_raw(b, "maps", maps, sizeof maps) : NULL,
        .elements = elements,
        .bf16_elements = dim[4] > 1 ? list[0].n : 0,
        .narrow = format != PB_ADAMW_F32,
        .n = dim[0],
        .nclip = clipped ? 2 : 0,
        .scale_gradients = dim[4] % 2,
        .beta1 = 0.9f,
        .beta2 = 0.95f,
        .eps = 1e-8f,
    };
    return b->status;
}

/* In f32 a step reads w, grad, m, v and writes w, m, v: 28 bytes per element. bf16 weights with f32 masters take 30.
 * Moments in bf16 take 8 bytes less, in 8 bits 12 less, without their scales; gradients in bf16 2 less. */
static pb_cost step_cost(const void *args)
{
    const pb_adamw_step_args *a = args;
    const double n = (double)a->elements;
    return (pb_cost){.flops = 12 * n, .bytes = (a->maps ? 16 : a->narrow ? 20 : 28) * n - 2 * (double)a->bf16_elements};
}

const pb_op pb_op_adamw_step = {
    .name = "adamw_step",
    .axes = "NSDbgct",
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_adamw_step_args),
    .numbers = (const pb_number[]){PB_NUMBER(pb_adamw_step_args, beta1),
                                   PB_NUMBER(pb_adamw_step_args, beta2),
                                   PB_NUMBER(pb_adamw_step_args, eps),
                                   {0}},
    .impls = PB_BOTH_BACKENDS(adamw, step),
    .check = step_check,
    .bind = step_bind,
    .cost = step_cost,
    .tol = {[PB_F32] = 1e-6},
    .f32_only = true,
};
