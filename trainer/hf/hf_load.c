/* hf_load.c - loads weights from a Hugging Face folder or a GGUF file: finds and checks the tensors of every parameter,
 * then converts them in chunks. */
#include "trainer/hf/hf_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/nf4/nf4.h"
#include "trainer/hf/hf_source.h"

/* MOST_PARTS: maximum number of tensors that make up one parameter (q, k and v). CHUNK: elements converted at a time, a
 * multiple of every NF4 block size. */
enum { MOST_PARTS = 3, CHUNK = 1 << 20 };

typedef struct part {
    pb_hf_piece t;
    size_t first; /* first element of the parameter that the tensor holds */
} part;
typedef struct source { /* the tensors of one parameter, in the order of its elements */
    part part[MOST_PARTS];
    int n;
    bool as_bf16; /* see pb_model_config.as_bf16 */
} source;

typedef struct loader {
    pb_model *m;
    pb_hf_source *files;
    pb_hf_list list;
    source *source; /* [m->n] */
    void *host;     /* [CHUNK] elements of the largest dtype */
    void *dense;    /* [CHUNK] elements of device memory, the input of the NF4 quantisation */
    /* With double quantisation: f32 scales of a chunk in device memory, and of the whole parameter on the host, which
     * are quantised when the last chunk is there. */
    void *chunk_absmax;
    float *absmax;
    pb_load_report report;
} loader;

/* ---- finding and checking tensors --------------------------------------------------------------------- */

static pb_status find_part(loader *l, const pb_hf_tensor *want)
{
    part x = {.first = want->first};
    source *s = &l->source[want->p - l->m->params];
    PB_TRY(pb_hf_source_take(l->files, l->m, want, &x.t));
    s->part[s->n++] = x;
    s->as_bf16 = l->m->cfg.as_bf16 && want->p->kind != PB_KIND_GAIN && want->p->kind != PB_KIND_BIAS;
    l->report.tensors++;
    l->report.bytes += x.t.bytes;
    return PB_OK;
}

static pb_status find_all(loader *l)
{
    PB_TRY(pb_hf_tensors(l->m, &l->list));
    for (size_t i = 0; i < l->list.n; i++) PB_TRY(find_part(l, &l->list.at[i]));
    return pb_hf_source_check_unused(l->files, l->m);
}

static void list_unused(loader *l)
{
    pb_load_report *r = &l->report;
    size_t at = 0;
    const char *name;
    for (size_t i = 0; (name = pb_hf_source_unused(l->files, &i)) != NULL;) {
        const size_t n = strlen(name), room = sizeof r->names - sizeof ", ...";
        if (at + n + 2 < room)
            at += (size_t)snprintf(r->names + at, sizeof r->names - at, "%s%s", r->unused ? ", " : "", name);
        else if (at < sizeof r->names)
            snprintf(r->names + at, sizeof r->names - at, "%s...", r->unused ? ", " : ""), at = sizeof r->names;
        r->unused++;
    }
}

/* ---- converting tensors into device memory -------------------------------------------------------------- */

/* Intersects elements [first, first+n) of the parameter with the elements in this tensor; the intersection is [*from,
 * *to). False: it is empty. */
static bool overlap(const part *x, size_t first, size_t n, size_t *from, size_t *to)
{
    const size_t end = x->first + x->t.n;
    *from = first > x->first ? first : x->first;
    *to = first + n < end ? first + n : end;
    return *from < *to;
}

static void round_to_bf16(float *v, size_t n)
{
    for (size_t i = 0; i < n; i++) v[i] = pb_bf16_to_f32(pb_f32_to_bf16(v[i]));
}

/* Reads elements [first, first+n) of a parameter, which may span several tensors, and converts them to `dtype`. */
static pb_status gather(const source *s, size_t first, size_t n, pb_dtype dtype, void *out)
{
    for (int i = 0; i < s->n; i++) {
        const part *x = &s->part[i];
        size_t from, to;
        if (overlap(x, first, n, &from, &to))
            PB_TRY(pb_hf_piece_load(&x->t, from - x->first, to - from, dtype,
                                    (unsigned char *)out + (from - first) * pb_dtype_size(dtype)));
    }
    if (s->as_bf16 && dtype == PB_F32) round_to_bf16(out, n);
    return PB_OK;
}

