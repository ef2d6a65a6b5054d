/* chat_impl.h - functions shared by the renderers of all families: they append text, and record which bytes come from
 * the data. */
#ifndef PB_CHAT_IMPL_H
#define PB_CHAT_IMPL_H
#include "trainer/data/chat.h"
#include "trainer/data/dump.h"

/* Special tokens of deepseek-v4: <|word|> with fullwidth bars; U+2581 joins the words. */
#define PB_DSV4_MARK(word) "<\xef\xbd\x9c" word "\xef\xbd\x9c>"
#define PB_DSV4_BOS        PB_DSV4_MARK("begin\xe2\x96\x81of\xe2\x96\x81sentence")
#define PB_DSV4_EOS        PB_DSV4_MARK("end\xe2\x96\x81of\xe2\x96\x81sentence")
#define PB_DSV4_USER       PB_DSV4_MARK("User")
#define PB_DSV4_ASSISTANT  PB_DSV4_MARK("Assistant")

/* Appends text that the template prescribes. */
static inline pb_status pb_append_template(pb_rendered *r, const char *s)
{
    return pb_tok_append(&r->text, s, strlen(s));
}

/* Appends text copied from the data, and records its bytes in r->data_ranges. */
static inline pb_status pb_append_data(pb_rendered *r, pb_json_text t)
{
    if (!t.n) return PB_OK;
    PB_TOK_ROOM(r->data_ranges, r->data_room, r->ndata_ranges + 1);
    r->data_ranges[r->ndata_ranges++] = (pb_data_range){r->text.n, r->text.n + t.n};
    return pb_tok_append(&r->text, t.p, t.n);
}

static inline pb_status pb_append_data_json(pb_rendered *r, json_t *v)
{
    const size_t a = r->text.n;
    PB_TRY(pb_dump(v, &r->text));
    PB_TOK_ROOM(r->data_ranges, r->data_room, r->ndata_ranges + 1);
    r->data_ranges[r->ndata_ranges++] = (pb_data_range){a, r->text.n};
    return PB_OK;
}

/* Appends the token that ends the turn, and records the span of message m: from `a` to the end of the text. */
static inline pb_status pb_end_span(pb_rendered *r, size_t a, const pb_message *m, const char *end)
{
    const size_t content_end = r->text.n;
    PB_TRY(pb_append_template(r, end));
    PB_TOK_ROOM(r->span, r->room, r->n + 1);
    r->span[r->n++] = (pb_span){a, content_end, r->text.n, m->role, m->in_loss};
    return PB_OK;
}

static inline bool pb_is(pb_json_text t, const char *s) { return t.n == strlen(s) && !memcmp(t.p, s, t.n); }
/* Returns the first or the last occurrence of s in t; NULL: not found. */
const char *pb_find(pb_json_text t, const char *s, bool last);
/* Removes newlines at the beginning (left) and at the end (right). */
pb_json_text pb_strip_newlines(pb_json_text t, bool left, bool right);

/* Renders a conversation in the template chatml, bytes, qwen2.5 or qwen3. */
pb_status pb_render_chatml(const pb_chat *chat, const pb_chat_options *o, pb_rendered *r);
pb_status pb_render_llama3(const pb_chat *chat, pb_rendered *r);
pb_status pb_render_deepseek_v4(const pb_chat *chat, const pb_chat_options *o, pb_rendered *r);
#endif
