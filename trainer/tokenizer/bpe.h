/* bpe.h - one word to ids: the merge loop and a cache of words. */
#ifndef PB_TOK_BPE_H
#define PB_TOK_BPE_H
#include "trainer/tokenizer/vocab.h"

typedef struct pb_tok_symbol { /* a piece of the word; a doubly linked list in an array */
    int32_t id;                /* -1: merged into the piece on its left */
    int32_t prev, next;        /* -1: none */
} pb_tok_symbol;

typedef struct pb_tok_merge { /* a candidate: the pair that begins at symbol (uint32_t)order */
    uint64_t order;           /* rank << 32 | symbol: the smallest goes first */
    int32_t id;               /* what it becomes */
} pb_tok_merge;

typedef struct pb_tok_cached {
    uint32_t hash, at; /* cache[at..): ids, then the bytes of the word */
    uint16_t bytes, ids;
} pb_tok_cached; /* bytes == 0: free */

typedef struct pb_bpe {
    pb_vocab vocab;
    bool byte_level, byte_fallback, ignore_merges, fuse_unk;
    int32_t unk;           /* -1: none, unknown characters are refused */
    int32_t byte[256];     /* byte-level: the token of a byte, -1: none */
    int32_t fallback[256]; /* <0x00>.. , -1: none */
    /* scratch */
    pb_tok_symbol *symbol;
    size_t symbols_room;
    pb_tok_merge *heap;
    size_t heap_room;
    pb_tok_cached *cached;
    int32_t *cache;
    size_t cached_used, cache_used;
} pb_bpe;

pb_status pb_bpe_init(pb_bpe *b); /* scratch and empty tables of ids; the vocabulary is the caller's to fill */
void pb_bpe_free(pb_bpe *b);
/* Appends the ids of a word: raw bytes when byte_level, valid UTF-8 otherwise. EINVAL: n > 2^30, or the vocabulary
 * lacks a character (a byte) and has neither an unk_token nor fallback bytes for it. */
pb_status pb_bpe_encode(pb_bpe *b, const char *word, size_t n, pb_ids *out);
#endif
