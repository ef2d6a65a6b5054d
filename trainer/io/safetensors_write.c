/* safetensors_write.c - writes a safetensors file atomically: readers see either the complete file or none. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "os/draft.h"
#include "trainer/io/safetensors.h"

struct pb_st_writer {
    pb_draft draft;
    size_t left; /* data bytes still missing according to the header */
};

/* ---- writing the header ------------------------------------------------------------------------------ */

static pb_status add_entry(json_t *header, const char *path, const pb_st_entry *e, size_t *at)
{
    size_t bytes = pb_st_dtype_size(e->dtype), begin = *at;
    bool fits = true;
    if (json_object_get(header, e->name)) return pb_fail(PB_EINVAL, "%s: tensor %s is given twice", path, e->name);
    json_t *shape = json_array();
    for (int i = 0; i < e->dims; i++) {
        fits = fits && !__builtin_mul_overflow(bytes, e->shape[i], &bytes);
        json_array_append_new(shape, json_integer((json_int_t)e->shape[i]));
    }
    if (!fits || __builtin_add_overflow(*at, bytes, at) || *at > (size_t)INT64_MAX) {
        json_decref(shape);
        return pb_fail(PB_EINVAL, "%s: tensor %s: the product of the shape overflows", path, e->name);
    }
    json_t *o = json_pack("{s:s, s:o, s:[I,I]}", "dtype", pb_st_dtype_name(e->dtype), "shape", shape, "data_offsets",
                          (json_int_t)begin, (json_int_t)*at);
    if (!o || json_object_set_new(header, e->name, o) != 0)
        return pb_fail(PB_EINVAL, "%s: the name of a tensor is not UTF-8", path);
    return PB_OK;
}

static pb_status add_all(json_t *header, const char *path, const pb_st_entry *e, size_t n, const pb_st_pair *meta,
                         size_t metas, size_t *bytes)
{
    if (metas) json_object_set_new(header, "__metadata__", json_object());
    for (size_t i = 0; i < metas; i++)
        if (json_object_set_new(json_object_get(header, "__metadata__"), meta[i].key, json_string(meta[i].value)) != 0)
            return pb_fail(PB_EINVAL, "%s: the metadata are not UTF-8", path);
    for (size_t i = 0; i < n; i++) PB_TRY(add_entry(header, path, &e[i], bytes));
    return PB_OK;
}

/* ---- writing the data -------------------------------------------------------------------------------- */

static pb_status put_header(pb_st_writer *w, const json_t *header)
{
    char *text = json_dumps(header, JSON_COMPACT);
    unsigned char length[8];
    if (!text) return pb_fail(PB_ENOMEM, "%s: no memory for the header", w->draft.path);
    const size_t n = strlen(text), pad = (8 - n % 8) % 8;
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)(n + pad) >> 8 * i);
    pb_status s = pb_draft_put(&w->draft, length, sizeof length);
    if (s == PB_OK) s = pb_draft_put(&w->draft, text, n);
    if (s == PB_OK) s = pb_draft_put(&w->draft, "        ", pad);
    free(text);
    return s;
}

pb_status pb_st_create(const char *path, const pb_st_entry *entries, size_t n, const pb_st_pair *meta, size_t metas,
                       pb_st_writer **out)
{
    return pb_st_create_on(&pb_disk_posix, path, entries, n, meta, metas, out);
}

pb_status pb_st_create_on(const pb_disk *disk, const char *path, const pb_st_entry *entries, size_t n,
                          const pb_st_pair *meta, size_t metas, pb_st_writer **out)
{
    pb_st_writer *w = calloc(1, sizeof *w);
    json_t *header = json_object();
    if (!w || !header) {
        free(w);
        json_decref(header);
        return pb_fail(PB_ENOMEM, "%s: out of memory", path);
    }
    pb_status s = add_all(header, path, entries, n, meta, metas, &w->left);
    if (s == PB_OK) s = pb_draft_open(disk, path, &w->draft);
    if (s == PB_OK) s = put_header(w, header);
    json_decref(header);
    if (s == PB_OK) *out = w;
    else pb_st_abandon(w);
    return s;
}

pb_status pb_st_append(pb_st_writer *w, const void *bytes, size_t n)
{
    if (n > w->left)
        return pb_fail(PB_EINVAL, "%s: %zu bytes more were written than the header states", w->draft.path, n - w->left);
    PB_TRY(pb_draft_put(&w->draft, bytes, n));
    w->left -= n;
    return PB_OK;
}

pb_status pb_st_commit(pb_st_writer *w)
{
    const pb_status s =
        w->left ? pb_fail(PB_EINVAL, "%s: %zu bytes that the header states were not written", w->draft.path, w->left)
                : pb_draft_keep(&w->draft);
    pb_st_abandon(w);
    return s;
}

void pb_st_abandon(pb_st_writer *w)
{
    if (!w) return;
    pb_draft_drop(&w->draft);
    free(w);
}
