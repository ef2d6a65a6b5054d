/* normuon.c - the NorMuon ops: the references in double precision, and the pb_op descriptors. */
#include "kernels/normuon/normuon.h"

#include <stdlib.h>

#include "kernels/cpu/chunks.h"
#include "kernels/cpu/cpu.h"
#include "kernels/normuon/normuon_rule.h"

/* ---- references in double precision --------------------------------------------------------- */

static pb_status momentum_ref(pb_ctx *ctx, const void *args)
{
    const pb_normuon_momentum_args *a = args;
    const bool skip = pb_normuon_skips(&a->when);
    const double mu = (double)a->mu;
    (void)ctx;
    for (int k = 0; k < a->n; k++) {
        const pb_normuon_piece *p = &a->list[k];
        for (size_t i = 0; i < p->n; i++) {
            const double g = pb_normuon_scale(&a->when, p->clip) * (double)p->grad[i], m = mu * (double)p->m[i] + g;
            pb_store(p->u, i, a->dtype, skip ? 0 : a->nesterov ? mu * m + g : m);
            if (a->keep && !skip) p->m[i] = (float)m;
        }
    }
    return PB_OK;
}

static pb_status check_ref(pb_ctx *ctx, const void *args)
{
    const pb_normuon_check_args *a = args;
    (void)ctx;
    *a->flag = 0;
    for (size_t i = 0; i < a->n; i++)
        if (!isfinite(pb_load(a->x, i, a->dtype))) *a->flag = 1;
    return PB_OK;
}

static void block_rows_ref(const pb_normuon_rows_args *a, const pb_normuon_block *b)
{
    double before = 0, after = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < b->rows; i++) {
            double s = 0;
            for (int j = 0; j < b->cols; j++) {
                const double u = pb_load(b->u, (size_t)i * (size_t)b->cols + (size_t)j, a->dtype);
                s += u * u;
            }
            const double v = (double)a->beta2 * (double)b->v[i] + (1 - (double)a->beta2) * s / b->cols;
            const double h = 1 / (sqrt(v) + PB_NORMUON_EPS);
            if (pass == 0) before += s, after += s * h * h;
            else b->factor[i] = (float)(h * sqrt(before) / fmax(sqrt(after), PB_NORMUON_EPS)), b->v[i] = (float)v;
        }
}

static pb_status rows_ref(pb_ctx *ctx, const void *args)
{
    const pb_normuon_rows_args *a = args;
    (void)ctx;
    for (int i = 0; i < a->n && !pb_normuon_skips(&a->when); i++) block_rows_ref(a, &a->list[i]);
    return PB_OK;
}

static pb_status apply_ref(pb_ctx *ctx, const void *args)
{
    const pb_normuon_apply_args *a = args;
    const double lr = (double)a->state->lr * (double)a->rate, mu = (double)a->mu;
    (void)ctx;
    for (int k = 0; k < a->n && !pb_normuon_skips(&a->when); k++) {
        const pb_normuon_piece *p = &a->list[k];
        const double r = pb_normuon_adjust(a->adjust, p->rows, p->cols);
        float *w = p->master ? p->master : p->w;
        for (size_t i = 0; i < p->n; i++) {
            const double u = pb_load(p->u, i, a->dtype), f = (double)p->factor[(p->first + i) / (size_t)p->cols];
            const double decay = a->cautious && (double)w[i] * u < 0 ? 0 : lr * (double)p->decay;
            w[i] = (float)((double)w[i] * (1 - decay) - lr * r * f * u);
            if (p->master) pb_store(p->w, i, p->wdtype, (double)w[i]);
            if (a->commit)
                p->m[i] = (float)(mu * (double)p->m[i] + pb_normuon_scale(&a->when, p->clip) * (double)p->grad[i]);
        }
    }
    return PB_OK;
}

/* ---- CPU implementations, best first, and the workspace that each needs ---------------------- */

PB_FAST_DECLARE(pb_normuon_momentum)
PB_FAST_DECLARE(pb_normuon_check)
PB_FAST_DECLARE(pb_normuon_rows)
PB_FAST_DECLARE(pb_normuon_apply)

