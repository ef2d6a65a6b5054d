/* hf_source.c - finds and converts tensors in a Hugging Face folder or a GGUF file. */
#include "trainer/hf/hf_source.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/hf/hf_folder.h"

struct pb_hf_source {
    pb_hf_folder folder; /* {0}: the source is a GGUF file */
    pb_gguf *gguf;
    bool *taken; /* [pb_gguf_count(gguf)]: true if pb_hf_source_take returned the tensor */
};

static pb_status open_gguf(const char *path, pb_hf_source *s)
{
    PB_TRY(pb_gguf_open(path, &s->gguf));
    s->taken = calloc(pb_gguf_count(s->gguf) + 1, sizeof *s->taken);
    if (!s->taken) return pb_fail(PB_ENOMEM, "%s: no memory for the list of tensors", path);
    const pb_gguf_tensor *scaling = pb_gguf_find(s->gguf, "rope_freqs.weight");
    if (scaling) s->taken[scaling - pb_gguf_at(s->gguf, 0)] = true; /* it is part of the configuration (hf_gguf.h) */
    return PB_OK;
}

pb_status pb_hf_source_open(const char *path, pb_hf_source **out)
{
    pb_hf_source *s = calloc(1, sizeof *s);
    if (!s) return pb_fail(PB_ENOMEM, "%s: out of memory", path);
    const pb_status status = pb_gguf_is(path) ? open_gguf(path, s) : pb_hf_folder_open(path, &s->folder);
    if (status == PB_OK) *out = s;
    else pb_hf_source_close(s);
    return status;
}

void pb_hf_source_close(pb_hf_source *s)
{
    if (!s) return;
    pb_gguf_close(s->gguf);
    pb_hf_folder_close(&s->folder);
    free(s->taken);
    free(s);
}

/* ---- finding tensors ---------------------------------------------------------------------------------- */

static pb_status take_block(pb_hf_source *s, const pb_model *m, const pb_hf_tensor *want, pb_hf_piece *out)
{
    const pb_gguf_tensor *b = pb_gguf_find(s->gguf, want->gguf);
    char has[120], needs[120];
    if (!b) return pb_fail(PB_EINVAL, "%s has no tensor %s", pb_gguf_path(s->gguf), want->gguf);
    if (b->dims != want->dims || memcmp(b->shape, want->shape, (size_t)want->dims * sizeof *want->shape) != 0)
        return pb_fail(PB_EINVAL, "%s: tensor %s has shape %s, but the model needs %s", b->file, b->name,
                       pb_st_shape_text(b->shape, b->dims, has, sizeof has),
                       pb_st_shape_text(want->shape, want->dims, needs, sizeof needs));
    *out = (pb_hf_piece){.n = b->n, .bytes = b->bytes, .gguf = s->gguf, .block = b};
    if (m->g.family == PB_FAMILY_LLAMA && (want->target == PB_TARGET_Q || want->target == PB_TARGET_K)) {
        out->head = (size_t)m->g.d;
        out->columns = b->n / b->shape[0];
    }
    s->taken[b - pb_gguf_at(s->gguf, 0)] = true;
    return PB_OK;
}

pb_status pb_hf_source_take(pb_hf_source *s, const pb_model *m, const pb_hf_tensor *want, pb_hf_piece *out)
{
    const pb_safetensors *file = NULL;
    if (s->gguf) return take_block(s, m, want, out);
    const pb_st_tensor *t = pb_hf_folder_take(&s->folder, want->name, &file);
    if (!t) return pb_fail(PB_EINVAL, "%s has no tensor %s", s->folder.dir, want->name);
    PB_TRY(pb_hf_check(want, t));
    *out = (pb_hf_piece){.n = t->n, .bytes = t->bytes, .file = file, .t = t};
    return PB_OK;
}

const char *pb_hf_source_unused(const pb_hf_source *s, size_t *at)
{
    size_t i = (*at)++;
    if (s->gguf) {
        while (i < pb_gguf_count(s->gguf) && s->taken[i]) i = (*at)++;
        return i < pb_gguf_count(s->gguf) ? pb_gguf_at(s->gguf, i)->name : NULL;
    }
    size_t before = 0; /* tensors in the files before file f */
    for (size_t f = 0; f < s->folder.n; f++) {
        const size_t n = pb_st_count(s->folder.file[f]);
        for (; i < before + n; i = (*at)++)
            if (!s->folder.taken[f][i - before]) return pb_st_at(s->folder.file[f], i - before)->name;
        before += n;
    }
    return NULL;
}

/* The layer N of a name "blk.N."; -1: the name has another form. */
static long layer_of(const char *name)
{
    char *end;
    if (strncmp(name, "blk.", 4) != 0 || name[4] < '0' || name[4] > '9') return -1;
    const long n = strtol(name + 4, &end, 10);
    return *end == '.' ? n : -1;
}

pb_status pb_hf_source_check_unused(const pb_hf_source *s, const pb_model *m)
{
    const char *name;
    if (!s->gguf) return PB_OK;
    for (size_t i = 0; (name = pb_hf_source_unused(s, &i)) != NULL;)
        if (layer_of(name) < m->g.L)
            return pb_fail(PB_EFORMAT, "%s: tensor %.100s is no part of the model that the metadata describe",
                           pb_gguf_path(s->gguf), name);
    return PB_OK;
}

/* ---- converting tensors ------------------------------------------------------------------------------- */

pb_status pb_hf_piece_load(const pb_hf_piece *p, size_t first, size_t n, pb_dtype to, void *out)
{
    if (!p->gguf) return pb_st_load(p->file, p->t, first, n, to, out);
    if (!p->head) return pb_gguf_load(p->gguf, p->block, first, n, to, out);
    for (size_t done = 0; done < n;) {
        const size_t row = (first + done) / p->columns, column = (first + done) % p->columns;
        const size_t left = p->columns - column, len = left < n - done ? left : n - done;
        const size_t in_head = row % p->head, a = in_head / (p->head / 2), i = in_head % (p->head / 2);
        const size_t from = row - in_head + 2 * i + a;
        PB_TRY(pb_gguf_load(p->gguf, p->block, from * p->columns + column, len, to,
                            (unsigned char *)out + done * pb_dtype_size(to)));
        done += len;
    }
    return PB_OK;
}
