/* hf_folder.c - opens all safetensors files of a Hugging Face folder, and parses the index that lists them. */
#include "trainer/hf/hf_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/file.h"
#include "os/text.h"
#include "trainer/io/json.h"

/* ---- parsing model.safetensors.index.json ------------------------------------------------------------- */

static bool plain(const char *name)
{
    return *name && pb_is_printable(name) && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static pb_status list_files(const char *where, json_t *map, pb_hf_index *x)
{
    const char *tensor;
    json_t *file;
    size_t all = 0;
    if (!json_is_object(map) || !json_object_size(map))
        return pb_fail(PB_EINVAL, "%s: \"weight_map\" is not an object, or lists no tensors", where);
    x->file = calloc(json_object_size(map), sizeof *x->file);
    if (!x->file) return pb_fail(PB_ENOMEM, "%s: no memory for the list of files", where);
    json_object_foreach(map, tensor, file)
    {
        const char *name = json_string_value(file);
        if (!pb_is_printable(tensor))
            return pb_fail(PB_EINVAL, "%s: the name of a tensor contains control characters", where);
        if (!name || !plain(name))
            return pb_fail(PB_EINVAL, "%s: tensor %.150s: its file must be given by a name without a folder", where,
                           tensor);
        x->file[all++] = name;
    }
    qsort(x->file, all, sizeof *x->file, by_text);
    for (size_t i = 0; i < all; i++)
        if (!i || strcmp(x->file[i], x->file[x->n - 1]) != 0) x->file[x->n++] = x->file[i];
    return PB_OK;
}

pb_status pb_hf_index_parse(const char *where, const void *text, size_t n, pb_hf_index *out)
{
    pb_hf_index x = {0};
    json_t *root = NULL;
    PB_TRY(pb_json_parse(where, text, n, &root));
    x.root = root;
    const pb_status s = list_files(where, json_object_get(root, "weight_map"), &x);
    if (s == PB_OK) *out = x;
    else pb_hf_index_free(&x);
    return s;
}

void pb_hf_index_free(pb_hf_index *x)
{
    json_decref(x->root);
    free(x->file);
    *x = (pb_hf_index){0};
}

/* ---- opening the safetensors files -------------------------------------------------------------------- */

static const pb_st_tensor *find(const pb_hf_folder *f, const char *name, size_t *file)
{
    for (size_t i = 0; i < f->n; i++) {
        const pb_st_tensor *t = pb_st_find(f->file[i], name);
        *file = i;
        if (t) return t;
    }
    return NULL;
}

static pb_status add(pb_hf_folder *f, const char *name)
{
    char *path = NULL;
    pb_safetensors *file = NULL;
    PB_TRY(pb_path_join(f->dir, name, &path));
    pb_status s = pb_st_open(path, &file);
    free(path);
    if (s != PB_OK) return s;
    const size_t n = pb_st_count(file);
    for (size_t i = 0, where; s == PB_OK && i < n; i++) {
        const pb_st_tensor *t = pb_st_at(file, i), *other = find(f, t->name, &where);
        if (other) s = pb_fail(PB_EINVAL, "%s: tensor %.150s is also in %s", t->file, t->name, other->file);
    }
    bool *taken = s == PB_OK ? calloc(n + 1, sizeof *taken) : NULL;
    if (s == PB_OK && !taken) s = pb_fail(PB_ENOMEM, "%s: no memory for the list of tensors", f->dir);
    if (s != PB_OK) {
        pb_st_close(file);
        return s;
    }
    f->file[f->n] = file;
    f->taken[f->n++] = taken;
    return PB_OK;
}

static pb_status make_room(pb_hf_folder *f, size_t files)
{
    f->file = calloc(files + 1, sizeof(pb_safetensors *));
    f->taken = calloc(files + 1, sizeof(bool *));
    return f->file && f->taken ? PB_OK : pb_fail(PB_ENOMEM, "%s: no memory for %zu files", f->dir, files);
}

/* Opens the files that the index lists, and checks that each tensor is in the file that the index names. f->file[i] is
 * the file named x->file[i]. */
static pb_status add_listed(pb_hf_folder *f, const char *where, const pb_hf_index *x)
{
    const char *tensor;
    json_t *file;
    PB_TRY(make_room(f, x->n));
    for (size_t i = 0; i < x->n; i++) PB_TRY(add(f, x->file[i]));
    json_object_foreach(json_object_get(x->root, "weight_map"), tensor, file)
    {
        const char *name = json_string_value(file);
        size_t i = 0;
        while (strcmp(x->file[i], name) != 0) i++;
        if (!pb_st_find(f->file[i], tensor))
            return pb_fail(PB_EINVAL, "%s: tensor %.150s is missing in %s", where, tensor, name);
    }
    return PB_OK;
}

static pb_status open_index(pb_hf_folder *f)
{
    pb_hf_index x = {0};
    pb_map m = {0};
    char *path = NULL;
    PB_TRY(pb_path_join(f->dir, "model.safetensors.index.json", &path));
    pb_status s = PB_OK;
    if (access(path, F_OK) != 0)
        s = pb_fail_errno(errno, "%s has neither model.safetensors nor model.safetensors.index.json", f->dir);
    if (s == PB_OK) s = pb_map_open(path, &m);
    if (s == PB_OK) s = pb_hf_index_parse(path, m.p, m.n, &x);
    pb_map_close(&m);
    if (s == PB_OK) s = add_listed(f, path, &x);
    pb_hf_index_free(&x);
    free(path);
    return s;
}

pb_status pb_hf_folder_open(const char *dir, pb_hf_folder *out)
{
    pb_hf_folder f = {.dir = strdup(dir)};
    char *path = NULL;
    pb_status s = f.dir ? pb_path_join(dir, "model.safetensors", &path) : pb_fail(PB_ENOMEM, "%s: out of memory", dir);
    if (s == PB_OK && access(path, F_OK) == 0) {
        s = make_room(&f, 1);
        if (s == PB_OK) s = add(&f, "model.safetensors");
    } else if (s == PB_OK) {
        s = open_index(&f);
    }
    free(path);
    if (s == PB_OK) *out = f;
    else pb_hf_folder_close(&f);
    return s;
}

void pb_hf_folder_close(pb_hf_folder *f)
{
    for (size_t i = 0; i < f->n; i++) {
        pb_st_close(f->file[i]);
        free(f->taken[i]);
    }
    free(f->file);
    free(f->taken);
    free(f->dir);
    *f = (pb_hf_folder){0};
}

const pb_st_tensor *pb_hf_folder_take(pb_hf_folder *f, const char *name, const pb_safetensors **file)
{
    size_t i;
    const pb_st_tensor *t = find(f, name, &i);
    if (!t) return NULL;
    f->taken[i][t - pb_st_at(f->file[i], 0)] = true;
    *file = f->file[i];
    return t;
}
