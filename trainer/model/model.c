/* model.c - lists a model's parameters, allocates them, and fills them with seeded values. */
#include "trainer/model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/nf4/nf4.h"
#include "kernels/uniform/uniform.h"

enum { PLACE_MODEL, PLACE_LAYER };

typedef struct def {
    const char *name;
    int place;
    pb_param_kind kind;
    size_t rows, cols;
    bool present;
} def;

static def param_def(const pb_geometry *g, int layer, int id)
{
    static const pb_v4_geometry none = {.groups = 1};
    const bool v4 = g->v4;
    const pb_v4_geometry *v = v4 ? g->v4 : &none;
    const int ratio = layer < 0 ? 0 : pb_ratio(g, layer);
    const int C = pb_v4_columns(ratio, g->d), C_i = ratio == PB_V4_OVERLAPPING ? pb_v4_columns(ratio, v->index_d) : 0;
    const def defs[PB_NPARAMS] = {
#define PARAM(id, place_, rows_, cols_, kind_, present_)                                                               \
    {.name = #id,                                                                                                      \
     .place = PLACE_##place_,                                                                                          \
     .kind = PB_KIND_##kind_,                                                                                          \
     .rows = (size_t)(rows_),                                                                                          \
     .cols = (size_t)(cols_),                                                                                          \
     .present = (present_)},
#include "trainer/model/model.def"
    };
    return defs[id];
}

static const char *const target_names[] = {
#define X(id, word) word,
    PB_TARGET_MAP(X)
#undef X
};

/* ---- listing the parameters --------------------------------------------------------------------- */

/* True if the parameter is trained. The indexer's parameters are trained only with index_loss, because its top-k
 * selection has no gradient. */
static bool trained(const pb_model_config *c, int place, int id)
{
    if (c->frozen || (pb_param_indexes(id) && !(c->index_loss > 0))) return false;
    const bool norm = place == PLACE_LAYER && (id == PB_P_norm1 || id == PB_P_norm2);
    return c->tuning == PB_FULL || (norm && !c->fixed_norms);
}

static pb_param *add(pb_model *m, int layer, const char *name, pb_param_kind kind, size_t rows, size_t cols, bool train)
{
    pb_param *p = &m->params[m->n++];
    const bool vector = kind == PB_KIND_GAIN || kind == PB_KIND_BIAS;
    *p = (pb_param){.layer = layer, .kind = kind, .rows = rows, .cols = cols, .trained = train};
    p->dtype = vector ? PB_F32 : m->cfg.dtype;
    p->by_rows = train && m->cfg.row_moments && (kind == PB_KIND_MATRIX || kind == PB_KIND_ADAPTER);
    const bool small = m->cfg.moments == PB_ADAMW_8BIT && pb_param_n(p) < PB_ADAMW_8BIT_LEAST;
    p->moments = p->by_rows || small ? PB_ADAMW_F32 : m->cfg.moments;
    if (layer < 0) snprintf(p->name, sizeof p->name, "%s", name);
    else snprintf(p->name, sizeof p->name, "layers.%d.%s", layer, name);
    return p;
}

static void list_params(pb_model *m)
{
    const pb_geometry *g = &m->g;
    for (int layer = -1; layer < g->L; layer++)
        for (int id = 0; id < PB_NPARAMS; id++) {
            const def d = param_def(g, layer, id);
            if (!d.present || (d.place == PLACE_LAYER) != (layer >= 0)) continue;
            pb_param *p = add(m, layer, d.name, d.kind, d.rows, d.cols, trained(&m->cfg, d.place, id));
            *(layer < 0 ? &m->outer[id] : &m->layer[layer * PB_NPARAMS + id]) = p;
        }
    for (int i = 0; m->cfg.tuning != PB_FULL && i < g->L * PB_NTARGETS; i++) {
        int t = i % PB_NTARGETS, in, out, offset;
        char name[16];
        if (!(m->cfg.targets & 1u << t)) continue;
        pb_target_shape(g, (pb_target)t, &in, &out, &offset);
        snprintf(name, sizeof name, "lora_a.%s", target_names[t]);
        m->lora_a[i] = add(m, i / PB_NTARGETS, name, PB_KIND_ADAPTER, (size_t)m->cfg.rank, (size_t)in, !m->cfg.frozen);
        snprintf(name, sizeof name, "lora_b.%s", target_names[t]);
        m->lora_b[i] = add(m, i / PB_NTARGETS, name, PB_KIND_ADAPTER, (size_t)out, (size_t)m->cfg.rank, !m->cfg.frozen);
    }
    for (int i = 0; i < m->n; i++) m->trained += m->params[i].trained ? pb_param_n(&m->params[i]) : 0;
}

