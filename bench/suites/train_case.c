/* train_case.c - converts the axes of the training suites to configurations, and checks gradients. */
#include "bench/suites/train_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/rows/rows.h"
#include "bench/suites/own_input.h"
#include "trainer/step/trainer.h"

/* ---- converting the axes of a case to a configuration -------------------------------------------- */

static pb_status word(const pb_case *c, const char *axis, const char *const *words, int n, int *out)
{
    const char *v = pb_case_get(c, axis);
    for (int i = 0; v && i < n; i++)
        if (strcmp(v, words[i]) == 0) {
            *out = i;
            return PB_OK;
        }
    return pb_fail(PB_EINVAL, "axis %s: '%s' is not one of its values (bench list shows them)", axis, v ? v : "");
}

static pb_status number(const pb_case *c, const char *axis, long least, long most, int *out)
{
    long v;
    PB_TRY(pb_case_int(c, axis, &v));
    if (v < least || v > most) return pb_fail(PB_EINVAL, "axis %s: %ld is outside %ld..%ld", axis, v, least, most);
    *out = (int)v;
    return PB_OK;
}

/* Converts "q+v" to bits 1 << target. */
static pb_status target_bits(const pb_case *c, unsigned *out)
{
    static const char *const words[] = {
#define X(id, w) w,
        PB_TARGET_MAP(X)
#undef X
    };
    const char *v = pb_case_get(c, "targets");
    unsigned bits = 0;
    while (v && *v) {
        const size_t n = strcspn(v, "+");
        int t = 0;
        while (t < PB_NTARGETS && (strlen(words[t]) != n || strncmp(v, words[t], n) != 0)) t++;
        if (t == PB_NTARGETS) return pb_fail(PB_EINVAL, "axis targets: '%s' names none of q k v o gate up down", v);
        bits |= 1u << t;
        v += n + (v[n] == '+');
    }
    *out = bits;
    return PB_OK;
}

/* The values of axes that are words, one table per axis. The index of a word equals the value of its enumerator. */
#define WORD(id, word, ...) word,
static const char *const tunings[] = {PB_TUNING_MAP(WORD)};
static const char *const clips[] = {PB_CLIP_MAP(WORD)};
static const char *const attentions[] = {PB_ATTENTION_MAP(WORD)};
static const char *const recomputes[] = {PB_RECOMPUTE_MAP(WORD)};
static const char *const reduces[] = {PB_REDUCE_MAP(WORD)};
static const char *const shards[] = {PB_SHARD_MAP(WORD)};
static const char *const slicings[] = {PB_SLICING_MAP(WORD)};
static const char *const optimizers[] = {PB_OPTIMIZER_MAP(WORD)};
static const char *const formats[] = {PB_ADAMW_FORMAT_MAP(WORD)};
static const char *const variants[] = {PB_NS_MAP(WORD)};
static const char *const dtypes[] = {"f32", "bf16"};
static const char *const scales[] = {"f32", "8bit"};
static const char *const switches[] = {"off", "on"};
#undef WORD

/* Sets the optimizer; its axes may be missing. */
static pb_status optimizer(const pb_case *c, pb_train_config *out)
{
    int which = PB_OPTIMIZER_ADAMW, moments = PB_ADAMW_F32, variant = (int)out->normuon.variant, guard = 0;
    const char *ns = pb_case_get(c, "iteration"), *on = pb_case_get(c, "guard");
    if (pb_case_get(c, "optimizer")) PB_TRY(word(c, "optimizer", optimizers, PB_NOPTIMIZERS, &which));
    if (pb_case_get(c, "moments")) PB_TRY(word(c, "moments", formats, PB_NADAMW_FORMATS, &moments));
    if (ns) PB_TRY(word(c, "iteration", variants, PB_NNS, &variant));
    if (on) PB_TRY(word(c, "guard", switches, 2, &guard));
    if (which != PB_OPTIMIZER_NORMUON && (ns || on))
        return pb_fail(PB_EINVAL, "axis %s needs optimizer=normuon", ns ? "iteration" : "guard");
    out->optimizer = (pb_optimizer)which;
    out->model.moments = (pb_adamw_format)moments;
    out->normuon.variant = (pb_ns_variant)variant;
    out->normuon.guard = guard;
    return PB_OK;
}

