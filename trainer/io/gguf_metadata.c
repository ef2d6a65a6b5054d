/* gguf_metadata.c - reads values of the metadata of a GGUF file, and checks their types. */
#include <stdlib.h>
#include <string.h>

#include "trainer/io/gguf_impl.h"

static const struct {
    size_t size;
    bool whole, negative; /* negative: a signed integer */
} kinds[PB_GGUF_NKINDS] = {
    [PB_GGUF_U8] = {1, true, false},      [PB_GGUF_I8] = {1, true, true},       [PB_GGUF_U16] = {2, true, false},
    [PB_GGUF_I16] = {2, true, true},      [PB_GGUF_U32] = {4, true, false},     [PB_GGUF_I32] = {4, true, true},
    [PB_GGUF_REAL32] = {4, false, false}, [PB_GGUF_BOOL] = {1, false, false},   [PB_GGUF_U64] = {8, true, false},
    [PB_GGUF_I64] = {8, true, true},      [PB_GGUF_REAL64] = {8, false, false},
};

size_t pb_gguf_kind_size(pb_gguf_kind kind) { return kinds[kind].size; }

uint64_t pb_gguf_integer(pb_gguf_kind kind, const unsigned char *p)
{
    uint64_t v = 0;
    memcpy(&v, p, kinds[kind].size);
    const uint64_t sign = (uint64_t)1 << (8 * kinds[kind].size - 1);
    return kinds[kind].negative && v & sign ? 0 : v;
}

static int by_key(const void *a, const void *b) { return strcmp(a, ((const pb_gguf_entry *)b)->key); }

static const pb_gguf_entry *find(const pb_gguf *f, const char *key)
{
    return f->entries ? bsearch(key, f->entry, f->entries, sizeof *f->entry, by_key) : NULL;
}

static pb_status refuse(const pb_gguf *f, const char *key, const char *need)
{
    return pb_fail(PB_EINVAL, "%s: %.100s is not %s", f->path, key, need);
}

bool pb_gguf_has(const pb_gguf *f, const char *key) { return find(f, key) != NULL; }

pb_status pb_gguf_get_whole(const pb_gguf *f, const char *key, uint64_t *out)
{
    const pb_gguf_entry *e = find(f, key);
    if (!e) return PB_OK;
    if (!kinds[e->kind].whole) return refuse(f, key, "a whole number");
    *out = pb_gguf_integer(e->kind, e->at);
    return PB_OK;
}

pb_status pb_gguf_get_real(const pb_gguf *f, const char *key, double *out)
{
    const pb_gguf_entry *e = find(f, key);
    float narrow;
    if (!e) return PB_OK;
    if (e->kind == PB_GGUF_REAL64) {
        memcpy(out, e->at, sizeof *out);
    } else if (e->kind == PB_GGUF_REAL32) {
        memcpy(&narrow, e->at, sizeof narrow);
        *out = (double)narrow;
    } else if (kinds[e->kind].whole) {
        *out = (double)pb_gguf_integer(e->kind, e->at);
    } else {
        return refuse(f, key, "a number");
    }
    return PB_OK;
}

pb_status pb_gguf_get_flag(const pb_gguf *f, const char *key, bool *out)
{
    const pb_gguf_entry *e = find(f, key);
    if (!e) return PB_OK;
    if (e->kind != PB_GGUF_BOOL) return refuse(f, key, "true or false");
    *out = *e->at != 0;
    return PB_OK;
}

pb_status pb_gguf_get_text(const pb_gguf *f, const char *key, pb_gguf_text *out)
{
    const pb_gguf_entry *e = find(f, key);
    if (!e) return PB_OK;
    if (e->kind != PB_GGUF_TEXT) return refuse(f, key, "a text");
    *out = (pb_gguf_text){(const char *)e->at, e->n};
    return PB_OK;
}

pb_status pb_gguf_get_texts(const pb_gguf *f, const char *key, pb_gguf_list *out)
{
    const pb_gguf_entry *e = find(f, key);
    if (!e) return PB_OK;
    if (e->kind != PB_GGUF_ARRAY || e->of != PB_GGUF_TEXT) return refuse(f, key, "a list of texts");
    *out = (pb_gguf_list){e->at, e->n, (int)e->of};
    return PB_OK;
}

pb_status pb_gguf_get_wholes(const pb_gguf *f, const char *key, pb_gguf_list *out)
{
    const pb_gguf_entry *e = find(f, key);
    if (!e) return PB_OK;
    if (e->kind != PB_GGUF_ARRAY || !kinds[e->of].whole) return refuse(f, key, "a list of whole numbers");
    *out = (pb_gguf_list){e->at, e->n, (int)e->of};
    return PB_OK;
}

pb_gguf_text pb_gguf_next_text(pb_gguf_list *l)
{
    const pb_gguf_text t = {(const char *)l->at + 8, (size_t)pb_gguf_u64(l->at)};
    l->at += 8 + t.n;
    l->n--;
    return t;
}

uint64_t pb_gguf_next_whole(pb_gguf_list *l)
{
    const pb_gguf_kind kind = (pb_gguf_kind)l->kind;
    const uint64_t v = pb_gguf_integer(kind, l->at);
    l->at += kinds[kind].size;
    l->n--;
    return v;
}
