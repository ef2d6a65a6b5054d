/* added.h - stores the added tokens of a tokenizer (such as <|im_start|>), and finds them in a text. */
#ifndef PB_TOK_ADDED_H
#define PB_TOK_ADDED_H
#include "trainer/tokenizer/pattern.h"
#include "trainer/tokenizer/vocab.h"

typedef struct pb_tok_added {
    size_t at, n; /* texts[at..at+n) */
    int32_t id;
    bool special, normalized, lstrip, rstrip, single_word;
} pb_tok_added;

typedef struct pb_tok_node { /* node of a trie over bytes; node 0 is the root */
    uint32_t child, sibling; /* 0: none */
    int32_t token;           /* index into pb_added.token of the token that ends at this node; -1: none */
    unsigned char byte;
} pb_tok_node;

typedef struct pb_tok_trie {
    pb_tok_node *node;
    size_t n, room;
    uint32_t first[256]; /* the root's children, by byte */
} pb_tok_trie;

typedef struct pb_added {
    pb_tok_added *token;
    size_t n, room;
    pb_bytes texts;
    pb_tok_trie raw, normalized; /* tokens that are searched for before, after normalisation */
    pb_tok_pattern word;         /* matches a word character; compiled when the first single_word token is added */
} pb_added;

void pb_added_free(pb_added *a);
/* Adds a token. `matched` is the text to search for: the token's text, or its normal form. EINVAL: an earlier token is
 * searched for by the same text. */
pb_status pb_added_push(pb_added *a, const pb_tok_added *flags, const char *text, size_t n, const char *matched,
                        size_t matched_n);

/* A search in s[0..n). The caller sets s, n, trie and plain, and initialises the other members with 0. */
typedef struct pb_tok_scan {
    const char *s;
    size_t n;
    const pb_tok_trie *trie;
    bool plain;  /* true: special tokens are treated as text */
    size_t at;   /* where the search continues */
    size_t done; /* the text before this index has been returned */
} pb_tok_scan;

/* Returns the next text before a token, s[*a..*b), which may be empty, and the index of the token that follows it; -1
 * at the end of s. Of overlapping tokens the leftmost wins, then the longest. */
pb_status pb_added_next(const pb_added *added, pb_tok_scan *scan, size_t *a, size_t *b, int32_t *token);
#endif
