/* hf_write.h - parameters of a model into one safetensors file, in pieces. */
#ifndef PB_HF_WRITE_H
#define PB_HF_WRITE_H
#include "trainer/hf/hf_names.h"

/* What a tensor is written as: adapters in F32, everything else in its parameter's dtype (gains and biases are F32 in
 * every model). */
pb_st_dtype pb_hf_file_dtype(const pb_hf_tensor *t);
/* Writes tensors [n] atomically, in this order but for F32 before BF16, as transformers reads them (metadata: format
 * pt). Adapters are written from their f32 masters. `merge`: a matrix that has an adapter is written as w + alpha/rank
 * B A, and one in NF4 as its dequantised values; summed in f32 and rounded once. Else a matrix in NF4 is EFORMAT.
 * Holds some MB and one adapter at a time beside the model. */
pb_status pb_hf_write(pb_model *m, const pb_hf_tensor *t, size_t n, bool merge, const char *path);
#endif
