/* state.c - writes the state file of a checkpoint: trained weights, moments and optimizer counters. Also the digest of
 * the frozen weights. */
#include "trainer/checkpoint/state_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/adamw/moments.h"
#include "trainer/step/shards.h"

/* ---- the tensors of a state file ------------------------------------------------------------------------ */

const char *const pb_state_scalar_names[PB_STATE_SCALARS] = {"adamw.lr", "adamw.step", "adamw.skipped",
                                                             "normuon.guarded"};
const pb_st_dtype pb_state_scalar_types[PB_STATE_SCALARS] = {PB_ST_F32, PB_ST_I32, PB_ST_I32, PB_ST_I32};

/* The blocks of n elements of a tensor whose moments are in 8 bits; 0 for other moments. */
static size_t blocks_of(const pb_param *p, size_t n)
{
    return p->moments == PB_ADAMW_8BIT ? (n + PB_ADAMW_BLOCK - 1) / PB_ADAMW_BLOCK : 0;
}

static bool is_absmax(pb_state_kind kind) { return kind == PB_STATE_M_ABSMAX || kind == PB_STATE_V_ABSMAX; }

/* The device memory of a kind, of n elements whose weights and moments are at w, m and v. */
static void *memory_of(pb_state_kind kind, void *w, void *m, void *v, size_t n)
{
    void *const of[PB_STATE_KINDS] = {w, m, v, m, v};
    return is_absmax(kind) && of[kind] ? pb_adamw_absmax(of[kind], n) : of[kind];
}

pb_state_tensor pb_state_whole(const pb_param *p, pb_state_kind kind)
{
    static const char *const names[PB_STATE_KINDS] = {"w", "m", "v", "m_absmax", "v_absmax"};
    static const pb_st_dtype types[PB_NADAMW_FORMATS] = {PB_ST_F32, PB_ST_BF16, PB_ST_U8};
    pb_state_tensor x = {.p = p, .rows = p->rows, .cols = kind == PB_STATE_V && p->by_rows ? 1 : p->cols};
    x.dtype = kind == PB_STATE_M || kind == PB_STATE_V ? types[p->moments] : PB_ST_F32;
    if (is_absmax(kind)) x.rows = 1, x.cols = blocks_of(p, pb_param_n(p));
    x.n = x.rows * x.cols;
    x.device = memory_of(kind, p->master ? p->master : p->w, p->m, p->v, pb_param_n(p));
    snprintf(x.name, sizeof x.name, "%s.%s", names[kind], p->name);
    return x;
}

/* Describes the tensor of a kind for one piece (slices.h) of a parameter, in the shards of this rank if the state is
 * sharded. A piece of a matrix that NorMuon trains always holds whole rows, and one with moments in 8
 * bits begins with a block. */
static pb_state_tensor part_of_piece(const pb_trainer *t, const pb_piece *x, pb_state_kind kind)
{
    pb_state_tensor out = pb_state_whole(x->p, kind);
    const bool rows = kind == PB_STATE_V && x->p->by_rows;
    out.first = is_absmax(kind) ? x->first / PB_ADAMW_BLOCK : rows ? x->first / x->p->cols : x->first;
    out.n = is_absmax(kind) ? blocks_of(x->p, x->n) : rows ? pb_piece_seconds(x) : x->n;
    if (!t->shards.on) {
        out.device += out.first * pb_st_dtype_size(out.dtype);
        return out;
    }
    void *const w = x->p->dtype == PB_F32 ? pb_shards_w(t, x) : pb_shards_master(t, x);
    out.device = memory_of(kind, w, pb_shards_m(t, x), pb_shards_v(t, x), x->n);
    return out;
}

size_t pb_state_kept(const pb_trainer *t)
{
    return (size_t)(t->shards.on ? t->gradients.slices.n : t->ntrained) * PB_STATE_KINDS;
}

pb_state_tensor pb_state_kept_at(const pb_trainer *t, size_t i)
{
    const size_t at = i / PB_STATE_KINDS;
    const pb_state_kind kind = (pb_state_kind)(i % PB_STATE_KINDS);
    return t->shards.on ? part_of_piece(t, &t->gradients.slices.piece[at], kind) : pb_state_whole(t->trained[at], kind);
}

size_t pb_state_written(const pb_trainer *t)
{
    return t->cfg.comm ? (size_t)t->gradients.slices.n * PB_STATE_KINDS : pb_state_kept(t);
}

pb_state_tensor pb_state_written_at(const pb_trainer *t, size_t i)
{
    if (!t->cfg.comm) return pb_state_kept_at(t, i);
    return part_of_piece(t, &t->gradients.slices.piece[i / PB_STATE_KINDS], (pb_state_kind)(i % PB_STATE_KINDS));
}

size_t pb_state_written_scalars(const pb_trainer *t)
{
    return pb_comm_rank(t->cfg.comm) == 0 ? pb_state_scalars(t) : 0;
}

/* ---- writing the state file ----------------------------------------------------------------------------- */

