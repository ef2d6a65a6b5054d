/* hf_save.c - saves a model as a Hugging Face folder: distributes its tensors over files, and writes the files, the
 * index and config.json. */
#include "trainer/hf/hf_save.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/file.h"
#include "trainer/hf/hf_config.h"
#include "trainer/hf/hf_write.h"
#include "trainer/io/json.h"

static const size_t usual_shard = 5000000000;
static const char single[] = "model.safetensors", index_name[] = "model.safetensors.index.json";

typedef struct saver {
    pb_model *m;
    const char *dir;
    const pb_hf_text *text;
    bool merge;
    pb_hf_list list;
    size_t *end; /* [files]: one plus the index of the file's last tensor */
    size_t files, bytes, elements;
} saver;

static size_t bytes_of(const pb_hf_tensor *t) { return t->n * pb_st_dtype_size(pb_hf_file_dtype(t)); }

static const char *file_name(const saver *s, size_t file, char out[64])
{
    if (s->files == 1) snprintf(out, 64, "%s", single);
    else snprintf(out, 64, "model-%05zu-of-%05zu.safetensors", file + 1, s->files);
    return out;
}

/* Distributes the tensors in order: a new file begins when the next tensor would exceed `shard` bytes. */
static pb_status cut(saver *s, size_t shard)
{
    size_t in_file = 0;
    PB_TRY(pb_hf_tensors(s->m, &s->list));
    s->end = calloc(s->list.n, sizeof *s->end);
    if (!s->end) return pb_fail(PB_ENOMEM, "%s: no memory for the list of files", s->dir);
    for (size_t i = 0; i < s->list.n; i++) {
        const size_t n = bytes_of(&s->list.at[i]);
        if (!i || in_file + n > shard) in_file = 0, s->files++;
        in_file += n;
        s->bytes += n;
        s->elements += s->list.at[i].n;
        s->end[s->files - 1] = i + 1;
    }
    return PB_OK;
}

static pb_status write_files(const saver *s)
{
    for (size_t f = 0; f < s->files; f++) {
        const size_t first = f ? s->end[f - 1] : 0;
        char name[64], *path = NULL;
        PB_TRY(pb_path_join(s->dir, file_name(s, f, name), &path));
        const pb_status status = pb_hf_write(s->m, s->list.at + first, s->end[f] - first, s->merge, path);
        free(path);
        PB_TRY(status);
    }
    return PB_OK;
}

static pb_status write_index(const saver *s)
{
    char name[64], *path = NULL;
    json_t *map = json_object();
    for (size_t f = 0, i = 0; f < s->files; f++)
        for (; i < s->end[f]; i++) json_object_set_new(map, s->list.at[i].name, json_string(file_name(s, f, name)));
    json_t *root = json_pack("{s:{s:I, s:I}, s:o}", "metadata", "total_size", (json_int_t)s->bytes, "total_parameters",
                             (json_int_t)s->elements, "weight_map", map);
    pb_status status = root ? pb_path_join(s->dir, index_name, &path) : pb_fail(PB_ENOMEM, "%s: out of memory", s->dir);
    if (status == PB_OK) status = pb_json_save(path, root);
    free(path);
    json_decref(root);
    return status;
}

static pb_status save(saver *s, size_t shard)
{
    PB_TRY(cut(s, shard));
    PB_TRY(pb_hf_config_check(&s->m->g, s->dir));
    PB_TRY(pb_make_folder(s->dir));
    PB_TRY(pb_folder_remove(s->dir, "config.json"));
    PB_TRY(write_files(s));
    if (s->files > 1) PB_TRY(write_index(s));
    /* If both model.safetensors and an index exist, readers use only one of them. The one that an earlier export left
     * is removed. */
    PB_TRY(pb_folder_remove(s->dir, s->files > 1 ? single : index_name));
    if (s->text) PB_TRY(pb_hf_text_copy(s->text, s->dir));
    return pb_hf_config_save(&s->m->g, s->m->cfg.dtype, s->dir);
}

pb_status pb_model_save_hf(pb_model *m, const char *dir, const pb_hf_save_config *cfg)
{
    saver s = {.m = m, .dir = dir, .merge = cfg && cfg->merge, .text = cfg ? cfg->text : NULL};
    if (m->cfg.tuning == PB_QLORA && !s.merge)
        return pb_fail(PB_EFORMAT, "%s: a model with base weights in NF4 can be exported only with the adapters merged",
                       dir);
    if (m->cfg.tuning == PB_LORA && !s.merge)
        return pb_fail(PB_EFORMAT,
                       "%s: the model has adapters: export the adapters alone, or the model with the adapters merged",
                       dir);
    const pb_status status = save(&s, cfg && cfg->shard ? cfg->shard : usual_shard);
    free(s.list.at);
    free(s.end);
    return status;
}
