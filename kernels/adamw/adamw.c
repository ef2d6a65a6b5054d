/* adamw.c - the AdamW step: the reference in double precision, and the op's pb_op descriptor. */
#include "kernels/adamw/adamw.h"

#include <math.h>

#include "kernels/adamw/skips.h"
#include "kernels/cpu/chunks.h"
#include "kernels/cpu/cpu.h"

/* ---- reference in double precision ---------------------------------------------------------- */

/* Returns the gradient scale s of adamw.h. With a clip state it is the state's scale, or 1 if the gradients were scaled
 * in place before. Without a clip state it is 1 / loss scale. */
static double scale_of(const pb_adamw_step_args *a, const pb_adamw_entry *e)
{
    if (e->clip < 0) return a->loss_scale ? 1 / (double)a->loss_scale[0] : 1;
    return a->scale_gradients ? (double)a->clip[e->clip].scale : 1;
}

static void update_ref(const pb_adamw_step_args *a, const pb_adamw_entry *e, double scale, double lr, int t)
{
    const double b1 = (double)a->beta1, b2 = (double)a->beta2, eps = (double)a->eps, wd = (double)e->decay;
    float *p = e->master ? e->master : e->w;
    for (size_t i = 0; i < e->n; i++) {
        double g = scale * (double)e->grad[i];
        double m = b1 * (double)e->m[i] + (1 - b1) * g, v = b2 * (double)e->v[i] + (1 - b2) * g * g;
        double step = (m / (1 - pow(b1, t))) / (sqrt(v / (1 - pow(b2, t))) + eps);
        e->m[i] = (float)m;
        e->v[i] = (float)v;
        p[i] = (float)((double)p[i] - lr * (wd * (double)p[i] + step));
        if (e->master) pb_store(e->w, i, e->dtype, (double)p[i]);
    }
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
    for (int i = 0; i < a->n; i++) {
        const pb_adamw_entry *e = &a->list[i];
        update_ref(a, e, scale_of(a, e), (double)a->state->lr, a->state->step);
    }
    return PB_OK;
}

/* ---- CPU implementations, best first, and the workspace that each needs ---------------------- */

PB_FAST_DECLARE(pb_adamw_step)

static size_t step_workspace(const void *args) { return pb_chunks_workspace(((const pb_adamw_step_args *)args)->n); }

const pb_impl pb_adamw_step_cpu[] = {PB_FAST_IMPLS(pb_adamw_step, .workspace = step_workspace){"ref", step_ref}, {0}};

/* ---- op descriptor (pb_op): shapes, argument checks, inputs, costs ---------------------------- */

/* Axes of the shapes below:
 *     N     number of tensors; the first has S*D elements
 *     b     1: bf16 weights with f32 masters
 *     g     the argument scale_gradients
 *     c     0: no clip states, no loss; 1: clip states; 2: clip states, the second says skip; 3: no clip states, but a
 *           loss scale; 4: clip states, and the loss is infinite; 5: the guard says skip
 *     t     completed steps */
static const pb_dims edge[] = {
    {3, 1, 7, 1, 1, 1, 0},
    {3, 1, 7, 0, 0, 0, 0},
    {1, 1, 1, 0, 1, 1, 3},
    {2, 5, 40, 0, 0, 1, 9},
    {4, 3, 5, 0, 1, 2, 4},
    {4, 9, 9, 1, 0, 0, 99},
    {3, 1, 50001, 0, 1, 1, 999},
    {4, 3, 50, 1, 0, 3, 2},
    {2, 3, 5, 0, 1, 4, 4},
    {2, 3, 5, 0, 1, 5, 4},
    {0},
};
static const pb_dims grid[] = {{4, 49152, 576, 0, 0, 0, 10}, {4, 49152, 576, 1, 1, 1, 10}, {0}};
static const pb_dims device_grid[] = {{1, 125000, 1024, 0, 0, 0, 10}, {1, 125000, 1024, 1, 1, 1, 10}, {0}};

