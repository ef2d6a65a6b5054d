/* pattern.h - the regular expressions of tokenizer.json, which are written for Oniguruma, through PCRE2.
 *
 * Only what means the same in both is taken, after respelling: classes by Unicode property, groups, look-around,
 * greedy, lazy and possessive repeats, (?i:...). The rest is refused by name (EFORMAT). */
#ifndef PB_TOK_PATTERN_H
#define PB_TOK_PATTERN_H
#include "trainer/tokenizer/room.h"

typedef struct pb_tok_pattern {
    void *code, *match, *context, *stack; /* of PCRE2; NULL: no pattern */
    bool jit;
} pb_tok_pattern;

/* literal: the text itself. Patterns that match the empty text are refused. On failure *p stays closed. */
pb_status pb_tok_pattern_open(const char *re, size_t n, bool literal, pb_tok_pattern *p);
void pb_tok_pattern_close(pb_tok_pattern *p);
/* The first match in s[from..n) is s[*a..*b); *b = 0 when there is none. s is valid UTF-8, and look-around sees all
 * of s[0..n). */
pb_status pb_tok_pattern_find(const pb_tok_pattern *p, const char *s, size_t n, size_t from, size_t *a, size_t *b);
/* The respelled pattern. */
pb_status pb_tok_pattern_translate(const char *re, size_t n, pb_bytes *out);
#endif
