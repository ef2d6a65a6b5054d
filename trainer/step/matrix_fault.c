/* matrix_fault.c - implements matrix_fault.h. */
#include "trainer/step/matrix_fault.h"

#include <stdlib.h>

#include "trainer/step/matrices.h"

/* ---- finding ------------------------------------------------------------------------------------------------- */

/* Looks for elements that are not finite in the update of block `i`. */
static void look(const pb_matrix_block *b, int i, const void *u, pb_dtype t, pb_matrix_fault *f)
{
    const size_t cols = b->p->cols;
    size_t bad = 0, first = 0;
    for (size_t k = 0; k < b->rows * cols; k++)
        if (!isfinite(pb_load(u, k, t)) && bad++ == 0) first = k;
    if (!bad) return;
    if (f->name) {
        f->others++;
        return;
    }
    *f = (pb_matrix_fault){.name = b->p->name,
                           .layer = b->p->layer,
                           .block = i,
                           .row = b->first + first / cols,
                           .col = first % cols,
                           .elements = bad};
}

pb_status pb_matrix_fault_find(pb_trainer *t, pb_matrix_fault *out)
{
    const pb_matrices *x = &t->matrices;
    const size_t e = pb_dtype_size(x->dtype);
    pb_status s = PB_OK;
    *out = (pb_matrix_fault){0};
    for (int i = 0; s == PB_OK && x->on && i < x->blocks; i++) {
        const pb_matrix_block *b = &x->block[i];
        const size_t bytes = b->rows * b->p->cols * e;
        void *u = malloc(bytes + 1);
        s = u ? pb_download(t->ctx, u, (unsigned char *)x->u + b->at * e, bytes)
              : pb_fail(PB_ENOMEM, "no memory to read the updates of %s", b->p->name);
        if (s == PB_OK) look(b, i, u, x->dtype, out);
        free(u);
    }
    return s;
}

/* ---- saving the inputs of the call at fault ------------------------------------------------------------ */

/* Copies n elements of device memory into the call's tensor `name`. */
static pb_status set(pb_trainer *t, pb_call *c, const char *name, const void *device)
{
    const int k = (int)(pb_find_bound(&c->b, name) - c->b.t);
    const size_t bytes = c->b.t[k].rows * c->b.t[k].cols * pb_dtype_size(c->b.t[k].dtype);
    void *host = malloc(bytes + 1);
    pb_status s = host ? pb_download(t->ctx, host, device, bytes) : pb_fail(PB_ENOMEM, "no memory to capture %s", name);
    if (s == PB_OK) s = pb_bound_set(&c->b, k, host);
    free(host);
    return s;
}

/* The factor s of the gradients (normuon.h) in this step. */
static pb_status scale_of(pb_trainer *t, float *out)
{
    float scale = 1;
    pb_clip_state clip;
    *out = 1;
    if (t->cfg.clip == PB_CLIP_NONE && t->loss_scale) {
        PB_TRY(pb_download(t->ctx, &scale, t->loss_scale, sizeof scale));
        *out = 1 / scale;
    } else if (t->cfg.clip == PB_CLIP_MULTI) {
        PB_TRY(pb_download(t->ctx, &clip, t->clip, sizeof clip));
        *out = clip.scale;
    }
    return PB_OK;
}

static pb_status set_scale(pb_trainer *t, pb_call *c)
{
    const int k = (int)(pb_find_bound(&c->b, "clip") - c->b.t);
    pb_clip_state clip[2];
    if (c->b.t[k].cols != sizeof clip) return pb_fail(PB_EINVAL, "normuon_momentum binds other clip states");
    PB_TRY(pb_bound_get(&c->b, k, clip));
    PB_TRY(scale_of(t, &clip[0].scale));
    return pb_bound_set(&c->b, k, clip);
}

static bool keeps(const pb_trainer *t) { return t->cfg.normuon.momentum == PB_GUARD_KEEP; }

/* Runs and captures the call that computes the update of a block, which has one piece and clip state 0. */
static pb_status capture_momentum(pb_trainer *t, const pb_matrix_block *b, pb_capture *out, pb_call *c)
{
    const pb_matrix_place at = pb_matrices_place(t, b);
    const bool nesterov = t->cfg.normuon.nesterov && !keeps(t);
    const pb_dims dim = {1, (int)b->rows, (int)b->p->cols, 0, nesterov, 1, 0};
    PB_TRY(pb_call_bind(t->ctx, &pb_op_normuon_momentum, dim, t->matrices.dtype, c));
    ((pb_normuon_momentum_args *)c->args)->mu = t->cfg.normuon.mu;
    PB_TRY(set_scale(t, c));
    PB_TRY(set(t, c, "grad0", at.grad));
    PB_TRY(set(t, c, "m0", at.m));
    return pb_capture_run(out, c);
}