static size_t momentum_workspace(const void *args)
{
    return pb_chunks_workspace(((const pb_normuon_momentum_args *)args)->n);
}
static size_t apply_workspace(const void *args)
{
    return pb_chunks_workspace(((const pb_normuon_apply_args *)args)->n);
}

const pb_impl pb_normuon_momentum_cpu[] = {
    PB_FAST_IMPLS(pb_normuon_momentum, .workspace = momentum_workspace){"ref", momentum_ref}, {0}};
const pb_impl pb_normuon_check_cpu[] = {PB_FAST_IMPLS(pb_normuon_check){"ref", check_ref}, {0}};
const pb_impl pb_normuon_rows_cpu[] = {PB_FAST_IMPLS(pb_normuon_rows){"ref", rows_ref}, {0}};
const pb_impl pb_normuon_apply_cpu[] = {PB_FAST_IMPLS(pb_normuon_apply, .workspace = apply_workspace){"ref", apply_ref},
                                        {0}};

/* ---- op descriptors (pb_op): shapes, argument checks, inputs, costs ---------------------------- */

/* Axes of the shapes of momentum, rows and apply:
 *     N     number of blocks, at most 3; those after the first have other shapes
 *     R     rows of the first block
 *     S     its columns
 *     b     1: bf16 weights with f32 masters
 *     o     options: bit 0 nesterov and cautious; bit 1 keep and commit; bit 2: the list has two pieces per block
 *     c     0: no clip states; 1: clip states, scaled here; 2: the second says skip; 3: a loss scale; 4: the loss is
 *           infinite; 5: the guard says skip (rows, apply)
 *     a     kind of pb_normuon_adjust_kind */
static const pb_dims edge[] = {
    {3, 4, 7, 1, 0, 1, 0},     {3, 5, 9, 0, 7, 0, 1},
    {1, 1, 1, 0, 0, 1, 2},     {2, 40, 1, 1, 3, 3, 0},
    {2, 3, 5, 0, 2, 2, 0},     {2, 3, 5, 1, 6, 4, 0},
    {1, 1, 40, 0, 5, 1, 1},    {2, 3, 5, 0, 4, 5, 0},
    {1, 130, 257, 0, 4, 1, 0}, {0},
};
static const pb_dims grid[] = {{1, 576, 1536, 1, 0, 1, 0}, {0}};
static const pb_dims device_grid[] = {{1, 4096, 11008, 1, 0, 1, 0}, {0}};
static const pb_dims check_edge[] = {{1, 7, 0}, {1, 7, 1}, {3, 40, 2}, {1, 50001, 3}, {1, 50001, 0}, {0}};
static const pb_dims check_grid[] = {{576, 1536, 0}, {0}};
static const pb_dims check_device_grid[] = {{4096, 11008, 0}, {0}};

enum { BLOCKS = 3 };
typedef struct shapes {
    int rows[BLOCKS], cols[BLOCKS];
    size_t elements, total;
} shapes;

static shapes shapes_of(const int *dim)
{
    shapes s = {.rows = {dim[1], 2, 6}, .cols = {dim[2], 19, 3}};
    for (int i = 0; i < dim[0] && i < BLOCKS; i++) {
        s.elements += (size_t)s.rows[i] * (size_t)s.cols[i];
        s.total += (size_t)s.rows[i];
    }
    return s;
}

static pb_normuon_when bind_when(pb_binder *b, const int *dim, bool guards)
{
    const pb_clip_state clip[2] = {{.scale = 0.25f, .norm = 4}, {.scale = 1, .norm = 0.5f, .skip = dim[5] == 2}};
    const bool clipped = dim[5] == 1 || dim[5] == 2;
    const float loss_scale = 48, loss = dim[5] == 4 ? -INFINITY : 3.5f, guard = dim[5] == 5;
    return (pb_normuon_when){
        .clip = clipped ? pb_in_raw(b, "clip", clip, sizeof clip) : NULL,
        .loss_scale = dim[5] == 3 ? pb_in_raw(b, "loss_scale", &loss_scale, sizeof loss_scale) : NULL,
        .loss = dim[5] ? pb_in_raw(b, "loss", &loss, sizeof loss) : NULL,
        .guard = guards && dim[5] >= 3 ? pb_in_raw(b, "guard", &guard, sizeof guard) : NULL,
        .nclip = clipped ? 2 : 0,
        .scale_gradients = clipped,
    };
}

