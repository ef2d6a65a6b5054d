/* hf_stop.c - reads the ids of the end-of-sequence tokens of a Hugging Face folder or a GGUF file. */
#include "trainer/hf/hf_stop.h"

#include <stdlib.h>
#include <unistd.h>

#include "os/file.h"
#include "trainer/io/gguf.h"
#include "trainer/io/json.h"

static const char key[] = "eos_token_id";

static pb_status add(const char *path, const json_t *v, int V, pb_stop_ids *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= V)
        return pb_fail(PB_EINVAL, "%s: \"%s\" needs ids of the vocabulary, 0 to %d", path, key, V - 1);
    if (out->n == PB_STOP_IDS) return pb_fail(PB_EINVAL, "%s: \"%s\" has more than %d ids", path, key, PB_STOP_IDS);
    out->id[out->n++] = (int32_t)json_integer_value(v);
    return PB_OK;
}

static pb_status read_file(const char *path, int V, pb_stop_ids *out)
{
    json_t *root;
    PB_TRY(pb_json_open(path, &root));
    const json_t *v = json_object_get(root, key);
    pb_status s = PB_OK;
    if (json_is_array(v))
        for (size_t i = 0; s == PB_OK && i < json_array_size(v); i++) s = add(path, json_array_get(v, i), V, out);
    else if (v && !json_is_null(v)) s = add(path, v, V, out);
    json_decref(root);
    return s;
}

static pb_status read_gguf(const char *path, int V, pb_stop_ids *out)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"};
    pb_gguf *f = NULL;
    PB_TRY(pb_gguf_open(path, &f));
    pb_status s = PB_OK;
    for (size_t i = 0; s == PB_OK && i < 2; i++) {
        uint64_t id = 0;
        if (!pb_gguf_has(f, keys[i])) continue;
        s = pb_gguf_get_whole(f, keys[i], &id);
        if (s == PB_OK && id >= (uint64_t)V)
            s = pb_fail(PB_EINVAL, "%s: %s needs an id of the vocabulary, 0 to %d", path, keys[i], V - 1);
        if (s == PB_OK) out->id[out->n++] = (int32_t)id;
    }
    pb_gguf_close(f);
    return s;
}

pb_status pb_hf_stop_ids(const char *model, int V, pb_stop_ids *out)
{
    static const char *const files[] = {"generation_config.json", "config.json"};
    pb_status s = PB_OK;
    bool found = false;
    out->n = 0;
    if (pb_gguf_is(model)) return read_gguf(model, V, out);
    for (size_t i = 0; s == PB_OK && !found && i < 2; i++) {
        char *path;
        PB_TRY(pb_path_join(model, files[i], &path));
        found = access(path, F_OK) == 0;
        if (found) s = read_file(path, V, out);
        free(path);
    }
    return s;
}
