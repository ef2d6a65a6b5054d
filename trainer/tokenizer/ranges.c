/* ranges.c - maps bytes of the normal form of a text back to bytes of the text. */
#include "trainer/tokenizer/ranges.h"

pb_status pb_tok_push_range(pb_ranges *out, size_t a, size_t b)
{
    PB_TOK_ROOM(out->at, out->room, out->n + 1);
    out->at[out->n++] = (pb_range){(uint32_t)a, (uint32_t)b};
    return PB_OK;
}

static pb_status push_piece(pb_tok_align *a, size_t to, size_t from, bool same)
{
    if (same && a->n && a->piece[a->n - 1].same) return PB_OK;
    PB_TOK_ROOM(a->piece, a->room, a->n + 2);
    a->piece[a->n++] = (pb_tok_piece){to, from, same};
    return PB_OK;
}

/* Cuts the text before every ASCII character and normalises the pieces separately. This is correct because no character
 * composes with an ASCII character to its right. */
static pb_status cut_at_ascii(pb_tok_align *a, pb_tok_points *points, pb_bytes *form, const char *s, size_t n,
                              size_t *form_n)
{
    *form_n = 0;
    for (size_t i = 0, len; i < n; i += len) {
        for (len = 1; i + len < n && (unsigned char)s[i + len] >= 0x80;) len++;
        form->n = 0;
        PB_TRY(pb_tok_nfc(points, s + i, len, form));
        PB_TRY(push_piece(a, *form_n, i, form->n == len && !memcmp(form->p, s + i, len)));
        *form_n += form->n;
    }
    return PB_OK;
}

pb_status pb_tok_align_nfc(pb_tok_align *a, const char *s, size_t n, const char *form, size_t form_n)
{
    pb_tok_points points = {0};
    pb_bytes piece = {0};
    size_t sum;
    a->n = 0;
    if (n == form_n && !memcmp(s, form, n)) return PB_OK;
    pb_status status = cut_at_ascii(a, &points, &piece, s, n, &sum);
    free(points.p);
    pb_bytes_free(&piece);
    if (status != PB_OK) return status;
    if (sum != form_n)
        return pb_fail(PB_EINVAL, "tokenizer: the normal form of a text cannot be aligned with the text");
    a->piece[a->n] = (pb_tok_piece){form_n, n, true};
    return PB_OK;
}

/* Returns the piece that contains byte `at` of the normal form. */
static const pb_tok_piece *piece_of(const pb_tok_align *a, size_t at)
{
    size_t low = 0, high = a->n;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (a->piece[middle].to <= at) low = middle;
        else high = middle;
    }
    return &a->piece[low];
}

pb_status pb_tok_push_mapped(const pb_tok_align *a, size_t base, size_t from, size_t to, pb_ranges *out)
{
    if (!a->n) return pb_tok_push_range(out, base + from, base + to);
    const pb_tok_piece *p = piece_of(a, from), *q = piece_of(a, to > from ? to - 1 : to);
    return pb_tok_push_range(out, base + p->from + (p->same ? from - p->to : 0),
                             base + (q->same ? q->from + (to - q->to) : q[1].from));
}

pb_status pb_tok_locate(const pb_tok_align *a, const pb_vocab *v, const int32_t *ids, size_t n_ids, size_t base,
                        size_t at, size_t n, pb_ranges *out)
{
    size_t sum = 0;
    for (size_t i = 0; i < n_ids; i++) sum += v->token[ids[i]].n;
    /* If the word contains an unknown token, the tokens' lengths do not add up to the word's length. Then every token
     * gets the range of the whole word. */
    for (size_t i = 0; i < n_ids; i++) {
        const size_t len = sum == n ? v->token[ids[i]].n : n;
        PB_TRY(pb_tok_push_mapped(a, base, at, at + len, out));
        if (sum == n) at += len;
    }
    return PB_OK;
}