/* Makes the pieces of all blocks: one per block, or with bit 2 of the options two. `out`: momentum writes u and maybe
 * m; otherwise apply reads u, and writes the weights. */
static const pb_normuon_piece *bind_pieces(pb_binder *b, const int *dim, bool out, int *n)
{
    static const char *const names[BLOCKS][6] = {{"w0", "master0", "grad0", "m0", "u0", "factor0"},
                                                 {"w1", "master1", "grad1", "m1", "u1", "factor1"},
                                                 {"w2", "master2", "grad2", "m2", "u2", "factor2"}};
    pb_normuon_piece list[2 * BLOCKS] = {{0}};
    const shapes s = shapes_of(dim);
    const bool writes_m = dim[4] & 2;
    for (int i = *n = 0; i < dim[0] && i < BLOCKS; i++) {
        const size_t all = (size_t)s.rows[i] * (size_t)s.cols[i], cut = dim[4] & 4 ? all / 2 : all;
        const pb_dtype w = dim[3] ? PB_BF16 : PB_F32;
        pb_normuon_piece p = {.n = all, .rows = s.rows[i], .cols = s.cols[i], .wdtype = w};
        p.clip = dim[5] == 1 || dim[5] == 2 ? i % 2 - (i == 2) : -1;
        p.decay = i % 2 ? 0 : 0.1f;
        p.grad = pb_in(b, names[i][2], PB_F32, all);
        p.m = writes_m ? pb_inout(b, names[i][3], PB_F32, all, -1, 1) : (float *)pb_in(b, names[i][3], PB_F32, all);
        p.u = out ? pb_out(b, names[i][4], b->dtype, all) : (void *)pb_in(b, names[i][4], b->dtype, all);
        if (!out) {
            p.w = dim[3] ? pb_inout(b, names[i][0], PB_BF16, all, -1, 1) : pb_inout(b, names[i][0], PB_F32, all, -1, 1);
            p.master = dim[3] ? pb_inout(b, names[i][1], PB_F32, all, -1, 1) : NULL;
            p.factor = pb_in_range(b, names[i][5], PB_F32, (size_t)s.rows[i], 0.5, 2);
        }
        if (b->status != PB_OK) return NULL;
        const size_t e = pb_dtype_size(b->dtype), size = pb_dtype_size(w);
        for (size_t first = 0; first < all; first = cut) {
            pb_normuon_piece *q = &list[(*n)++];
            *q = p;
            q->first = first;
            q->n = first || cut == 0 ? all - first : cut;
            q->grad += first, q->m += first, q->u = (unsigned char *)p.u + first * e;
            if (q->w) q->w = (unsigned char *)p.w + first * size;
            if (q->master) q->master += first;
            if (q->first + q->n == all) break;
        }
    }
    return pb_in_raw(b, "list", list, (size_t)*n * sizeof *list);
}

static pb_status momentum_bind(pb_binder *b, const int *dim, void *args)
{
    pb_normuon_momentum_args a = {.elements = shapes_of(dim).elements, .mu = 0.95f, .dtype = b->dtype};
    a.list = bind_pieces(b, dim, true, &a.n);
    a.when = bind_when(b, dim, false);
    a.nesterov = dim[4] & 1;
    a.keep = dim[4] & 2;
    *(pb_normuon_momentum_args *)args = a;
    return b->status;
}

static pb_status apply_bind(pb_binder *b, const int *dim, void *args)
{
    const pb_adamw_state state = {.lr = 0.01f, .step = 3};
    pb_normuon_apply_args a = {.elements = shapes_of(dim).elements, .mu = 0.95f, .rate = 2.5f, .dtype = b->dtype};
    a.list = bind_pieces(b, dim, false, &a.n);
    a.when = bind_when(b, dim, true);
    a.state = pb_in_raw(b, "state", &state, sizeof state);
    a.adjust = (pb_normuon_adjust_kind)dim[6];
    a.cautious = dim[4] & 1;
    a.commit = dim[4] & 2;
    *(pb_normuon_apply_args *)args = a;
    return b->status;
}