pb_status pb_train_case_config(const pb_case *c, pb_train_config *out)
{
    const pb_geometry *g;
    const char *model = pb_case_get(c, "model");
    int tuning, clip, dtype, attention = PB_ATTENTION_AUTO, reduce = PB_REDUCE_F32, shard = PB_SHARD_NONE;
    int recompute = PB_RECOMPUTE_NONE, slicing = PB_SLICING_AUTO, narrow_scales = 0, shares;
    const bool own = c->own && model && strcmp(model, c->own->model) == 0;
    if (own) g = c->own->in.geometry;
    else PB_TRY(pb_geometry_find(model ? model : "", &g));
    pb_train_config t = pb_train_defaults(g);
    t.model.blank = own && c->own->in.path;
    PB_TRY(pb_train_case_packed(c, &t.packed));
    PB_TRY(word(c, "tuning", tunings, PB_NTUNINGS, &tuning));
    PB_TRY(word(c, "clip", clips, PB_NCLIPS, &clip));
    PB_TRY(word(c, "dtype", dtypes, PB_NFLOAT, &dtype));
    if (pb_case_get(c, "attention")) PB_TRY(word(c, "attention", attentions, PB_NATTENTIONS, &attention));
    if (pb_case_get(c, "reduce")) PB_TRY(word(c, "reduce", reduces, PB_NREDUCES, &reduce));
    if (pb_case_get(c, "shard")) PB_TRY(word(c, "shard", shards, PB_NSHARDS, &shard));
    if (pb_case_get(c, "slices")) PB_TRY(word(c, "slices", slicings, PB_NSLICINGS, &slicing));
    if (pb_case_get(c, "cp")) PB_TRY(number(c, "cp", 1, 1 << 16, &shares));
    if (pb_case_get(c, "nf4-scales")) PB_TRY(word(c, "nf4-scales", scales, 2, &narrow_scales));
    if (pb_case_get(c, "recompute")) PB_TRY(word(c, "recompute", recomputes, PB_NRECOMPUTES, &recompute));
    if (pb_case_get(c, "accumulate")) PB_TRY(number(c, "accumulate", 1, 1 << 20, &t.micro_batches));
    if (pb_case_get(c, "loss-chunk")) PB_TRY(number(c, "loss-chunk", 0, 1 << 22, &t.loss_chunk));
    PB_TRY(number(c, "batch", 1, 1 << 20, &t.B));
    PB_TRY(number(c, "seq", 1, g->max_pos, &t.S));
    PB_TRY(number(c, "layers", 0, g->L, &t.model.layers));
    PB_TRY(number(c, "rank", 1, g->D, &t.model.rank));
    PB_TRY(target_bits(c, &t.model.targets));
    PB_TRY(optimizer(c, &t));
    t.model.tuning = (pb_tuning)tuning;
    t.model.nf4_double = narrow_scales;
    t.model.dtype = (pb_dtype)dtype;
    t.model.alpha = 2 * (float)t.model.rank;
    /* With B = 0, as LoRA starts, the gradient of A is zero and checking it would show nothing. */
    t.model.random_b = true;
    t.clip = (pb_clip_variant)clip;
    t.attention = (pb_attention_variant)attention;
    t.reduce = (pb_reduce)reduce;
    t.shard = (pb_shard)shard;
    t.slicing = (pb_slicing)slicing;
    t.recompute = (pb_recompute)recompute;
    *out = t;
    return PB_OK;
}

int pb_train_case_shares(const pb_case *c)
{
    const char *v = pb_case_get(c, "cp");
    return v ? (int)strtol(v, NULL, 10) : 1;
}

bool pb_train_case_graph(const pb_case *c)
{
    const char *mode = pb_case_get(c, "mode");
    return mode && strcmp(mode, "graph") == 0;
}

