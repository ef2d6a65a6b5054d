/* state.c - writes and reads the state file of a checkpoint: trained weights, moments and optimizer counters. */
#include "trainer/checkpoint/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/step/trainer_impl.h"

enum { CHUNK = 1 << 20 }; /* elements per transfer between host and device */

/* ---- the tensors of a state file ------------------------------------------------------------------------ */

enum { PARTS = 3, SCALARS = 3 };
static const char *const scalar_names[SCALARS] = {"adamw.lr", "adamw.step", "adamw.skipped"};
static const pb_st_dtype scalar_types[SCALARS] = {PB_ST_F32, PB_ST_I32, PB_ST_I32};

typedef struct tensor {
    char name[64];
    float *device; /* [rows,cols] device memory */
    const pb_param *p;
} tensor;

static size_t tensors(const pb_trainer *t) { return (size_t)t->ntrained * PARTS; }

/* Returns tensor i of the state file. The order is: weights w, moments m and v of the first trained parameter, then
 * those of the second, ... */
static tensor tensor_at(const pb_trainer *t, size_t i)
{
    tensor x = {.p = t->trained[i / PARTS]};
    float *const of[PARTS] = {x.p->master ? x.p->master : x.p->w, x.p->m, x.p->v};
    x.device = of[i % PARTS];
    snprintf(x.name, sizeof x.name, "%c.%s", "wmv"[i % PARTS], x.p->name);
    return x;
}

/* ---- writing the state file ----------------------------------------------------------------------------- */

static pb_status create(const pb_trainer *t, const pb_disk *disk, const char *path, pb_st_writer **out)
{
    const size_t n = tensors(t) + SCALARS;
    pb_st_entry *e = calloc(n, sizeof *e);
    char(*names)[64] = calloc(n, sizeof *names);
    pb_status s = e && names ? PB_OK : pb_fail(PB_ENOMEM, "no memory for the list of a checkpoint's tensors");
    for (size_t i = 0; s == PB_OK && i < tensors(t); i++) {
        const tensor x = tensor_at(t, i);
        memcpy(names[i], x.name, sizeof x.name);
        e[i] = (pb_st_entry){.name = names[i], .dtype = PB_ST_F32, .dims = 2, .shape = {x.p->rows, x.p->cols}};
    }
    for (size_t i = 0; s == PB_OK && i < SCALARS; i++)
        e[tensors(t) + i] = (pb_st_entry){.name = scalar_names[i], .dtype = scalar_types[i]};
    if (s == PB_OK) s = pb_st_create_on(disk, path, e, n, NULL, 0, out);
    free(names);
    free(e);
    return s;
}

static pb_status append(pb_st_writer *w, pb_digest *d, const void *bytes, size_t n)
{
    pb_digest_add(d, bytes, n);
    return pb_st_append(w, bytes, n);
}

static pb_status append_all(const pb_trainer *t, pb_st_writer *w, pb_digest *d, float *host)
{
    pb_adamw_state state;
    for (size_t i = 0; i < tensors(t); i++) {
        const tensor x = tensor_at(t, i);
        const size_t n = pb_param_n(x.p);
        for (size_t first = 0; first < n; first += CHUNK) {
            const size_t bytes = (n - first < CHUNK ? n - first : CHUNK) * sizeof *host;
            PB_TRY(pb_download(t->ctx, host, x.device + first, bytes));
            PB_TRY(append(w, d, host, bytes));
        }
    }
    PB_TRY(pb_download(t->ctx, &state, t->state, sizeof state));
    PB_TRY(append(w, d, &state.lr, sizeof state.lr));
    PB_TRY(append(w, d, &state.step, sizeof state.step));
    return append(w, d, &state.skipped, sizeof state.skipped);
}

pb_status pb_state_write(pb_trainer *t, const pb_disk *disk, const char *path, pb_file_digest *data)
{
    pb_st_writer *w = NULL;
    pb_digest *d = NULL;
    float *host = malloc((size_t)CHUNK * sizeof *host);
    pb_status s = host ? pb_digest_open(&d) : pb_fail(PB_ENOMEM, "no memory to write a checkpoint");
    if (s == PB_OK) s = create(t, disk, path, &w);
    if (s == PB_OK) s = append_all(t, w, d, host);
    if (s == PB_OK) {
        s = pb_st_commit(w);
        w = NULL;
    }
    if (s == PB_OK) *data = (pb_file_digest){(3 * t->model.trained + SCALARS) * sizeof *host, pb_digest_get(d)};
    pb_st_abandon(w);
    pb_digest_close(d);
    free(host);
    return s;
}

