/* hf_gguf.c - makes a config.json from the metadata and the tensor shapes of a GGUF file. */
#include "trainer/hf/hf_gguf.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/text.h"

enum { LONGEST_KEY = 96, MOST_FACTORS = 256 };

typedef struct maker {
    const pb_gguf *f;
    char arch[16]; /* general.architecture */
    json_t *o;     /* the config.json */
} maker;

/* Writes "ARCHITECTURE.name". */
static const char *key_of(const maker *m, const char *name, char out[LONGEST_KEY])
{
    snprintf(out, LONGEST_KEY, "%s.%s", m->arch, name);
    return out;
}

static pb_status refuse(const maker *m, const char *key, const char *why)
{
    return pb_fail(PB_EFORMAT, "%s: %s: %s", pb_gguf_path(m->f), key, why);
}

/* ---- copying values ----------------------------------------------------------------------------------- */

/* Copies a whole number. fallback 0: the key must be there. */
static pb_status whole(const maker *m, const char *name, const char *to, uint64_t fallback, uint64_t *out)
{
    char key[LONGEST_KEY];
    uint64_t v = fallback;
    PB_TRY(pb_gguf_get_whole(m->f, key_of(m, name, key), &v));
    if (!v) return pb_fail(PB_EINVAL, "%s: %s is missing or 0", pb_gguf_path(m->f), key);
    if (v > INT32_MAX)
        return pb_fail(PB_EINVAL, "%s: %s is %llu, above %d", pb_gguf_path(m->f), key, (unsigned long long)v,
                       INT32_MAX);
    if (to) json_object_set_new(m->o, to, json_integer((json_int_t)v));
    if (out) *out = v;
    return PB_OK;
}

/* Copies a number into `o`. fallback 0: the key must be there. */
static pb_status real(const maker *m, const char *name, json_t *o, const char *to, double fallback)
{
    char key[LONGEST_KEY];
    double v = fallback;
    PB_TRY(pb_gguf_get_real(m->f, key_of(m, name, key), &v));
    if (!(v > 0) || !isfinite(v))
        return pb_fail(PB_EINVAL, "%s: %s is missing, or not a number above 0", pb_gguf_path(m->f), key);
    json_object_set_new(o, to, json_real(v));
    return PB_OK;
}

/* ---- scaled RoPE -------------------------------------------------------------------------------------- */

static pb_status scaling(const maker *m)
{
    static const char *const unsupported[] = {"rope.scale_linear",
                                              "rope.scaling.attn_factor",
                                              "rope.scaling.yarn_ext_factor",
                                              "rope.scaling.yarn_attn_factor",
                                              "rope.scaling.yarn_beta_fast",
                                              "rope.scaling.yarn_beta_slow",
                                              "rope.scaling.yarn_log_multiplier"};
    char key[LONGEST_KEY];
    pb_gguf_text type = {"none", 4};
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        if (pb_gguf_has(m->f, key_of(m, unsupported[i], key))) return refuse(m, key, "this scaling is not supported");
    PB_TRY(pb_gguf_get_text(m->f, key_of(m, "rope.scaling.type", key), &type));
    const bool linear = type.n == 6 && memcmp(type.p, "linear", 6) == 0;
    if (type.n == 4 && memcmp(type.p, "none", 4) == 0) return PB_OK;
    if (!linear && (type.n != 4 || memcmp(type.p, "yarn", 4) != 0))
        return refuse(m, key, "only none, linear and yarn are supported");
    json_t *o = json_pack("{s:s}", "rope_type", linear ? "linear" : "yarn");
    if (!o) return pb_fail(PB_ENOMEM, "%s: out of memory", pb_gguf_path(m->f));
    json_object_set_new(m->o, "rope_scaling", o);
    PB_TRY(real(m, "rope.scaling.factor", o, "factor", 0));
    if (linear) return PB_OK;
    return real(m, "rope.scaling.original_context_length", o, "original_max_position_embeddings", 0);
}

