/* hf_config.c - parses a Hugging Face config.json into a model geometry, and rejects unsupported keys by name. */
#include "trainer/hf/hf_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/file.h"
#include "os/text.h"
#include "trainer/hf/hf_gguf.h"
#include "trainer/io/json.h"

enum { MOST_WIDTH = 1 << 22, MOST_LAYERS = 1000, MOST_HEADS = 4096, MOST_HEAD = 512, REQUIRED = -1 };

typedef struct reader {
    const char *path, *in; /* path: file name; in: prefix of a key in messages, "" or "rope_scaling." */
    json_t *o;
} reader;

static pb_status refuse(const reader *r, const char *key, const char *why)
{
    return pb_fail(PB_EFORMAT, "%s: \"%s%s\": %s", r->path, r->in, key, why);
}

/* Returns the value of a key; NULL if the key is absent or its value is null. */
static json_t *get(const reader *r, const char *key)
{
    json_t *v = json_object_get(r->o, key);
    return json_is_null(v) ? NULL : v;
}

static pb_status whole(const reader *r, const char *key, int most, int deflt, int *out)
{
    const json_t *v = get(r, key);
    if (!v && deflt != REQUIRED) {
        *out = deflt;
        return PB_OK;
    }
    if (!v) return pb_fail(PB_EINVAL, "%s: \"%s%s\" is missing", r->path, r->in, key);
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > most)
        return pb_fail(PB_EINVAL, "%s: \"%s%s\" is not a whole number from 1 to %d", r->path, r->in, key, most);
    *out = (int)json_integer_value(v);
    return PB_OK;
}

static pb_status real(const reader *r, const char *key, double deflt, double *out)
{
    const json_t *v = get(r, key);
    if (!v && deflt != REQUIRED) {
        *out = deflt;
        return PB_OK;
    }
    if (!v) return pb_fail(PB_EINVAL, "%s: \"%s%s\" is missing", r->path, r->in, key);
    const double x = json_number_value(v);
    if (!json_is_number(v) || !(x > 1e-30 && x < 1e30))
        return pb_fail(PB_EINVAL, "%s: \"%s%s\" is not a number above 0", r->path, r->in, key);
    *out = x;
    return PB_OK;
}

static pb_status flag(const reader *r, const char *key, bool deflt, bool *out)
{
    const json_t *v = get(r, key);
    if (v && !json_is_boolean(v)) return pb_fail(PB_EINVAL, "%s: \"%s%s\" is not true or false", r->path, r->in, key);
    *out = v ? json_is_true(v) : deflt;
    return PB_OK;
}

/* Reads a string into *out; deflt if the key is absent. A string with control characters is rejected, because error
 * messages quote it and no supported value has any. */
static pb_status text(const reader *r, const char *key, const char *deflt, const char **out)
{
    const json_t *v = get(r, key);
    const char *s = v ? json_string_value(v) : deflt;
    if (!s || !pb_is_printable(s))
        return pb_fail(PB_EINVAL, "%s: \"%s%s\" is not a printable string", r->path, r->in, key);
    *out = s;
    return PB_OK;
}

/* ---- keys of the rotary position embedding ------------------------------------------------------------ */

static pb_status known_keys(const reader *r)
{
    static const char *const known[] = {"rope_type",
                                        "type",
                                        "rope_theta",
                                        "factor",
                                        "original_max_position_embeddings",
                                        "low_freq_factor",
                                        "high_freq_factor",
                                        "attention_factor",
                                        "beta_fast",
                                        "beta_slow",
                                        "mscale",
                                        "mscale_all_dim",
                                        "truncate",
                                        "partial_rotary_factor"};
    const char *key;
    json_t *v;
    json_object_foreach(r->o, key, v)
    {
        size_t i = 0;
        while (i < sizeof known / sizeof *known && strcmp(known[i], key) != 0) i++;
        if (i == sizeof known / sizeof *known)
            return refuse(r, pb_is_printable(key) && strlen(key) < 60 ? key : "?",
                          "the key belongs to no supported \"rope_type\"");
    }
    return PB_OK;
}

