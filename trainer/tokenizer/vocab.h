/* vocab.h - the vocabulary: tables from id to token text, from word to id, and from a pair of ids to its merge. */
#ifndef PB_TOK_VOCAB_H
#define PB_TOK_VOCAB_H
#include "trainer/tokenizer/room.h"

enum { PB_TOK_MAX_ID = (1 << 21) - 1, PB_TOK_MAX_TEXTS = 1 << 30 };
enum { PB_TOK_PRESENT = 1, PB_TOK_ADDED = 2, PB_TOK_SPECIAL = 4 };

typedef struct pb_tok_token {
    uint32_t at, n; /* decoded text: text[at..at+n) */
    uint32_t flags; /* PB_TOK_PRESENT, ...; 0: the id is not a token */
} pb_tok_token;

typedef struct pb_tok_word { /* hash table entry that maps a token's text to its id; id < 0: the entry is free */
    uint32_t hash, at, n;
    int32_t id;
} pb_tok_word;

typedef struct pb_tok_pair { /* hash table entry of a merge */
    uint64_t pair;           /* key: left id << 32 | right id; all ones: the entry is free */
    uint32_t rank;
    int32_t id;
} pb_tok_pair;

typedef struct pb_vocab {
    pb_tok_token *token; /* [n], indexed by id */
    size_t n, room;
    pb_bytes text;
    pb_tok_word *word; /* [words], a power of two; open addressing, at most half full */
    size_t words, words_used;
    pb_bytes keys;     /* texts of the words */
    pb_tok_pair *pair; /* [pairs], a table like `word` */
    size_t pairs;
    size_t merges; /* number of merges in the file */
} pb_vocab;

/* Allocates the tables for `words` words and `merges` merges. Must be called once, before the first is added.
 * ENOMEM. */
pb_status pb_vocab_reserve(pb_vocab *v, size_t words, size_t merges);
void pb_vocab_free(pb_vocab *v);
/* Adds a token. EINVAL: the id is out of range or used, or all texts together exceed PB_TOK_MAX_TEXTS. */
pb_status pb_vocab_add_token(pb_vocab *v, int64_t id, const char *text, size_t n, uint32_t flags);
/* Replaces the text of an existing token and adds flags. EINVAL: the token has one of the flags already, or all texts
 * together exceed PB_TOK_MAX_TEXTS. */
pb_status pb_vocab_mark_token(pb_vocab *v, int32_t id, const char *text, size_t n, uint32_t flags);
pb_status pb_vocab_add_word(pb_vocab *v, const char *key, size_t n, int32_t id);
/* Adds a merge; an existing entry of the same pair is replaced. */
void pb_vocab_add_pair(pb_vocab *v, int32_t left, int32_t right, uint32_t rank, int32_t id);
int32_t pb_vocab_find_word(const pb_vocab *v, const char *key, size_t n); /* -1: not found */

static inline uint64_t pb_tok_mix(uint64_t x)
{
    x *= 0x9e3779b97f4a7c15u;
    return x ^ x >> 32;
}

static inline uint64_t pb_tok_hash(const char *p, size_t n)
{
    uint64_t h = n, v;
    uint32_t a, b;
    for (; n > 8; n -= 8, p += 8) {
        memcpy(&v, p, 8);
        h = pb_tok_mix(h ^ v);
    }
    if (n >= 4) { /* two overlapping halves of 4 bytes */
        memcpy(&a, p, 4);
        memcpy(&b, p + n - 4, 4);
        return pb_tok_mix(pb_tok_mix(h ^ a) ^ b);
    }
    a = n ? (unsigned char)p[0] | (uint32_t)(unsigned char)p[n / 2] << 8 | (uint32_t)(unsigned char)p[n - 1] << 16 : 0;
    return pb_tok_mix(h ^ (uint64_t)a << 8);
}

/* Returns the merge of two tokens; NULL: they do not merge. */
static inline const pb_tok_pair *pb_vocab_find_pair(const pb_vocab *v, int32_t left, int32_t right)
{
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    for (size_t i = pb_tok_mix(pair) & (v->pairs - 1);; i = (i + 1) & (v->pairs - 1)) {
        if (v->pair[i].pair == pair) return &v->pair[i];
        if (v->pair[i].pair == UINT64_MAX) return NULL;
    }
}
#endif