/* Fills x of the orthogonalisation from a momentum that is the update. */
static pb_status convert_momentum(pb_trainer *t, const pb_matrix_block *b, pb_call *c)
{
    const size_t n = b->rows * b->p->cols;
    float *m = malloc(n * sizeof *m + 1);
    void *x = malloc(n * pb_dtype_size(t->matrices.dtype) + 1);
    pb_status s = m && x ? pb_download(t->ctx, m, pb_matrices_place(t, b).m, n * sizeof *m)
                         : pb_fail(PB_ENOMEM, "no memory to capture the momentum of %s", b->p->name);
    for (size_t i = 0; s == PB_OK && i < n; i++) pb_store(x, i, t->matrices.dtype, (double)m[i]);
    if (s == PB_OK) s = pb_bound_set(&c->b, (int)(pb_find_bound(&c->b, "x") - c->b.t), x);
    free(m);
    free(x);
    return s;
}

/* Captures the orthogonalisation: x is the update, y what the step wrote. */
static pb_status capture_factor(pb_trainer *t, const pb_matrix_block *b, pb_capture *out, pb_call *momentum, pb_call *c)
{
    const pb_normuon_config *n = &t->cfg.normuon;
    const pb_dims dim = {1, (int)b->rows, (int)b->p->cols, (int)n->variant, n->steps, 0};
    const pb_matrices *x = &t->matrices;
    PB_TRY(pb_call_bind(t->ctx, &pb_op_newton_schulz_run, dim, x->dtype, c));
    ((pb_newton_schulz_run_args *)c->args)->eps = PB_MATRICES_EPS;
    if (momentum->op) PB_TRY(set(t, c, "x", pb_find_bound(&momentum->b, "u0")->p));
    else PB_TRY(convert_momentum(t, b, c));
    const pb_impl *impl = pb_op_pick(t->ctx, c->op, c->args);
    if (!impl) return pb_fail(PB_EUNSUPPORTED, "newton_schulz_run: no implementation takes one block");
    PB_TRY(pb_capture_before(out, c));
    PB_TRY(set(t, c, "y", (unsigned char *)x->u + b->at * pb_dtype_size(x->dtype)));
    return pb_capture_after(out, c, impl);
}

static pb_status capture_extra(pb_trainer *t, const pb_matrix_block *b, pb_capture *out)
{
    const pb_matrix_place at = pb_matrices_place(t, b);
    const size_t rows = b->rows, cols = b->p->cols;
    PB_TRY(pb_capture_extra(out, t->ctx, "gradient", at.grad, rows, cols, PB_F32));
    PB_TRY(pb_capture_extra(out, t->ctx, "momentum", at.m, rows, cols, PB_F32));
    PB_TRY(pb_capture_extra(out, t->ctx, "v", at.v, rows, 1, PB_F32));
    if (at.master) PB_TRY(pb_capture_extra(out, t->ctx, "master", at.master, rows, cols, PB_F32));
    return pb_capture_extra(out, t->ctx, "w", at.w, rows, cols, b->p->dtype);
}

static pb_status note(const pb_matrix_fault *f, const pb_matrix_block *b, pb_capture *out)
{
    PB_TRY(pb_capture_note(out, PB_NOTE_phase, "optimizer"));
    if (f->layer >= 0) PB_TRY(pb_capture_note(out, PB_NOTE_layer, "%d", f->layer));
    PB_TRY(pb_capture_note(out, PB_NOTE_tensor, "%s, rows %zu to %zu of %zu", f->name, b->first, b->first + b->rows - 1,
                           b->p->rows));
    return pb_capture_note(out, PB_NOTE_why,
                           "NaN guard: %zu elements of the update are not finite, first row %zu, column %zu of %s",
                           f->elements, f->row, f->col, f->name);
}

pb_status pb_matrix_fault_capture(pb_trainer *t, const pb_matrix_fault *f, size_t limit, pb_capture **out)
{
    const pb_matrix_block *b = &t->matrices.block[f->block];
    pb_call momentum = {0}, factor = {0};
    pb_capture *c;
    PB_TRY(pb_capture_open(limit, &c));
    pb_status s = note(f, b, c);
    if (s == PB_OK) s = capture_extra(t, b, c);
    if (s == PB_OK && (!keeps(t) || t->cfg.normuon.nesterov)) s = capture_momentum(t, b, c, &momentum);
    if (s == PB_OK) s = capture_factor(t, b, c, &momentum, &factor);
    pb_call_unbind(&momentum);
    pb_call_unbind(&factor);
    if (s == PB_OK) *out = c;
    else pb_capture_close(c);
    return s;
}
