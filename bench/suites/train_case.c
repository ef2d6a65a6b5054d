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
    if (pb_case_get(c, "mlp-chunk")) PB_TRY(number(c, "mlp-chunk", 0, 1 << 22, &t.mlp_chunk));
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
