/* bpe.h - encodes one word by byte-pair encoding, and caches encoded words. */
#ifndef PB_TOK_BPE_H
#define PB_TOK_BPE_H
#include "trainer/tokenizer/vocab.h"

typedef struct
    pb_tok_symbol {     /* a token of the partly merged word; the symbols form a doubly linked list in an array */
    int32_t id;         /* -1: merged into its left neighbour */
    int32_t prev, next; /* indices; -1: none */
} pb_tok_symbol;

typedef struct pb_tok_merge { /* a possible merge of two neighbouring symbols */
    uint64_t order;           /* rank << 32 | index of the left symbol; the smallest is merged first */
    int32_t id;               /* the token that the merge yields */
} pb_tok_merge;

typedef struct pb_tok_cached {
    uint32_t hash, at; /* cache[at..) holds the ids, then the bytes of the word */
    uint16_t bytes, ids;
} pb_tok_cached; /* bytes == 0: free slot */

typedef struct pb_bpe {
    pb_vocab vocab;
    bool byte_level, byte_fallback, ignore_merges, fuse_unk;
    int32_t unk;           /* id of unk_token; -1: none, unknown characters are an error */
    int32_t byte[256];     /* byte-level vocabulary: id of the token of each byte; -1: no such token */
    int32_t fallback[256]; /* byte_fallback: ids of the tokens <0x00> to <0xFF>; -1: no such token */
    /* scratch memory */
    pb_tok_symbol *symbol;
    size_t symbols_room;
    pb_tok_merge *heap;
    size_t heap_room;
    pb_tok_cached *cached;
    int32_t *cache;
    size_t cached_used, cache_used;
} pb_bpe;

/* Allocates scratch memory and clears the tables of ids. The caller fills the vocabulary. */
pb_status pb_bpe_init(pb_bpe *b);
void pb_bpe_free(pb_bpe *b);
/* Appends the ids of a word. The word is raw bytes if byte_level, else valid UTF-8. EINVAL: n > 2^30, or a character (a
 * byte) is not in the vocabulary, and neither unk_token nor byte_fallback covers it. ENOMEM. */
pb_status pb_bpe_encode(pb_bpe *b, const char *word, size_t n, pb_ids *out);
#endif