/* Converts elements [first, first+n) of a parameter from the files into device memory. On the CPU it writes them
 * without a staging buffer. */
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
    const size_t block = (size_t)p->scales.block, at = first / block;
    PB_TRY(pb_nf4_quantize(
        l->m->ctx, &(pb_nf4_quantize_args){.w = l->dense,
                                           .q = p->q + first / 2,
                                           .absmax = l->absmax ? l->chunk_absmax : (float *)p->scales.absmax + at,
                                           .n = n,
                                           .block = p->scales.block,
                                           .dtype = p->dtype}));
    if (!l->absmax) return PB_OK;
    return pb_download(l->m->ctx, l->absmax + at, l->chunk_absmax, (n + block - 1) / block * sizeof(float));
}

/* Quantises the scales of a parameter that is complete. */
static pb_status quantise_scales(loader *l, const pb_param *p)
{
    const size_t blocks = pb_param_blocks(p), groups = (blocks + 255) / 256;
    float code[256], offset, *absmax2 = malloc(groups * sizeof *absmax2);
    uint8_t *absmax_q = malloc(blocks);
    pb_status s = absmax2 && absmax_q ? PB_OK : pb_fail(PB_ENOMEM, "no memory for the scales of %s", p->name);
    if (s == PB_OK) {
        pb_dynamic_map(true, code);
        pb_nf4_quantize_scales(l->absmax, blocks, code, absmax_q, absmax2, &offset);
        s = pb_upload(l->m->ctx, (uint8_t *)p->scales.absmax_q, absmax_q, blocks);
    }
    if (s == PB_OK) s = pb_upload(l->m->ctx, (float *)p->scales.absmax2, absmax2, groups * sizeof *absmax2);
    if (s == PB_OK) s = pb_upload(l->m->ctx, (float *)p->scales.offset, &offset, sizeof offset);
    free(absmax2);
    free(absmax_q);
    return s;
}

/* Allocates the scales of a chunk and of the largest quantised parameter, for double quantisation. */
static pb_status allocate_scales(loader *l)
{
    size_t most = 0;
    for (int i = 0; l->m->nf4_code && i < l->m->n; i++) {
        const pb_param *p = &l->m->params[i];
        if (p->q && pb_param_blocks(p) > most) most = pb_param_blocks(p);
    }
    if (!most) return PB_OK;
    l->absmax = malloc(most * sizeof *l->absmax);
    if (!l->absmax) return pb_fail(PB_ENOMEM, "no memory for the scales of NF4");
    return pb_alloc(l->m->ctx, ((size_t)CHUNK / (size_t)l->m->cfg.nf4_block + 1) * sizeof(float), &l->chunk_absmax);
}

static pb_status load_all(loader *l)
{
    for (int i = 0; i < l->m->n; i++) {
        const pb_param *p = &l->m->params[i];
        const source *s = &l->source[i];
        const size_t all = s->n ? pb_param_n(p) : 0;
        /* On the CPU a dense parameter is written directly, so one chunk can be the whole parameter. */
        const size_t most = l->m->ctx->id == PB_CPU && !p->q ? all : CHUNK;
        for (size_t first = 0; first < all; first += most) {
            const size_t n = all - first < most ? all - first : most;
            PB_TRY(load_chunk(l, p, s, first, n));
            if (first + n == all && p->q && l->absmax) PB_TRY(quantise_scales(l, p));
            PB_TRY(pb_model_keep(l->m, p, first, n));
        }
    }
    return pb_sync(l->m->ctx);
}

static pb_status run(loader *l, const char *path)
{
    l->source = calloc((size_t)l->m->n, sizeof *l->source);
    l->host = malloc(CHUNK * sizeof(float));
    if (!l->source || !l->host) return pb_fail(PB_ENOMEM, "%s: no memory to load the weights", path);
    PB_TRY(pb_hf_source_open(path, &l->files));
    PB_TRY(find_all(l));
    list_unused(l);
    if (l->m->ctx->planning) return PB_OK;
    PB_TRY(pb_alloc(l->m->ctx, CHUNK * sizeof(float), &l->dense));
    PB_TRY(allocate_scales(l));
    return load_all(l);
}

pb_status pb_model_load_hf(pb_model *m, const char *path, pb_load_report *report)
{
    loader l = {.m = m};
    const pb_status s = run(&l, path);
    if (s == PB_OK && report) *report = l.report;
    pb_release(m->ctx, l.dense);
    pb_release(m->ctx, l.chunk_absmax);
    free(l.absmax);
    pb_hf_source_close(l.files);
    free(l.list.at);
    free(l.host);
    free(l.source);
    return s;
}
