/* encode.h - encodes conversations as token ids, and flags the tokens that count in the loss. */
#ifndef PB_ENCODE_H
#define PB_ENCODE_H
#include "trainer/data/chat.h"

/* The loss masks. A token counts in the loss if all of its bytes are inside the bytes that the mask names; a token that
 * only overlaps them does not count, nor does a token without bytes. In every mask, a system or assistant message whose
 * "step_loss_mask" is not 1 does not count. Each entry: X(enumerator, word on the command line, bytes it names). */
#define PB_MASK_MAP(X)                                                                                                 \
    X(ASSISTANT, "assistant", "the text of every assistant message, and the token that ends it")                       \
    X(LAST_ASSISTANT, "last_assistant", "the text of the last assistant message, and the token that ends it")          \
    X(RESPONSE, "response", "the text of the last assistant message, without the token that ends it")                  \
    X(ALL, "all", "every token")                                                                                       \
    X(ALL_BUT_SYSTEM, "all_but_system", "every token that contains no text of a system message")
typedef enum pb_mask_type {
#define X(id, word, what) PB_MASK_##id,
    PB_MASK_MAP(X)
#undef X
        PB_NMASKS
} pb_mask_type;

/* Sets counted[i] to 1 if token i counts in the loss, else 0, for n tokens whose byte ranges are where[i]. Returns the
 * number of tokens that count. Position t of a row predicts token t+1, so the loss mask of position t is
 * counted[t+1]. */
size_t pb_mask_make(pb_mask_type type, const pb_rendered *r, const pb_range *where, size_t n, unsigned char *counted);

typedef struct pb_samples { /* encoded conversations, concatenated; initialise with {0} */
    pb_ids ids;
    unsigned char *counted; /* [ids.n] */
    size_t counted_room;
    size_t *first; /* [n + 1]: sample i is tokens first[i] to first[i+1]; NULL if n == 0 */
    size_t n, first_room;
    pb_rendered rendered; /* scratch for the current conversation, as is `where` */
    pb_ranges where;
} pb_samples;
void pb_samples_free(pb_samples *s);

/* Renders and encodes a conversation, and appends it. EINVAL: the data contains the text of a special token, which
 * would be encoded as that token. EFORMAT: see chat.h and tokenizer.h. On failure the samples are unchanged. */
pb_status pb_encode_chat(pb_tokenizer *t, const pb_chat *chat, const pb_chat_options *o, pb_mask_type mask,
                         pb_samples *out);
#endif
