/* chat_deepseek_v4.c - renders conversations in DeepSeek-V4's template: tool results are part of user turns, reasoning
 * precedes the content, tool calls are in DSML, DeepSeek's XML-like markup. */
#include "trainer/data/chat_impl.h"

#define DSML                                                                                                           \
    "\xef\xbd\x9c"                                                                                                     \
    "DSML"                                                                                                             \
    "\xef\xbd\x9c"
static const char bos[] = PB_DSV4_BOS, eos[] = PB_DSV4_EOS;
static const char user_mark[] = PB_DSV4_USER, assistant_mark[] = PB_DSV4_ASSISTANT;

static const char tools_head[] =
    "## Tools\n\nYou have access to a set of tools to help answer the user's question. You can invoke tools by writing "
    "a "
    "\"<" DSML "tool_calls>\" block like the following:\n\n<" DSML "tool_calls>\n<" DSML
    "invoke name=\"$TOOL_NAME\">\n<" DSML
    "parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</" DSML "parameter>\n...\n</" DSML
    "invoke>\n<" DSML "invoke name=\"$TOOL_NAME2\">\n...\n</" DSML "invoke>\n</" DSML
    "tool_calls>\n\nString parameters should be specified as is and set `string=\"true\"`. For all other types "
    "(numbers, "
    "booleans, arrays, objects), pass the value in JSON format and set `string=\"false\"`.\n\nIf thinking_mode is "
    "enabled "
    "(triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls "
    "or "
    "final response.\n\nOtherwise, output directly after </think> with tool calls or final response.\n\n### Available "
    "Tool "
    "Schemas\n\n";
static const char tools_tail[] =
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n";

typedef struct v4 {
    const pb_chat *c;
    pb_rendered *r;
    bool thinking, drop;
    size_t last_user; /* index of the message that begins the last user turn; c->n: no user turn */
} v4;

static bool of_user(const pb_message *m) { return m->role == PB_CHAT_USER || m->role == PB_CHAT_TOOL; }

static pb_status tools_text(const v4 *x)
{
    json_t *tool;
    size_t i;
    PB_TRY(pb_append_template(x->r, "\n\n"));
    PB_TRY(pb_append_template(x->r, tools_head));
    json_array_foreach(x->c->tools, i, tool)
    {
        json_t *function = json_object_get(tool, "function");
        if (!function) return pb_fail(PB_EINVAL, "tool %zu has no object \"function\"", i + 1);
        if (i) PB_TRY(pb_append_template(x->r, "\n"));
        PB_TRY(pb_append_data_json(x->r, function));
    }
    return pb_append_template(x->r, tools_tail);
}

static pb_status system_text(const v4 *x, const pb_message *m, bool tools)
{
    const size_t a = x->r->text.n;
    PB_TRY(pb_append_data(x->r, m->content));
    if (tools) PB_TRY(tools_text(x));
    return pb_end_span(x->r, a, m, "");
}

static pb_status call_text(const v4 *x, const pb_tool_call *call)
{
    const char *between = "";
    PB_TRY(pb_append_template(x->r, "<" DSML "invoke name=\""));
    PB_TRY(pb_append_data(x->r, call->name));
    PB_TRY(pb_append_template(x->r, "\">\n"));
    for (void *it = json_object_iter(call->arguments); it; it = json_object_iter_next(call->arguments, it)) {
        const char *key = json_object_iter_key(it);
        json_t *v = json_object_iter_value(it);
        PB_TRY(pb_append_template(x->r, between));
        PB_TRY(pb_append_template(x->r, "<" DSML "parameter name=\""));
        PB_TRY(pb_append_data(x->r, (pb_json_text){key, strlen(key)}));
        PB_TRY(pb_append_template(x->r, json_is_string(v) ? "\" string=\"true\">" : "\" string=\"false\">"));
        if (json_is_string(v))
            PB_TRY(pb_append_data(x->r, (pb_json_text){json_string_value(v), json_string_length(v)}));
        else PB_TRY(pb_append_data_json(x->r, v));
        PB_TRY(pb_append_template(x->r, "</" DSML "parameter>"));
        between = "\n";
    }
    return pb_append_template(x->r, "\n</" DSML "invoke>");
}

