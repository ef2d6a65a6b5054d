/* vocab.c - fills and searches the tables of a vocabulary. */
#include "trainer/tokenizer/vocab.h"

/* Returns the size of a hash table for n entries: the smallest power of two, at least 16, of which n is at most
 * half. */
static size_t table_size(size_t n)
{
    size_t size = 16;
    while (size < 2 * n + 2) size *= 2;
    return size;
}

pb_status pb_vocab_reserve(pb_vocab *v, size_t words, size_t merges)
{
    const size_t w = table_size(words), p = table_size(merges);
    v->word = malloc(w * sizeof *v->word);
    v->pair = malloc(p * sizeof *v->pair);
    if (!v->word || !v->pair)
        return pb_fail(PB_ENOMEM, "tokenizer: no memory for %zu words and %zu merges", words, merges);
    for (size_t i = 0; i < w; i++) v->word[i].id = -1;
    for (size_t i = 0; i < p; i++) v->pair[i].pair = UINT64_MAX;
    v->words = w;
    v->pairs = p;
    return PB_OK;
}

void pb_vocab_free(pb_vocab *v)
{
    free(v->token);
    free(v->word);
    free(v->pair);
    pb_bytes_free(&v->text);
    pb_bytes_free(&v->keys);
    *v = (pb_vocab){0};
}

/* Appends the text of a token. EINVAL: the total would exceed PB_TOK_MAX_TEXTS, the limit of the 32-bit offsets. */
static pb_status add_text(pb_vocab *v, const char *text, size_t n)
{
    if (n > PB_TOK_MAX_TEXTS - v->text.n)
        return pb_fail(PB_EINVAL, "the texts of all tokens together have more than %zu bytes",
                       (size_t)PB_TOK_MAX_TEXTS);
    return pb_tok_append(&v->text, text, n);
}

pb_status pb_vocab_add_token(pb_vocab *v, int64_t id, const char *text, size_t n, uint32_t flags)
{
    if (id < 0 || id > PB_TOK_MAX_ID) return pb_fail(PB_EINVAL, "id %lld: need 0 to %d", (long long)id, PB_TOK_MAX_ID);
    const size_t k = (size_t)id;
    PB_TOK_ROOM(v->token, v->room, k + 1);
    for (; v->n <= k; v->n++) v->token[v->n] = (pb_tok_token){0};
    if (v->token[k].flags) return pb_fail(PB_EINVAL, "id %zu belongs to two tokens", k);
    v->token[k] = (pb_tok_token){(uint32_t)v->text.n, (uint32_t)n, flags | PB_TOK_PRESENT};
    return add_text(v, text, n);
}

pb_status pb_vocab_mark_token(pb_vocab *v, int32_t id, const char *text, size_t n, uint32_t flags)
{
    pb_tok_token *t = &v->token[id];
    if (t->flags & flags) return pb_fail(PB_EINVAL, "id %d was added twice", id);
    *t = (pb_tok_token){(uint32_t)v->text.n, (uint32_t)n, t->flags | flags};
    return add_text(v, text, n);
}

static size_t word_slot(const pb_vocab *v, const char *key, size_t n, uint32_t hash)
{
    size_t i = hash & (v->words - 1);
    for (; v->word[i].id >= 0; i = (i + 1) & (v->words - 1)) {
        const pb_tok_word *w = &v->word[i];
        if (w->hash == hash && w->n == n && !memcmp(v->keys.p + w->at, key, n)) break;
    }
    return i;
}

pb_status pb_vocab_add_word(pb_vocab *v, const char *key, size_t n, int32_t id)
{
    const uint32_t hash = (uint32_t)pb_tok_hash(key, n);
    const size_t i = word_slot(v, key, n, hash);
    if (2 * (v->words_used + 1) > v->words) return pb_fail(PB_EINVAL, "the vocabulary has more words than it declared");
    v->words_used++;
    v->word[i] = (pb_tok_word){hash, (uint32_t)v->keys.n, (uint32_t)n, id};
    return pb_tok_append(&v->keys, key, n);
}

int32_t pb_vocab_find_word(const pb_vocab *v, const char *key, size_t n)
{
    return v->word[word_slot(v, key, n, (uint32_t)pb_tok_hash(key, n))].id;
}

void pb_vocab_add_pair(pb_vocab *v, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t i = pb_tok_mix(pair) & (v->pairs - 1);
    while (v->pair[i].pair != UINT64_MAX && v->pair[i].pair != pair) i = (i + 1) & (v->pairs - 1);
    v->pair[i] = (pb_tok_pair){pair, rank, id};
}
