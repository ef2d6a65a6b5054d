/* unicode.h - UTF-8, the normal form NFC, and the alphabet that stands for bytes in byte-level vocabularies. */
#ifndef PB_TOK_UNICODE_H
#define PB_TOK_UNICODE_H
#include "trainer/tokenizer/room.h"

/* The bytes of the character at s (1..4), or 0 when no valid one begins there. No surrogates, no overlong forms. */
size_t pb_tok_char(const char *s, size_t n, uint32_t *cp);
/* The bytes of the longest valid prefix. */
size_t pb_tok_valid(const char *s, size_t n);
/* The first byte of the character that ends just before s + n, n > 0, s valid. */
size_t pb_tok_char_before(const char *s, size_t n);
/* Writes cp < 2^11 as UTF-8; its length, 1 or 2. */
size_t pb_tok_write_char(uint32_t cp, char out[2]);
/* The property White_Space. */
bool pb_tok_is_space(uint32_t cp);

/* The alphabet of GPT-2: printable bytes of Latin-1 stand for themselves, the others for U+0100 and on. */
uint32_t pb_tok_byte_to_char(unsigned char b);
int pb_tok_char_to_byte(uint32_t cp); /* -1: not of the alphabet */
/* Appends the bytes that s stands for. False, with nothing appended, when a character is not of the alphabet. */
bool pb_tok_alphabet_decode(const char *s, size_t n, char *out, size_t *len);

typedef struct pb_tok_points { /* scratch of pb_tok_nfc */
    int32_t *p;
    size_t room;
} pb_tok_points;
/* Appends the NFC form of s, which is valid UTF-8, as tokenizers has it: by the tables of Unicode 9. */
pb_status pb_tok_nfc(pb_tok_points *scratch, const char *s, size_t n, pb_bytes *out);
#endif
