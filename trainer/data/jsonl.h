/* jsonl.h - reads conversations from JSONL, one per line. An invalid line is reported as file:line and counted.
 *
 * A line is {"messages":[...]} or {"instruction","response"[,"system","input"]}; both forms may have "tools". Other
 * keys (an id, a topic) are ignored. A message is {"role","content"} with role system, user, assistant or tool. An
 * assistant message may have "reasoning_content" and "tool_calls" (then "content" may be missing or null), a tool
 * message "tool_call_id". A call is {"id"?,"function":{"name","arguments"}} or {"id"?,"name","arguments"}; the
 * arguments are an object, or a string that contains one. A message with "step_loss_mask" other than 1 does not count
 * in the loss. "instruction" becomes the user message; a non-empty "input" is appended to it after a newline.
 *
 * Invalid: bytes that are not UTF-8, NUL (also as \u0000), duplicate keys, integers beyond 64 bits, nesting deeper than
 * 2048, lines of more than PB_JSONL_LINE bytes. Blank lines are counted and skipped. */
#ifndef PB_JSONL_H
#define PB_JSONL_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "trainer/tokenizer/json.h"

enum { PB_JSONL_LINE = 1 << 24, PB_JSONL_KEPT = 8 };

/* Treatment of malformed lines. X(enumerator, word on the command line, meaning) */
#define PB_BAD_LINES_MAP(X)                                                                                            \
    X(FAIL, "fail", "the first bad line is an error")                                                                  \
    X(SKIP, "skip", "bad lines are skipped and counted")
typedef enum pb_bad_lines {
#define X(id, word, what) PB_BAD_LINES_##id,
    PB_BAD_LINES_MAP(X)
#undef X
        PB_NBAD_LINES
} pb_bad_lines;

#define PB_CHAT_ROLE_MAP(X) X(SYSTEM, "system") X(USER, "user") X(ASSISTANT, "assistant") X(TOOL, "tool")
typedef enum pb_chat_role {
#define X(id, word) PB_CHAT_##id,
    PB_CHAT_ROLE_MAP(X)
#undef X
        PB_NCHAT_ROLES
} pb_chat_role;
extern const char *const pb_chat_role_names[PB_NCHAT_ROLES];

typedef struct pb_tool_call {
    pb_json_text name, id; /* id may be empty */
    json_t *arguments;     /* an object */
} pb_tool_call;

typedef struct pb_message {
    pb_chat_role role;
    pb_json_text content;     /* empty if absent */
    pb_json_text reasoning;   /* p is NULL if absent */
    pb_json_text id;          /* of a tool message: the id of the call it answers; may be empty */
    size_t first_call, calls; /* its tool calls: pb_chat.call[first_call .. first_call + calls) */
    bool in_loss;             /* false: does not count in the loss ("step_loss_mask") */
} pb_message;

typedef struct pb_chat { /* one conversation; valid only during the call of pb_chat_fn that receives it */
    pb_message *message; /* [n], n >= 1 */
    size_t n;
    pb_tool_call *call;
    json_t *tools; /* a non-empty array of objects, or NULL */
} pb_chat;

typedef struct pb_jsonl_counts {
    size_t lines, blank, samples, bad; /* lines = blank + samples + bad */
    char kept[PB_JSONL_KEPT][240];     /* "file:line: reason" of the first bad lines */
} pb_jsonl_counts;

/* Receives one conversation. EINVAL and EFORMAT count its line as bad; any other failure ends the reading. */
typedef pb_status (*pb_chat_fn)(void *self, const pb_chat *chat);

/* Reads a file and passes every conversation to `take`, in order. A UTF-8 byte order mark at the beginning is skipped.
 * *counts is filled in any case. EPATH, EIO: the file cannot be read. With PB_BAD_LINES_FAIL the first bad line ends
 * the reading with its status and message. */
pb_status pb_jsonl_read(const char *path, pb_bad_lines policy, pb_chat_fn take, void *self, pb_jsonl_counts *counts);
/* Like pb_jsonl_read, for n bytes in memory. `name` is used as the path in messages. */
pb_status pb_jsonl_parse(const char *name, const char *bytes, size_t n, pb_bad_lines policy, pb_chat_fn take,
                         void *self, pb_jsonl_counts *counts);
#endif