/* The factor by which Llama 3.1's scaling divides frequency i of n (rope.h, PB_ROPE_LLAMA3). */
static double llama3_factor(size_t i, size_t n, double theta, double factor)
{
    const double low = 1, high = 4, length = 8192, pi = 3.14159265358979323846;
    const double turns = length / (2 * pi * pow(theta, (double)i / (double)n)), part = (turns - low) / (high - low);
    return part >= 1 ? 1 : part <= 0 ? factor : 1 / ((1 - part) / factor + part);
}

/* Finds the scaling that the factors of rope_freqs.weight, one per frequency, stand for. */
static pb_status factors(const maker *m, uint64_t head, double theta)
{
    const pb_gguf_tensor *t = pb_gguf_find(m->f, "rope_freqs.weight");
    float v[MOST_FACTORS], most = 0;
    if (!t) return PB_OK;
    if (t->n != head / 2 || t->n > MOST_FACTORS || json_object_get(m->o, "rope_scaling"))
        return refuse(m, "rope_freqs.weight",
                      "it has not half as many elements as a head, or there is a second rope scaling");
    PB_TRY(pb_gguf_load(m->f, t, 0, t->n, PB_F32, v));
    for (size_t i = 0; i < t->n; i++) most = v[i] > most ? v[i] : most;
    for (size_t i = 0; i < t->n; i++)
        if (!(fabs((double)v[i] - llama3_factor(i, t->n, theta, (double)most)) <= 1e-4 * (double)most))
            return refuse(m, "rope_freqs.weight", "these factors are not those of Llama 3.1's RoPE");
    json_object_set_new(m->o, "rope_scaling",
                        json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor", (double)most,
                                  "low_freq_factor", 1.0, "high_freq_factor", 4.0, "original_max_position_embeddings",
                                  8192));
    return PB_OK;
}

/* ---- the whole configuration --------------------------------------------------------------------------- */

static pb_status family(maker *m)
{
    static const char *const names[] = {"llama", "qwen2", "qwen3"};
    pb_gguf_text arch = {"", 0}, type = {"model", 5};
    uint64_t parts = 1;
    PB_TRY(pb_gguf_get_text(m->f, "general.type", &type));
    if (type.n != 5 || memcmp(type.p, "model", 5) != 0)
        return refuse(m, "general.type", "the file holds no whole model, but for example an adapter");
    PB_TRY(pb_gguf_get_whole(m->f, "split.count", &parts));
    if (parts > 1)
        return pb_fail(PB_EFORMAT, "%s is one of %llu parts: merge them first (llama-gguf-split --merge)",
                       pb_gguf_path(m->f), (unsigned long long)parts);
    PB_TRY(pb_gguf_get_text(m->f, "general.architecture", &arch));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (arch.n == strlen(names[i]) && memcmp(arch.p, names[i], arch.n) == 0) {
            snprintf(m->arch, sizeof m->arch, "%s", names[i]);
            return PB_OK;
        }
    char text[41];
    snprintf(text, sizeof text, "%.*s", arch.n < 40 ? (int)arch.n : 40, arch.p);
    pb_make_printable(text, '?');
    return pb_fail(PB_EFORMAT, "%s: general.architecture \"%s\" is not one of llama, qwen2, qwen3", pb_gguf_path(m->f),
                   text);
}

/* Refuses keys that change the computation if they are set. */
static pb_status switches(const maker *m)
{
    static const char *const zero[] = {"expert_count", "attention.sliding_window", "leading_dense_block_count"};
    char key[LONGEST_KEY];
    bool causal = true;
    for (size_t i = 0; i < sizeof zero / sizeof *zero; i++) {
        uint64_t v = 0;
        PB_TRY(pb_gguf_get_whole(m->f, key_of(m, zero[i], key), &v));
        if (v) return refuse(m, key, "this feature is not supported");
    }
    PB_TRY(pb_gguf_get_flag(m->f, key_of(m, "attention.causal", key), &causal));
    return causal ? PB_OK : refuse(m, key, "only causal attention is supported");
}

