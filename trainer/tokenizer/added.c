/* added.c - stores the added tokens in tries, and splits a text at their occurrences. */
#include "trainer/tokenizer/added.h"

#include "trainer/tokenizer/unicode.h"

/* The class \w of the Rust regex crate, which Hugging Face's tokenizers use for single_word. */
static const char word_pattern[] = "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\u200c\\u200d]";

void pb_added_free(pb_added *a)
{
    free(a->token);
    pb_bytes_free(&a->texts);
    free(a->raw.node);
    free(a->normalized.node);
    pb_tok_pattern_close(&a->word);
    *a = (pb_added){0};
}

static uint32_t child_of(const pb_tok_trie *t, uint32_t node, unsigned char byte)
{
    if (node == 0) return t->first[byte];
    uint32_t k = t->node[node].child;
    while (k && t->node[k].byte != byte) k = t->node[k].sibling;
    return k;
}

static pb_status insert(pb_tok_trie *t, const char *s, size_t n, int32_t token)
{
    uint32_t at = 0;
    PB_TOK_ROOM(t->node, t->room, t->n + n + 1);
    if (!t->n) t->node[t->n++] = (pb_tok_node){.token = -1};
    for (size_t i = 0; i < n; i++) {
        const unsigned char byte = (unsigned char)s[i];
        uint32_t next = child_of(t, at, byte);
        if (!next) {
            next = (uint32_t)t->n++;
            t->node[next] = (pb_tok_node){.sibling = t->node[at].child, .token = -1, .byte = byte};
            t->node[at].child = next;
            if (at == 0) t->first[byte] = next;
        }
        at = next;
    }
    if (t->node[at].token >= 0) return pb_fail(PB_EINVAL, "two added tokens have the same text");
    t->node[at].token = token;
    return PB_OK;
}

pb_status pb_added_push(pb_added *a, const pb_tok_added *flags, const char *text, size_t n, const char *matched,
                        size_t matched_n)
{
    PB_TOK_ROOM(a->token, a->room, a->n + 1);
    if (flags->single_word && !a->word.code)
        PB_TRY(pb_tok_pattern_open(word_pattern, sizeof word_pattern - 1, false, &a->word));
    PB_TRY(insert(flags->normalized ? &a->normalized : &a->raw, matched, matched_n, (int32_t)a->n));
    pb_tok_added *t = &a->token[a->n];
    *t = *flags;
    t->at = a->texts.n;
    t->n = n;
    PB_TRY(pb_tok_append(&a->texts, text, n));
    a->n++;
    return PB_OK;
}

/* Returns the longest token that s begins with, and stores its length in *len; -1: s begins with no token. */
static int32_t longest(const pb_tok_trie *t, const char *s, size_t n, size_t *len)
{
    int32_t token = -1;
    uint32_t at = 0;
    for (size_t i = 0; i < n; i++) {
        at = child_of(t, at, (unsigned char)s[i]);
        if (!at) break;
        if (t->node[at].token >= 0) token = t->node[at].token, *len = i + 1;
    }
    return token;
}

/* Returns where the run of white space that ends at n begins, but at least `from`. */
static size_t space_start(const char *s, size_t from, size_t n)
{
    for (uint32_t cp; n > from;) {
        const size_t i = pb_tok_char_before(s, n);
        if (!pb_tok_char(s + i, n - i, &cp) || !pb_tok_is_space(cp)) break;
        n = i;
    }
    return n;
}

static size_t space_end(const char *s, size_t n, size_t i)
{
    for (uint32_t cp; i < n;) {
        const size_t len = pb_tok_char(s + i, n - i, &cp);
        if (!len || !pb_tok_is_space(cp)) break;
        i += len;
    }
    return i;
}

/* Sets *single to true if no word character is adjacent to s[a..b). */
static pb_status is_single(const pb_added *added, const char *s, size_t n, size_t a, size_t b, bool *single)
{
    size_t from, to = 0;
    uint32_t cp;
    *single = true;
    if (a) {
        const size_t before = pb_tok_char_before(s, a);
        PB_TRY(pb_tok_pattern_find(&added->word, s + before, a - before, 0, &from, &to));
        if (to) *single = false;
    }
    if (b < n) {
        PB_TRY(pb_tok_pattern_find(&added->word, s + b, pb_tok_char(s + b, n - b, &cp), 0, &from, &to));
        if (to) *single = false;
    }
    return PB_OK;
}

/* Finds the next token at or after i, whatever its flags; returns n if none is found. */
static size_t search(const pb_tok_trie *t, const char *s, size_t n, size_t i, int32_t *token, size_t *len)
{
    *token = -1;
    for (; t->n && i < n; i++) {
        if (!t->first[(unsigned char)s[i]]) continue;
        *token = longest(t, s + i, n - i, len);
        if (*token >= 0) return i;
    }
    return n;
}

/* An occurrence that is rejected because of its flags or `plain` is still skipped as a whole: tokens that overlap it
 * are not found. White space that the previous token's rstrip covers may be the beginning of a token, which is
 * found. */
pb_status pb_added_next(const pb_added *added, pb_tok_scan *scan, size_t *a, size_t *b, int32_t *token)
{
    size_t len = 0;
    for (;;) {
        size_t start = search(scan->trie, scan->s, scan->n, scan->at, token, &len), stop = start + len;
        bool single = true;
        if (*token < 0) break;
        const pb_tok_added *t = &added->token[*token];
        scan->at = stop;
        if (scan->plain && t->special) continue;
        if (t->single_word) PB_TRY(is_single(added, scan->s, scan->n, start, stop, &single));
        if (!single) continue;
        if (t->lstrip) start = start > scan->done ? space_start(scan->s, scan->done, start) : scan->done;
        /* The text from stop to done is white space, because the previous token's rstrip covers it. */
        if (t->rstrip) stop = space_end(scan->s, scan->n, stop > scan->done ? stop : scan->done);
        if (start >= stop) continue; /* this token is white space that the previous token's rstrip already covers */
        *a = scan->done;
        *b = start > scan->done ? start : scan->done;
        scan->done = stop;
        return PB_OK;
    }
    *a = scan->done < scan->n ? scan->done : scan->n;
    *b = scan->n;
    return PB_OK;
}
