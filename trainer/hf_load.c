/* hf_load.c - finds the tensors of every parameter, checks them, and converts them piece by piece. */
#include "trainer/hf_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/nf4/nf4.h"
#include "trainer/hf_folder.h"

enum { WHOLE = -1, MOST_PARTS = 3, CHUNK = 1 << 20 }; /* CHUNK: elements, a multiple of every NF4 block */

/* Where the tensors go: the whole of a parameter, or the rows of one target in it. */
static const struct {
    int param, target;
    const char *name; /* after "model.layers.N." for parameters of layers */
} places[] = {
    {PB_P_embed, WHOLE, "model.embed_tokens.weight"},
    {PB_P_norm, WHOLE, "model.norm.weight"},
    {PB_P_head, WHOLE, "lm_head.weight"},
    {PB_P_norm1, WHOLE, "input_layernorm.weight"},
    {PB_P_qkv, PB_TARGET_Q, "self_attn.q_proj.weight"},
    {PB_P_qkv, PB_TARGET_K, "self_attn.k_proj.weight"},
    {PB_P_qkv, PB_TARGET_V, "self_attn.v_proj.weight"},
    {PB_P_qkv_bias, PB_TARGET_Q, "self_attn.q_proj.bias"},
    {PB_P_qkv_bias, PB_TARGET_K, "self_attn.k_proj.bias"},
    {PB_P_qkv_bias, PB_TARGET_V, "self_attn.v_proj.bias"},
    {PB_P_q_norm, WHOLE, "self_attn.q_norm.weight"},
    {PB_P_k_norm, WHOLE, "self_attn.k_norm.weight"},
    {PB_P_o, WHOLE, "self_attn.o_proj.weight"},
    {PB_P_o_bias, WHOLE, "self_attn.o_proj.bias"},
    {PB_P_norm2, WHOLE, "post_attention_layernorm.weight"},
    {PB_P_gate_up, PB_TARGET_GATE, "mlp.gate_proj.weight"},
    {PB_P_gate_up, PB_TARGET_UP, "mlp.up_proj.weight"},
    {PB_P_down, WHOLE, "mlp.down_proj.weight"},
};
enum { NPLACES = sizeof places / sizeof *places };

typedef struct part {
    const pb_safetensors *file;
    const pb_st_tensor *t;
    size_t first; /* element of the parameter */
} part;
typedef struct source { /* of one parameter, in the order of its elements */
    part part[MOST_PARTS];
    int n;
} source;

typedef struct loader {
    pb_model *m;
    pb_hf_folder folder;
    source *source; /* [m->n] */
    void *host;     /* [CHUNK] of the largest dtype */
    void *dense;    /* [CHUNK] device memory to quantise from */
    pb_load_report report;
} loader;

/* ---- finding and checking ----------------------------------------------------------------------------- */

static bool is_vector(const pb_param *p) { return p->kind == PB_KIND_GAIN || p->kind == PB_KIND_BIAS; }

/* `rows`: the tensor's, of which p may have more; the elements of a vector. */
static pb_status check_tensor(const pb_st_tensor *t, const pb_param *p, size_t rows)
{
    const size_t shape[2] = {rows, p->cols};
    const int dims = is_vector(p) ? 1 : 2;
    char has[120], needs[120];
    if (t->dims != dims || memcmp(t->shape, shape, (size_t)dims * sizeof *shape) != 0)
        return pb_fail(PB_EINVAL, "%s: tensor %.150s is %s, the model needs %s", t->file, t->name,
                       pb_st_shape_text(t->shape, t->dims, has, sizeof has),
                       pb_st_shape_text(shape, dims, needs, sizeof needs));
    if (!pb_st_can_convert(t->dtype, PB_F32))
        return pb_fail(PB_EUNSUPPORTED, "%s: tensor %.150s is %s, need F32, F16 or BF16", t->file, t->name,
                       pb_st_dtype_name(t->dtype));
    return PB_OK;
}

static pb_status find_part(loader *l, pb_param *p, int place, const char *name)
{
    int in, rows = (int)(is_vector(p) ? p->cols : p->rows), offset = 0;
    part x = {0};
    source *s = &l->source[p - l->m->params];
    x.t = pb_hf_folder_take(&l->folder, name, &x.file);
    if (places[place].target != WHOLE) pb_target_shape(&l->m->g, (pb_target)places[place].target, &in, &rows, &offset);
    if (!x.t) return pb_fail(PB_EINVAL, "%s: there is no tensor %s", l->folder.dir, name);
    PB_TRY(check_tensor(x.t, p, (size_t)rows));
    x.first = (size_t)offset * (p->kind == PB_KIND_BIAS ? 1 : p->cols);
    s->part[s->n++] = x;
    l->report.tensors++;
    l->report.bytes += x.t->bytes;
    return PB_OK;
}

