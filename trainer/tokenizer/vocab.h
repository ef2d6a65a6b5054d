/* vocab.h - the vocabulary: token texts by id, words to ids, pairs of ids to merges. */
#ifndef PB_TOK_VOCAB_H
#define PB_TOK_VOCAB_H
#include "trainer/tokenizer/room.h"

enum { PB_TOK_MAX_ID = (1 << 21) - 1, PB_TOK_MAX_TEXTS = 1 << 30 };
enum { PB_TOK_PRESENT = 1, PB_TOK_ADDED = 2, PB_TOK_SPECIAL = 4 };

typedef struct pb_tok_token {
    uint32_t at, n; /* text[at..at+n): what decoding writes */
    uint32_t flags; /* 0: the id is no token */
} pb_tok_token;

typedef struct pb_tok_word { /* an entry of the table of words; id < 0: free */
    uint32_t hash, at, n;
    int32_t id;
} pb_tok_word;

typedef struct pb_tok_pair { /* an entry of the table of merges */
    uint64_t pair;           /* left << 32 | right; all ones: free */
    uint32_t rank;
    int32_t id;
} pb_tok_pair;

typedef struct pb_vocab {
    pb_tok_token *token; /* [n], by id */
    size_t n, room;
    pb_bytes text;
    pb_tok_word *word; /* [words], a power of two: open addressing, at most half full */
    size_t words, words_used;
    pb_bytes keys;     /* texts of the words */
    pb_tok_pair *pair; /* [pairs] likewise */
    size_t pairs;
    size_t merges; /* how many the file has */
} pb_vocab;

/* Room for so many words and merges. Once, before any is added. */
pb_status pb_vocab_reserve(pb_vocab *v, size_t words, size_t merges);
void pb_vocab_free(pb_vocab *v);
/* EINVAL: the id is out of range or taken, or all texts together are too long. */
pb_status pb_vocab_add_token(pb_vocab *v, int64_t id, const char *text, size_t n, uint32_t flags);
/* Gives a token another text and further flags. EINVAL: it has one of these flags already. */
pb_status pb_vocab_mark_token(pb_vocab *v, int32_t id, const char *text, size_t n, uint32_t flags);
pb_status pb_vocab_add_word(pb_vocab *v, const char *key, size_t n, int32_t id);
/* A pair that is there already gets the new rank and id. */
void pb_vocab_add_pair(pb_vocab *v, int32_t left, int32_t right, uint32_t rank, int32_t id);
int32_t pb_vocab_find_word(const pb_vocab *v, const char *key, size_t n); /* -1: none */

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
    if (n >= 4) { /* two overlapping halves */
        memcpy(&a, p, 4);
        memcpy(&b, p + n - 4, 4);
        return pb_tok_mix(pb_tok_mix(h ^ a) ^ b);
    }
    a = n ? (unsigned char)p[0] | (uint32_t)(unsigned char)p[n / 2] << 8 | (uint32_t)(unsigned char)p[n - 1] << 16 : 0;
    return pb_tok_mix(h ^ (uint64_t)a << 8);
}

/* NULL: the two do not merge. */
static inline const pb_tok_pair *pb_vocab_find_pair(const pb_vocab *v, int32_t left, int32_t right)
{
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    for (size_t i = pb_tok_mix(pair) & (v->pairs - 1);; i = (i + 1) & (v->pairs - 1)) {
        if (v->pair[i].pair == pair) return &v->pair[i];
        if (v->pair[i].pair == UINT64_MAX) return NULL;
    }
}
#endif
