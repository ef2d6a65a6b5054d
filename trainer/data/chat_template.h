/* chat_template.h - determines which of the templates of chat.h a model's own chat template is.
 *
 * A model's template is a Jinja text: the file chat_template.jinja in the tokenizer's folder, else "chat_template" in
 * tokenizer_config.json (of several named templates, "default"). It is recognised by its output, not by its text: it
 * renders a few conversations, with tools and reasoning for families that define them, and the output must equal that
 * of pb_chat_render. The first rendering also shows the template's default system message. */
#ifndef PB_CHAT_TEMPLATE_H
#define PB_CHAT_TEMPLATE_H
#include "trainer/data/chat.h"

typedef struct pb_chat_template {
    /* The file with the template: "chat_template.jinja" or "tokenizer_config.json"; NULL: the folder has no
     * template. */
    const char *file;
    pb_template family;
    char system[PB_LONGEST_SYSTEM]; /* default system message of the template; "": none */
} pb_chat_template;

/* Looks for a template in a tokenizer's folder. EFORMAT: the template renders differently from every family of chat.h.
 * EINVAL: a file is malformed. EPATH, EIO: a file cannot be read. The message is one line and names the file. */
pb_status pb_chat_template_find(const char *folder, pb_chat_template *out);
/* Like pb_chat_template_find, but from the texts of the two files. NULL: the file does not exist. `folder` is used in
 * messages only. */
pb_status pb_chat_template_parse(const char *folder, const char *jinja, size_t jinja_n, const char *config,
                                 size_t config_n, pb_chat_template *out);
/* The special tokens that begin and end the turns of a template; the list ends with NULL. */
const char *const *pb_chat_template_marks(pb_template family);
/* Checks that the vocabulary has each token of pb_chat_template_marks. EINVAL: it lacks one, which the model would then
 * see as plain text. */
pb_status pb_chat_template_check(pb_template family, pb_tokenizer *t);
#endif
