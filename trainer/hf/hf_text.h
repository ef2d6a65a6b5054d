/* hf_text.h - the files of a Hugging Face folder that say how text becomes token ids and how a model generates: what an
 * export takes over unchanged from where the model came from. */
#ifndef PB_HF_TEXT_H
#define PB_HF_TEXT_H
#include "os/status.h"

typedef struct pb_hf_text {
    const char *model;     /* the folder the model was loaded from, for generation_config.json; NULL: none */
    const char *tokenizer; /* the tokenizer.json in use, under whatever name; NULL: none, text is bytes */
    const char *beside;    /* the folder of the other files of that tokenizer; NULL: none */
} pb_hf_text;

/* Copies into the folder `to`, each file whole (os/draft.h): `tokenizer` as tokenizer.json; from `beside`, those there
 * are of tokenizer_config.json, special_tokens_map.json, vocab.json, merges.txt, added_tokens.json and
 * chat_template.jinja; generation_config.json from `model`. Files of these names that have no source are removed from
 * `to`, because readers would take them for this model's; not when `to` is one of the folders above. EPATH, EIO name
 * the file; EINVAL: one has more than 2^28 bytes. */
pb_status pb_hf_text_copy(const pb_hf_text *from, const char *to);
#endif
