/* pattern.h - runs the regular expressions of tokenizer.json, which are written for the library Oniguruma, with PCRE2.
 *
 * A pattern is translated to PCRE2's syntax. Only constructs with the same meaning in both libraries are accepted:
 * classes of Unicode properties, groups, look-around, greedy, lazy and possessive repeats, (?i:...). A pattern with any
 * other construct is rejected with EFORMAT, and the message names the construct. */
#ifndef PB_TOK_PATTERN_H
#define PB_TOK_PATTERN_H
#include "trainer/tokenizer/room.h"

typedef struct pb_tok_pattern {
    void *code, *match, *context, *stack; /* objects of PCRE2; NULL: no pattern */
    bool jit;
} pb_tok_pattern;

/* Compiles a pattern. `literal`: `re` is plain text to search for. EFORMAT: unsupported, or it can match the empty
 * text. EINVAL: malformed, or longer than 4096 bytes. ENOMEM. On failure *p is unchanged. */
pb_status pb_tok_pattern_open(const char *re, size_t n, bool literal, pb_tok_pattern *p);
void pb_tok_pattern_close(pb_tok_pattern *p);
/* Finds the first match in s[from..n): s[*a..*b). *b = 0: no match. s must be valid UTF-8; look-behind may read before
 * `from`. EINVAL: the pattern exceeds the match limit. */
pb_status pb_tok_pattern_find(const pb_tok_pattern *p, const char *s, size_t n, size_t from, size_t *a, size_t *b);
/* Appends the pattern in PCRE2's syntax to *out. EFORMAT: unsupported. */
pb_status pb_tok_pattern_translate(const char *re, size_t n, pb_bytes *out);
#endif