/* Returns the stage of the backward pass after which a parameter's gradient is complete; see pb_model.order. */
static int stage_of(const pb_model *m, const pb_param *p)
{
    if (p->layer >= 0) return m->g.L - p->layer;
    return p == m->outer[PB_P_embed] ? m->g.L + 1 : 0;
}

/* Sets the order of the gradients and their places in the vector of gradients. */
static void order_gradients(pb_model *m)
{
    for (int i = 0; i < m->n; i++) m->params[i].stage = stage_of(m, &m->params[i]);
    for (int narrow = 0; narrow < 2; narrow++) {
        for (int stage = 0; stage <= m->g.L + 1; stage++)
            for (int i = 0; i < m->n; i++) {
                pb_param *p = &m->params[i];
                if (!p->trained || (p->dtype != m->cfg.dtype) != narrow || p->stage != stage) continue;
                p->at = (m->vector + PB_FLAT_ALIGN - 1) / PB_FLAT_ALIGN * PB_FLAT_ALIGN;
                m->vector = p->at + pb_param_n(p);
                m->order[m->ordered++] = p;
            }
        if (!narrow) m->wide = m->vector;
    }
    m->rest = (m->wide + PB_FLAT_ALIGN - 1) / PB_FLAT_ALIGN * PB_FLAT_ALIGN;
}

/* ---- allocating memory ---------------------------------------------------------------------------- */

bool pb_param_quantised(const pb_model *m, const pb_param *p)
{
    return m->cfg.tuning == PB_QLORA && p->kind == PB_KIND_MATRIX;
}

/* Places the trained weights of a sharded model one after the other, so that slices of them can be gathered. */
static void carve_vectors(pb_model *m)
{
    const size_t e = pb_dtype_size(m->cfg.dtype);
    m->wide_w = m->cfg.no_weights ? NULL : pb_carve(&m->weights, m->wide * e);
    m->rest_w = pb_carve(&m->weights, m->vector > m->rest ? (m->vector - m->rest) * sizeof *m->rest_w : 0);
    for (int i = 0; i < m->ordered; i++) {
        pb_param *p = m->order[i];
        if (p->at < m->wide && m->cfg.no_weights) continue;
        if (p->at < m->wide) p->w = m->wide_w ? (unsigned char *)m->wide_w + p->at * e : NULL;
        else p->w = m->rest_w ? m->rest_w + (p->at - m->rest) : NULL;
    }
}

static void carve_quantised(pb_model *m, pb_param *p)
{
    p->scales = (pb_nf4_scales){.block = m->cfg.nf4_block};
    const size_t blocks = pb_param_blocks(p);
    p->q = pb_carve(&m->weights, (pb_param_n(p) + 1) / 2);
    if (!m->cfg.nf4_double) {
        p->scales.absmax = pb_carve(&m->weights, blocks * sizeof(float));
        return;
    }
    p->scales.absmax_q = pb_carve(&m->weights, blocks);
    p->scales.absmax2 = pb_carve(&m->weights, (blocks + 255) / 256 * sizeof(float));
    p->scales.offset = pb_carve(&m->weights, sizeof(float));
    p->scales.code = m->nf4_code;
}

static void carve_weights(pb_model *m)
{
    m->nf4_code = m->cfg.nf4_double ? pb_carve(&m->weights, 256 * sizeof(float)) : NULL;
    if (m->cfg.sharded) carve_vectors(m);
    if (m->cfg.no_weights) return;
    for (int i = 0; i < m->n; i++) {
        pb_param *p = &m->params[i];
        if (m->cfg.sharded && p->trained) continue;
        const size_t n = pb_param_n(p);
        if (pb_param_quantised(m, p)) carve_quantised(m, p);
        else p->w = pb_carve(&m->weights, n * pb_dtype_size(p->dtype));
        if (p->trained && p->dtype != PB_F32) p->master = pb_carve(&m->weights, n * sizeof(float));
    }
}

static void carve_training(pb_model *m)
{
    float *grads = pb_carve(&m->grads, m->cfg.no_grads ? 0 : m->vector * sizeof *grads);
    for (int i = 0; i < m->n; i++) {
        pb_param *p = &m->params[i];
        if (!p->trained) continue;
        p->grad = p->sum = grads ? grads + p->at : NULL;
        if (m->cfg.sharded) continue;
        p->m = pb_carve(&m->moments, pb_param_m_bytes(p));
        p->v = pb_carve(&m->moments, pb_param_v_bytes(p));
    }
}

pb_status pb_model_masters_open(pb_model *m)
{
    if (!m->cfg.sharded || m->cfg.dtype == PB_F32 || m->masters.base) return PB_OK;
    pb_arena_begin(&m->masters, m->ctx);
    (void)pb_carve(&m->masters, m->wide * sizeof(float));
    PB_TRY(pb_arena_commit(&m->masters));
    float *all = pb_carve(&m->masters, m->wide * sizeof *all);
    for (int i = 0; i < m->ordered; i++)
        if (m->order[i]->at < m->wide) m->order[i]->master = all ? all + m->order[i]->at : NULL;
    return PB_OK;
}

