/* encode.c - encodes conversations, and determines which tokens count in the loss. */
#include "trainer/data/encode.h"

#include "trainer/tokenizer/room.h"

void pb_samples_free(pb_samples *s)
{
    pb_ids_free(&s->ids);
    free(s->counted);
    free(s->first);
    pb_rendered_free(&s->rendered);
    pb_ranges_free(&s->where);
    *s = (pb_samples){0};
}

/* ---- selecting the loss tokens -------------------------------------------------------------------- */

static const pb_span *last_assistant(const pb_rendered *r)
{
    for (size_t i = r->n; i-- > 0;)
        if (r->span[i].role == PB_CHAT_ASSISTANT) return &r->span[i];
    return NULL;
}

/* Returns the bytes of a message's span whose tokens are loss tokens, for the masks assistant, last_assistant and
 * response. An empty range: no loss tokens. */
static pb_range named(pb_mask_type type, const pb_span *s, const pb_span *last)
{
    const pb_range none = {0};
    if (s->role != PB_CHAT_ASSISTANT || !s->in_loss) return none;
    if (type != PB_MASK_ASSISTANT && s != last) return none;
    return (pb_range){(uint32_t)s->a, (uint32_t)(type == PB_MASK_RESPONSE ? s->content_end : s->b)};
}

/* True if token t is not a loss token because of this message's span, for the masks all and all_but_system. */
static bool excluded(const pb_span *s, pb_mask_type type, pb_range t)
{
    const bool out = !s->in_loss || (type == PB_MASK_ALL_BUT_SYSTEM && s->role == PB_CHAT_SYSTEM);
    return out && t.a < s->b && t.b > s->a;
}

size_t pb_mask_make(pb_mask_type type, const pb_rendered *r, const pb_range *where, size_t n, unsigned char *counted)
{
    const pb_span *last = last_assistant(r);
    const bool inverse = type == PB_MASK_ALL || type == PB_MASK_ALL_BUT_SYSTEM;
    size_t count = 0, k = 0;
    for (size_t i = 0; i < n; i++) {
        const pb_range t = where[i];
        while (k < r->n && r->span[k].b <= t.a) k++;
        bool in = inverse;
        for (size_t j = k; j < r->n && r->span[j].a < t.b; j++) {
            const pb_range bytes = named(type, &r->span[j], last);
            if (inverse) in = in && !excluded(&r->span[j], type, t);
            else in = in || (t.a >= bytes.a && t.b <= bytes.b);
        }
        counted[i] = in && t.a < t.b;
        count += counted[i];
    }
    return count;
}

/* ---- encoding a conversation ----------------------------------------------------------------------- */

static pb_status check_foreign(const pb_tokenizer *t, const pb_rendered *r, const int32_t *ids, const pb_range *where,
                               size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n && k < r->ndata_ranges; i++) {
        while (k < r->ndata_ranges && r->data_ranges[k].b <= where[i].a) k++;
        if (k == r->ndata_ranges || where[i].b <= r->data_ranges[k].a || !pb_tokenizer_is_special(t, ids[i])) continue;
        return pb_fail(PB_EINVAL, "the text contains the special token \"%.*s\"",
                       (int)(where[i].b - where[i].a < 60 ? where[i].b - where[i].a : 60), r->text.p + where[i].a);
    }
    return PB_OK;
}

static pb_status encode(pb_tokenizer *t, const pb_chat *chat, const pb_chat_options *o, pb_mask_type mask,
                        pb_samples *s, size_t from)
{
    pb_rendered *r = &s->rendered;
    s->where.n = 0;
    PB_TRY(pb_chat_render(chat, o, r));
    PB_TRY(pb_tokenizer_encode_ranges(t, r->text.p, r->text.n, 0, &s->ids, &s->where));
    PB_TRY(check_foreign(t, r, s->ids.id + from, s->where.at, s->where.n));
    PB_TOK_ROOM(s->counted, s->counted_room, s->ids.n);
    PB_TOK_ROOM(s->first, s->first_room, s->n + 2);
    pb_mask_make(mask, r, s->where.at, s->where.n, s->counted + from);
    s->first[s->n++] = from;
    s->first[s->n] = s->ids.n;
    return PB_OK;
}

pb_status pb_encode_chat(pb_tokenizer *t, const pb_chat *chat, const pb_chat_options *o, pb_mask_type mask,
                         pb_samples *out)
{
    const size_t from = out->ids.n;
    const pb_status s = encode(t, chat, o, mask, out, from);
    if (s != PB_OK) out->ids.n = from;
    return s;
}