static double mscale(double factor, double m) { return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1; }

static pb_status read_yarn(const reader *r, int max_pos, pb_rope_scaling *s)
{
    double m, all;
    PB_TRY(real(r, "factor", (double)max_pos / s->original_len, &s->factor));
    PB_TRY(real(r, "beta_fast", 32, &s->beta_fast));
    PB_TRY(real(r, "beta_slow", 1, &s->beta_slow));
    PB_TRY(flag(r, "truncate", true, &s->truncate));
    PB_TRY(real(r, "mscale", 0, &m));
    PB_TRY(real(r, "mscale_all_dim", 0, &all));
    const bool both = m > 0 && all > 0;
    return real(r, "attention_factor", both ? mscale(s->factor, m) / mscale(s->factor, all) : mscale(s->factor, 1),
                &s->attention);
}

/* The type "dynamic" is plain RoPE in rows up to the original length; in longer rows the base depends on the length.
 * Such rows are not supported, so the longest row is the original length. */
static pb_status read_dynamic(const reader *r, int *max_pos, pb_rope_scaling *s)
{
    if (s->original_len != floor(s->original_len) || !(s->original_len < 1 << 30))
        return refuse(r, "original_max_position_embeddings", "not a whole number of tokens");
    if (s->original_len < *max_pos) *max_pos = (int)s->original_len;
    *s = (pb_rope_scaling){0};
    return PB_OK;
}

static pb_status read_scaling(const reader *r, int *max_pos, pb_rope_scaling *s)
{
    const char *type;
    PB_TRY(known_keys(r));
    PB_TRY(text(r, "type", "default", &type));
    PB_TRY(text(r, "rope_type", type, &type));
    if (strcmp(type, "default") == 0) return PB_OK;
    PB_TRY(real(r, "original_max_position_embeddings", *max_pos, &s->original_len));
    if (strcmp(type, "yarn") == 0) {
        s->kind = PB_ROPE_YARN;
        return read_yarn(r, *max_pos, s);
    }
    PB_TRY(real(r, "factor", REQUIRED, &s->factor));
    if (strcmp(type, "dynamic") == 0) return read_dynamic(r, max_pos, s);
    if (strcmp(type, "linear") == 0) {
        s->kind = PB_ROPE_LINEAR;
        return PB_OK;
    }
    if (strcmp(type, "llama3") != 0)
        return pb_fail(PB_EFORMAT, "%s: \"%srope_type\" %.40s is not one of default, dynamic, linear, llama3, yarn",
                       r->path, r->in, type);
    s->kind = PB_ROPE_LLAMA3;
    PB_TRY(real(r, "low_freq_factor", REQUIRED, &s->low_freq));
    PB_TRY(real(r, "high_freq_factor", REQUIRED, &s->high_freq));
    if (s->low_freq < s->high_freq) return PB_OK;
    return pb_fail(PB_EINVAL, "%s: \"%slow_freq_factor\" is not below \"high_freq_factor\"", r->path, r->in);
}

static pb_status whole_head(const reader *r)
{
    double part;
    PB_TRY(real(r, "partial_rotary_factor", 1, &part));
    return part == 1 ? PB_OK : refuse(r, "partial_rotary_factor", "only 1 is supported");
}

static pb_status read_rope(const reader *r, pb_geometry *g)
{
    const bool old = get(r, "rope_scaling") != NULL;
    const char *key = old ? "rope_scaling" : "rope_parameters";
    json_t *o = get(r, key);
    PB_TRY(whole_head(r));
    PB_TRY(real(r, "rope_theta", 10000, &g->theta));
    if (o) {
        const reader in = {r->path, old ? "rope_scaling." : "rope_parameters.", o};
        if (!json_is_object(o)) return pb_fail(PB_EINVAL, "%s: \"%s\" is not an object", r->path, key);
        PB_TRY(whole_head(&in));
        PB_TRY(real(&in, "rope_theta", g->theta, &g->theta));
        PB_TRY(read_scaling(&in, &g->max_pos, &g->rope));
    }
    return g->theta > 1 ? PB_OK : pb_fail(PB_EINVAL, "%s: \"rope_theta\" is not above 1", r->path);
}

