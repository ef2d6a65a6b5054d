/* hf_text.h - copies the files of a Hugging Face folder that define tokenisation and generation: an export takes them
 * unchanged from the original model. */
#ifndef PB_HF_TEXT_H
#define PB_HF_TEXT_H
#include "os/status.h"

typedef struct pb_hf_text {
    /* folder or GGUF file the model was loaded from, the source of generation_config.json; NULL: none */
    const char *model;
    /* path of the tokenizer.json in use, which may have another name, or of a GGUF file; NULL: byte tokenizer */
    const char *tokenizer;
    const char *tokenizer_folder; /* folder with the other files of this tokenizer; NULL: none */
} pb_hf_text;

/* Copies files into the folder `to`, each atomically (os/draft.h): `tokenizer` as tokenizer.json; from the folder
 * `tokenizer_folder`, those that exist of tokenizer_config.json, special_tokens_map.json, vocab.json, merges.txt,
 * added_tokens.json and chat_template.jinja; generation_config.json from the folder `model`. A file of these names that
 * has no source is removed from `to`, because readers would use it for this model. Nothing is removed if `to` is itself
 * `model` or `tokenizer_folder`. If `tokenizer` or
 * `model` is a GGUF file, the files are made from it (hf_gguf.h). EPATH, EIO: the message names the
 * file. EINVAL: a file has more than 2^28 bytes. Errors of a GGUF file as pb_hf_gguf_tokenizer. */
pb_status pb_hf_text_copy(const pb_hf_text *from, const char *to);
#endif
