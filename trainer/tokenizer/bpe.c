/* bpe.c - encodes one word by byte-pair encoding. The word is a linked list of symbols; a heap of candidate merges
 * gives the merge of lowest rank. */
#include "trainer/tokenizer/bpe.h"

#include "trainer/tokenizer/unicode.h"

/* Sizes of the cache of encoded words: SLOTS entries, of which at most SLOTS_MOST are used; CACHE_INTS ints for the ids
 * and texts of all words; words of at most WORD_MOST bytes. The cache fits the CPU's L2, because most text repeats a
 * few thousand words. A full cache is emptied. */
enum { SLOTS = 1 << 15, SLOTS_MOST = SLOTS / 2, CACHE_INTS = 1 << 18, WORD_MOST = 64 };
enum { LONGEST_WORD = 1 << 30 }; /* bytes; a byte can give two symbols, and symbols are counted in 32 bits */

pb_status pb_bpe_init(pb_bpe *b)
{
    for (int i = 0; i < 256; i++) b->byte[i] = b->fallback[i] = -1;
    b->unk = -1;
    b->cached = calloc(SLOTS, sizeof *b->cached);
    b->cache = malloc(CACHE_INTS * sizeof *b->cache);
    return b->cached && b->cache ? PB_OK : pb_fail(PB_ENOMEM, "tokenizer: no memory for the cache of words");
}

void pb_bpe_free(pb_bpe *b)
{
    pb_vocab_free(&b->vocab);
    free(b->symbol);
    free(b->heap);
    free(b->cached);
    free(b->cache);
    *b = (pb_bpe){0};
}

/* Returns the cache entry of the word, or the free entry where the word must be inserted. */
static pb_tok_cached *cache_slot(const pb_bpe *b, const char *word, size_t n, uint32_t hash)
{
    for (size_t i = hash & (SLOTS - 1);; i = (i + 1) & (SLOTS - 1)) {
        pb_tok_cached *c = &b->cached[i];
        if (!c->bytes || (c->hash == hash && c->bytes == n && !memcmp(&b->cache[c->at + c->ids], word, n))) return c;
    }
}

static void cache_insert(pb_bpe *b, const char *word, size_t n, uint32_t hash, const int32_t *ids, size_t n_ids)
{
    const size_t ints = n_ids + (n + 3) / 4;
    if (b->cached_used == SLOTS_MOST || b->cache_used + ints > CACHE_INTS) {
        memset(b->cached, 0, SLOTS * sizeof *b->cached);
        b->cached_used = b->cache_used = 0;
    }
    *cache_slot(b, word, n, hash) = (pb_tok_cached){hash, (uint32_t)b->cache_used, (uint16_t)n, (uint16_t)n_ids};
    if (n_ids) memcpy(b->cache + b->cache_used, ids, n_ids * sizeof *ids);
    memcpy(b->cache + b->cache_used + n_ids, word, n);
    b->cached_used++;
    b->cache_used += ints;
}

static void push_symbol(pb_bpe *b, size_t *n, int32_t id)
{
    b->symbol[*n] = (pb_tok_symbol){id, (int32_t)*n - 1, (int32_t)*n + 1};
    ++*n;
}

static bool has_fallback(const pb_bpe *b, const char *c, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (b->fallback[(unsigned char)c[i]] < 0) return false;
    return b->byte_fallback;
}

static pb_status refuse(const pb_bpe *b, const char *c, size_t len)
{
    static const char why[] = "is not in the vocabulary, and the tokenizer has no unk_token";
    uint32_t cp = 0;
    pb_tok_char(c, len, &cp);
    if (b->byte_level) return pb_fail(PB_EINVAL, "tokenizer: byte 0x%02X %s", (unsigned)pb_tok_char_to_byte(cp), why);
    return pb_fail(PB_EINVAL, "tokenizer: character U+%04X %s", cp, why);
}

/* Handles a character that is not in the vocabulary: pushes the tokens of its bytes (byte_fallback), or makes unk_token
 * pending. A pending unk_token is pushed after byte tokens that follow it. This order is that of Hugging Face's
 * encoder, on whose output the models were trained. */
static pb_status push_unknown(pb_bpe *b, size_t *n, const char *c, size_t len, bool *pending)
{
    if (has_fallback(b, c, len)) {
        for (size_t i = 0; i < len; i++) push_symbol(b, n, b->fallback[(unsigned char)c[i]]);
    } else {
        if (b->unk < 0) return refuse(b, c, len);
        if (*pending && !b->fuse_unk) push_symbol(b, n, b->unk);
        *pending = true;
    }
    return PB_OK;
}

