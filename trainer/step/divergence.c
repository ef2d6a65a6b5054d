/* divergence.c - implements divergence.h. */
#include "trainer/step/divergence.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/step/forward.h"
#include "trainer/step/products.h"

/* Bounds of the error, with room for larger models than those that were tried (docs/profiling.md). Gradients pass
 * through all layers. */
static double bound_of(const pb_trainer *t, pb_dtype dtype, bool gradient)
{
    const bool narrow = t->model.cfg.dtype == PB_BF16;
    if (gradient) return narrow ? 5e-2 : 1e-4;
    return !narrow ? 1e-5 : dtype == PB_F32 ? 1e-3 : 2e-2;
}

/* The tensors of one trainer. */
typedef struct list {
    pb_tensor *x;
    int n;
} list;

static pb_status add(void *self, const pb_tensor *x)
{
    list *l = self;
    pb_tensor *more = realloc(l->x, ((size_t)l->n + 1) * sizeof *more);
    if (!more) return pb_fail(PB_ENOMEM, "no memory for the list of tensors");
    l->x = more;
    l->x[l->n++] = *x;
    return PB_OK;
}

typedef struct walk {
    pb_trainer *t[2];
    list l[2];
    pb_divergence_fn each;
    void *self;
} walk;

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* The piece that writes an activation: 0 the embedding, 1 .. L the layers, L+1 the logits. -1: it is none. */
static int piece_of(const pb_trainer *t, const pb_tensor *x)
{
    const int L = t->model.g.L;
    if (!*x->ops || x->dtype == PB_I32) return -1;
    if (x->layer < 0) return strcmp(x->name, "logits") == 0 ? L + 1 : L;
    return ends_with(x->name, ".h") || ends_with(x->name, ".n1") ? x->layer : x->layer + 1;
}

/* ---- comparing two tensors -------------------------------------------------------------------------------------- */

static double difference(double x, double y)
{
    if (x == y || (isnan(x) && isnan(y))) return 0;
    return isfinite(x) && isfinite(y) ? fabs(x - y) : (double)INFINITY;
}

/* Sums over a row or a tensor: squares of the differences, and of x. */
typedef struct sums {
    double by, x;
} sums;

static double error_of(sums s) { return sqrt(s.by) / (s.x > 0 ? sqrt(s.x) : 1); }

/* Compares row `row` of host copies x and y, and keeps the element that differs most in *d and *most. */
static sums measure_row(const pb_tensor *t, const void *x, const void *y, size_t row, pb_divergence *d, double *most)
{
    sums s = {0, 0};
    for (size_t k = 0; k < t->cols; k++) {
        const size_t i = row * t->cols + k;
        const double u = pb_load(x, i, t->dtype), v = pb_load(y, i, t->dtype), by = difference(u, v);
        s.by += by * by;
        s.x += isfinite(u) ? u * u : 0;
        if (by <= *most) continue;
        *most = by;
        d->row = row, d->col = k;
        d->want = u, d->is = v;
    }
    return s;
}

/* Compares host copies x and y. */
static void measure(const pb_tensor *t, const void *x, const void *y, pb_divergence *d)
{
    sums all = {0, 0};
    double most = -1;
    d->row_error = 0;
    for (size_t row = 0; row < t->rows; row++) {
        const sums s = measure_row(t, x, y, row, d, &most);
        all.by += s.by;
        all.x += s.x;
        if (error_of(s) > d->row_error) d->row_error = error_of(s), d->worst_row = row;
    }
    d->error = error_of(all);
}

