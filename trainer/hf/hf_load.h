/* hf_load.h - loads the weights of a Hugging Face folder or a GGUF file into a model. */
#ifndef PB_HF_LOAD_H
#define PB_HF_LOAD_H
#include "trainer/model/model.h"

typedef struct pb_load_report {
    size_t tensors, bytes; /* number of tensors loaded, and their bytes in the files */
    /* Number of tensors in the files that the model does not use, such as a head if the embedding is tied, or layers
     * after the first --layers. */
    size_t unused;
    char names[256]; /* names of the first unused tensors: "a, b, ..." */
} pb_load_report;

/* Loads every parameter except the adapters from path/model.safetensors, from the files listed in
 * path/model.safetensors.index.json, or, if `path` is a GGUF file, from it. Tensor names are those of hf_names.h. F32,
 * F16, BF16 and the blocks of GGUF (gguf.h) are converted to the parameter's dtype; an f32 master gets the exact value;
 * NF4 is quantised from the model's dtype. With as_bf16 (model.h) an f32 model gets the values that a bf16 model would.
 * Data is converted in chunks of some MB, so no second copy of a tensor is needed.
 *
 * Open the model with `blank` to avoid an initialisation that is then overwritten. `report` may be NULL. EPATH, EIO,
 * EINVAL, EFORMAT: the message names the file and tensor, and both shapes if they differ. All tensors are found and
 * checked before the first weight changes. For a model on the plan backend (pb_ctx_open_plan) only this check is made;
 * it reads only the files' headers. */
pb_status pb_model_load_hf(pb_model *m, const char *path, pb_load_report *report);
#endif
