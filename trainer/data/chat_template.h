/* chat_template.h - which of the templates of chat.h a model's own chat template is.
 *
 * A model's template is a Jinja text: the file chat_template.jinja beside the tokenizer, else "chat_template" of
 * tokenizer_config.json (of several named ones, "default"). It is recognised by what it renders, however it is written:
 * a few conversations, with tools and reasoning where a template defines them, must give the same bytes as
 * pb_chat_render. The system message that it says where a conversation has none is found out on the way. */
#ifndef PB_CHAT_TEMPLATE_H
#define PB_CHAT_TEMPLATE_H
#include "trainer/data/chat.h"

typedef struct pb_chat_template {
    const char *file; /* where it stands: "chat_template.jinja" or "tokenizer_config.json"; NULL: there is none */
    pb_template family;
    char system[PB_LONGEST_SYSTEM]; /* said where a conversation begins with no system message; "": nothing is */
} pb_chat_template;

/* Looks into the folder of a tokenizer. EFORMAT: there is a template, and it is none that is known. EINVAL: a file is
 * not what its name says; EPATH, EIO: it cannot be read. One line names the file. */
pb_status pb_chat_template_find(const char *folder, pb_chat_template *out);
/* The same from the texts of the two files; NULL: there is no such file. `folder` stands for it in messages. */
pb_status pb_chat_template_parse(const char *folder, const char *jinja, size_t jinja_n, const char *config,
                                 size_t config_n, pb_chat_template *out);
/* The tokens that begin and end the turns of a template, up to a NULL. */
const char *const *pb_chat_template_marks(pb_template family);
/* EINVAL: one of them is not one token of the vocabulary, so that the model would see it as plain text. */
pb_status pb_chat_template_check(pb_template family, pb_tokenizer *t);
#endif