/* Compares a tensor of both trainers. replace: the second trainer gets the values of the first. */
static pb_status compare(const walk *w, const pb_tensor *x, const pb_tensor *y, pb_divergence d, bool replace)
{
    const size_t bytes = x->rows * x->cols * pb_dtype_size(x->dtype);
    void *a = malloc(bytes + 1), *b = malloc(bytes + 1);
    pb_status s = a && b ? PB_OK : pb_fail(PB_ENOMEM, "no memory for the %zu bytes of %s", bytes, x->name);
    if (s == PB_OK) s = pb_download(w->t[0]->ctx, a, x->p, bytes);
    if (s == PB_OK) s = pb_download(w->t[1]->ctx, b, y->p, bytes);
    if (s == PB_OK) {
        measure(x, a, b, &d);
        d.place = pb_tensor_place_of(w->t[0], x, d.row * x->cols + d.col);
        w->each(w->self, &d);
        if (replace) s = pb_upload(w->t[1]->ctx, (void *)y->p, a, bytes);
    }
    free(a);
    free(b);
    return s;
}

static pb_divergence begin(const pb_tensor *x, const char *ops, double bound)
{
    pb_divergence d = {.layer = x->layer, .bound = bound};
    snprintf(d.name, sizeof d.name, "%s", x->name);
    snprintf(d.ops, sizeof d.ops, "%s", ops);
    return d;
}

/* ---- the pieces ------------------------------------------------------------------------------------------------- */

/* Compares the tensors of layer `layer` (-1: of none) that a piece of the forward pass wrote. */
static pb_status compare_tensors(const walk *w, int piece, int layer)
{
    const int logits = w->t[0]->model.g.L + 1;
    for (int i = 0; i < w->l[0].n; i++) {
        const pb_tensor *x = &w->l[0].x[i];
        if (piece_of(w->t[0], x) != piece || x->layer != layer) continue;
        const char *ops = piece == logits ? "linear_fwd" : x->ops; /* the loss phase comes later */
        PB_TRY(compare(w, x, &w->l[1].x[i], begin(x, ops, bound_of(w->t[0], x->dtype, false)), true));
    }
    return PB_OK;
}

/* Compares a buffer that all layers share, of T rows: what the layer that ran last has left in it. */
static pb_status compare_shared(const walk *w, int layer, const char *name, const char *ops, void *const p[2],
                                size_t cols)
{
    pb_tensor x[2];
    for (int i = 0; i < 2; i++)
        x[i] = (pb_tensor){.layer = layer,
                           .dtype = w->t[i]->model.cfg.dtype,
                           .rows = (size_t)w->t[i]->T,
                           .cols = cols,
                           .p = p[i],
                           .by_token = true};
    snprintf(x[0].name, sizeof x[0].name, "layers.%d.%s", layer, name);
    return compare(w, &x[0], &x[1], begin(&x[0], ops, bound_of(w->t[0], x[0].dtype, false)), true);
}

/* Compares what a piece of the forward pass wrote: first the tensors inside the layer, then its output, the residual
 * stream that the next layer or the head reads. */
static pb_status compare_piece(const walk *w, int piece)
{
    const pb_trainer *t = w->t[0], *u = w->t[1];
    const pb_geometry *g = &t->model.g;
    if (piece >= 1 && piece <= g->L) {
        PB_TRY(compare_tensors(w, piece, piece - 1));
        PB_TRY(compare_shared(w, piece - 1, "act", "swiglu_fwd", (void *const[]){t->act, u->act}, (size_t)g->I));
        PB_TRY(compare_shared(w, piece - 1, "proj", pb_product_ops(t, piece - 1, &pb_product_down),
                              (void *const[]){t->proj, u->proj}, (size_t)g->D));
    }
    return compare_tensors(w, piece, piece < g->L ? piece : -1);
}

static pb_status run_piece(pb_trainer *t, int piece)
{
    const int L = t->model.g.L;
    if (piece == 0) return pb_forward_begin(t->ctx, t);
    return piece <= L ? pb_forward_layer(t->ctx, t, piece - 1) : pb_forward_end(t->ctx, t);
}

static pb_status forward(const walk *w)
{
    for (int piece = 0; piece <= w->t[0]->model.g.L + 1; piece++) {
        for (int i = 0; i < 2; i++) PB_TRY(run_piece(w->t[i], piece));
        PB_TRY(compare_piece(w, piece));
    }
    return PB_OK;
}

