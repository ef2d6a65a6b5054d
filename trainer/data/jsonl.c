/* jsonl.c - reads conversations from JSONL, and counts valid, blank and bad lines. */
#include "trainer/data/jsonl.h"

#include <errno.h>
#include <stdio.h>

#include "os/file.h"
#include "trainer/tokenizer/unicode.h"

const char *const pb_chat_role_names[PB_NCHAT_ROLES] = {
#define X(id, word) word,
    PB_CHAT_ROLE_MAP(X)
#undef X
};

typedef struct reader {
    const char *name;
    pb_bad_lines policy;
    pb_chat_fn take;
    void *self;
    pb_jsonl_counts *counts;
    pb_chat chat;
    size_t messages_room, calls, calls_room;
    pb_bytes joined; /* "instruction", a newline and "input": the user message */
} reader;

/* ---- parsing one line ---------------------------------------------------------------------------- */

/* Reads a string. If the key is absent or null, *out is unchanged. */
static pb_status text_or_absent(json_t *o, const char *where, const char *key, pb_json_text *out)
{
    return pb_json_absent(json_object_get(o, key)) ? PB_OK : pb_json_get_text(o, where, key, out);
}

static pb_status read_call(reader *r, json_t *o, const char *where)
{
    json_t *function = json_object_get(o, "function"), *inner = function ? function : o;
    json_t *arguments = json_object_get(inner, "arguments");
    json_error_t e;
    pb_tool_call call = {.id = {"", 0}};
    if (!json_is_object(o) || !json_is_object(inner))
        return pb_fail(PB_EINVAL, "%s: a tool call is not an object", where);
    PB_TRY(pb_json_get_text(inner, where, "name", &call.name));
    PB_TRY(text_or_absent(o, where, "id", &call.id));
    if (json_is_string(arguments)) {
        arguments = json_loadb(json_string_value(arguments), json_string_length(arguments), JSON_REJECT_DUPLICATES, &e);
        if (!arguments) return pb_fail(PB_EINVAL, "%s: \"arguments\" is not JSON: %s", where, e.text);
        if (json_object_set_new(inner, "arguments", arguments) != 0)
            return pb_fail(PB_ENOMEM, "%s: no memory for a tool call", where);
    }
    if (!json_is_object(arguments)) return pb_fail(PB_EINVAL, "%s: \"arguments\" is not an object", where);
    call.arguments = arguments;
    PB_TOK_ROOM(r->chat.call, r->calls_room, r->calls + 1);
    r->chat.call[r->calls++] = call;
    return PB_OK;
}

static pb_status read_calls(reader *r, json_t *list, const char *where, pb_message *m)
{
    json_t *call;
    size_t i;
    m->first_call = r->calls;
    if (pb_json_absent(list)) return PB_OK;
    if (!json_is_array(list)) return pb_fail(PB_EINVAL, "%s: \"tool_calls\" is not a list", where);
    if (m->role != PB_CHAT_ASSISTANT && json_array_size(list))
        return pb_fail(PB_EINVAL, "%s: only an assistant message may have \"tool_calls\"", where);
    json_array_foreach(list, i, call) PB_TRY(read_call(r, call, where));
    m->calls = json_array_size(list);
    return PB_OK;
}

static pb_status read_role(json_t *o, const char *where, pb_chat_role *out)
{
    pb_json_text role;
    PB_TRY(pb_json_get_text(o, where, "role", &role));
    for (int i = 0; i < PB_NCHAT_ROLES; i++) {
        if (strcmp(role.p, pb_chat_role_names[i]) != 0) continue;
        *out = (pb_chat_role)i;
        return PB_OK;
    }
    return pb_fail(PB_EFORMAT, "%s: role \"%.40s\" is not supported", where, role.p);
}

static pb_status push(reader *r, const pb_message *m)
{
    PB_TOK_ROOM(r->chat.message, r->messages_room, r->chat.n + 1);
    r->chat.message[r->chat.n++] = *m;
    return PB_OK;
}

