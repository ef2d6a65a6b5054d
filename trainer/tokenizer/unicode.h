/* unicode.h - decodes UTF-8, computes the normal form NFC, and converts bytes to and from the alphabet in which
 * byte-level vocabularies write them. */
#ifndef PB_TOK_UNICODE_H
#define PB_TOK_UNICODE_H
#include "trainer/tokenizer/room.h"

/* Decodes the character at s and returns its length, 1 to 4 bytes. 0: no valid character begins there (surrogates and
 * overlong forms are invalid). */
size_t pb_tok_char(const char *s, size_t n, uint32_t *cp);
/* Returns the length in bytes of the longest prefix of s that is valid UTF-8. */
size_t pb_tok_valid(const char *s, size_t n);
/* Returns the index of the first byte of the last character of s[0..n). n > 0; s must be valid UTF-8. */
size_t pb_tok_char_before(const char *s, size_t n);
/* Writes cp < 2^11 as UTF-8 and returns its length, 1 or 2. */
size_t pb_tok_write_char(uint32_t cp, char out[2]);
/* True if cp has the property White_Space. */
bool pb_tok_is_space(uint32_t cp);

/* Returns the character that stands for byte b in GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the
 * other bytes become U+0100 and up. */
uint32_t pb_tok_byte_to_char(unsigned char b);
int pb_tok_char_to_byte(uint32_t cp); /* -1: cp is not in the alphabet */
/* Decodes s from the alphabet into out[n]; *len: number of bytes. False: a character is not in the alphabet; *len is
 * then unchanged, and out is undefined. */
bool pb_tok_alphabet_decode(const char *s, size_t n, char *out, size_t *len);

typedef struct pb_tok_points { /* scratch memory of pb_tok_nfc */
    int32_t *p;
    size_t room;
} pb_tok_points;
/* Appends the NFC form of s, which must be valid UTF-8. Like Hugging Face tokenizers it uses the tables of Unicode
 * 9. */
pb_status pb_tok_nfc(pb_tok_points *scratch, const char *s, size_t n, pb_bytes *out);
#endif