/* The loss phase replaces the logits by their gradient. */
static pb_status loss(const walk *w)
{
    for (int i = 0; i < 2; i++) PB_TRY(pb_phase_loss(w->t[i]->ctx, w->t[i]));
    for (int i = 0; i < w->l[0].n; i++) {
        const pb_tensor *x = &w->l[0].x[i];
        if (piece_of(w->t[0], x) != w->t[0]->model.g.L + 1) continue;
        pb_divergence d = begin(x, "xent_bwd", bound_of(w->t[0], x->dtype, false));
        snprintf(d.name, sizeof d.name, "%s.gradient", x->name);
        PB_TRY(compare(w, x, &w->l[1].x[i], d, true));
    }
    return PB_OK;
}

static pb_status backward(const walk *w)
{
    const pb_model *m = &w->t[0]->model;
    for (int i = 0; i < 2; i++) PB_TRY(pb_phase_backward(w->t[i]->ctx, w->t[i]));
    for (int k = 0; k < m->ordered; k++) {
        char name[80];
        snprintf(name, sizeof name, "%s.gradient", m->order[k]->name);
        for (int i = 0; i < w->l[0].n; i++) {
            const pb_tensor *x = &w->l[0].x[i];
            if (strcmp(x->name, name) != 0) continue;
            PB_TRY(compare(w, x, &w->l[1].x[i], begin(x, "backward", bound_of(w->t[0], x->dtype, true)), false));
        }
    }
    return PB_OK;
}

static pb_status weights(const walk *w)
{
    for (int i = 0; i < w->l[0].n; i++) {
        const pb_tensor *x = &w->l[0].x[i];
        if (ends_with(x->name, ".weight")) PB_TRY(compare(w, x, &w->l[1].x[i], begin(x, "weight", 0), false));
    }
    return PB_OK;
}

static pb_status check(const walk *w)
{
    for (int i = 0; i < 2; i++) {
        const pb_train_config *c = &w->t[i]->cfg;
        if (c->loss_chunk || pb_shares_n1(w->t[i]) || pb_shares_n2(w->t[i]))
            return pb_fail(PB_EINVAL, "the comparison needs all activations and logits of a model that is trained");
    }
    bool same = w->l[0].n == w->l[1].n;
    for (int i = 0; same && i < w->l[0].n; i++) {
        const pb_tensor *x = &w->l[0].x[i], *y = &w->l[1].x[i];
        same = strcmp(x->name, y->name) == 0 && x->rows == y->rows && x->cols == y->cols && x->dtype == y->dtype;
    }
    return same ? PB_OK : pb_fail(PB_EINVAL, "the two trainers have different tensors");
}

/* Lists the tensors of both trainers, and runs the pieces. */
static pb_status compare_all(walk *w, bool whole_step)
{
    for (int i = 0; i < 2; i++) PB_TRY(pb_trainer_tensors(w->t[i], add, &w->l[i]));
    PB_TRY(check(w));
    if (whole_step) PB_TRY(weights(w));
    PB_TRY(forward(w));
    if (!whole_step) return PB_OK;
    PB_TRY(loss(w));
    return backward(w);
}

static pb_status diverge(pb_trainer *const t[2], bool whole_step, pb_divergence_fn each, void *self)
{
    walk w = {.t = {t[0], t[1]}, .each = each, .self = self};
    const pb_status s = compare_all(&w, whole_step);
    free(w.l[0].x);
    free(w.l[1].x);
    return s;
}

pb_status pb_diverge(pb_trainer *first, pb_trainer *second, pb_divergence_fn each, void *self)
{
    return diverge((pb_trainer *const[]){first, second}, true, each, self);
}

pb_status pb_diverge_forward(pb_trainer *first, pb_trainer *second, pb_divergence_fn each, void *self)
{
    return diverge((pb_trainer *const[]){first, second}, false, each, self);
}