static pb_status read_message(reader *r, json_t *o)
{
    char where[48];
    pb_message m = {.content = {"", 0}, .id = {"", 0}, .in_loss = true};
    json_t *step = json_object_get(o, "step_loss_mask");
    snprintf(where, sizeof where, "message %zu", r->chat.n + 1);
    if (!json_is_object(o)) return pb_fail(PB_EINVAL, "%s is not an object", where);
    PB_TRY(read_role(o, where, &m.role));
    PB_TRY(read_calls(r, json_object_get(o, "tool_calls"), where, &m));
    if (m.calls) PB_TRY(text_or_absent(o, where, "content", &m.content));
    else PB_TRY(pb_json_get_text(o, where, "content", &m.content));
    PB_TRY(text_or_absent(o, where, "reasoning_content", &m.reasoning));
    PB_TRY(text_or_absent(o, where, "tool_call_id", &m.id));
    if (m.reasoning.p && m.role != PB_CHAT_ASSISTANT)
        return pb_fail(PB_EINVAL, "%s: only an assistant message may have \"reasoning_content\"", where);
    if (!pb_json_absent(step) && !json_is_number(step))
        return pb_fail(PB_EINVAL, "%s: \"step_loss_mask\" is not a number", where);
    m.in_loss = pb_json_absent(step) || json_number_value(step) == 1;
    return push(r, &m);
}

static pb_status read_messages(reader *r, json_t *list)
{
    json_t *message;
    size_t i;
    if (!json_is_array(list) || !json_array_size(list))
        return pb_fail(PB_EINVAL, "\"messages\" is not a list of messages");
    json_array_foreach(list, i, message) PB_TRY(read_message(r, message));
    return PB_OK;
}

static pb_status read_instruction(reader *r, json_t *root)
{
    pb_json_text system = {"", 0}, input = {"", 0};
    pb_message user = {.role = PB_CHAT_USER, .id = {"", 0}, .in_loss = true}, answer = user;
    answer.role = PB_CHAT_ASSISTANT;
    PB_TRY(pb_json_get_text(root, "line", "instruction", &user.content));
    PB_TRY(pb_json_get_text(root, "line", "response", &answer.content));
    PB_TRY(text_or_absent(root, "line", "system", &system));
    PB_TRY(text_or_absent(root, "line", "input", &input));
    if (system.n)
        PB_TRY(push(r, &(pb_message){.role = PB_CHAT_SYSTEM, .content = system, .id = {"", 0}, .in_loss = true}));
    if (input.n) {
        r->joined.n = 0;
        PB_TRY(pb_tok_append(&r->joined, user.content.p, user.content.n));
        PB_TRY(pb_tok_append(&r->joined, "\n", 1));
        PB_TRY(pb_tok_append(&r->joined, input.p, input.n));
        user.content = (pb_json_text){r->joined.p, r->joined.n};
    }
    PB_TRY(push(r, &user));
    return push(r, &answer);
}

static pb_status read_tools(reader *r, json_t *tools)
{
    json_t *tool;
    size_t i;
    r->chat.tools = NULL;
    if (pb_json_absent(tools)) return PB_OK;
    if (!json_is_array(tools)) return pb_fail(PB_EINVAL, "\"tools\" is not a list");
    json_array_foreach(tools, i, tool)
    {
        if (!json_is_object(tool)) return pb_fail(PB_EINVAL, "tool %zu is not an object", i + 1);
    }
    if (json_array_size(tools)) r->chat.tools = tools;
    return PB_OK;
}

static pb_status read_chat(reader *r, json_t *root)
{
    json_t *messages = json_object_get(root, "messages");
    r->chat.n = r->calls = 0;
    if (!json_is_object(root)) return pb_fail(PB_EINVAL, "the line is not a JSON object");
    if (messages && json_object_get(root, "instruction"))
        return pb_fail(PB_EINVAL, "the line has both \"messages\" and \"instruction\"");
    if (!messages && !json_object_get(root, "instruction"))
        return pb_fail(PB_EINVAL, "the line has neither \"messages\" nor \"instruction\"");
    PB_TRY(read_tools(r, json_object_get(root, "tools")));
    return messages ? read_messages(r, messages) : read_instruction(r, root);
}

static pb_status read_line(reader *r, const char *s, size_t n)
{
    json_error_t e;
    if (memchr(s, 0, n)) return pb_fail(PB_EINVAL, "the line contains a NUL byte");
    if (pb_tok_valid(s, n) != n) return pb_fail(PB_EINVAL, "byte %zu of the line is not UTF-8", pb_tok_valid(s, n) + 1);
    json_t *root = json_loadb(s, n, JSON_REJECT_DUPLICATES, &e);
    if (!root && json_error_code(&e) == json_error_out_of_memory) return pb_fail(PB_ENOMEM, "no memory for the line");
    if (!root) return pb_fail(PB_EINVAL, "column %d: %s", e.column, e.text);
    pb_status status = read_chat(r, root);
    if (status == PB_OK) status = r->take(r->self, &r->chat);
    json_decref(root);
    return status;
}