/* ---- checking and loading the state file ---------------------------------------------------------------- */

static pb_status find(const char *where, const pb_safetensors *f, const char *name, pb_st_dtype dtype,
                      const pb_param *p, const pb_st_tensor **out)
{
    char shape[120];
    const pb_st_tensor *x = pb_st_find(f, name);
    if (!x) return pb_fail(PB_EINVAL, "%s belongs to another model: it has no tensor %s", where, name);
    const bool fits = p ? x->dims == 2 && x->shape[0] == p->rows && x->shape[1] == p->cols : x->dims == 0;
    if (!fits || x->dtype != dtype)
        return pb_fail(PB_EINVAL, "%s belongs to another model: its tensor %s is %s %s, but must be %s [%zu,%zu]",
                       where, name, pb_st_dtype_name(x->dtype),
                       pb_st_shape_text(x->shape, x->dims, shape, sizeof shape), pb_st_dtype_name(dtype),
                       p ? p->rows : 1, p ? p->cols : 1);
    *out = x;
    return PB_OK;
}

pb_status pb_state_check(const char *where, const pb_safetensors *f, pb_trainer *t)
{
    const pb_st_tensor *x;
    for (size_t i = 0; i < tensors(t); i++) {
        const tensor want = tensor_at(t, i);
        PB_TRY(find(where, f, want.name, PB_ST_F32, want.p, &x));
    }
    for (size_t i = 0; i < SCALARS; i++) PB_TRY(find(where, f, scalar_names[i], scalar_types[i], NULL, &x));
    if (pb_st_count(f) == tensors(t) + SCALARS) return PB_OK;
    return pb_fail(PB_EINVAL, "%s belongs to another model: it has %zu tensors, but must have %zu", where,
                   pb_st_count(f), tensors(t) + SCALARS);
}

/* Sets a bf16 weight to its rounded f32 master. The optimizer rounds in the same way, so the bits are equal. */
static pb_status load_rounded(const pb_trainer *t, const pb_param *p, const pb_st_tensor *from, uint16_t *host)
{
    const size_t n = pb_param_n(p);
    for (size_t first = 0; first < n; first += CHUNK) {
        const size_t some = n - first < CHUNK ? n - first : CHUNK;
        PB_TRY(pb_st_convert(from, first, some, p->dtype, host));
        PB_TRY(pb_upload(t->ctx, (uint16_t *)p->w + first, host, some * sizeof *host));
    }
    return PB_OK;
}

static pb_status load_scalars(const pb_safetensors *f, pb_trainer *t)
{
    pb_adamw_state state = {0};
    void *const to[SCALARS] = {&state.lr, &state.step, &state.skipped};
    for (size_t i = 0; i < SCALARS; i++) memcpy(to[i], pb_st_find(f, scalar_names[i])->data, 4);
    PB_TRY(pb_trainer_set_lr(t, state.lr));
    return pb_upload(t->ctx, t->state, &state, sizeof state);
}

pb_status pb_state_load(const pb_safetensors *f, pb_trainer *t)
{
    uint16_t *host = malloc((size_t)CHUNK * sizeof *host);
    pb_status s = host ? PB_OK : pb_fail(PB_ENOMEM, "no memory to read a checkpoint");
    for (size_t i = 0; s == PB_OK && i < tensors(t); i++) {
        const tensor x = tensor_at(t, i);
        const pb_st_tensor *from = pb_st_find(f, x.name);
        s = pb_upload(t->ctx, x.device, from->data, from->bytes);
        if (s == PB_OK && i % PARTS == 0 && x.p->master) s = load_rounded(t, x.p, from, host);
    }
    if (s == PB_OK) s = load_scalars(f, t);
    free(host);
    return s;
}

/* ---- the digest of frozen weights, and the trainer's settings ------------------------------------------- */

static pb_status digest_device(const pb_trainer *t, pb_digest *d, const void *device, size_t n, float *host)
{
    const size_t most = (size_t)CHUNK * sizeof *host;
    for (size_t first = 0; first < n; first += most) {
        const size_t some = n - first < most ? n - first : most;
        PB_TRY(pb_download(t->ctx, host, (const unsigned char *)device + first, some));
        pb_digest_add(d, host, some);
    }
    return PB_OK;
}

