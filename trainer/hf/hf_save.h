/* hf_save.h - saves a model as a Hugging Face folder that transformers' AutoModelForCausalLM and hf_load.h can read. */
#ifndef PB_HF_SAVE_H
#define PB_HF_SAVE_H
#include "trainer/hf/hf_text.h"
#include "trainer/model/model.h"

typedef struct pb_hf_save_config {
    size_t shard; /* maximum bytes of weights per file, unless a single tensor is larger; 0: 5e9 */
    /* Tokenizer files and generation_config.json to copy. NULL: such files in the folder are left as they are. */
    const pb_hf_text *text;
    /* true: writes w + alpha/rank B A for a matrix with an adapter, and dequantises NF4 matrices (a merged export). */
    bool merge;
} pb_hf_save_config;

/* Writes config.json and model.safetensors into `dir`, which is created if it is missing. If the weights have more than
 * `shard` bytes, it writes model-00001-of-0000N.safetensors, ... and model.safetensors.index.json instead. Tensor names
 * are those of hf_names.h. Matrices and tables are written in the model's dtype (not from their f32 masters), gains and
 * biases in F32. Merged and dequantised weights are computed in f32 and rounded once to the model's dtype. Needs some
 * MB of memory in addition to the model.
 *
 * Each file is written atomically. config.json is removed first and written last, so a folder that contains it is
 * complete. Files of an earlier export that a reader would use instead of the new ones are removed. `cfg` may be NULL.
 * EFORMAT: the model has adapters or an NF4 base and `merge` is false, or config.json cannot express its geometry
 * (hf_config.h). EPATH, EIO: the message names the file. If several processes may write to one folder, the caller must
 * hold pb_folder_lock. */
pb_status pb_model_save_hf(pb_model *m, const char *dir, const pb_hf_save_config *cfg);
#endif
