/* chat.h - renders a conversation as the text that a model family was trained on, and records which bytes each message
 * produced.
 *
 * The output is byte for byte that of the family's own template, without a generation prompt unless `answer` is set:
 * the jinja templates in tokenizer_config.json for chatml, qwen2.5, qwen3 and llama3, and encoding_dsv4.py for
 * deepseek-v4. If a conversation has tools or reasoning and its family's template does not support them, it is
 * rejected, and the message names the feature. Reasoning of earlier turns is dropped where the family's template drops
 * it.
 *
 *   bytes        chatml with the two markers of the byte tokenizer
 *   chatml       <|im_start|>role\n content <|im_end|>\n for each message; a default system message if one is given
 *   qwen2.5      chatml; a default system message if the first message is not one; tools
 *   qwen3        chatml; tools; <think>\n reasoning \n</think>\n\n in assistant messages after the last user message
 *   llama3       <|begin_of_text|>, then <|start_header_id|>role<|end_header_id|>\n\n trimmed content <|eot_id|>
 *   deepseek-v4  bos, system text without markers, <user>content, <assistant></think> content, tools as DSML, eos */
#ifndef PB_CHAT_H
#define PB_CHAT_H
#include "trainer/data/jsonl.h"
#include "trainer/tokenizer/tokenizer.h"

/* The template families. Each entry: X(enumerator, word on the command line). */
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

enum { PB_LONGEST_SYSTEM = 4096 }; /* bytes of a default system message, including its NUL */

typedef struct pb_chat_options {
    pb_template family;
    bool thinking;      /* deepseek-v4: true: thinking mode; false: chat mode */
    bool keep_thinking; /* deepseek-v4: keeps the reasoning of earlier turns (with tools it is always kept) */
    /* chatml, qwen2.5, qwen3: the system message to use if the conversation has none. "": no system message. NULL: the
     * family's default, which only qwen2.5 has. */
    const char *system;
    /* True: the text ends with what begins the assistant's next message, for a model that is to write it (transformers:
     * add_generation_prompt). The last message must be the user's. */
    bool answer;
} pb_chat_options;

/* The bytes [a,b) of the text that a system or assistant message produced. A system span includes its header. An
 * assistant span begins after its header and includes the token that ends the turn; content_end is before that
 * token. */
typedef struct pb_span {
    size_t a, content_end, b;
    pb_chat_role role;
    bool in_loss; /* false: does not count in the loss */
} pb_span;
typedef struct pb_data_range { /* bytes [a,b) of the text that were copied from the data, not written by the template */
    size_t a, b;
} pb_data_range;

/* Result of a rendering. Initialise with {0} and free with pb_rendered_free. Each rendering overwrites the previous
 * one. */
typedef struct pb_rendered {
    pb_bytes text;
    pb_span *span; /* [n], ascending, not overlapping */
    size_t n, room;
    pb_data_range *data_ranges; /* [ndata_ranges], ascending, not overlapping */
    size_t ndata_ranges, data_room;
} pb_rendered;
void pb_rendered_free(pb_rendered *r);

/* Returns the text of the special token that ends an assistant's message. */
const char *pb_chat_end(pb_template family);
/* Renders a conversation. EINVAL: options.answer, and the last message is not the user's. EFORMAT: it has tools or
 * reasoning that the family's template does not support; the error text gives the number of the message. ENOMEM. */
pb_status pb_chat_render(const pb_chat *chat, const pb_chat_options *options, pb_rendered *out);
#endif