/* ---- keys of sizes and feature switches ---------------------------------------------------------------- */

static pb_status read_family(const reader *r, pb_geometry *g)
{
    static const char *const names[] = {[PB_FAMILY_QWEN2] = "qwen2",
                                        [PB_FAMILY_QWEN3] = "qwen3",
                                        [PB_FAMILY_LLAMA] = "llama",
                                        [PB_FAMILY_DOGE] = "doge"};
    enum { N = sizeof names / sizeof *names };
    static const char end[] = "ForCausalLM";
    const char *type, *act;
    size_t i = 0;
    PB_TRY(text(r, "model_type", NULL, &type));
    while (i < N && strcmp(names[i], type) != 0) i++;
    if (i == N)
        return pb_fail(PB_EFORMAT, "%s: \"model_type\" %.40s is not one of qwen2, qwen3, llama, doge", r->path, type);
    g->family = (pb_family)i;
    g->qk_norm = g->family == PB_FAMILY_QWEN3 || g->family == PB_FAMILY_DOGE;
    const char *what = json_string_value(json_array_get(get(r, "architectures"), 0));
    const size_t n = what ? strlen(what) : 0;
    if (get(r, "architectures") && (n < sizeof end || strcmp(what + n - (sizeof end - 1), end) != 0))
        return refuse(r, "architectures", "only a model for causal language modelling (...ForCausalLM) is supported");
    PB_TRY(text(r, "hidden_act", "silu", &act));
    return strcmp(act, "silu") == 0 ? PB_OK : refuse(r, "hidden_act", "only \"silu\" is supported");
}

static pb_status read_sizes(const reader *r, pb_geometry *g)
{
    double eps;
    PB_TRY(whole(r, "vocab_size", MOST_WIDTH, REQUIRED, &g->V));
    PB_TRY(whole(r, "hidden_size", MOST_WIDTH, REQUIRED, &g->D));
    PB_TRY(whole(r, "num_hidden_layers", MOST_LAYERS, REQUIRED, &g->L));
    PB_TRY(whole(r, "num_attention_heads", MOST_HEADS, REQUIRED, &g->H));
    PB_TRY(whole(r, "num_key_value_heads", MOST_HEADS, g->H, &g->K));
    PB_TRY(whole(r, "intermediate_size", MOST_WIDTH, REQUIRED, &g->I));
    PB_TRY(whole(r, "max_position_embeddings", 1 << 30, REQUIRED, &g->max_pos));
    PB_TRY(real(r, "rms_norm_eps", REQUIRED, &eps));
    PB_TRY(flag(r, "tie_word_embeddings", false, &g->tied));
    g->eps = (float)eps;
    const bool divides = g->D % g->H == 0;
    if (!get(r, "head_dim") && g->family != PB_FAMILY_QWEN3 && !divides)
        return pb_fail(PB_EINVAL, "%s: \"hidden_size\" %d is not a multiple of \"num_attention_heads\" %d", r->path,
                       g->D, g->H);
    if (g->H % g->K)
        return pb_fail(PB_EINVAL, "%s: \"num_attention_heads\" %d is not a multiple of \"num_key_value_heads\" %d",
                       r->path, g->H, g->K);
    PB_TRY(whole(r, "head_dim", MOST_WIDTH, g->family == PB_FAMILY_QWEN3 ? 128 : g->D / g->H, &g->d));
    if (g->d % 2 || g->d > MOST_HEAD)
        return pb_fail(PB_EFORMAT, "%s: \"head_dim\" %d: need an even number up to %d", r->path, g->d, MOST_HEAD);
    return PB_OK;
}

/* Keys that only the Doge family has. */
static pb_status read_doge(const reader *r, pb_geometry *g)
{
    bool experts;
    const json_t *dropout = get(r, "hidden_dropout");
    PB_TRY(flag(r, "is_moe", false, &experts));
    if (experts)
        return refuse(r, "is_moe",
                      "the mixture of experts is not supported: its router lets later tokens change earlier logits");
    if (dropout && !(json_number_value(dropout) == 0)) return refuse(r, "hidden_dropout", "dropout is not supported");
    return whole(r, "keep_window_size", 1 << 30, 2048, &g->keep);
}

