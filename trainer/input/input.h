/* input.h - the model and the text that a program trains on or measures, found from their names on the command line:
 * the one loader of `train` and `bench`.
 *
 *     model      a name in model.def, whose weights are random and seeded, a Hugging Face folder, or a GGUF file
 *     data       a file of conversations (jsonl.h); without one the shipped conversations
 *     tokenizer  a tokenizer.json or its folder; a GGUF file; "bytes"; without one that of the model's folder or GGUF
 *                file, of a geometry "bytes"
 *     template   the word of a chat template (chat.h); without one the template that the tokenizer's folder or GGUF
 *                file contains, else that of the model's family; with the byte tokenizer always "bytes"
 *
 * Only configuration files are read until pb_input_open_text. Messages are one line and name the option or the file. */
#ifndef PB_INPUT_H
#define PB_INPUT_H
#include "trainer/data/chat_template.h"
#include "trainer/data/dataset.h"
#include "trainer/hf/hf_config.h"

enum { PB_INPUT_PATH = 1024 };

typedef struct pb_input {
    const pb_geometry *geometry;            /* built-in, or that of `hf` */
    const char *path;                       /* borrowed: the model's folder or GGUF file; NULL: a built-in geometry */
    pb_hf_config hf;                        /* valid if there is a path. It must not move, so neither may this struct */
    const char *data_path, *tokenizer_path; /* tokenizer_path NULL: the byte tokenizer */
    const char *tokenizer_folder;           /* folder of tokenizer_config.json; NULL: none */
    pb_chat_template found;                 /* the chat template in tokenizer_folder or in the GGUF file */
    /* The source of the template, for messages: the name of an option or of a file, or "the model's family". */
    const char *template_from;
    pb_chat_options chat;         /* the family of the template and its default system message */
    char paths[3][PB_INPUT_PATH]; /* storage of data_path, tokenizer_path and tokenizer_folder */
} pb_input;

/* True if `model` is to be read as a path: it is not the name of a geometry, and it contains a "/", or is a folder or a
 * GGUF file. */
bool pb_input_is_path(const char *model);
/* Finds the model; call it first. EINVAL: neither a geometry nor a folder or GGUF file has this name. Errors of a
 * folder's config.json and of a GGUF file as pb_hf_config_open. */
pb_status pb_input_find_model(pb_input *in, const char *model);
/* Finds the tokenizer alone; tokenizer NULL: not given. EINVAL: the model's folder has none, or a path is too long. */
pb_status pb_input_find_tokenizer(pb_input *in, const char *tokenizer);
/* Finds data, tokenizer and template. data, tokenizer NULL, template -1 (else a pb_template): not given. EINVAL: the
 * model's folder has no tokenizer, a path is too long, or template and tokenizer do not fit. Errors of the tokenizer's
 * template as pb_chat_template_find. */
pb_status pb_input_find_text(pb_input *in, const char *data, const char *tokenizer, int template);
/* Opens the tokenizer. EINVAL: it has more ids than the model's vocabulary, or lacks a token of the template. Errors of
 * tokenizer.json as pb_tokenizer_open. The caller closes *out. */
pb_status pb_input_open_tokenizer(const pb_input *in, const pb_chat_options *chat, pb_tokenizer **out);
#endif
