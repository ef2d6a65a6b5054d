/* chat_test.h - functions that render a conversation and find a template by name, shared by the tests of chat
 * templates. */
#ifndef PB_CHAT_TEST_H
#define PB_CHAT_TEST_H
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"
#include "trainer/data/chat.h"

typedef struct rendering {
    pb_chat_options o;
    pb_rendered r;
    size_t n;
} rendering;

static inline pb_status render(void *self, const pb_chat *chat)
{
    rendering *x = self;
    x->n++;
    return pb_chat_render(chat, &x->o, &x->r);
}

static inline pb_template family_of(const char *word, size_t n)
{
    static const char *const words[] = {
#define X(id, w) w,
        PB_TEMPLATE_MAP(X)
#undef X
    };
    for (int i = 0; i < PB_NTEMPLATES; i++)
        if (strlen(words[i]) == n && !strncmp(words[i], word, n)) return (pb_template)i;
    fail_msg("no template %s", word);
    return PB_TEMPLATE_BYTES;
}
#endif