/* Reads the bias flags, and rejects keys that turn on unsupported features. */
static pb_status read_switches(const reader *r, pb_geometry *g)
{
    bool on;
    const json_t *types = get(r, "layer_types"), *dropout = get(r, "attention_dropout"), *type;
    size_t i;
    PB_TRY(flag(r, "attention_bias", false, &on));
    g->o_bias = on && g->family != PB_FAMILY_QWEN2; /* Qwen2's biases do not depend on attention_bias */
    g->bias = g->o_bias || g->family == PB_FAMILY_QWEN2;
    PB_TRY(flag(r, "mlp_bias", false, &on));
    if (on) return refuse(r, "mlp_bias", "biases in the MLP are not supported");
    PB_TRY(flag(r, "use_sliding_window", false, &on));
    if (on) return refuse(r, "use_sliding_window", "sliding windows are not supported");
    if ((g->family == PB_FAMILY_LLAMA || g->family == PB_FAMILY_DOGE) && get(r, "sliding_window"))
        return refuse(r, "sliding_window", "sliding windows are not supported");
    if (types && !json_is_array(types)) return pb_fail(PB_EINVAL, "%s: \"layer_types\" is not a list", r->path);
    json_array_foreach(types, i, type)
    {
        const char *name = json_string_value(type);
        if (!name || strcmp(name, "full_attention") != 0)
            return refuse(r, "layer_types", "only \"full_attention\" is supported");
    }
    if (dropout && !(json_number_value(dropout) == 0))
        return refuse(r, "attention_dropout", "dropout is not supported");
    if (g->family == PB_FAMILY_DOGE) PB_TRY(read_doge(r, g));
    if (get(r, "quantization_config"))
        return refuse(r, "quantization_config", "quantized weights are not supported: need f32, f16 or bf16");
    return PB_OK;
}

static pb_status read_all(const reader *r, pb_geometry *g)
{
    PB_TRY(read_family(r, g));
    PB_TRY(read_switches(r, g));
    PB_TRY(read_sizes(r, g));
    return read_rope(r, g);
}

pb_status pb_hf_config_parse(const char *where, const void *bytes, size_t n, const char *name, pb_hf_config *out)
{
    pb_geometry g = {0};
    json_t *root = NULL;
    PB_TRY(pb_json_parse(where, bytes, n, &root));
    const pb_status s = read_all(&(reader){where, "", root}, &g);
    json_decref(root);
    if (s != PB_OK) return s;
    snprintf(out->name, sizeof out->name, "%s", name);
    out->g = g;
    out->g.name = out->name;
    return PB_OK;
}

static pb_status open_gguf(const char *path, const char *name, pb_hf_config *out)
{
    char *json = NULL;
    PB_TRY(pb_hf_gguf_text(path, pb_hf_gguf_config, &json));
    const pb_status s = pb_hf_config_parse(path, json, strlen(json), name, out);
    free(json);
    return s;
}

pb_status pb_hf_config_open(const char *path, pb_hf_config *out)
{
    char name[64], *folder = strdup(path), *file = NULL;
    pb_map m = {0};
    if (!folder) return pb_fail(PB_ENOMEM, "%s: out of memory", path);
    for (size_t n = strlen(folder); n > 1 && folder[n - 1] == '/';) folder[--n] = 0;
    const char *slash = strrchr(folder, '/');
    snprintf(name, sizeof name, "%s", slash && slash[1] ? slash + 1 : folder);
    if (pb_gguf_is(path)) {
        free(folder);
        return open_gguf(path, name, out);
    }
    pb_status s = pb_path_join(folder, "config.json", &file);
    free(folder);
    if (s == PB_OK) s = pb_map_open(file, &m);
    if (s == PB_OK) s = pb_hf_config_parse(file, m.p, m.n, name, out);
    pb_map_close(&m);
    free(file);
    return s;
}