static pb_status rows_bind(pb_binder *b, const int *dim, void *args)
{
    static const char *const names[BLOCKS][3] = {
        {"u0", "v0", "factor0"}, {"u1", "v1", "factor1"}, {"u2", "v2", "factor2"}};
    const shapes s = shapes_of(dim);
    pb_normuon_block list[BLOCKS] = {{0}};
    pb_normuon_rows_args a = {.elements = s.elements, .rows = s.total, .n = dim[0], .beta2 = 0.95f, .dtype = b->dtype};
    for (int i = 0; i < dim[0] && i < BLOCKS; i++) {
        const size_t rows = (size_t)s.rows[i];
        list[i] = (pb_normuon_block){.u = pb_in(b, names[i][0], b->dtype, rows * (size_t)s.cols[i]),
                                     .v = pb_inout(b, names[i][1], PB_F32, rows, 0, 0.1),
                                     .factor = pb_inout(b, names[i][2], PB_F32, rows, 0, 1),
                                     .rows = s.rows[i],
                                     .cols = s.cols[i]};
    }
    a.list = pb_in_raw(b, "list", list, (size_t)dim[0] * sizeof *list);
    a.when = bind_when(b, dim, true);
    *(pb_normuon_rows_args *)args = a;
    return b->status;
}

/* Axes: S*D elements; k: which element is not finite: 0 none, 1 the first, 2 the last, 3 one in the middle. */
static pb_status check_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t n = (size_t)dim[0] * (size_t)dim[1], at[] = {0, 0, n - 1, n / 2};
    const void *x = NULL;
    if (dim[2]) {
        unsigned char *host = malloc(n * pb_dtype_size(b->dtype));
        if (!host) return pb_fail(PB_ENOMEM, "normuon: no memory for an input");
        for (size_t i = 0; i < n; i++) pb_store(host, i, b->dtype, 2 * pb_uniform(b->seed, i) - 1);
        pb_store(host, at[dim[2]], b->dtype,
                 dim[2] == 1   ? (double)NAN
                 : dim[2] == 2 ? (double)INFINITY
                               : -(double)INFINITY);
        x = pb_in_raw(b, "x", host, n * pb_dtype_size(b->dtype));
        free(host);
    } else x = pb_in(b, "x", b->dtype, n);
    *(pb_normuon_check_args *)args =
        (pb_normuon_check_args){.x = x, .flag = pb_out(b, "flag", PB_F32, 1), .n = n, .dtype = b->dtype};
    return b->status;
}

static pb_status bad_when(const pb_normuon_when *w, const char *op)
{
    if (w->nclip < 0 || (w->nclip && !w->clip))
        return pb_fail(PB_EINVAL, "normuon %s: nclip=%d, need at least 0, and clip", op, w->nclip);
    return PB_OK;
}

static pb_status common_check(const char *op, const pb_normuon_when *w, const void *list, int n, pb_dtype dtype)
{
    if (n < 0 || (n && !list)) return pb_fail(PB_EINVAL, "normuon %s: n=%d, need at least 0, and a list", op, n);
    if ((int)dtype >= PB_NFLOAT) return pb_fail(PB_EINVAL, "normuon %s: the update must be f32 or bf16", op);
    return bad_when(w, op);
}

static pb_status unit_check(const char *op, const char *name, float x)
{
    if (x >= 0 && x < 1) return PB_OK;
    return pb_fail(PB_EINVAL, "normuon %s: %s=%g, need 0 <= %s < 1", op, name, (double)x, name);
}

static pb_status momentum_check(const void *args)
{
    const pb_normuon_momentum_args *a = args;
    PB_TRY(common_check("momentum", &a->when, a->list, a->n, a->dtype));
    return unit_check("momentum", "mu", a->mu);
}

static pb_status rows_check(const void *args)
{
    const pb_normuon_rows_args *a = args;
    PB_TRY(common_check("rows", &a->when, a->list, a->n, a->dtype));
    return unit_check("rows", "beta2", a->beta2);
}

