/* hf_config_save.c - writes a model's geometry as the config.json of a Hugging Face folder. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "os/file.h"
#include "trainer/hf/hf_config.h"
#include "trainer/io/json.h"

static const struct {
    const char *type, *architecture;
} families[] = {
    [PB_FAMILY_QWEN2] = {"qwen2", "Qwen2ForCausalLM"},
    [PB_FAMILY_QWEN3] = {"qwen3", "Qwen3ForCausalLM"},
    [PB_FAMILY_LLAMA] = {"llama", "LlamaForCausalLM"},
    [PB_FAMILY_DOGE] = {"doge", "DogeForCausalLM"},
};

/* Returns the shortest decimal that reads back as the float x: 1e-6 instead of 9.9999999747524271e-7. */
static json_t *shortest(float x)
{
    char text[32];
    for (int digits = 6; digits < 10; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x) break;
    }
    return json_real(strtod(text, NULL));
}

/* Converts a length in tokens to JSON: to an integer if it is whole, because transformers requires one. */
static json_t *length(double x) { return x == floor(x) ? json_integer((json_int_t)x) : json_real(x); }

/* Returns the value of rope_scaling, a key that both transformers 4 and 5 read; JSON null: no scaling. */
static json_t *rope(const pb_rope_scaling *s)
{
    switch (s->kind) {
    case PB_ROPE_LINEAR: return json_pack("{s:s, s:f}", "rope_type", "linear", "factor", s->factor);
    case PB_ROPE_LLAMA3:
        return json_pack("{s:s, s:f, s:f, s:f, s:o}", "rope_type", "llama3", "factor", s->factor, "low_freq_factor",
                         s->low_freq, "high_freq_factor", s->high_freq, "original_max_position_embeddings",
                         length(s->original_len));
    case PB_ROPE_YARN:
        return json_pack("{s:s, s:f, s:f, s:f, s:f, s:b, s:o}", "rope_type", "yarn", "factor", s->factor, "beta_fast",
                         s->beta_fast, "beta_slow", s->beta_slow, "attention_factor", s->attention, "truncate",
                         s->truncate, "original_max_position_embeddings", length(s->original_len));
    default: return json_null();
    }
}

pb_status pb_hf_config_check(const pb_geometry *g, const char *dir)
{
    const bool qwen2 = g->family == PB_FAMILY_QWEN2;
    const bool norms = g->family == PB_FAMILY_QWEN3 || g->family == PB_FAMILY_DOGE;
    if (g->v4) return pb_fail(PB_EFORMAT, "%s: %s cannot be written as a Hugging Face folder", dir, g->name);
    if (g->qk_norm != norms)
        return pb_fail(PB_EFORMAT,
                       "%s: qwen3 and doge models have norms of q and k, others have none, but this model is %s with%s "
                       "such norms",
                       dir, families[g->family].type, g->qk_norm ? "" : "out");
    if (qwen2 ? !g->bias || g->o_bias : g->bias != g->o_bias)
        return pb_fail(PB_EFORMAT, "%s: a %s model must have biases on %s", dir, families[g->family].type,
                       qwen2 ? "q, k and v, but not on o" : "all of q, k, v and o, or on none of them");
    return PB_OK;
}

static json_t *config(const pb_geometry *g, pb_dtype dtype)
{
    json_t *o = json_pack(
        "{s:s, s:[s], s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:b, s:s, s:f, s:o, s:s, s:n, s:n}", "model_type",
        families[g->family].type, "architectures", families[g->family].architecture, "vocab_size", g->V, "hidden_size",
        g->D, "num_hidden_layers", g->L, "num_attention_heads", g->H, "num_key_value_heads", g->K, "head_dim", g->d,
        "intermediate_size", g->I, "max_position_embeddings", g->max_pos, "rms_norm_eps", shortest(g->eps),
        "tie_word_embeddings", g->tied, "hidden_act", "silu", "rope_theta", g->theta, "rope_scaling", rope(&g->rope),
        "torch_dtype", dtype == PB_F32 ? "float32" : "bfloat16", "bos_token_id", "eos_token_id");
    if (!o) return NULL;
    if (g->family != PB_FAMILY_QWEN2) json_object_set_new(o, "attention_bias", json_boolean(g->bias));
    else json_object_set_new(o, "use_sliding_window", json_false());
    if (g->keep) json_object_set_new(o, "keep_window_size", json_integer(g->keep));
    return o;
}

pb_status pb_hf_config_save(const pb_geometry *g, pb_dtype dtype, const char *dir)
{
    char *path = NULL;
    PB_TRY(pb_hf_config_check(g, dir));
    json_t *o = config(g, dtype);
    pb_status s = o ? pb_path_join(dir, "config.json", &path) : pb_fail(PB_ENOMEM, "%s: out of memory", dir);
    if (s == PB_OK) s = pb_json_save(path, o);
    free(path);
    json_decref(o);
    return s;
}
