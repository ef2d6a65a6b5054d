/* chat_chatml.c - renders conversations in ChatML, and in the templates of Qwen2.5 and Qwen3, which add tools and
 * reasoning to ChatML. */
#include "trainer/data/chat_impl.h"

static const char tools_head[] =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are "
    "provided with function signatures within <tools></tools> XML tags:\n<tools>";
static const char tools_tail[] =
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
    "<args-json-object>}\n</tool_call>";
static const char qwen_system[] = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";

typedef struct chatml {
    const pb_chat *c;
    pb_rendered *r;
    pb_template family;
    const char *system; /* system message if the conversation has none; NULL: none */
    const char *start, *end;
    size_t last_query; /* Qwen3: index of the last real user message; reasoning is kept only after it */
} chatml;

static pb_status open_turn(const chatml *x, const char *role)
{
    PB_TRY(pb_append_template(x->r, x->start));
    return pb_append_template(x->r, role);
}

static pb_status tools_text(const chatml *x)
{
    json_t *tool;
    size_t i;
    PB_TRY(pb_append_template(x->r, tools_head));
    json_array_foreach(x->c->tools, i, tool)
    {
        PB_TRY(pb_append_template(x->r, "\n"));
        PB_TRY(pb_append_data_json(x->r, tool));
    }
    return pb_append_template(x->r, tools_tail);
}

/* Writes the system turn, which precedes all other messages: the conversation's system message or the default one, then
 * the tools. */
static pb_status first_turn(const chatml *x)
{
    const pb_message *m = x->c->message, none = {.role = PB_CHAT_SYSTEM, .in_loss = true};
    const bool given = m->role == PB_CHAT_SYSTEM, deflt = !given && x->system;
    const size_t a = x->r->text.n;
    if (!given && !deflt && !x->c->tools) return PB_OK;
    PB_TRY(open_turn(x, "system\n"));
    if (given) PB_TRY(pb_append_data(x->r, m->content));
    else if (deflt) PB_TRY(pb_append_template(x->r, x->system));
    if (x->c->tools && (given || deflt)) PB_TRY(pb_append_template(x->r, "\n\n"));
    if (x->c->tools) PB_TRY(tools_text(x));
    PB_TRY(pb_end_span(x->r, a, given ? m : &none, x->end));
    return pb_append_template(x->r, "\n");
}

static pb_status call_text(const chatml *x, const pb_tool_call *call, bool newline)
{
    if (newline) PB_TRY(pb_append_template(x->r, "\n"));
    PB_TRY(pb_append_template(x->r, "<tool_call>\n{\"name\": \""));
    PB_TRY(pb_append_data(x->r, call->name));
    PB_TRY(pb_append_template(x->r, "\", \"arguments\": "));
    PB_TRY(pb_append_data_json(x->r, call->arguments));
    return pb_append_template(x->r, "}\n</tool_call>");
}

/* Splits <think>...</think> from the content if "reasoning_content" is absent, as Qwen3's template does. */
static void split_reasoning(const pb_message *m, pb_json_text *reasoning, pb_json_text *content)
{
    static const char begin[] = "<think>", end[] = "</think>";
    *reasoning = m->reasoning.p ? m->reasoning : (pb_json_text){"", 0};
    *content = m->content;
    const char *first = pb_find(m->content, end, false), *last = pb_find(m->content, end, true);
    if (m->reasoning.p || !first) return;
    const char *stop = m->content.p + m->content.n, *tail = last + strlen(end);
    *content = pb_strip_newlines((pb_json_text){tail, (size_t)(stop - tail)}, true, false);
    pb_json_text head = pb_strip_newlines((pb_json_text){m->content.p, (size_t)(first - m->content.p)}, false, true);
    const char *open = pb_find(head, begin, true);
    if (open) head = (pb_json_text){open + strlen(begin), (size_t)(head.p + head.n - open) - strlen(begin)};
    *reasoning = pb_strip_newlines(head, true, false);
}

static pb_status thought(const chatml *x, size_t i, pb_json_text reasoning, pb_json_text *content)
{
    const bool last = i + 1 == x->c->n;
    if (i <= x->last_query || !(last || reasoning.n)) return PB_OK;
    PB_TRY(pb_append_template(x->r, "<think>\n"));
    PB_TRY(pb_append_data(x->r, pb_strip_newlines(reasoning, true, true)));
    *content = pb_strip_newlines(*content, true, false);
    return pb_append_template(x->r, "\n</think>\n\n");
}

