/* hf_config.h - the geometry of a model from the config.json of a Hugging Face folder.
 *
 * Read are the keys of transformers' Qwen2Config, Qwen3Config and LlamaConfig that shape the computation: model_type,
 * architectures (a ...ForCausalLM), vocab_size, hidden_size, num_hidden_layers, num_attention_heads,
 * num_key_value_heads (as many as heads if absent), head_dim (if absent hidden_size / heads; Qwen3: 128),
 * intermediate_size, rms_norm_eps, max_position_embeddings, tie_word_embeddings (false), hidden_act ("silu"), and
 * rope_theta (10000) with rope_scaling or rope_parameters: types default, linear, llama3, yarn. Qwen2 has biases on q,
 * k and v, the others with attention_bias, and then on o too. Refused by name, where they ask for what a pb_model
 * cannot do: mlp_bias, sliding windows (use_sliding_window, sliding_window of Llama, layer_types), attention_dropout,
 * quantization_config, partial_rotary_factor, other rope types and keys. Other keys say nothing about the computation
 * and are left alone. */
#ifndef PB_HF_CONFIG_H
#define PB_HF_CONFIG_H
#include "trainer/model.h"

typedef struct pb_hf_config {
    pb_geometry g; /* g.name is `name`: do not copy or move */
    char name[64]; /* the folder's last component */
} pb_hf_config;

/* EPATH, EIO: dir/config.json cannot be read; EINVAL: it is malformed or a value cannot be; EFORMAT: it asks for what
 * is not listed above. One line names the file and the key. */
pb_status pb_hf_config_open(const char *dir, pb_hf_config *out);
/* The same from n bytes; `where` stands for the path in messages. */
pb_status pb_hf_config_parse(const char *where, const void *text, size_t n, const char *name, pb_hf_config *out);

/* EFORMAT: the family's configuration cannot say this geometry (biases it has not, q and k norms it has; V4 at
 * all). The line begins with `dir`. */
pb_status pb_hf_config_check(const pb_geometry *g, const char *dir);
/* Checks, and writes dir/config.json, atomically, so that the above and transformers (4 and 5) read this geometry and
 * dtype. EIO. */
pb_status pb_hf_config_save(const pb_geometry *g, pb_dtype dtype, const char *dir);
#endif