/* Splits the word into symbols, one per character. unk_token and fallback bytes can make it at most two per byte. */
static pb_status split(pb_bpe *b, const char *word, size_t len, size_t *symbols)
{
    size_t n = 0;
    bool pending = false;
    for (size_t i = 0, step = 1; i < len; i += step) {
        char as_char[2];
        const char *c = word + i;
        size_t c_len = 1;
        uint32_t cp;
        int32_t id;
        if (b->byte_level) {
            id = b->byte[(unsigned char)*c];
        } else {
            c_len = step = pb_tok_char(c, len - i, &cp);
            id = pb_vocab_find_word(&b->vocab, c, step);
        }
        if (id < 0) {
            if (b->byte_level) c_len = pb_tok_write_char(pb_tok_byte_to_char((unsigned char)*c), as_char), c = as_char;
            PB_TRY(push_unknown(b, &n, c, c_len, &pending));
            continue;
        }
        if (pending) push_symbol(b, &n, b->unk), pending = false;
        push_symbol(b, &n, id);
    }
    if (pending) push_symbol(b, &n, b->unk);
    if (n) b->symbol[n - 1].next = -1;
    *symbols = n;
    return PB_OK;
}

static void heap_push(pb_tok_merge *h, size_t *n, pb_tok_merge m)
{
    size_t i = (*n)++;
    for (; i && h[(i - 1) / 2].order > m.order; i = (i - 1) / 2) h[i] = h[(i - 1) / 2];
    h[i] = m;
}

static pb_tok_merge heap_pop(pb_tok_merge *h, size_t *n)
{
    const pb_tok_merge top = h[0], last = h[--*n];
    size_t i = 0;
    for (size_t k = 1; k < *n; i = k, k = 2 * k + 1) {
        if (k + 1 < *n && h[k + 1].order < h[k].order) k++;
        if (h[k].order >= last.order) break;
        h[i] = h[k];
    }
    h[i] = last;
    return top;
}

static void consider(pb_bpe *b, size_t *heap, int32_t left, int32_t right)
{
    const pb_tok_pair *p = pb_vocab_find_pair(&b->vocab, b->symbol[left].id, b->symbol[right].id);
    if (p) heap_push(b->heap, heap, (pb_tok_merge){(uint64_t)p->rank << 32 | (uint32_t)left, p->id});
}

/* Merges pairs of symbols, in order of rank. A candidate is skipped if an earlier merge has changed its pair. The heap
 * holds fewer than 2n candidates: each of the at most n-1 merges pops one and pushes at most two. */
static void merge(pb_bpe *b, size_t n)
{
    pb_tok_symbol *s = b->symbol;
    size_t heap = 0;
    for (size_t i = 0; i + 1 < n; i++) consider(b, &heap, (int32_t)i, (int32_t)i + 1);
    while (heap) {
        const pb_tok_merge m = heap_pop(b->heap, &heap);
        const int32_t left = (int32_t)(uint32_t)m.order, right = s[left].next;
        if (s[left].id < 0 || right < 0) continue;
        const pb_tok_pair *p = pb_vocab_find_pair(&b->vocab, s[left].id, s[right].id);
        if (!p || p->id != m.id) continue;
        s[left].id = m.id;
        s[left].next = s[right].next;
        s[right].id = -1;
        if (s[left].next >= 0) s[s[left].next].prev = left;
        if (s[left].prev >= 0) consider(b, &heap, s[left].prev, left);
        if (s[left].next >= 0) consider(b, &heap, left, s[left].next);
    }
}

static pb_status encode_new(pb_bpe *b, const char *word, size_t len, pb_ids *out)
{
    const int32_t whole = b->ignore_merges ? pb_vocab_find_word(&b->vocab, word, len) : -1;
    PB_TOK_ROOM(out->id, out->room, out->n + 1);
    if (whole >= 0) {
        out->id[out->n++] = whole;
        return PB_OK;
    }
    if (len > LONGEST_WORD)
        return pb_fail(PB_EINVAL, "tokenizer: a word has %zu bytes: need at most %d", len, LONGEST_WORD);
    PB_TOK_ROOM(b->symbol, b->symbols_room, 2 * len);
    size_t n = 0;
    PB_TRY(split(b, word, len, &n));
    PB_TOK_ROOM(b->heap, b->heap_room, 2 * n);
    PB_TOK_ROOM(out->id, out->room, out->n + n);
    merge(b, n);
    for (int32_t i = n ? 0 : -1; i >= 0; i = b->symbol[i].next) out->id[out->n++] = b->symbol[i].id;
    return PB_OK;
}

pb_status pb_bpe_encode(pb_bpe *b, const char *word, size_t n, pb_ids *out)
{
    if (!n) return PB_OK;
    if (n > WORD_MOST) return encode_new(b, word, n, out);
    const uint32_t hash = (uint32_t)pb_tok_hash(word, n);
    const pb_tok_cached *c = cache_slot(b, word, n, hash);
    if (c->bytes) {
        PB_TOK_ROOM(out->id, out->room, out->n + c->ids);
        if (c->ids) memcpy(out->id + out->n, b->cache + c->at, c->ids * sizeof *out->id);
        out->n += c->ids;
        return PB_OK;
    }
    const size_t from = out->n;
    PB_TRY(encode_new(b, word, n, out));
    cache_insert(b, word, n, hash, out->id + from, out->n - from);
    return PB_OK;
}
