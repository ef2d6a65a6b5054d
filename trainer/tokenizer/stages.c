/* stages.c - normalises a text, and cuts it into words, as the normalisers and pre-tokenisers of a file prescribe. */
#include "trainer/tokenizer/stages.h"

void pb_stages_free(pb_stages *g)
{
    for (int i = 0; i < g->norms; i++) {
        pb_bytes_free(&g->norm[i].text);
        pb_tok_pattern_close(&g->norm[i].pattern);
    }
    for (int i = 0; i < g->cuts; i++) pb_tok_pattern_close(&g->cut[i].pattern);
    pb_bytes_free(&g->text[0]);
    pb_bytes_free(&g->text[1]);
    pb_bytes_free(&g->prefixed);
    free(g->points.p);
    *g = (pb_stages){0};
}

/* Appends s[n] to the normal form *out. EINVAL: *out would exceed `most` bytes. */
static pb_status put(pb_bytes *out, const char *s, size_t n, size_t most)
{
    if (n > most || out->n > most - n)
        return pb_fail(
            PB_EINVAL,
            "tokenizer: the normalizer makes more than %zu bytes of a text (the limit is %d per byte, plus %d)", most,
            PB_TOK_FORM_TIMES, PB_TOK_FORM_PLUS);
    return pb_tok_append(out, s, n);
}

static pb_status replace(const pb_tok_norm *r, const char *s, size_t n, size_t most, pb_bytes *out)
{
    for (size_t i = 0, a, b; i < n; i = b) {
        PB_TRY(pb_tok_pattern_find(&r->pattern, s, n, i, &a, &b));
        if (!b) return put(out, s + i, n - i, most);
        PB_TRY(put(out, s + i, a - i, most));
        PB_TRY(put(out, r->text.p, r->text.n, most));
    }
    return PB_OK;
}

pb_status pb_stages_normalize(pb_stages *g, const char *s, size_t n, const char **out, size_t *out_n)
{
    const size_t most = PB_TOK_FORM_TIMES * n + PB_TOK_FORM_PLUS;
    for (int i = 0; i < g->norms && n; i++) {
        const pb_tok_norm *m = &g->norm[i];
        pb_bytes *to = &g->text[i & 1];
        to->n = 0;
        if (m->kind == PB_NORM_NFC) {
            PB_TRY(pb_tok_nfc(&g->points, s, n, to));
        } else if (m->kind == PB_NORM_PREPEND) {
            PB_TRY(put(to, m->text.p, m->text.n, most));
            PB_TRY(put(to, s, n, most));
        } else {
            PB_TRY(replace(m, s, n, most, to));
        }
        s = to->p;
        n = to->n;
    }
    *out = s;
    *out_n = n;
    return PB_OK;
}

typedef struct run { /* one call of pb_stages_cut */
    pb_stages *g;
    pb_tok_emit emit;
    void *self;
} run;

static pb_status pass_on(const run *r, int stage, const char *s, size_t n);

typedef struct piece { /* the piece s[a..b), held back because the next piece may be joined to it */
    size_t a, b;
    bool match;
} piece;

static bool joins(pb_tok_behavior how, bool before, bool match)
{
    switch (how) {
    case PB_CUT_MERGED_WITH_PREVIOUS: return match && !before;
    case PB_CUT_MERGED_WITH_NEXT: return before && !match;
    case PB_CUT_CONTIGUOUS: return before == match;
    default: return false;
    }
}

/* Joins the text from held->b to b to the piece *held, or passes *held to the next stage and makes that text the new
 * *held. `match`: the text is a match of the pattern (or, with `invert`, the text between matches). */
static pb_status extend_or_pass(const run *r, int stage, const char *s, piece *held, size_t b, bool match)
{
    const pb_tok_behavior how = r->g->cut[stage].behavior;
    if (b == held->b) return PB_OK;
    if (held->a == held->b || !joins(how, held->match, match)) {
        const piece old = *held;
        *held = (piece){old.b, b, match};
        if (old.a == old.b || (how == PB_CUT_REMOVED && old.match)) return PB_OK;
        return pass_on(r, stage + 1, s + old.a, old.b - old.a);
    }
    held->b = b;
    held->match = match;
    return PB_OK;
}

static pb_status cut(const run *r, int stage, const char *s, size_t n)
{
    const pb_tok_cut *c = &r->g->cut[stage];
    piece held = {0};
    for (size_t i = 0, a, b; i < n; i = b) {
        PB_TRY(pb_tok_pattern_find(&c->pattern, s, n, i, &a, &b));
        if (!b) break;
        PB_TRY(extend_or_pass(r, stage, s, &held, a, c->invert));
        PB_TRY(extend_or_pass(r, stage, s, &held, b, !c->invert));
    }
    PB_TRY(extend_or_pass(r, stage, s, &held, n, c->invert));
    if (held.a == held.b || (c->behavior == PB_CUT_REMOVED && held.match)) return PB_OK;
    return pass_on(r, stage + 1, s + held.a, held.b - held.a);
}

static pb_status pass_on(const run *r, int stage, const char *s, size_t n)
{
    pb_bytes *b = &r->g->prefixed; /* one buffer suffices, because only one piece at a time is at stage prefix_at */
    if (r->g->prefix && stage == r->g->prefix_at && s[0] != ' ') {
        b->n = 0;
        PB_TRY(pb_tok_append(b, " ", 1));
        PB_TRY(pb_tok_append(b, s, n));
        s = b->p;
        n = b->n;
    }
    return stage == r->g->cuts ? r->emit(r->self, s, n) : cut(r, stage, s, n);
}

pb_status pb_stages_cut(pb_stages *g, const char *s, size_t n, pb_tok_emit emit, void *self)
{
    const run r = {g, emit, self};
    return n ? pass_on(&r, 0, s, n) : PB_OK;
}