void pb_model_masters_close(pb_model *m)
{
    if (!m->cfg.sharded || !m->masters.base) return;
    pb_arena_free(&m->masters);
    for (int i = 0; i < m->ordered; i++) m->order[i]->master = NULL;
}

static pb_status allocate(pb_model *m)
{
    pb_arena_begin(&m->weights, m->ctx);
    carve_weights(m);
    PB_TRY(pb_arena_commit(&m->weights));
    carve_weights(m);
    pb_arena_begin_in(&m->grads, m->ctx, m->cfg.grads_source);
    pb_arena_begin(&m->moments, m->ctx);
    carve_training(m);
    PB_TRY(pb_arena_commit(&m->grads));
    PB_TRY(pb_arena_commit(&m->moments));
    carve_training(m);
    return m->cfg.no_weights ? PB_OK : pb_model_masters_open(m);
}

pb_status pb_model_keep(pb_model *m, const pb_param *p, size_t first, size_t n)
{
    return m->cfg.no_weights && !m->ctx->planning ? m->store.keep(m->store.self, p, first, n) : PB_OK;
}

pb_status pb_model_hold(pb_model *m, const pb_param *p)
{
    return m->cfg.no_weights ? m->store.hold(m->store.self, p) : PB_OK;
}

/* ---- initial values of the parameters ------------------------------------------------------------- */

/* Sets the centre and half width of the uniform distribution of a parameter's initial values. */
static void distribution(const pb_model *m, const pb_param *p, double *centre, double *half)
{
    *centre = p->kind == PB_KIND_GAIN ? 1 : 0;
    switch (p->kind) {
    case PB_KIND_GAIN: *half = 0.1; break;
    case PB_KIND_BIAS: *half = 0.02; break;
    case PB_KIND_ADAPTER: {
        const bool b = strstr(p->name, "lora_b") != NULL;
        *half = b && !m->cfg.random_b ? 0 : 1 / sqrt((double)p->cols);
        break;
    }
    default: *half = 0.02 * sqrt(3.0);
    }
    if (p->layer < 0) return;
    if (p == pb_layer_param(m, p->layer, PB_P_dt)) *half *= 10;
    if (p == pb_layer_param(m, p->layer, PB_P_dt_a)) *half = 1;
}

/* The seed of a tensor's random values is a hash, similar to FNV-1a, of the model's seed and the tensor's name, so
 * that adding a tensor does not change the values of the others. */
static uint64_t stream_of(const pb_model *m, const pb_param *p)
{
    uint64_t h = 1469598103934665603u ^ m->cfg.seed;
    for (const char *c = p->name; *c; c++) h = (h ^ (unsigned char)*c) * 1099511628211u;
    return h;
}

/* True if a parameter is initialised randomly. */
static bool drawn(const pb_model *m, const pb_param *p) { return !m->cfg.blank || p->kind == PB_KIND_ADAPTER; }

/* Fills `dense` with a parameter's initial values. `dense` is p->w, or scratch memory if p is quantised afterwards. */
static pb_status draw(pb_model *m, const pb_param *p, void *dense)
{
    const bool vector = p->kind == PB_KIND_GAIN || p->kind == PB_KIND_BIAS;
    pb_uniform_fill_args a = {.w = dense,
                              .master = p->master,
                              .n = pb_param_n(p),
                              .stream = stream_of(m, p),
                              .as_bf16 = m->cfg.as_bf16 && !vector,
                              .dtype = p->dtype};
    distribution(m, p, &a.centre, &a.half);
    return pb_uniform_fill(m->ctx, &a);
}

/* absmax: room for the scales in f32; used with double quantisation only. */
static pb_status quantise(pb_model *m, const pb_param *p, const void *dense, float *absmax)
{
    const pb_nf4_scales *s = &p->scales;
    return pb_nf4_quantize(m->ctx, &(pb_nf4_quantize_args){.w = dense,
                                                           .q = p->q,
                                                           .absmax = s->absmax ? (float *)s->absmax : absmax,
                                                           .code = s->code,
                                                           .absmax_q = (uint8_t *)s->absmax_q,
                                                           .absmax2 = (float *)s->absmax2,
                                                           .offset = (float *)s->offset,
                                                           .n = pb_param_n(p),
                                                           .block = s->block,
                                                           .dtype = p->dtype});
}

