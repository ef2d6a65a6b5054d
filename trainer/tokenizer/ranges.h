/* ranges.h - which bytes of a text its tokens stand for, also where the text was normalised on the way. */
#ifndef PB_TOK_RANGES_H
#define PB_TOK_RANGES_H
#include "trainer/tokenizer/unicode.h"
#include "trainer/tokenizer/vocab.h"

typedef struct pb_tok_piece { /* a stretch of the normal form and where it came from; it ends where the next begins */
    size_t to, from;
    bool same; /* byte by byte */
} pb_tok_piece;

typedef struct pb_tok_align {
    pb_tok_piece *piece; /* [n], then the end of both texts; n == 0: the texts are the same */
    size_t n, room;
} pb_tok_align;

/* Pieces of s[0..n), whose NFC form is form[0..form_n). */
pb_status pb_tok_align_nfc(pb_tok_align *a, const char *s, size_t n, const char *form, size_t form_n);
/* Appends the ranges of the `n_ids` tokens of a word that is bytes [at, at + n) of the normal form; `base` is where the
 * stretch begins in the text. */
pb_status pb_tok_locate(const pb_tok_align *a, const pb_vocab *v, const int32_t *ids, size_t n_ids, size_t base,
                        size_t at, size_t n, pb_ranges *out);
/* Appends the range of bytes [from,to) of the normal form. */
pb_status pb_tok_push_mapped(const pb_tok_align *a, size_t base, size_t from, size_t to, pb_ranges *out);
pb_status pb_tok_push_range(pb_ranges *out, size_t a, size_t b);
#endif