static pb_status digest_frozen(const pb_trainer *t, pb_digest *d, const pb_param *p, float *host)
{
    const size_t n = pb_param_n(p);
    pb_digest_add(d, p->name, strlen(p->name) + 1);
    if (!p->q) return digest_device(t, d, p->w, n * pb_dtype_size(p->dtype), host);
    const size_t blocks = (n + (size_t)p->scales.block - 1) / (size_t)p->scales.block;
    PB_TRY(digest_device(t, d, p->q, (n + 1) / 2, host));
    return digest_device(t, d, p->scales.absmax, blocks * sizeof(float), host);
}

pb_status pb_state_base(pb_trainer *t, pb_digest_text *out)
{
    pb_digest *d = NULL;
    float *host = malloc((size_t)CHUNK * sizeof *host);
    pb_status s = host ? pb_digest_open(&d) : pb_fail(PB_ENOMEM, "no memory to compute the digest of the base weights");
    for (int i = 0; s == PB_OK && i < t->model.n; i++)
        if (!t->model.params[i].trained) s = digest_frozen(t, d, &t->model.params[i], host);
    if (s == PB_OK) *out = pb_digest_get(d);
    pb_digest_close(d);
    free(host);
    return s;
}

static void geometry_text(const pb_geometry *g, char *out, size_t room)
{
    const pb_v4_geometry *v = g->v4;
    const pb_rope_scaling *r = v ? &v->compress_rope : &g->rope;
    int n = snprintf(out, room,
                     "family %d V %d D %d L %d H %d K %d d %d I %d eps %.9g theta %.17g tied %d bias %d,%d qk_norm %d",
                     (int)g->family, g->V, g->D, g->L, g->H, g->K, g->d, g->I, (double)g->eps, g->theta, g->tied,
                     g->bias, g->o_bias, g->qk_norm);
    if (v && n > 0 && (size_t)n < room)
        n += snprintf(out + n, room - (size_t)n,
                      " v4 ranks %d,%d groups %d rope %d window %d indexer %d,%d,%d theta %.17g", v->q_rank, v->o_rank,
                      v->groups, v->rope, v->window, v->index_H, v->index_d, v->topk, v->compress_theta);
    for (int i = 0; v && i < g->L && n > 0 && (size_t)n < room; i++)
        n += snprintf(out + n, room - (size_t)n, "%s%d", i ? "," : " ratios ", v->ratio[i]);
    if (r->kind != PB_ROPE_NONE && n > 0 && (size_t)n < room)
        snprintf(out + n, room - (size_t)n, " rope %d %.17g %.17g %.17g %.17g %.17g %.17g %.17g %d", (int)r->kind,
                 r->factor, r->original_len, r->low_freq, r->high_freq, r->beta_fast, r->beta_slow, r->attention,
                 r->truncate);
}

void pb_state_describe(pb_trainer *t, pb_state_settings *o)
{
    static const char *const tunings[] = {
#define X(id, text, what) text,
        PB_TUNING_MAP(X)
#undef X
    };
    static const char *const clips[] = {
#define X(id, text, what) text,
        PB_CLIP_MAP(X)
#undef X
    };
    static const char *const keys[PB_STATE_SETTINGS] = {
        "model.geometry", "model.tuning", "model.dtype", "model.adapters", "train.batch", "train.clip", "train.adamw"};
    const pb_train_config *c = &t->cfg;
    const pb_model_config *m = &c->model;
    const size_t room = sizeof o->text[0];
    enum { FIXED = 4 };
    geometry_text(&t->model.g, o->text[0], room);
    snprintf(o->text[1], room, "%s", tunings[m->tuning]);
    snprintf(o->text[2], room, "%s", pb_dtype_name(m->dtype));
    if (m->tuning == PB_FULL) snprintf(o->text[3], room, "none");
    else snprintf(o->text[3], room, "rank %d alpha %.9g targets %u", m->rank, (double)m->alpha, m->targets);
    snprintf(o->text[4], room, "%d of %d tokens%s", c->B, c->S, c->packed ? ", packed" : "");
    snprintf(o->text[5], room, "%s %.9g", clips[c->clip], (double)c->max_norm);
    snprintf(o->text[6], room, "beta1 %.9g beta2 %.9g eps %.9g decay %.9g", (double)c->beta1, (double)c->beta2,
             (double)c->eps, (double)c->weight_decay);
    for (int i = 0; i < PB_STATE_SETTINGS; i++) o->s[i] = (pb_setting){keys[i], o->text[i], i < FIXED};
}
