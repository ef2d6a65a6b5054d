/* hf_gguf.h - makes the configuration files of a Hugging Face folder from the metadata of a GGUF file, so that the
 * readers of those files read GGUF files too.
 *
 * config.json is made of these keys: general.architecture, which is llama, qwen2 or qwen3 (A below); A.block_count,
 * A.embedding_length, A.feed_forward_length, A.attention.head_count and head_count_kv, A.attention.key_length,
 * A.context_length, A.attention.layer_norm_rms_epsilon, A.rope.freq_base; A.rope.scaling of type none, linear or yarn.
 * The vocabulary is as large as token_embd.weight; the head is tied if there is no output.weight. rope_freqs.weight
 * must be what RoPE scaled as in Llama 3.1 gives (low_freq 1, high_freq 4, original_len 8192), and sets that scaling.
 *
 * tokenizer.json: tokenizer.ggml.model "gpt2" (byte-level BPE) with a tokenizer.ggml.pre of gguf_pre.def; tokens, of
 * which those of type control are special, those of type user defined added, those of type unused left out; merges.
 * tokenizer_config.json: tokenizer.chat_template, and the tokens bos, eos, unknown and padding.
 *
 * generation_config.json: eos_token_id is the list of tokenizer.ggml.eos_token_id (end of a text) and eot_token_id (end
 * of a message), if the file has them. */
#ifndef PB_HF_GGUF_H
#define PB_HF_GGUF_H
#include "trainer/io/gguf.h"
#include "trainer/tokenizer/tokenizer.h"

/* Each writes the text of a file to *out, NUL-terminated, which the caller frees. EINVAL: a value is missing, of
 * another type or out of range. EFORMAT: it asks for something that is not listed above. One line names the file and
 * the key. */
pb_status pb_hf_gguf_config(const pb_gguf *f, char **out);
pb_status pb_hf_gguf_tokenizer(const pb_gguf *f, char **out);
pb_status pb_hf_gguf_tokenizer_config(const pb_gguf *f, char **out);
pb_status pb_hf_gguf_generation(const pb_gguf *f, char **out);

/* Opens a tokenizer.json, a folder with one, the tokenizer in a GGUF file, or the byte tokenizer (NULL). Errors as
 * pb_gguf_open, pb_hf_gguf_tokenizer and pb_tokenizer_open. */
pb_status pb_hf_tokenizer_open(const char *path, pb_tokenizer **out);
/* Opens the file and calls one of the functions above. */
pb_status pb_hf_gguf_text(const char *path, pb_status (*make)(const pb_gguf *f, char **out), char **out);
#endif
