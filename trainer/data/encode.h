/* encode.h - conversations as token ids, with a flag on each token that the loss counts. */
#ifndef PB_ENCODE_H
#define PB_ENCODE_H
#include "trainer/data/chat.h"

/* Which tokens count: those that lie wholly inside the named bytes. A token that straddles an edge does not, nor one
 * that stands for no bytes. In every mask, nothing of a system's or an assistant's message with "step_loss_mask" other
 * than 1 counts.
 * X(enumerator, option's word, meaning) */
#define PB_MASK_MAP(X)                                                                                                 \
    X(ASSISTANT, "assistant", "what every assistant wrote, and the token that ends its turn")                          \
    X(LAST_ASSISTANT, "last_assistant", "the same of the last assistant only")                                         \
    X(RESPONSE, "response", "what the last assistant wrote, without the token that ends its turn")                     \
    X(ALL, "all", "every token")                                                                                       \
    X(ALL_BUT_SYSTEM, "all_but_system", "every token that touches no system message")
typedef enum pb_mask_type {
#define X(id, word, what) PB_MASK_##id,
    PB_MASK_MAP(X)
#undef X
        PB_NMASKS
} pb_mask_type;

/* counted[i] for the n tokens at where[i]; returns how many count. None: an empty mask, from which nothing is learned.
 * The flag is the token's own: position t of a batch predicts token t+1 and so has the flag of token t+1. */
size_t pb_mask_make(pb_mask_type type, const pb_rendered *r, const pb_range *where, size_t n, unsigned char *counted);

typedef struct pb_samples { /* start with {0}; conversations behind each other */
    pb_ids ids;
    unsigned char *counted; /* [ids.n] */
    size_t counted_room;
    size_t *first; /* [n + 1]: sample i is tokens first[i] to first[i+1]; NULL when n == 0 */
    size_t n, first_room;
    pb_rendered rendered; /* scratch */
    pb_ranges where;
} pb_samples;
void pb_samples_free(pb_samples *s);

/* Renders and encodes a conversation, and appends it. EINVAL: the data holds the text of a special token, which the
 * model would take for the token; EFORMAT: see chat.h and tokenizer.h. On failure the samples are as before. */
pb_status pb_encode_chat(pb_tokenizer *t, const pb_chat *chat, const pb_chat_options *o, pb_mask_type mask,
                         pb_samples *out);
#endif