static pb_status assistant(const v4 *x, size_t i)
{
    const pb_message *m = &x->c->message[i];
    const bool answers_last = x->last_user == x->c->n || i > x->last_user;
    const size_t a = x->r->text.n;
    if (x->thinking && (!x->drop || answers_last)) {
        PB_TRY(pb_append_data(x->r, m->reasoning));
        PB_TRY(pb_append_template(x->r, "</think>"));
    }
    PB_TRY(pb_append_data(x->r, m->content));
    for (size_t k = 0; k < m->calls; k++) {
        PB_TRY(pb_append_template(x->r, k ? "\n" : "\n\n<" DSML "tool_calls>\n"));
        PB_TRY(call_text(x, &x->c->call[m->first_call + k]));
    }
    if (m->calls) PB_TRY(pb_append_template(x->r, "\n</" DSML "tool_calls>"));
    return pb_end_span(x->r, a, m, eos);
}

/* Returns which tool call of the assistant message `caller` the tool message m answers, as an index from 0; 0 if m's id
 * is unknown. */
static size_t call_order(const pb_chat *c, const pb_message *caller, const pb_message *m)
{
    for (size_t k = caller ? caller->calls : 0; k-- > 0;) {
        const pb_json_text id = c->call[caller->first_call + k].id;
        if (id.n && id.n == m->id.n && !memcmp(id.p, m->id.p, id.n)) return k;
    }
    return 0;
}

static bool has_ids(const pb_chat *c, const pb_message *caller)
{
    for (size_t k = 0; caller && k < caller->calls; k++)
        if (c->call[caller->first_call + k].id.n) return true;
    return false;
}

typedef struct result {
    size_t order; /* index of the tool call that is answered; 0 for all if the messages stay in their order */
    size_t at;    /* index of the tool message */
} result;

static int by_call(const void *a, const void *b)
{
    const result *x = a, *y = b;
    if (x->order != y->order) return x->order < y->order ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static pb_status say_turn(const v4 *x, size_t from, size_t to, const result *results)
{
    PB_TRY(pb_append_template(x->r, user_mark));
    for (size_t i = from; i < to; i++) {
        const bool tool = x->c->message[i].role == PB_CHAT_TOOL;
        if (i > from) PB_TRY(pb_append_template(x->r, "\n\n"));
        if (tool) PB_TRY(pb_append_template(x->r, "<tool_result>"));
        PB_TRY(pb_append_data(x->r, x->c->message[tool ? results++->at : i].content));
        if (tool) PB_TRY(pb_append_template(x->r, "</tool_result>"));
    }
    if (to < x->c->n && x->c->message[to].role != PB_CHAT_ASSISTANT) return PB_OK;
    PB_TRY(pb_append_template(x->r, assistant_mark));
    return pb_append_template(x->r, x->thinking && (!x->drop || from >= x->last_user) ? "<think>" : "</think>");
}

/* Renders messages [from,to) of users and tools as one turn. Tool results are sorted in the order of their calls. */
static pb_status user_turn(const v4 *x, size_t from, size_t to, const pb_message *caller)
{
    const bool sorted = has_ids(x->c, caller);
    result *results = malloc((to - from) * sizeof *results);
    size_t n = 0;
    if (!results) return pb_fail(PB_ENOMEM, "no memory for the results of %zu tools", to - from);
    for (size_t i = from; i < to; i++)
        if (x->c->message[i].role == PB_CHAT_TOOL)
            results[n++] = (result){sorted ? call_order(x->c, caller, &x->c->message[i]) : 0, i};
    qsort(results, n, sizeof *results, by_call);
    const pb_status s = say_turn(x, from, to, results);
    free(results);
    return s;
}

pb_status pb_render_deepseek_v4(const pb_chat *c, const pb_chat_options *o, pb_rendered *r)
{
    v4 x = {c, r, o->thinking, !o->keep_thinking && !c->tools, c->n};
    const pb_message *caller = NULL, none = {.role = PB_CHAT_SYSTEM, .content = {"", 0}, .in_loss = true};
    for (size_t i = 0; i < c->n; i++)
        if (of_user(&c->message[i]) && (!i || !of_user(&c->message[i - 1]))) x.last_user = i;
    PB_TRY(pb_append_template(r, bos));
    if (c->tools && c->message[0].role != PB_CHAT_SYSTEM) PB_TRY(system_text(&x, &none, true));
    for (size_t i = 0, to; i < c->n; i = to) {
        const pb_message *m = &c->message[i];
        to = i + 1;
        if (m->role == PB_CHAT_SYSTEM) {
            PB_TRY(system_text(&x, m, !i && c->tools));
        } else if (m->role == PB_CHAT_ASSISTANT) {
            PB_TRY(assistant(&x, i));
            if (m->calls) caller = m;
        } else {
            while (to < c->n && of_user(&c->message[to])) to++;
            PB_TRY(user_turn(&x, i, to, caller));
        }
    }
    return PB_OK;
}
