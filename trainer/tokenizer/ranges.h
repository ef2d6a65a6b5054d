/* ranges.h - maps tokens to the bytes of the original text, also if the text was normalised before tokenisation. */
#ifndef PB_TOK_RANGES_H
#define PB_TOK_RANGES_H
#include "trainer/tokenizer/unicode.h"
#include "trainer/tokenizer/vocab.h"

/* A piece of the normal form. It begins at byte `to` of the normal form and at byte `from` of the text, and ends where
 * the next piece begins. */
typedef struct pb_tok_piece {
    size_t to, from;
    bool same; /* true: the text and its normal form have equal bytes in this piece */
} pb_tok_piece;

typedef struct pb_tok_align {
    /* [n + 1]; piece[n] holds the lengths of the normal form and of the text. n == 0: the two are equal. */
    pb_tok_piece *piece;
    size_t n, room;
} pb_tok_align;

/* Aligns s[0..n) with its NFC form form[0..form_n). */
pb_status pb_tok_align_nfc(pb_tok_align *a, const char *s, size_t n, const char *form, size_t form_n);
/* Appends the ranges of the n_ids tokens of a word. The word is bytes [at, at + n) of the normal form; `base` is the
 * offset of the normalised part in the text. */
pb_status pb_tok_locate(const pb_tok_align *a, const pb_vocab *v, const int32_t *ids, size_t n_ids, size_t base,
                        size_t at, size_t n, pb_ranges *out);
/* Appends the range of the text that corresponds to bytes [from,to) of the normal form. */
pb_status pb_tok_push_mapped(const pb_tok_align *a, size_t base, size_t from, size_t to, pb_ranges *out);
pb_status pb_tok_push_range(pb_ranges *out, size_t a, size_t b);
#endif