static pb_status apply_check(const void *args)
{
    const pb_normuon_apply_args *a = args;
    PB_TRY(common_check("apply", &a->when, a->list, a->n, a->dtype));
    if (!a->state) return pb_fail(PB_EINVAL, "normuon apply: state is NULL");
    if (!(a->rate >= 0 && isfinite(a->rate)))
        return pb_fail(PB_EINVAL, "normuon apply: rate=%g, need a finite number of at least 0", (double)a->rate);
    if ((unsigned)a->adjust >= PB_NNORMUON_ADJUSTS) return pb_fail(PB_EINVAL, "normuon apply: unknown adjustment");
    return unit_check("apply", "mu", a->mu);
}

static pb_status check_check(const void *args)
{
    const pb_normuon_check_args *a = args;
    if ((a->n && !a->x) || !a->flag) return pb_fail(PB_EINVAL, "normuon check: x or flag is NULL");
    return (int)a->dtype < PB_NFLOAT ? PB_OK : pb_fail(PB_EINVAL, "normuon check: x must be f32 or bf16");
}

/* momentum reads grad and m, writes u and maybe m; apply reads w and u, writes w, or with bf16 weights the master,
 * too. */
static pb_cost momentum_cost(const void *args)
{
    const pb_normuon_momentum_args *a = args;
    const double n = (double)a->elements;
    return (pb_cost){.flops = 5 * n, .bytes = n * (8 + (a->keep ? 4 : 0) + (double)pb_dtype_size(a->dtype))};
}
static pb_cost apply_cost(const void *args)
{
    const pb_normuon_apply_args *a = args;
    const double n = (double)a->elements;
    return (pb_cost){.flops = 4 * n, .bytes = n * (8 + (a->commit ? 12 : 0) + (double)pb_dtype_size(a->dtype))};
}
static pb_cost rows_cost(const void *args)
{
    const pb_normuon_rows_args *a = args;
    const double n = (double)a->elements;
    return (pb_cost){.flops = 2 * n, .bytes = n * (double)pb_dtype_size(a->dtype) + 12 * (double)a->rows};
}
static pb_cost check_cost(const void *args)
{
    const pb_normuon_check_args *a = args;
    return (pb_cost){.bytes = (double)a->n * (double)pb_dtype_size(a->dtype)};
}

static const pb_number momentum_numbers[] = {PB_NUMBER(pb_normuon_momentum_args, mu), {0}};
static const pb_number rows_numbers[] = {PB_NUMBER(pb_normuon_rows_args, beta2), {0}};
static const pb_number apply_numbers[] = {
    PB_NUMBER(pb_normuon_apply_args, rate), PB_NUMBER(pb_normuon_apply_args, mu), {0}};
static const pb_number check_numbers[] = {{0}};

#define NORMUON_OP(pass, axes_, edges, grids, device_grids, ...)                                                       \
    const pb_op pb_op_normuon_##pass = {                                                                               \
        .name = "normuon_" #pass,                                                                                      \
        .axes = axes_,                                                                                                 \
        .edge = edges,                                                                                                 \
        .grid = grids,                                                                                                 \
        .device_grid = device_grids,                                                                                   \
        .args_size = sizeof(pb_normuon_##pass##_args),                                                                 \
        .numbers = pass##_numbers,                                                                                     \
        .impls = PB_BOTH_BACKENDS(normuon, pass),                                                                      \
        .check = pass##_check,                                                                                         \
        .bind = pass##_bind,                                                                                           \
        .cost = pass##_cost,                                                                                           \
        .tol = {__VA_ARGS__},                                                                                          \
    }
NORMUON_OP(momentum, "NRSboca", edge, grid, device_grid, [PB_F32] = 1e-6, [PB_BF16] = 4e-3);
NORMUON_OP(rows, "NRSboca", edge, grid, device_grid, [PB_F32] = 1e-6, [PB_BF16] = 1e-6);
NORMUON_OP(apply, "NRSboca", edge, grid, device_grid, [PB_F32] = 1e-6, [PB_BF16] = 1e-6);
NORMUON_OP(check, "SDk", check_edge, check_grid, check_device_grid, [PB_F32] = 0, [PB_BF16] = 0);