/* Describes tensor x in *e. A part of a tensor has the name "NAME:FIRST" and one dimension. */
static void describe(const pb_state_tensor *x, char name[96], pb_st_entry *e)
{
    const bool all = x->n == x->rows * x->cols;
    if (all) snprintf(name, 96, "%s", x->name);
    else snprintf(name, 96, "%s:%zu", x->name, x->first);
    *e = (pb_st_entry){.name = name, .dtype = x->dtype, .dims = all ? 2 : 1, .shape = {x->n}};
    if (!all) return;
    e->shape[0] = x->rows;
    e->shape[1] = x->cols;
}

static pb_status create(const pb_trainer *t, const pb_disk *disk, const char *path, pb_st_writer **out)
{
    size_t n = 0;
    pb_st_entry *e = calloc(pb_state_written(t) + PB_STATE_SCALARS, sizeof *e);
    char(*names)[96] = calloc(pb_state_written(t) + 1, sizeof *names);
    pb_status s = e && names ? PB_OK : pb_fail(PB_ENOMEM, "no memory for the list of a checkpoint's tensors");
    for (size_t i = 0; s == PB_OK && i < pb_state_written(t); i++) {
        const pb_state_tensor x = pb_state_written_at(t, i);
        if (!x.n) continue;
        describe(&x, names[n], &e[n]);
        n++;
    }
    for (size_t i = 0; s == PB_OK && i < pb_state_written_scalars(t); i++)
        e[n + i] = (pb_st_entry){.name = pb_state_scalar_names[i], .dtype = pb_state_scalar_types[i]};
    if (s == PB_OK) s = pb_st_create_on(disk, path, e, n + pb_state_written_scalars(t), NULL, 0, out);
    free(names);
    free(e);
    return s;
}

/* The writer of a state file, and the size and digest of the tensor data so far. */
typedef struct output {
    pb_st_writer *w;
    pb_digest *d;
    uint64_t bytes;
} output;

static pb_status append(output *o, const void *bytes, size_t n)
{
    pb_digest_add(o->d, bytes, n);
    o->bytes += n;
    return pb_st_append(o->w, bytes, n);
}

/* Appends a tensor of the device. `host` has room for a chunk. */
static pb_status append_device(const pb_trainer *t, output *o, const pb_state_tensor *x, float *host)
{
    const size_t all = pb_state_bytes(x), most = (size_t)PB_STATE_CHUNK * sizeof *host;
    for (size_t first = 0; first < all; first += most) {
        const size_t bytes = all - first < most ? all - first : most;
        PB_TRY(pb_download(t->ctx, host, x->device + first, bytes));
        PB_TRY(append(o, host, bytes));
    }
    return PB_OK;
}

/* Appends n bytes of the copy, in chunks that stay in the cache between digest and write. */
static pb_status append_copied(output *o, const unsigned char *from, size_t n)
{
    const size_t most = (size_t)PB_STATE_CHUNK * sizeof(float);
    for (size_t first = 0; first < n; first += most)
        PB_TRY(append(o, from + first, n - first < most ? n - first : most));
    return PB_OK;
}

static pb_status append_tensors(const pb_trainer *t, const pb_state_copy *copy, output *o, float *host)
{
    const unsigned char *copied = copy ? pb_state_copied(copy) : NULL;
    for (size_t i = 0; i < pb_state_written(t); i++) {
        const pb_state_tensor x = pb_state_written_at(t, i);
        PB_TRY(copied ? append_copied(o, copied, pb_state_bytes(&x)) : append_device(t, o, &x, host));
        if (copied) copied += pb_state_bytes(&x);
    }
    return PB_OK;
}

static pb_status append_all(const pb_trainer *t, const pb_state_copy *copy, output *o, float *host)
{
    pb_adamw_state state;
    const size_t scalars = pb_state_written_scalars(t);
    PB_TRY(append_tensors(t, copy, o, host));
    if (!scalars) return PB_OK;
    if (copy) state = *pb_state_copied_scalars(copy);
    else PB_TRY(pb_download(t->ctx, &state, t->state, sizeof state));
    PB_TRY(append(o, &state.lr, sizeof state.lr));
    PB_TRY(append(o, &state.step, sizeof state.step));
    PB_TRY(append(o, &state.skipped, sizeof state.skipped));
    return scalars < PB_STATE_SCALARS ? PB_OK : append(o, &state.guarded, sizeof state.guarded);
}

pb_status pb_state_write(const pb_trainer *t, const pb_state_copy *copy, const pb_disk *disk, const char *path,
                         pb_file_digest *data)
{
    output o = {0};
    float *host = malloc((size_t)PB_STATE_CHUNK * sizeof *host);
    pb_status s = host ? pb_digest_open(&o.d) : pb_fail(PB_ENOMEM, "no memory to write a checkpoint");
    if (s == PB_OK) s = create(t, disk, path, &o.w);
    if (s == PB_OK) s = append_all(t, copy, &o, host);
    if (s == PB_OK) {
        s = pb_st_commit(o.w);
        o.w = NULL;
    }
    if (s == PB_OK) *data = (pb_file_digest){o.bytes, pb_digest_get(o.d)};
    pb_st_abandon(o.w);
    pb_digest_close(o.d);
    free(host);
    return s;
}

