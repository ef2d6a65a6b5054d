/* unicode_new.h - characters that Hugging Face tokenizers treat otherwise than the installed PCRE2 and utf8proc do: the
 * table unicode.def, by code point. */
#ifndef PB_TOK_UNICODE_NEW_H
#define PB_TOK_UNICODE_NEW_H
#include "trainer/tokenizer/room.h"

/* `name`, of n bytes: a general category (L, Lu), "Alphabetic", or a script (case, '_', '-' and blanks do not count).
 */
bool pb_tok_new_any(const char *name, size_t n);    /* whether a newer character has the property */
bool pb_tok_new_script(const char *name, size_t n); /* whether all characters of a script are newer */
/* Appends the newer characters with any of the properties, NULL at the end, as ranges of a class: \x{a}-\x{b}... */
pb_status pb_tok_new_put(const char *const *names, const size_t *lengths, size_t names_n, pb_bytes *out);

/* Whether NFC leaves the character as it is, and as the end of what stands before it, because the library's tables are
 * older than the character. */
bool pb_tok_nfc_later(uint32_t cp);
#endif
