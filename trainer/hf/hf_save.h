/* hf_save.h - a model as a Hugging Face folder, which transformers' AutoModelForCausalLM and hf_load.h read. */
#ifndef PB_HF_SAVE_H
#define PB_HF_SAVE_H
#include "trainer/hf/hf_text.h"
#include "trainer/model.h"

typedef struct pb_hf_save_config {
    size_t shard;           /* most bytes of weights in one file, as far as whole tensors go; 0: 5e9 */
    const pb_hf_text *text; /* tokenizer and generation_config.json to copy; NULL: none is copied or removed */
    bool merge; /* adapters go into their base, w + alpha/rank B A, and an NF4 base becomes dense: what is deployed */
} pb_hf_save_config;

/* Writes config.json and model.safetensors into `dir`, which is made unless it is there; or, when the weights are more
 * than `shard` bytes, model-00001-of-0000N.safetensors, ... and model.safetensors.index.json. Names are those of
 * hf_names.h; matrices and tables are in the model's dtype (not their f32 masters), gains and biases in F32, as the
 * model holds them. NF4 is dequantised, merged and rounded once to the model's dtype. A few MB are held beside the
 * model.
 *
 * Every file is whole or not there; config.json comes last, so a fresh folder that has it is complete. What an older
 * model left in the folder and readers would take for this one's is removed. The tokenizer is that of `text`.
 * `cfg` may be NULL. EFORMAT: adapters or an NF4 base without `merge`; what config.json cannot say (hf_config.h).
 * EPATH, EIO name the file. Processes that may write into one folder at once must take turns (pb_folder_lock). */
pb_status pb_model_save_hf(pb_model *m, const char *dir, const pb_hf_save_config *cfg);
#endif
