/* peft.h - adapters as a folder of Hugging Face's PEFT library: adapter_config.json, adapter_model.safetensors.
 *
 * Tensors, for every layer N and adapted target:
 *   base_model.model.model.layers.N.self_attn.q_proj.lora_A.weight   [R,in]    lora_a.q
 *   base_model.model.model.layers.N.self_attn.q_proj.lora_B.weight   [out,R]   lora_b.q
 * (module names as in hf_names.h), and the norm gains that are trained beside the adapters, which PEFT calls
 * modules_to_save: base_model.model.model.layers.N.{input,post_attention}_layernorm.weight [D]. */
#ifndef PB_PEFT_H
#define PB_PEFT_H
#include "trainer/model.h"

typedef struct pb_peft_config {
    int rank;
    float alpha;
    unsigned targets;  /* bits 1 << pb_target */
    bool norm1, norm2; /* whether the folder has these gains */
} pb_peft_config;

/* Reads dir/adapter_config.json. EPATH, EIO: it cannot be read; EINVAL: malformed; EFORMAT: it asks for what the
 * adapters of a pb_model are not (other kinds than LoRA, patterns by layer, DoRA, rsLoRA, biases, other saved modules,
 * an initialisation that changes the base). One line names the file and the key. */
pb_status pb_peft_config_open(const char *dir, pb_peft_config *out);

/* Writes the adapters and, with own_norms, the norm gains, F32 (of their f32 masters), into `dir`, which is made unless
 * it is there. Each file is whole or not there; the configuration comes last. `base`: what base_model_name_or_path
 * says, the name or folder of the model that was adapted; NULL: the geometry's name. EINVAL: the model has no adapters.
 * EPATH, EIO. Processes that may write into one folder at once must take turns (pb_folder_lock). */
pb_status pb_peft_save(pb_model *m, const char *dir, const char *base);

/* Fills a model's adapters, and those gains that the folder has, from a folder of this kind. Rank, alpha and targets
 * must be the model's: EINVAL says the first that is not, or names the first tensor that is missing, too many or of
 * another shape; all is checked before the first weight changes, and for a model on a plan nothing
 * else is done. F32, F16 and BF16 are converted. */
pb_status pb_peft_load(pb_model *m, const char *dir);
#endif
