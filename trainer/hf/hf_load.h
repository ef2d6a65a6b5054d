/* hf_load.h - the weights of a Hugging Face folder into a model. */
#ifndef PB_HF_LOAD_H
#define PB_HF_LOAD_H
#include "trainer/model.h"

typedef struct pb_load_report {
    size_t tensors, bytes; /* of the files, that went into the model */
    size_t unused;         /* tensors of the files that the model has no place for: a head beside a tied embedding,
                              layers beyond those configured */
    char names[256];       /* the first of them, "a, b, ..." */
} pb_load_report;

/* Fills every parameter but the adapters from dir/model.safetensors, or from the files listed by
 * dir/model.safetensors.index.json. Names are those of hf_names.h.
 * f32, f16 and bf16 are converted to the parameter's dtype, to its f32 master exactly, and to NF4 by way of the
 * model's dtype. The work goes in pieces of some MB: no tensor is held whole beside the model.
 * Best on a model opened `blank`. `report` may be NULL. EPATH, EIO, EINVAL: what the files lack or get wrong, by file
 * and tensor, with both shapes where they differ; everything is looked up and checked before the first weight changes.
 * For a model on a plan (pb_ctx_open_plan) only that check is made, from the headers of the files. */
pb_status pb_model_load_hf(pb_model *m, const char *dir, pb_load_report *report);
#endif
