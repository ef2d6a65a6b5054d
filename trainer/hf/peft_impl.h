/* peft_impl.h - the tensors and file names of a PEFT adapter folder, shared by the code that writes and reads it. */
#ifndef PB_PEFT_IMPL_H
#define PB_PEFT_IMPL_H
#include "trainer/hf/hf_names.h"
#include "trainer/hf/peft.h"

#define PB_PEFT_PREFIX  "base_model.model."
#define PB_PEFT_CONFIG  "adapter_config.json"
#define PB_PEFT_WEIGHTS "adapter_model.safetensors"

/* PEFT's names of the norm gains that may be saved with the adapters. */
#define PB_PEFT_NORM1 "input_layernorm"
#define PB_PEFT_NORM2 "post_attention_layernorm"

/* Lists the adapter tensors layer by layer, with the gains of the first and second norms if norm1 and norm2 are true.
 * The caller frees out->at. */
pb_status pb_peft_tensors(const pb_model *m, bool norm1, bool norm2, pb_hf_list *out);
#endif
