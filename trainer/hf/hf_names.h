/* hf_names.h - maps transformers' tensor names, and those of GGUF files, to ranges of a model's parameters. */
#ifndef PB_HF_NAMES_H
#define PB_HF_NAMES_H
#include "trainer/io/safetensors.h"
#include "trainer/model/model.h"

/* A tensor in a file. It holds elements [first, first+n) of a parameter. */
typedef struct pb_hf_tensor {
    char name[96]; /* transformers' name */
    char gguf[64]; /* name in GGUF files */
    pb_param *p;
    int target; /* the tensor holds the rows of this pb_target, such as q in qkv; -1: not those of a target */
    size_t first, n;
    int dims;
    size_t shape[2];
} pb_hf_tensor;
typedef struct pb_hf_list {
    pb_hf_tensor *at; /* [n]; free() it */
    size_t n;
} pb_hf_list;

/* Lists every tensor of the model except the adapters, in the order of the layers; tensors of one parameter are in the
 * order of their elements. *out is freed by the caller (out->at). Names are those of transformers' Qwen2, Qwen3 and
 * Llama:
 *   model.embed_tokens.weight   embed         model.norm.weight   norm        lm_head.weight   head, unless tied
 *   model.layers.N.  input_layernorm.weight   norm1     self_attn.{q,k,v}_proj.{weight,bias}   rows of qkv, qkv_bias
 *                    self_attn.{q,k}_norm.weight        self_attn.o_proj.{weight,bias}   o, o_bias
 *                    post_attention_layernorm.weight   norm2
 *                    mlp.{gate,up}_proj.weight   rows of gate_up                  mlp.down_proj.weight   down
 * In GGUF files, in the same order:
 *   token_embd.weight     output_norm.weight     output.weight
 *   blk.N.  attn_norm.weight     attn_{q,k,v}.{weight,bias}     attn_{q,k}_norm.weight     attn_output.{weight,bias}
 *           ffn_norm.weight      ffn_{gate,up}.weight           ffn_down.weight */
pb_status pb_hf_tensors(const pb_model *m, pb_hf_list *out);
/* Writes transformers' module name of a target, relative to its layer, such as "self_attn.q_proj", to `out` and returns
 * it. */
const char *pb_hf_module(pb_target t, char out[32]);
/* Checks a tensor of a file. EINVAL: its shape is not the wanted one. EFORMAT: its dtype is not F32, F16 or BF16. The
 * message names the file and the tensor, and both shapes. */
pb_status pb_hf_check(const pb_hf_tensor *want, const pb_st_tensor *have);
#endif