static pb_status assistant(const chatml *x, size_t i)
{
    const pb_message *m = &x->c->message[i];
    const bool qwen3 = x->family == PB_TEMPLATE_QWEN3;
    pb_json_text reasoning = {"", 0}, content = m->content;
    PB_TRY(open_turn(x, "assistant\n"));
    const size_t a = x->r->text.n;
    if (qwen3) split_reasoning(m, &reasoning, &content);
    const bool some = content.n;
    if (qwen3) PB_TRY(thought(x, i, reasoning, &content));
    PB_TRY(pb_append_data(x->r, content));
    for (size_t k = 0; k < m->calls; k++) PB_TRY(call_text(x, &x->c->call[m->first_call + k], some || k));
    PB_TRY(pb_end_span(x->r, a, m, x->end));
    return pb_append_template(x->r, "\n");
}

/* Writes tool result i. Consecutive tool results form one user turn. */
static pb_status tool(const chatml *x, size_t i)
{
    const pb_message *m = &x->c->message[i];
    if (!i || m[-1].role != PB_CHAT_TOOL) PB_TRY(open_turn(x, "user"));
    PB_TRY(pb_append_template(x->r, "\n<tool_response>\n"));
    PB_TRY(pb_append_data(x->r, m->content));
    PB_TRY(pb_append_template(x->r, "\n</tool_response>"));
    if (i + 1 < x->c->n && m[1].role == PB_CHAT_TOOL) return PB_OK;
    PB_TRY(pb_append_template(x->r, x->end));
    return pb_append_template(x->r, "\n");
}

static pb_status plain(const chatml *x, size_t i)
{
    const pb_message *m = &x->c->message[i];
    const size_t a = x->r->text.n;
    PB_TRY(open_turn(x, pb_chat_role_names[m->role]));
    PB_TRY(pb_append_template(x->r, "\n"));
    PB_TRY(pb_append_data(x->r, m->content));
    if (m->role == PB_CHAT_SYSTEM) PB_TRY(pb_end_span(x->r, a, m, x->end));
    else PB_TRY(pb_append_template(x->r, x->end));
    return pb_append_template(x->r, "\n");
}

/* True for a user message, except one that is only a <tool_response>: Qwen3's template treats it as a tool result. */
static bool is_query(const pb_message *m)
{
    static const char begin[] = "<tool_response>", end[] = "</tool_response>";
    const pb_json_text t = m->content;
    if (m->role != PB_CHAT_USER) return false;
    const bool wrapped =
        t.n >= strlen(end) && !memcmp(t.p, begin, strlen(begin)) && !memcmp(t.p + t.n - strlen(end), end, strlen(end));
    return !wrapped;
}

/* The default system message; NULL: none. */
static const char *default_system(const pb_chat_options *o)
{
    if (o->family == PB_TEMPLATE_BYTES) return NULL;
    if (!o->system) return o->family == PB_TEMPLATE_QWEN2_5 ? qwen_system : NULL;
    return *o->system ? o->system : NULL;
}

pb_status pb_render_chatml(const pb_chat *c, const pb_chat_options *o, pb_rendered *r)
{
    const bool bytes = o->family == PB_TEMPLATE_BYTES;
    chatml x = {.c = c,
                .r = r,
                .family = o->family,
                .system = default_system(o),
                .start = bytes ? "<im_start>" : "<|im_start|>",
                .end = bytes ? "<im_end>" : "<|im_end|>",
                .last_query = c->n - 1};
    for (size_t i = c->n; i-- > 0;)
        if (is_query(&c->message[i])) {
            x.last_query = i;
            break;
        }
    PB_TRY(first_turn(&x));
    for (size_t i = 0; i < c->n; i++) {
        const pb_chat_role role = c->message[i].role;
        if (!i && role == PB_CHAT_SYSTEM) continue;
        if (role == PB_CHAT_ASSISTANT) PB_TRY(assistant(&x, i));
        else if (role == PB_CHAT_TOOL) PB_TRY(tool(&x, i));
        else PB_TRY(plain(&x, i));
    }
    return PB_OK;
}
