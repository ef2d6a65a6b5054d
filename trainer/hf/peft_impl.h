/* peft_impl.h - the tensors of an adapter folder, which writing and reading share. */
#ifndef PB_PEFT_IMPL_H
#define PB_PEFT_IMPL_H
#include "trainer/hf/hf_names.h"
#include "trainer/hf/peft.h"

#define PB_PEFT_PREFIX  "base_model.model."
#define PB_PEFT_CONFIG  "adapter_config.json"
#define PB_PEFT_WEIGHTS "adapter_model.safetensors"

/* The gains that may go with the adapters. */
#define PB_PEFT_NORM1 "input_layernorm"
#define PB_PEFT_NORM2 "post_attention_layernorm"

/* Adapters, and the gains that are asked for, layer by layer; free() list->at. */
pb_status pb_peft_tensors(const pb_model *m, bool norm1, bool norm2, pb_hf_list *out);
#endif