static pb_status step_check(const void *args)
{
    const pb_adamw_step_args *a = args;
    if (a->n < 0 || a->nclip < 0) return pb_fail(PB_EINVAL, "adamw: n=%d nclip=%d, need n, nclip >= 0", a->n, a->nclip);
    if (a->nclip && !a->clip) return pb_fail(PB_EINVAL, "adamw: nclip=%d, but clip is NULL", a->nclip);
    if (!(a->beta1 >= 0 && a->beta1 < 1 && a->beta2 >= 0 && a->beta2 < 1))
        return pb_fail(PB_EINVAL, "adamw: beta1=%g beta2=%g, need 0 <= beta < 1", (double)a->beta1, (double)a->beta2);
    if (!(a->eps > 0)) return pb_fail(PB_EINVAL, "adamw: eps=%g, need > 0", (double)a->eps);
    return PB_OK;
}

/* Makes tensor i of a test's list. Tensors with odd i have no weight decay and are not clipped; tensor 1 is empty. */
static pb_adamw_entry bind_entry(pb_binder *b, int i, size_t n, bool bf16, bool clipped)
{
    enum { MAX = 4 };
    static const char *const names[MAX][5] = {
        {"w0", "master0", "grad0", "m0", "v0"},
        {"w1", "master1", "grad1", "m1", "v1"},
        {"w2", "master2", "grad2", "m2", "v2"},
        {"w3", "master3", "grad3", "m3", "v3"},
    };
    pb_adamw_entry e = {.n = n, .dtype = bf16 ? PB_BF16 : PB_F32, .clip = clipped ? 0 : -1, .decay = i % 2 ? 0 : 0.1f};
    if (n == 0 || i >= MAX) return e;
    e.w = bf16 ? pb_out(b, names[i][0], PB_BF16, n) : pb_inout(b, names[i][0], PB_F32, n, -1, 1);
    if (bf16) e.master = pb_inout(b, names[i][1], PB_F32, n, -1, 1);
    e.grad = pb_in(b, names[i][2], PB_F32, n);
    e.m = pb_inout(b, names[i][3], PB_F32, n, -0.1, 0.1);
    e.v = pb_inout(b, names[i][4], PB_F32, n, 0, 0.1);
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
    size_t elements = 0;
    for (int i = 0; i < dim[0]; i++) {
        size_t n = i == 0 ? (size_t)dim[1] * dim[2] : i == 1 ? 0 : 30 + (size_t)i;
        list[i] = bind_entry(b, i, n, dim[3] && i != 3, clipped && i % 2 == 0);
        elements += n;
    }
    *(pb_adamw_step_args *)args = (pb_adamw_step_args){
        .list = pb_in_raw(b, "list", list, dim[0] * sizeof *list),
        .clip = clipped ? pb_in_raw(b, "clip", clip, sizeof clip) : NULL,
        .state = pb_inout_raw(b, "state", &state, sizeof state),
        .loss_scale = dim[5] == 3 ? pb_in_raw(b, "loss_scale", &loss_scale, sizeof loss_scale) : NULL,
        .loss = dim[5] ? pb_in_raw(b, "loss", &loss, sizeof loss) : NULL,
        .guard = dim[5] >= 4 ? pb_in_raw(b, "guard", &guard, sizeof guard) : NULL,
        .elements = elements,
        .n = dim[0],
        .nclip = clipped ? 2 : 0,
        .scale_gradients = dim[4],
        .beta1 = 0.9f,
        .beta2 = 0.95f,
        .eps = 1e-8f,
    };
    return b->status;
}

/* In f32 a step reads w, grad, m, v and writes w, m, v: 28 bytes per element. bf16 weights with f32 masters take 30. */
static pb_cost step_cost(const void *args)
{
    const double n = (double)((const pb_adamw_step_args *)args)->elements;
    return (pb_cost){.flops = 12 * n, .bytes = 28 * n};
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
