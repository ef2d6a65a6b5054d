/* chat.h - a conversation as the text a model family expects, and which bytes of it are whose.
 *
 * chatml, qwen2.5, qwen3 and llama3 give what the families' jinja templates give (tokenizer_config.json), deepseek-v4
 * what its encoding_dsv4.py gives, byte for byte, without a generation prompt. What a family does not define (tools,
 * reasoning) is refused by name, except that earlier reasoning is left out where the family's template leaves it out.
 *
 *   bytes        chatml with the two markers of the byte tokenizer
 *   chatml       <|im_start|>role\n content <|im_end|>\n for each message; a default system message if one is given
 *   qwen2.5      chatml; a default system message when the first is none; tools
 *   qwen3        chatml; tools; <think>\n reasoning \n</think>\n\n before what answers the last user
 *   llama3       <|begin_of_text|>, then <|start_header_id|>role<|end_header_id|>\n\n trimmed content <|eot_id|>
 *   deepseek-v4  bos, system text bare, <user>content, <assistant></think> content, tools as DSML, eos */
#ifndef PB_CHAT_H
#define PB_CHAT_H
#include "trainer/data/jsonl.h"
#include "trainer/tokenizer/tokenizer.h"

/* X(enumerator, option's word) */
#define PB_TEMPLATE_MAP(X)                                                                                             \
    X(BYTES, "bytes")                                                                                                  \
    X(CHATML, "chatml")                                                                                                \
    X(QWEN2_5, "qwen2.5") X(QWEN3, "qwen3") X(LLAMA3, "llama3") X(DEEPSEEK_V4, "deepseek-v4")
typedef enum pb_template {
#define X(id, word) PB_TEMPLATE_##id,
    PB_TEMPLATE_MAP(X)
#undef X
        PB_NTEMPLATES
} pb_template;

enum { PB_LONGEST_SYSTEM = 4096 }; /* bytes of a default system message, with its NUL */

typedef struct pb_chat_options {
    pb_template family;
    bool thinking;      /* deepseek-v4: thinking mode, else chat mode */
    bool keep_thinking; /* deepseek-v4: earlier reasoning stays (it always does beside tools) */
    const char *system; /* chatml, qwen2.5, qwen3: the system message of a conversation that begins with none; "": there
                         * is none; NULL: the family's own, which qwen2.5 alone has */
} pb_chat_options;

/* The bytes [a,b) of the text that one message of the system or an assistant is; an assistant's begin behind the header
 * and end with the token that ends the turn, which content_end does not include. */
typedef struct pb_span {
    size_t a, content_end, b;
    pb_chat_role role;
    bool learn;
} pb_span;
typedef struct pb_foreign { /* bytes that a user of the data wrote: no special token may stand in them */
    size_t a, b;
} pb_foreign;

typedef struct pb_rendered { /* start with {0}, end with pb_rendered_free; rendering begins anew */
    pb_bytes text;
    pb_span *span; /* [n], in order, apart */
    size_t n, room;
    pb_foreign *foreign; /* [foreigns], in order, apart */
    size_t foreigns, foreign_room;
} pb_rendered;
void pb_rendered_free(pb_rendered *r);

/* EFORMAT: the family does not define what the conversation asks for; the line names the message. */
pb_status pb_chat_render(const pb_chat *chat, const pb_chat_options *options, pb_rendered *out);
#endif
