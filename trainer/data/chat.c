/* chat.c - rejects a conversation with features that its family's template does not support, and calls the family's
 * renderer. The renderer of llama3 is in this file. */
#include "trainer/data/chat.h"

#include "trainer/data/chat_impl.h"
#include "trainer/tokenizer/unicode.h"

static const struct {
    const char *name;
    bool tools, reasoning;
} families[PB_NTEMPLATES] = {
    [PB_TEMPLATE_BYTES] = {"bytes", false, false},    [PB_TEMPLATE_CHATML] = {"chatml", false, false},
    [PB_TEMPLATE_QWEN2_5] = {"qwen2.5", true, false}, [PB_TEMPLATE_QWEN3] = {"qwen3", true, true},
    [PB_TEMPLATE_LLAMA3] = {"llama3", false, false},  [PB_TEMPLATE_DEEPSEEK_V4] = {"deepseek-v4", true, true},
};

void pb_rendered_free(pb_rendered *r)
{
    pb_bytes_free(&r->text);
    free(r->span);
    free(r->data_ranges);
    *r = (pb_rendered){0};
}

const char *pb_find(pb_json_text t, const char *s, bool last)
{
    const size_t n = strlen(s);
    const char *found = NULL;
    for (size_t i = 0; i + n <= t.n && (last || !found); i++)
        if (!memcmp(t.p + i, s, n)) found = t.p + i;
    return found;
}

pb_json_text pb_strip_newlines(pb_json_text t, bool left, bool right)
{
    while (left && t.n && t.p[0] == '\n') t.p++, t.n--;
    while (right && t.n && t.p[t.n - 1] == '\n') t.n--;
    return t;
}

static pb_status check(const pb_chat *c, pb_template family)
{
    const char *name = families[family].name;
    const bool tools = families[family].tools;
    if (c->tools && !tools)
        return pb_fail(PB_EFORMAT, "the line has \"tools\", but template %s does not support tools", name);
    for (size_t i = 0; i < c->n; i++) {
        const pb_message *m = &c->message[i];
        if (!tools && (m->calls || m->role == PB_CHAT_TOOL))
            return pb_fail(PB_EFORMAT, "message %zu: template %s does not support tool %s", i + 1, name,
                           m->calls ? "calls" : "results");
        if (m->reasoning.n && !families[family].reasoning)
            return pb_fail(PB_EFORMAT, "message %zu: template %s does not support \"reasoning_content\"", i + 1, name);
    }
    return PB_OK;
}

/* Returns true if Python's str.strip removes the character at s: if it has the property White_Space or is one of U+001C
 * to U+001F. *len receives its length in bytes. */
static bool blank(const char *s, size_t n, size_t *len)
{
    uint32_t cp = 0;
    *len = n ? pb_tok_char(s, n, &cp) : 0;
    return *len && (pb_tok_is_space(cp) || (cp >= 0x1c && cp <= 0x1f));
}

static pb_json_text trim(pb_json_text t)
{
    size_t len;
    while (blank(t.p, t.n, &len)) t.p += len, t.n -= len;
    while (t.n) {
        const size_t last = pb_tok_char_before(t.p, t.n);
        if (!blank(t.p + last, t.n - last, &len)) break;
        t.n = last;
    }
    return t;
}

pb_status pb_render_llama3(const pb_chat *c, pb_rendered *r)
{
    PB_TRY(pb_append_template(r, "<|begin_of_text|>"));
    for (size_t i = 0; i < c->n; i++) {
        const pb_message *m = &c->message[i];
        const size_t whole = r->text.n;
        PB_TRY(pb_append_template(r, "<|start_header_id|>"));
        PB_TRY(pb_append_template(r, pb_chat_role_names[m->role]));
        PB_TRY(pb_append_template(r, "<|end_header_id|>\n\n"));
        const size_t content = r->text.n;
        PB_TRY(pb_append_data(r, trim(m->content)));
        if (m->role == PB_CHAT_USER) PB_TRY(pb_append_template(r, "<|eot_id|>"));
        else PB_TRY(pb_end_span(r, m->role == PB_CHAT_SYSTEM ? whole : content, m, "<|eot_id|>"));
    }
    return PB_OK;
}

const char *pb_chat_end(pb_template family)
{
    switch (family) {
    case PB_TEMPLATE_BYTES: return "<im_end>";
    case PB_TEMPLATE_LLAMA3: return "<|eot_id|>";
    case PB_TEMPLATE_DEEPSEEK_V4: return PB_DSV4_EOS;
    default: return "<|im_end|>";
    }
}

/* Appends what begins the assistant's next message. In the template of DeepSeek-V4 it is part of the user's turn. */
static pb_status begin_answer(pb_template family, pb_rendered *r)
{
    switch (family) {
    case PB_TEMPLATE_BYTES: return pb_append_template(r, "<im_start>assistant\n");
    case PB_TEMPLATE_LLAMA3: return pb_append_template(r, "<|start_header_id|>assistant<|end_header_id|>\n\n");
    case PB_TEMPLATE_DEEPSEEK_V4: return PB_OK;
    default: return pb_append_template(r, "<|im_start|>assistant\n");
    }
}

static pb_status render(const pb_chat *chat, const pb_chat_options *o, pb_rendered *out)
{
    if (o->family == PB_TEMPLATE_LLAMA3) return pb_render_llama3(chat, out);
    if (o->family == PB_TEMPLATE_DEEPSEEK_V4) return pb_render_deepseek_v4(chat, o, out);
    return pb_render_chatml(chat, o, out);
}

pb_status pb_chat_render(const pb_chat *chat, const pb_chat_options *o, pb_rendered *out)
{
    out->text.n = out->n = out->ndata_ranges = 0;
    PB_TRY(check(chat, o->family));
    if (o->answer && chat->message[chat->n - 1].role != PB_CHAT_USER)
        return pb_fail(PB_EINVAL, "the last message is not the user's, so the assistant cannot answer it");
    PB_TRY(render(chat, o, out));
    return o->answer ? begin_answer(o->family, out) : PB_OK;
}
