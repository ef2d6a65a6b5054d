/* safetensors_write.c - writing a safetensors file so that it is whole or not there. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainer/io/file.h"
#include "trainer/io/disk.h"
#include "trainer/io/safetensors.h"

struct pb_st_writer {
    const pb_disk *disk;
    char *path, *partial;
    int fd;
    size_t left; /* bytes of data still to come */
};

/* ---- the header -------------------------------------------------------------------------------------- */

static pb_status add_entry(json_t *header, const char *path, const pb_st_entry *e, size_t *at)
{
    size_t bytes = pb_st_dtype_size(e->dtype), begin = *at;
    bool fits = true;
    if (json_object_get(header, e->name)) return pb_fail(PB_EINVAL, "%s: tensor %s stands twice", path, e->name);
    json_t *shape = json_array();
    for (int i = 0; i < e->dims; i++) {
        fits = fits && !__builtin_mul_overflow(bytes, e->shape[i], &bytes);
        json_array_append_new(shape, json_integer((json_int_t)e->shape[i]));
    }
    if (!fits || __builtin_add_overflow(*at, bytes, at) || *at > (size_t)INT64_MAX) {
        json_decref(shape);
        return pb_fail(PB_EINVAL, "%s: tensor %s: the shape overflows", path, e->name);
    }
    json_t *o = json_pack("{s:s, s:o, s:[I,I]}", "dtype", pb_st_dtype_name(e->dtype), "shape", shape, "data_offsets",
                          (json_int_t)begin, (json_int_t)*at);
    if (!o || json_object_set_new(header, e->name, o) != 0)
        return pb_fail(PB_EINVAL, "%s: a tensor's name is not UTF-8", path);
    return PB_OK;
}

static pb_status add_all(json_t *header, const char *path, const pb_st_entry *e, size_t n, const pb_st_pair *meta,
                         size_t metas, size_t *bytes)
{
    if (metas) json_object_set_new(header, "__metadata__", json_object());
    for (size_t i = 0; i < metas; i++)
        if (json_object_set_new(json_object_get(header, "__metadata__"), meta[i].key, json_string(meta[i].value)) != 0)
            return pb_fail(PB_EINVAL, "%s: metadata is not UTF-8", path);
    for (size_t i = 0; i < n; i++) PB_TRY(add_entry(header, path, &e[i], bytes));
    return PB_OK;
}

/* ---- the file ---------------------------------------------------------------------------------------- */

static pb_status put(const pb_st_writer *w, const void *bytes, size_t n)
{
    return pb_disk_put(w->disk, w->fd, w->partial, bytes, n);
}

static pb_status put_header(const pb_st_writer *w, const json_t *header)
{
    char *text = json_dumps(header, JSON_COMPACT);
    unsigned char length[8];
    if (!text) return pb_fail(PB_ENOMEM, "%s: no memory for the header", w->path);
    const size_t n = strlen(text), pad = (8 - n % 8) % 8;
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)(n + pad) >> 8 * i);
    pb_status s = put(w, length, sizeof length);
    if (s == PB_OK) s = put(w, text, n);
    if (s == PB_OK) s = put(w, "        ", pad);
    free(text);
    return s;
}

static pb_status begin(pb_st_writer *w, const char *path)
{
    const size_t room = strlen(path) + sizeof ".partial";
    w->path = strdup(path);
    w->partial = malloc(room);
    if (!w->path || !w->partial) return pb_fail(PB_ENOMEM, "%s: no memory", path);
    snprintf(w->partial, room, "%s.partial", path);
    return pb_disk_open(w->disk, w->partial, O_WRONLY | O_CREAT | O_TRUNC, &w->fd);
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
        return pb_fail(PB_ENOMEM, "%s: no memory", path);
    }
    w->disk = disk;
    w->fd = -1;
    pb_status s = add_all(header, path, entries, n, meta, metas, &w->left);
    if (s == PB_OK) s = begin(w, path);
    if (s == PB_OK) s = put_header(w, header);
    json_decref(header);
    if (s == PB_OK) *out = w;
    else pb_st_abandon(w);
    return s;
}

pb_status pb_st_append(pb_st_writer *w, const void *bytes, size_t n)
{
    if (n > w->left) return pb_fail(PB_EINVAL, "%s: %zu bytes of data more than its header says", w->path, n - w->left);
    PB_TRY(put(w, bytes, n));
    w->left -= n;
    return PB_OK;
}

/* The rename is durable once the folder is. */
static pb_status publish(pb_st_writer *w)
{
    if (w->left) return pb_fail(PB_EINVAL, "%s: %zu bytes of data are missing", w->path, w->left);
    const pb_status s = pb_disk_sync(w->disk, w->fd, w->partial);
    const int fd = w->fd;
    w->fd = -1;
    PB_TRY(pb_disk_close(w->disk, fd, w->partial, s));
    PB_TRY(pb_disk_rename(w->disk, w->partial, w->path));
    return pb_disk_sync_parent(w->disk, w->path);
}

pb_status pb_st_commit(pb_st_writer *w)
{
    const pb_status s = publish(w);
    pb_st_abandon(w); /* after the rename there is nothing of that name to remove */
    return s;
}

void pb_st_abandon(pb_st_writer *w)
{
    if (!w) return;
    const bool begun = w->fd >= 0 || (w->partial && access(w->partial, F_OK) == 0);
    if (w->fd >= 0) w->disk->close(w->disk->self, w->fd);
    if (begun) w->disk->unlink(w->disk->self, w->partial);
    free(w->partial);
    free(w->path);
    free(w);
}