static pb_status sizes(const maker *m, uint64_t *head)
{
    uint64_t width, heads, rotated, values;
    char key[LONGEST_KEY];
    const pb_gguf_tensor *embed = pb_gguf_find(m->f, "token_embd.weight");
    if (!embed || embed->dims != 2) return pb_fail(PB_EINVAL, "%s has no matrix token_embd.weight", pb_gguf_path(m->f));
    json_object_set_new(m->o, "vocab_size", json_integer((json_int_t)embed->shape[0]));
    json_object_set_new(m->o, "tie_word_embeddings", json_boolean(!pb_gguf_find(m->f, "output.weight")));
    PB_TRY(whole(m, "block_count", "num_hidden_layers", 0, NULL));
    PB_TRY(whole(m, "embedding_length", "hidden_size", 0, &width));
    PB_TRY(whole(m, "feed_forward_length", "intermediate_size", 0, NULL));
    PB_TRY(whole(m, "context_length", "max_position_embeddings", 0, NULL));
    PB_TRY(whole(m, "attention.head_count", "num_attention_heads", 0, &heads));
    PB_TRY(whole(m, "attention.head_count_kv", "num_key_value_heads", heads, NULL));
    if (width % heads && !pb_gguf_has(m->f, key_of(m, "attention.key_length", key)))
        return pb_fail(PB_EINVAL, "%s: %s is missing, and the width %llu is no multiple of %llu heads",
                       pb_gguf_path(m->f), key, (unsigned long long)width, (unsigned long long)heads);
    PB_TRY(whole(m, "attention.key_length", "head_dim", width / heads, head));
    PB_TRY(whole(m, "attention.value_length", NULL, *head, &values));
    if (values != *head)
        return refuse(m, key_of(m, "attention.value_length", key), "heads of keys and values differ in size");
    PB_TRY(whole(m, "rope.dimension_count", NULL, *head, &rotated));
    if (rotated != *head) return refuse(m, key_of(m, "rope.dimension_count", key), "only whole heads can be rotated");
    return PB_OK;
}

static pb_status fill(maker *m)
{
    uint64_t head;
    PB_TRY(family(m));
    PB_TRY(switches(m));
    json_object_set_new(m->o, "model_type", json_string(m->arch));
    /* Qwen2 always has biases on q, k and v; attention_bias of the others adds one on o. */
    if (pb_gguf_find(m->f, "blk.0.attn_output.bias")) json_object_set_new(m->o, "attention_bias", json_true());
    PB_TRY(sizes(m, &head));
    PB_TRY(real(m, "attention.layer_norm_rms_epsilon", m->o, "rms_norm_eps", 0));
    PB_TRY(real(m, "rope.freq_base", m->o, "rope_theta", 10000));
    PB_TRY(scaling(m));
    return factors(m, head, json_number_value(json_object_get(m->o, "rope_theta")));
}

static pb_status dump(const pb_gguf *f, pb_status s, json_t *o, char **out)
{
    if (s == PB_OK) {
        *out = json_dumps(o, JSON_INDENT(2));
        if (!*out) s = pb_fail(PB_ENOMEM, "%s: no memory for its configuration", pb_gguf_path(f));
    }
    json_decref(o);
    return s;
}

pb_status pb_hf_gguf_config(const pb_gguf *f, char **out)
{
    maker m = {.f = f, .o = json_object()};
    return dump(f, m.o ? fill(&m) : pb_fail(PB_ENOMEM, "%s: out of memory", pb_gguf_path(f)), m.o, out);
}

static pb_status add_ends(const pb_gguf *f, json_t *ids)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        uint64_t id = 0;
        if (!pb_gguf_has(f, keys[i])) continue;
        PB_TRY(pb_gguf_get_whole(f, keys[i], &id));
        json_array_append_new(ids, json_integer((json_int_t)id));
    }
    return PB_OK;
}

pb_status pb_hf_gguf_generation(const pb_gguf *f, char **out)
{
    json_t *ids = json_array(), *o = json_object();
    const pb_status s = ids && o ? add_ends(f, ids) : pb_fail(PB_ENOMEM, "%s: out of memory", pb_gguf_path(f));
    if (json_array_size(ids)) json_object_set(o, "eos_token_id", ids);
    json_decref(ids);
    return dump(f, s, o, out);
}

pb_status pb_hf_gguf_text(const char *path, pb_status (*make)(const pb_gguf *f, char **out), char **out)
{
    pb_gguf *f = NULL;
    PB_TRY(pb_gguf_open(path, &f));
    const pb_status s = make(f, out);
    pb_gguf_close(f);
    return s;
}
