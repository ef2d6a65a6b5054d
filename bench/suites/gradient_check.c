/* gradient_check.c - checks the gradients of a trainer before it is timed, and compares two sets of gradients. */
#include "bench/suites/train_case.h"

#include <math.h>
#include <stdlib.h>

#include "bench/rows/rows.h"
#include "bench/stats/stats.h"
#include "trainer/step/trainer.h"

/* The number of values of the largest trained tensor. */
static size_t largest_trained(const pb_model *m)
{
    size_t most = 0;
    for (int i = 0; i < m->n; i++)
        if (m->params[i].trained && pb_param_n(&m->params[i]) > most) most = pb_param_n(&m->params[i]);
    return most;
}

/* ---- copying and comparing gradients -------------------------------------------------------------------- */

/* Host memory for n values. All threads touch its pages: the one thread of a driver that copies into untouched pages
 * manages about 1 GB/s. NULL: no memory. */
static float *touched(size_t n)
{
    enum { PAGE = 1024 /* values */ };
    float *all = malloc((n + 1) * sizeof *all);
    if (!all) return NULL;
#pragma omp parallel for
    for (size_t i = 0; i < n; i += PAGE) all[i] = 0;
    return all;
}

pb_status pb_gradient_copy(pb_trainer *t, float **out, size_t *n)
{
    const pb_model *m = pb_trainer_model(t);
    float *all = touched(m->trained), *at = all;
    if (!all) return pb_fail(PB_ENOMEM, "no memory for a copy of %zu gradients", m->trained);
    for (int i = 0; i < m->n; i++) {
        const pb_param *p = &m->params[i];
        if (!p->trained) continue;
        pb_status s = pb_download(m->ctx, at, p->grad, pb_param_n(p) * sizeof *at);
        if (s != PB_OK) {
            free(all);
            return s;
        }
        at += pb_param_n(p);
    }
    *out = all;
    *n = m->trained;
    return PB_OK;
}

/* Gradients are compared in pieces of PIECE values, so that no copy of a whole model is needed. The sums of blocks are
 * added in the order of the blocks: the result does not depend on the number of threads. */
enum { BLOCK = 1 << 16, BLOCKS = 256, PIECE = BLOCK * BLOCKS };

/* Sums over differences a - b: the largest |a - b|, the sum of (a - b)^2 and that of b^2. */
typedef struct sums {
    double max, square, norm;
} sums;

static sums sums_of(const float *a, const float *b, size_t n)
{
    sums x = {0};
    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        x.max = d > x.max ? d : x.max;
        x.square += d * d;
        x.norm += (double)b[i] * (double)b[i];
    }
    if (isnan(x.square)) x.max = (double)NAN; /* the comparison above is false for a NaN */
    return x;
}

/* n: at most PIECE */
static void add_piece(const float *a, const float *b, size_t n, sums *total)
{
    sums part[BLOCKS];
    const size_t blocks = (n + BLOCK - 1) / BLOCK;
#pragma omp parallel for
    for (size_t k = 0; k < blocks; k++)
        part[k] = sums_of(a + k * BLOCK, b + k * BLOCK, k + 1 < blocks ? BLOCK : n - k * BLOCK);
    for (size_t k = 0; k < blocks; k++) {
        total->max = pb_max_or_nan(total->max, part[k].max);
        total->square += part[k].square;
        total->norm += part[k].norm;
    }
}

/* Adds the differences between one tensor's gradient and another, which is `other`, on the device, or else `copy`.
 * room: two pieces. */
static pb_status add_tensor(pb_ctx *ctx, const pb_param *p, const float *other, const float *copy, float *room,
                            size_t piece, sums *total)
{
    const size_t all = pb_param_n(p);
    for (size_t at = 0; at < all; at += piece) {
        const size_t n = all - at < piece ? all - at : piece;
        PB_TRY(pb_download(ctx, room, p->grad + at, n * sizeof *room));
        if (other) PB_TRY(pb_download(ctx, room + piece, other + at, n * sizeof *room));
        add_piece(room, other ? room + piece : copy + at, n, total);
    }
    return PB_OK;
}

pb_status pb_gradient_apart(pb_trainer *t, pb_trainer *other, const float *copy, pb_apart *out)
{
    const pb_model *m = pb_trainer_model(t);
    const size_t most = largest_trained(m), piece = most < PIECE ? most : PIECE;
    float *room = malloc(2 * (piece + 1) * sizeof *room);
    sums total = {0};
    pb_status s = room ? PB_OK : pb_fail(PB_ENOMEM, "no memory to compare gradients");
    for (int i = 0; i < m->n && s == PB_OK; i++) {
        const pb_param *p = &m->params[i];
        if (!p->trained) continue;
        s = add_tensor(m->ctx, p, other ? pb_trainer_model(other)->params[i].grad : NULL, copy, room, piece, &total);
        if (copy) copy += pb_param_n(p);
    }
    free(room);
    *out = (pb_apart){total.max, sqrt(total.square / (total.norm > 0 ? total.norm : 1))};
    return s;
}

/* ---- checking the gradients --------------------------------------------------------------------------- */

double pb_gradient_bound(pb_dtype dtype)
{
    return pb_metric_bound_of("gradient_error", dtype == PB_F32 ? "f32" : "bf16");
}

