/* text_stream.h - converts ids to text as they arrive, in whole characters.
 *
 * A token of a byte-level vocabulary can end inside a character; its bytes are held back until the rest arrives. Bytes
 * that are not UTF-8 become U+FFFD, one for each maximal part of a character (Unicode 16.0, section 3.9, as Python's
 * errors="replace"), so the text is valid UTF-8 whatever a model writes. Special tokens are left out. An id without a
 * token, of a model whose vocabulary is larger than the tokenizer's, becomes U+FFFD. */
#ifndef PB_TEXT_STREAM_H
#define PB_TEXT_STREAM_H
#include "trainer/tokenizer/tokenizer.h"

typedef struct pb_text_stream { /* initialise with {.t = tokenizer}, free with pb_text_stream_free */
    const pb_tokenizer *t;
    pb_ids ids;     /* since the last id without a token */
    pb_bytes bytes; /* their text */
    size_t shown;   /* bytes of it that were given out */
} pb_text_stream;
void pb_text_stream_free(pb_text_stream *s);

/* Appends to *out the text that is complete with this id. */
pb_status pb_text_stream_add(pb_text_stream *s, int32_t id, pb_bytes *out);
/* Appends to *out what was held back; the next id begins a new text. */
pb_status pb_text_stream_end(pb_text_stream *s, pb_bytes *out);
#endif
