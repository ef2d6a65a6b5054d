/* unicode_new.h - characters that Hugging Face tokenizers treat differently from PCRE2 and utf8proc, listed in
 * unicode.def. The patterns of tokenizers use Unicode 16, PCRE2 of Debian 12 uses Unicode 14; the NFC of tokenizers
 * uses Unicode 9, utf8proc a later one. */
#ifndef PB_TOK_UNICODE_NEW_H
#define PB_TOK_UNICODE_NEW_H
#include "trainer/tokenizer/room.h"

/* In the functions below, name[n] is a general category (L, Lu), "Alphabetic", or a script; a script's name may differ
 * in case, '_', '-' and blanks. A "newer" character is one that Hugging Face tokenizers know and PCRE2 does not. */
bool pb_tok_new_any(const char *name, size_t n);    /* true if a newer character has the property */
bool pb_tok_new_script(const char *name, size_t n); /* true if all characters of the script are newer */
/* Appends the newer characters that have any of the properties names[names_n], as ranges of a regex class:
 * \x{a}-\x{b}... */
pb_status pb_tok_new_put(const char *const *names, const size_t *lengths, size_t names_n, pb_bytes *out);

/* True if the tokenizers' older Unicode tables lack the character: their NFC leaves it unchanged and composes nothing
 * across it. */
bool pb_tok_nfc_later(uint32_t cp);
#endif