static pb_status find_all(loader *l)
{
    const pb_model *m = l->m;
    for (int layer = -1; layer < m->g.L; layer++)
        for (int i = 0; i < NPLACES; i++) {
            char name[96];
            const int id = places[i].param;
            pb_param *p = layer < 0 ? m->outer[id] : pb_layer_param(m, layer, id);
            if (!p) continue;
            if (layer < 0) snprintf(name, sizeof name, "%s", places[i].name);
            else snprintf(name, sizeof name, "model.layers.%d.%s", layer, places[i].name);
            PB_TRY(find_part(l, p, i, name));
        }
    return PB_OK;
}

static void list_unused(loader *l)
{
    pb_load_report *r = &l->report;
    size_t at = 0;
    for (size_t f = 0; f < l->folder.n; f++)
        for (size_t i = 0; i < pb_st_count(l->folder.file[f]); i++) {
            if (l->folder.taken[f][i]) continue;
            const char *name = pb_st_at(l->folder.file[f], i)->name;
            const size_t n = strlen(name), room = sizeof r->names - sizeof ", ...";
            if (at + n + 2 < room)
                at += (size_t)snprintf(r->names + at, sizeof r->names - at, "%s%s", r->unused ? ", " : "", name);
            else if (at < sizeof r->names)
                snprintf(r->names + at, sizeof r->names - at, "%s...", r->unused ? ", " : ""), at = sizeof r->names;
            r->unused++;
        }
}

/* ---- converting ----------------------------------------------------------------------------------------- */

/* Which of the parameter's elements [first, first+n) lie in this tensor: [*from, *to). False: none. */
static bool overlap(const part *x, size_t first, size_t n, size_t *from, size_t *to)
{
    const size_t end = x->first + x->t->n;
    *from = first > x->first ? first : x->first;
    *to = first + n < end ? first + n : end;
    return *from < *to;
}

/* Elements [first, first+n) of a parameter, out of as many tensors as they span. */
static pb_status gather(const source *s, size_t first, size_t n, pb_dtype dtype, void *out)
{
    for (int i = 0; i < s->n; i++) {
        const part *x = &s->part[i];
        size_t from, to;
        if (overlap(x, first, n, &from, &to))
            PB_TRY(pb_st_convert(x->t, from - x->first, to - from, dtype,
                                 (unsigned char *)out + (from - first) * pb_dtype_size(dtype)));
    }
    return PB_OK;
}

/* What is converted need not stay in memory beside the model. */
static void drop(const source *s, size_t first, size_t n)
{
    for (int i = 0; i < s->n; i++) {
        const part *x = &s->part[i];
        size_t from, to;
        if (overlap(x, first, n, &from, &to)) pb_st_drop(x->file, x->t, from - x->first, to - from);
    }
}

/* Elements of the files to device memory; memory of the CPU is written in place. */
static pb_status put(loader *l, const source *s, size_t first, size_t n, pb_dtype dtype, void *to)
{
    if (l->m->ctx->id == PB_CPU) return gather(s, first, n, dtype, to);
    PB_TRY(gather(s, first, n, dtype, l->host));
    return pb_upload(l->m->ctx, to, l->host, n * pb_dtype_size(dtype));
}

static pb_status load_chunk(loader *l, const pb_param *p, const source *s, size_t first, size_t n)
{
    if (p->master) PB_TRY(put(l, s, first, n, PB_F32, p->master + first));
    if (!p->q) return put(l, s, first, n, p->dtype, (unsigned char *)p->w + first * pb_dtype_size(p->dtype));
    PB_TRY(put(l, s, first, n, p->dtype, l->dense));
    return pb_nf4_quantize(l->m->ctx,
                           &(pb_nf4_quantize_args){.w = l->dense,
                                                   .q = p->q + first / 2,
                                                   .absmax = (float *)p->scales.absmax + first / p->scales.block,
                                                   .n = n,
                                                   .block = p->scales.block,
                                                   .dtype = p->dtype});
}

static pb_status load_all(loader *l)
{
    for (int i = 0; i < l->m->n; i++) {
        const pb_param *p = &l->m->params[i];
        const source *s = &l->source[i];
        const size_t all = s->n ? pb_param_n(p) : 0;
        for (size_t first = 0; first < all; first += CHUNK) {
            const size_t n = all - first < CHUNK ? all - first : CHUNK;
            PB_TRY(load_chunk(l, p, s, first, n));
            drop(s, first, n);
        }
    }
    return pb_sync(l->m->ctx);
}

static pb_status run(loader *l, const char *dir)
{
    l->source = calloc((size_t)l->m->n, sizeof *l->source);
    l->host = malloc(CHUNK * sizeof(float));
    if (!l->source || !l->host) return pb_fail(PB_ENOMEM, "%s: no memory to load in", dir);
    PB_TRY(pb_hf_folder_open(dir, &l->folder));
    PB_TRY(find_all(l));
    list_unused(l);
    PB_TRY(pb_alloc(l->m->ctx, CHUNK * sizeof(float), &l->dense));
    return load_all(l);
}

pb_status pb_model_load_hf(pb_model *m, const char *dir, pb_load_report *report)
{
    loader l = {.m = m};
    const pb_status s = run(&l, dir);
    if (s == PB_OK && report) *report = l.report;
    pb_release(m->ctx, l.dense);
    pb_hf_folder_close(&l.folder);
    free(l.host);
    free(l.source);
    return s;
}