pb_status pb_train_case_check(const pb_case *c)
{
    static const char *const modes[] = {"eager", "graph"};
    pb_train_config cfg;
    int mode;
    PB_TRY(word(c, "mode", modes, 2, &mode));
    PB_TRY(pb_train_case_config(c, &cfg));
    PB_TRY(pb_train_check(&cfg));
    if (pb_case_get(c, "attention") && !cfg.model.geometry->v4 && !cfg.model.geometry->keep)
        return pb_fail(PB_EINVAL, "%s has dense attention only: omit --attention", cfg.model.geometry->name);
    return PB_OK;
}

/* Returns the number of weights of the matrices and the head, and sets *tokens to the tokens per step. Both are 0 for
 * an invalid case. */
static double size_of(const pb_case *c, double *tokens)
{
    pb_train_config t;
    if (pb_train_case_config(c, &t) != PB_OK) return *tokens = 0;
    const pb_geometry *g = t.model.geometry;
    const double L = t.model.layers ? t.model.layers : g->L, D = g->D;
    *tokens = (double)t.B * t.S;
    return L * D * ((g->H + 2 * g->K + g->H) * g->d + 3.0 * g->I) + (double)g->V * D;
}

double pb_train_case_weights(const pb_case *c)
{
    double tokens;
    return size_of(c, &tokens);
}

double pb_train_case_seconds(const pb_case *c)
{
    double tokens, weights = size_of(c, &tokens);
    return 2 * weights * tokens / 2.5e11; /* 2.5e11 FLOP/s: two CPU cores */
}

double pb_train_case_device_step(const pb_case *c)
{
    double tokens, weights = size_of(c, &tokens);
    return 0.01 + 4 * 2 * weights * tokens / 3e14;
}

double pb_train_case_device_seconds(const pb_case *c)
{
    const double weights = pb_train_case_weights(c);
    const char *tuning = pb_case_get(c, "tuning");
    const double open = 0.3 + 0.5e-9 * weights, step = pb_train_case_device_step(c);
    const bool full = tuning && strcmp(tuning, "full") == 0;
    return open + (full ? 3e-9 * weights : 0) + (10 * step > 0.5 ? 10 * step : 0.5);
}

/* ---- checking the gradients --------------------------------------------------------------------------- */

double pb_gradient_bound(pb_dtype dtype)
{
    return pb_metric_bound_of("gradient_error", dtype == PB_F32 ? "f32" : "bf16");
}

pb_status pb_gradient_copy(pb_trainer *t, float **out, size_t *n)
{
    const pb_model *m = pb_trainer_model(t);
    float *all = calloc(m->trained + 1, sizeof *all), *at = all;
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

/* The number of values of the largest trained tensor. */
static size_t largest_trained(const pb_model *m)
{
    size_t most = 0;
    for (int i = 0; i < m->n; i++)
        if (m->params[i].trained && pb_param_n(&m->params[i]) > most) most = pb_param_n(&m->params[i]);
    return most;
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
static pb_status by_f32_model(const pb_case *c, pb_trainer *t, const float *grad, double *error)
{
    pb_train_config cfg = *pb_trainer_config(t);
    pb_trainer *wide;
    float *want = NULL;
    size_t n = 0;
    cfg.model.dtype = PB_F32;
    /* Weights are rounded to bf16 before quantisation. Otherwise NF4 would choose other codes, and the weights would
     * differ by more than rounding. */
    cfg.model.as_bf16 = true;
    PB_TRY(pb_train_case_trainer(pb_trainer_model(t)->ctx, c, &cfg, &wide));
    pb_status s = pb_train_case_batch(c, wide, 0);
    if (s == PB_OK) s = run_phases(wide, PB_PHASE_backward);
    if (s == PB_OK) s = pb_gradient_copy(wide, &want, &n);
    pb_trainer_close(wide);
    PB_TRY(s);
    *error = pb_diff_arrays(want, grad, n, PB_F32).rel;
    free(want);
    return PB_OK;
}

pb_status pb_gradient_error(const pb_case *c, pb_trainer *t, double *error)
{
    float *grad;
    size_t n;
    PB_TRY(run_phases(t, PB_PHASE_backward));
    PB_TRY(pb_gradient_copy(t, &grad, &n));
    pb_status s =
        pb_trainer_config(t)->model.dtype == PB_F32 ? by_differences(t, grad, error) : by_f32_model(c, t, grad, error);
    free(grad);
    return s;
}