pb_status pb_model_fill(pb_model *m)
{
    void *dense = NULL, *absmax = NULL;
    size_t largest = 0;
    for (int i = 0; i < m->n; i++)
        if (m->params[i].q && drawn(m, &m->params[i]) && pb_param_n(&m->params[i]) > largest)
            largest = pb_param_n(&m->params[i]);
    if (largest) PB_TRY(pb_alloc(m->ctx, largest * pb_dtype_size(m->cfg.dtype), &dense));
    pb_status s = PB_OK;
    if (largest && m->nf4_code) s = pb_alloc(m->ctx, (largest / (size_t)m->cfg.nf4_block + 1) * sizeof(float), &absmax);
    for (int i = 0; s == PB_OK && i < m->n; i++) {
        const pb_param *p = &m->params[i];
        if (!drawn(m, p)) continue;
        if (m->ctx->planning) { /* computes nothing, but double quantisation needs scratch memory on a GPU */
            if (p->q && m->nf4_code) s = quantise(m, p, dense, absmax);
            continue;
        }
        s = draw(m, p, p->q ? dense : p->w);
        if (s == PB_OK && p->q) s = quantise(m, p, dense, absmax);
        if (s == PB_OK) s = pb_model_keep(m, p, 0, pb_param_n(p));
    }
    if (s == PB_OK && largest) s = pb_sync(m->ctx);
    pb_release(m->ctx, absmax);
    pb_release(m->ctx, dense);
    return s;
}

/* ---- checking, opening and closing a model ---------------------------------------------------------- */

pb_status pb_model_check(const pb_model_config *c)
{
    const pb_geometry *g = c->geometry;
    if (c->layers < 0 || c->layers > g->L)
        return pb_fail(PB_EINVAL, "layers %d: need 1 to %d, or 0 for all layers of %s", c->layers, g->L, g->name);
    if (c->dtype != PB_F32 && c->dtype != PB_BF16)
        return pb_fail(PB_EINVAL, "the dtype of a model must be f32 or bf16");
    if (!(c->index_loss >= 0 && isfinite(c->index_loss)))
        return pb_fail(PB_EINVAL, "index loss %g: need a finite number of at least 0", (double)c->index_loss);
    if (c->nf4_double && c->tuning != PB_QLORA) return pb_fail(PB_EINVAL, "double quantisation needs the tuning qlora");
    if (c->tuning == PB_FULL) return PB_OK;
    if (c->rank < 1 || c->rank > g->D) return pb_fail(PB_EINVAL, "rank %d: need 1 to %d", c->rank, g->D);
    if (!c->targets || c->targets >> PB_NTARGETS)
        return pb_fail(PB_EINVAL, "the targets of the adapters are empty or unknown");
    if (!(c->alpha > 0 && isfinite(c->alpha)))
        return pb_fail(PB_EINVAL, "alpha %g: need a number above 0 that is finite in f32", (double)c->alpha);
    return PB_OK;
}

static pb_status upload_code(const pb_model *m)
{
    float code[256];
    pb_dynamic_map(true, code);
    return pb_upload(m->ctx, m->nf4_code, code, sizeof code);
}

pb_status pb_model_open(pb_ctx *ctx, const pb_model_config *cfg, pb_model *out)
{
    PB_TRY(pb_model_check(cfg));
    pb_model m = {.cfg = *cfg, .g = *cfg->geometry, .ctx = ctx};
    if (cfg->layers) m.g.L = cfg->layers;
    const size_t L = (size_t)m.g.L;
    m.params = calloc(PB_NPARAMS * (L + 1) + 2 * PB_NTARGETS * L, sizeof *m.params);
    m.layer = calloc(L * PB_NPARAMS, sizeof(pb_param *));
    m.order = calloc(PB_NPARAMS * (L + 1) + 2 * PB_NTARGETS * L, sizeof(pb_param *));
    m.lora_a = calloc(L * PB_NTARGETS, sizeof(pb_param *));
    m.lora_b = calloc(L * PB_NTARGETS, sizeof(pb_param *));
    pb_status s = m.params && m.layer && m.order && m.lora_a && m.lora_b
                      ? PB_OK
                      : pb_fail(PB_ENOMEM, "no memory for the parameter list");
    m.export_norms = !cfg->fixed_norms;
    if (s == PB_OK) list_params(&m);
    if (s == PB_OK) order_gradients(&m);
    if (s == PB_OK) s = allocate(&m);
    if (s == PB_OK && m.nf4_code && !ctx->planning) s = upload_code(&m);
    if (s == PB_OK && !cfg->no_weights) s = pb_model_fill(&m);
    if (s != PB_OK) pb_model_close(&m);
    else *out = m;
    return s;
}

void pb_model_close(pb_model *m)
{
    pb_arena_free(&m->weights);
    pb_arena_free(&m->grads);
    pb_arena_free(&m->moments);
    if (m->masters.ctx) pb_arena_free(&m->masters);
    free(m->params);
    free(m->layer);
    free(m->order);
    free(m->lora_a);
    free(m->lora_b);
    *m = (pb_model){0};
}
