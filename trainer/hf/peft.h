/* peft.h - adapters as a folder of Hugging Face's PEFT library: adapter_config.json and adapter_model.safetensors.
 *
 * Tensors, for every layer N and adapted target:
 *   base_model.model.model.layers.N.self_attn.q_proj.lora_A.weight   [R,in]    lora_a.q
 *   base_model.model.model.layers.N.self_attn.q_proj.lora_B.weight   [out,R]   lora_b.q
 * Module names are those of hf_names.h. If the norm gains were trained too, the folder also has
 * base_model.model.model.layers.N.{input,post_attention}_layernorm.weight [D], which PEFT lists under
 * modules_to_save. */
#ifndef PB_PEFT_H
#define PB_PEFT_H
#include "trainer/model/model.h"

typedef struct pb_peft_config {
    int rank;
    float alpha;
    unsigned targets;  /* bits 1 << pb_target */
    bool norm1, norm2; /* true: the folder has the gains of the layers' first, second norm */
} pb_peft_config;

/* Reads dir/adapter_config.json. EPATH, EIO: the file cannot be read. EINVAL: it is malformed. EFORMAT: it describes
 * adapters that a pb_model does not support (not LoRA, per-layer patterns, DoRA, rsLoRA, biases, other saved modules,
 * an initialisation that changes the base weights). The message is one line and names the file and the key. */
pb_status pb_peft_config_open(const char *dir, pb_peft_config *out);

/* Writes the adapters, and the norm gains if m->export_norms, in F32 from their f32 masters. `dir` is created if it is
 * missing. Each file is written atomically, the configuration last. `base` is stored as base_model_name_or_path: the
 * name or folder of the adapted model; NULL: the geometry's name. EINVAL: the model has no adapters. EPATH, EIO. If
 * several processes may write to one folder, the caller must hold pb_folder_lock. */
pb_status pb_peft_save(pb_model *m, const char *dir, const char *base);

/* Loads a model's adapters, and the norm gains if the folder has them. F32, F16 and BF16 are converted. EINVAL: rank,
 * alpha or targets differ from the model's, or a tensor is missing, unexpected or has another shape; the message names
 * the first such difference. All tensors are checked before the first weight changes. For a model on the plan backend
 * only the check is made. */
pb_status pb_peft_load(pb_model *m, const char *dir);
#endif
