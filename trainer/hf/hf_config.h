/* hf_config.h - reads the geometry of a model from the config.json of a Hugging Face folder or from the metadata of a
 * GGUF file, and writes a config.json.
 *
 * Reads the keys of transformers' Qwen2Config, Qwen3Config and LlamaConfig that affect the computation (default in
 * parentheses): model_type, architectures (must end in ForCausalLM), vocab_size, hidden_size, num_hidden_layers,
 * num_attention_heads, num_key_value_heads (num_attention_heads), head_dim (hidden_size / heads; Qwen3: 128),
 * intermediate_size, rms_norm_eps, max_position_embeddings, tie_word_embeddings (false), hidden_act (must be "silu"),
 * and rope_theta (10000) with rope_scaling or rope_parameters of type default, linear, llama3 or yarn. Qwen2 always has
 * biases on q, k and v; the other families have biases on q, k, v and o if attention_bias is set.
 *
 * These keys are rejected, with their name in the message, if their value turns on a feature that a pb_model does not
 * support: mlp_bias, sliding windows (use_sliding_window, sliding_window of Llama, layer_types), attention_dropout,
 * quantization_config, partial_rotary_factor, other rope types and keys. All other keys are ignored, because they do
 * not affect the computation. */
#ifndef PB_HF_CONFIG_H
#define PB_HF_CONFIG_H
#include "trainer/model/model.h"

typedef struct pb_hf_config {
    pb_geometry g; /* g.name points to `name` below: the struct must not be copied or moved */
    char name[64]; /* last component of the folder's path */
} pb_hf_config;

/* Reads path/config.json, or, if `path` is a GGUF file, the config.json that hf_gguf.h makes of its metadata. EPATH,
 * EIO: the file cannot be read. EINVAL: it is malformed, or a value is out of range. EFORMAT: it turns on an
 * unsupported feature. The message is one line and names the file and the key. */
pb_status pb_hf_config_open(const char *path, pb_hf_config *out);
/* Like pb_hf_config_open, but parses n bytes from memory. `where` is used as the path in messages; `name` becomes
 * out->name. */
pb_status pb_hf_config_parse(const char *where, const void *text, size_t n, const char *name, pb_hf_config *out);

/* Checks that config.json can express a geometry. EFORMAT: biases or q/k norms differ from those of the family, or the
 * family is DeepSeek-V4. The message begins with `dir`. */
pb_status pb_hf_config_check(const pb_geometry *g, const char *dir);
/* Checks the geometry and atomically writes dir/config.json. pb_hf_config_open and transformers 4 and 5 read the same
 * geometry and dtype from it. EFORMAT as pb_hf_config_check; EPATH, EIO, ENOMEM. */
pb_status pb_hf_config_save(const pb_geometry *g, pb_dtype dtype, const char *dir);
#endif
