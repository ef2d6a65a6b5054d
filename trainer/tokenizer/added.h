/* added.h - added tokens in text: which there are, and where the next one stands. */
#ifndef PB_TOK_ADDED_H
#define PB_TOK_ADDED_H
#include "trainer/tokenizer/pattern.h"
#include "trainer/tokenizer/vocab.h"

typedef struct pb_tok_added {
    size_t at, n; /* texts[at..at+n) */
    int32_t id;
    bool special, normalized, lstrip, rstrip, single_word;
} pb_tok_added;

typedef struct pb_tok_node { /* of a trie by bytes; node 0 is the root */
    uint32_t child, sibling; /* 0: none */
    int32_t token;           /* an index into tokens, -1: none ends here */
    unsigned char byte;
} pb_tok_node;

typedef struct pb_tok_trie {
    pb_tok_node *node;
    size_t n, room;
    uint32_t first[256]; /* the root's child by byte */
} pb_tok_trie;

typedef struct pb_added {
    pb_tok_added *token;
    size_t n, room;
    pb_bytes texts;
    pb_tok_trie raw, normalized; /* tokens looked for before and after the normaliser */
    pb_tok_pattern word;         /* \w of the regex crate; open when a token is single_word */
} pb_added;

void pb_added_free(pb_added *a);
/* `matched` is what is looked for: the text, or its normal form. EINVAL: looked for twice. */
pb_status pb_added_push(pb_added *a, const pb_tok_added *flags, const char *text, size_t n, const char *matched,
                        size_t matched_n);

typedef struct pb_tok_scan { /* a walk over s[0..n): set s, n, trie, plain; the rest {0} */
    const char *s;
    size_t n;
    const pb_tok_trie *trie;
    bool plain;  /* special tokens are not looked for */
    size_t at;   /* where the search goes on */
    size_t done; /* what is before it has been handed out */
} pb_tok_scan;

/* Hands out the next stretch of text s[*a..*b), possibly empty, and the token that follows it: its index, or -1 at the
 * end. Leftmost first, then longest. */
pb_status pb_added_next(const pb_added *added, pb_tok_scan *scan, size_t *a, size_t *b, int32_t *token);
#endif