/* ---- reading all lines ---------------------------------------------------------------------------- */

/* Prefixes the current error message with file:line, and makes it one line of ASCII: other bytes become '?', because
 * truncation may have split a UTF-8 character. */
static pb_status blame(const reader *r, pb_status s)
{
    char text[200];
    snprintf(text, sizeof text, "%s", pb_error());
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f) *c = '?';
    return pb_fail(s, "%s:%zu: %s", r->name, r->counts->lines, text);
}

static pb_status account(reader *r, pb_status s)
{
    pb_jsonl_counts *c = r->counts;
    if (s == PB_OK) {
        c->samples++;
        return PB_OK;
    }
    s = blame(r, s);
    if (s != PB_EINVAL && s != PB_EFORMAT) return s;
    if (c->bad < PB_JSONL_KEPT) snprintf(c->kept[c->bad], sizeof c->kept[0], "%s", pb_error());
    c->bad++;
    return r->policy == PB_BAD_LINES_SKIP ? PB_OK : s;
}

/* Parses one line, without its newline. whole false: the line exceeded PB_JSONL_LINE bytes, and s holds only its
 * beginning. */
static pb_status line(reader *r, const char *s, size_t n, bool whole)
{
    static const char mark[] = "\xef\xbb\xbf"; /* UTF-8 byte order mark, which some editors write */
    size_t blank = 0;
    if (!r->counts->lines++ && n >= sizeof mark - 1 && memcmp(s, mark, sizeof mark - 1) == 0)
        s += sizeof mark - 1, n -= sizeof mark - 1;
    if (!whole || n > PB_JSONL_LINE)
        return account(r, pb_fail(PB_EINVAL, "the line has more than %d bytes", PB_JSONL_LINE));
    while (blank < n && (s[blank] == ' ' || s[blank] == '\t' || s[blank] == '\r')) blank++;
    if (blank == n) {
        r->counts->blank++;
        return PB_OK;
    }
    return account(r, read_line(r, s, n));
}

static void close_reader(reader *r)
{
    free(r->chat.message);
    free(r->chat.call);
    pb_bytes_free(&r->joined);
}

pb_status pb_jsonl_parse(const char *name, const char *bytes, size_t n, pb_bad_lines policy, pb_chat_fn take,
                         void *self, pb_jsonl_counts *counts)
{
    reader r = {.name = name, .policy = policy, .take = take, .self = self, .counts = counts};
    pb_status s = PB_OK;
    *counts = (pb_jsonl_counts){0};
    for (size_t i = 0; s == PB_OK && i < n;) {
        const char *end = memchr(bytes + i, '\n', n - i);
        const size_t len = end ? (size_t)(end - (bytes + i)) : n - i;
        s = line(&r, bytes + i, len, true);
        i += len + 1;
    }
    close_reader(&r);
    return s;
}

/* Reads the next line into *out, without its newline. *there: false at the end of the file. *whole: false if the line
 * exceeds PB_JSONL_LINE bytes; the excess is discarded. */
static pb_status next_line(FILE *f, pb_bytes *out, bool *whole, bool *there)
{
    int c;
    out->n = 0;
    *whole = true;
    *there = false;
    while ((c = getc_unlocked(f)) != EOF) {
        *there = true;
        if (c == '\n') break;
        *whole = out->n < PB_JSONL_LINE;
        if (!*whole) continue;
        PB_TOK_ROOM(out->p, out->room, out->n + 1);
        out->p[out->n++] = (char)c;
    }
    return PB_OK;
}

pb_status pb_jsonl_read(const char *path, pb_bad_lines policy, pb_chat_fn take, void *self, pb_jsonl_counts *counts)
{
    reader r = {.name = path, .policy = policy, .take = take, .self = self, .counts = counts};
    pb_bytes text = {0};
    bool whole, there = true;
    *counts = (pb_jsonl_counts){0};
    FILE *f;
    PB_TRY(pb_file_read(path, &f));
    pb_status s = PB_OK;
    while (s == PB_OK && there) {
        s = next_line(f, &text, &whole, &there);
        if (s == PB_OK && there) s = line(&r, text.n ? text.p : "", text.n, whole);
    }
    if (s == PB_OK && ferror(f)) s = pb_fail_errno(errno, "%s", path);
    fclose(f);
    pb_bytes_free(&text);
    close_reader(&r);
    return s;
}