static pb_status run_phases(pb_trainer *t, int last)
{
    pb_ctx *ctx = pb_trainer_model(t)->ctx;
    for (int i = 0; i <= last; i++) PB_TRY(pb_phases[i](ctx, t));
    return PB_OK;
}

static double length(const float *v, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)v[i] * (double)v[i];
    return sqrt(sum);
}

/* Sets each trained tensor to saved + step * g / ||g||, where g is the tensor's own gradient. With step 0 it restores
 * the saved weights. `room` is scratch for one tensor. */
static pb_status move(pb_trainer *t, const float *saved, const float *grad, double step, float *room)
{
    const pb_model *m = pb_trainer_model(t);
    for (int i = 0; i < m->n; i++) {
        const pb_param *p = &m->params[i];
        const size_t n = pb_param_n(p);
        if (!p->trained) continue;
        const double norm = length(grad, n), by = norm > 0 ? step / norm : 0;
        for (size_t k = 0; k < n; k++) room[k] = (float)((double)saved[k] + by * (double)grad[k]);
        PB_TRY(pb_upload(m->ctx, p->w, step == 0 ? saved : room, n * sizeof *room));
        saved += n;
        grad += n;
    }
    return PB_OK;
}

/* The change of the loss per unit step along the direction of move(), as the gradient predicts it: the sum of the
 * tensors' gradient norms. NaN if the gradient of a trained tensor is zero or not finite, because that tensor would
 * learn nothing. */
static double predicted(const pb_model *m, const float *grad)
{
    double sum = 0;
    for (int i = 0; i < m->n; i++) {
        if (!m->params[i].trained) continue;
        const double norm = length(grad, pb_param_n(&m->params[i]));
        if (!(norm > 0) || !isfinite(norm)) return (double)NAN;
        sum += norm;
        grad += pb_param_n(&m->params[i]);
    }
    return sum;
}

static pb_status loss_at(pb_trainer *t, const float *saved, const float *grad, double step, float *room, double *loss)
{
    PB_TRY(move(t, saved, grad, step, room));
    PB_TRY(run_phases(t, PB_PHASE_loss));
    return pb_trainer_loss(t, loss);
}

static pb_status saved_weights(pb_trainer *t, float *saved)
{
    const pb_model *m = pb_trainer_model(t);
    for (int i = 0; i < m->n; i++) {
        const pb_param *p = &m->params[i];
        if (!p->trained) continue;
        PB_TRY(pb_download(m->ctx, saved, p->w, pb_param_n(p) * sizeof *saved));
        saved += pb_param_n(p);
    }
    return PB_OK;
}

/* Compares the gradient with the central difference of the loss along the direction of move(). */
static pb_status by_differences(pb_trainer *t, const float *grad, double *error)
{
    const pb_model *m = pb_trainer_model(t);
    const double want = predicted(m, grad);
    /* The step changes the loss by about 0.02 between its ends. A loss near 10 has a rounding error of about 1e-6, so
     * the change is accurate to 1e-4, and over this distance the loss is still nearly linear. */
    const double step = 1e-2 / want;
    double up = 0, down = 0;
    float *saved = calloc(m->trained + 1, sizeof *saved), *room = calloc(largest_trained(m) + 1, sizeof *room);
    pb_status s = saved && room ? saved_weights(t, saved) : pb_fail(PB_ENOMEM, "no memory for the gradient check");
    if (s == PB_OK) s = loss_at(t, saved, grad, step, room, &up);
    if (s == PB_OK) s = loss_at(t, saved, grad, -step, room, &down);
    if (s == PB_OK) s = move(t, saved, grad, 0, room);
    if (s == PB_OK) s = run_phases(t, PB_PHASE_loss); /* activations and loss of the restored weights */
    free(saved);
    free(room);
    *error = fabs((up - down) / (2 * step) - want) / want;
    return s;
}

/* Compares the gradient with that of an f32 model of the same weights, on the same batch. */
static pb_status by_f32_model(const pb_case *c, pb_trainer *t, double *error)
{
    pb_train_config cfg = *pb_trainer_config(t);
    pb_trainer *wide;
    pb_apart apart = {0};
    cfg.model.dtype = PB_F32;
    /* Weights are rounded to bf16 before quantisation. Otherwise NF4 would choose other codes, and the weights would
     * differ by more than rounding. */
    cfg.model.as_bf16 = true;
    PB_TRY(pb_train_case_trainer(pb_trainer_model(t)->ctx, c, &cfg, &wide));
    pb_status s = pb_train_case_batch(c, wide, 0);
    if (s == PB_OK) s = run_phases(wide, PB_PHASE_backward);
    if (s == PB_OK) s = pb_gradient_apart(t, wide, NULL, &apart);
    pb_trainer_close(wide);
    if (s == PB_OK) *error = apart.rel;
    return s;
}

pb_status pb_gradient_error(const pb_case *c, pb_trainer *t, double *error)
{
    float *grad;
    size_t n;
    PB_TRY(run_phases(t, PB_PHASE_backward));
    if (pb_trainer_config(t)->model.dtype != PB_F32) return by_f32_model(c, t, error);
    PB_TRY(pb_gradient_copy(t, &grad, &n));
    const pb_status s = by_differences(t, grad, error);
    free(grad);
    return s;
}