/* ---- the digest of frozen weights, and the trainer's settings ------------------------------------------- */

static pb_status digest_device(const pb_trainer *t, pb_digest *d, const void *device, size_t n, float *host)
{
    const size_t most = (size_t)PB_STATE_CHUNK * sizeof *host;
    for (size_t first = 0; first < n; first += most) {
        const size_t some = n - first < most ? n - first : most;
        PB_TRY(pb_download(t->ctx, host, (const unsigned char *)device + first, some));
        pb_digest_add(d, host, some);
    }
    return PB_OK;
}

static pb_status digest_frozen(pb_trainer *t, pb_digest *d, const pb_param *p, float *host)
{
    const size_t n = pb_param_n(p);
    PB_TRY(pb_model_hold(&t->model, p));
    pb_digest_add(d, p->name, strlen(p->name) + 1);
    if (!p->q) return digest_device(t, d, p->w, n * pb_dtype_size(p->dtype), host);
    const size_t blocks = pb_param_blocks(p);
    PB_TRY(digest_device(t, d, p->q, (n + 1) / 2, host));
    if (p->scales.absmax) return digest_device(t, d, p->scales.absmax, blocks * sizeof(float), host);
    PB_TRY(digest_device(t, d, p->scales.absmax_q, blocks, host));
    PB_TRY(digest_device(t, d, p->scales.absmax2, (blocks + 255) / 256 * sizeof(float), host));
    return digest_device(t, d, p->scales.offset, sizeof(float), host);
}

pb_status pb_state_base(pb_trainer *t, pb_digest_text *out)
{
    pb_digest *d = NULL;
    float *host = malloc((size_t)PB_STATE_CHUNK * sizeof *host);
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

static void normuon_text(const pb_train_config *c, char *out, size_t room)
{
    static const char *const variants[] = {
#define X(id, text, what) text,
        PB_NS_MAP(X)
#undef X
    };
    const pb_normuon_config *n = &c->normuon;
    if (c->optimizer != PB_OPTIMIZER_NORMUON) snprintf(out, room, "none");
    else
        snprintf(out, room, "%s %d products %d rate %.9g factor %d mu %.9g beta2 %.9g nesterov %d cautious %d heads %d",
                 variants[n->variant], n->steps, (int)n->products, (double)n->rate, (int)n->adjust, (double)n->mu,
                 (double)n->beta2, n->nesterov, n->cautious, n->per_head);
}

void pb_state_targets(unsigned bits, char out[PB_STATE_TARGETS])
{
    static const char *const words[] = {
#define X(id, word) word,
        PB_TARGET_MAP(X)
#undef X
    };
    size_t at = 0;
    out[0] = '\0';
    for (unsigned t = 0; t < PB_NTARGETS; t++)
        if (bits >> t & 1) at += (size_t)snprintf(out + at, PB_STATE_TARGETS - at, "%s%s", at ? "+" : "", words[t]);
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
    static const char *const optimizers[] = {
#define X(id, text, what) text,
        PB_OPTIMIZER_MAP(X)
#undef X
    };
    static const char *const moments[] = {
#define X(id, text, what) text,
        PB_ADAMW_FORMAT_MAP(X)
#undef X
    };
    static const char *const keys[PB_STATE_SETTINGS] = {
        "model.geometry", "model.tuning", "model.dtype", "model.adapters", "model.optimizer",
        "model.moments",  "train.batch",  "train.clip",  "train.adamw",    "train.normuon"};
    static const char *const absent[PB_STATE_SETTINGS] = {[4] = "adamw", [5] = "f32", [9] = "none"};
    const pb_train_config *c = &t->cfg;
    const pb_model_config *m = &c->model;
    const size_t room = sizeof o->text[0];
    enum { FIXED = 6 };
    geometry_text(&t->model.g, o->text[0], room);
    snprintf(o->text[1], room, "%s%s", tunings[m->tuning], m->nf4_double ? ", scales in 8 bits" : "");
    snprintf(o->text[2], room, "%s", pb_dtype_name(m->dtype));
    if (m->tuning == PB_FULL) snprintf(o->text[3], room, "none");
    else {
        char targets[PB_STATE_TARGETS];
        pb_state_targets(m->targets, targets);
        snprintf(o->text[3], room, "rank %d alpha %.9g targets %s", m->rank, (double)m->alpha, targets);
    }
    snprintf(o->text[4], room, "%s", optimizers[c->optimizer]);
    snprintf(o->text[5], room, "%s", moments[m->moments]);
    snprintf(o->text[6], room, "%d of %d tokens%s", c->B, pb_row_most(t), c->packed ? ", packed" : "");
    snprintf(o->text[7], room, "%s %.9g", clips[c->clip], (double)c->max_norm);
    snprintf(o->text[8], room, "beta1 %.9g beta2 %.9g eps %.9g decay %.9g", (double)c->beta1, (double)c->beta2,
             (double)c->eps, (double)c->weight_decay);
    normuon_text(c, o->text[9], room);
    for (int i = 0; i < PB_STATE_SETTINGS; i++) o->s[i] = (pb_setting){keys[i], o->text[i], i < FIXED, absent[i]};
}
