/* hf_write.h - writes parameters of a model to one safetensors file, in chunks. */
#ifndef PB_HF_WRITE_H
#define PB_HF_WRITE_H
#include "trainer/hf/hf_names.h"

/* Returns the type in which a tensor is written: F32 for adapters, else the type of its parameter in the model. */
pb_st_dtype pb_hf_file_dtype(const pb_hf_tensor *t);
/* Writes n tensors to one file, atomically: first those in F32, then those in BF16, otherwise in the order of t[]. The
 * metadata is {"format": "pt"}, which transformers requires. Adapters are written from their f32 masters. `merge`: a
 * matrix with an adapter is written as w + alpha/rank B A, and an NF4 matrix is dequantised; the sum is computed in f32
 * and rounded once. EFORMAT: an NF4 matrix without `merge`. Besides the model it needs a few MB of memory, and the size
 * of one adapter. */
pb_status pb_hf_write(pb_model *m, const pb_hf_tensor *t, size_t n, bool merge, const char *path);
#endif
