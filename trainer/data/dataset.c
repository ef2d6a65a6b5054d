/* dataset.c - reads the conversations of a file into a data set. */
#include "kernels/engine/bind.h"
#include "trainer/data/dataset_impl.h"
#include "trainer/tokenizer/room.h"

typedef struct reading {
    pb_dataset *d;
    pb_tokenizer *t;
    pb_dataset_counts *counts;
    size_t conversations; /* number of conversations seen so far */
} reading;

/* ---- reading the file ------------------------------------------------------------------------------ */

static void drop_last(pb_samples *s)
{
    s->n--;
    s->ids.n = s->first[s->n];
}

static size_t targets_that_count(const pb_samples *s, size_t i)
{
    size_t n = 0;
    for (size_t t = s->first[i] + 1; t < s->first[i + 1]; t++) n += s->counted[t];
    return n;
}

/* Moves sample `from` down to the beginning of sample `to`. Sample `to` then ends after the moved tokens. */
static void move_down(pb_samples *s, size_t from, size_t to)
{
    const size_t n = s->first[from + 1] - s->first[from];
    memmove(s->ids.id + s->first[to], s->ids.id + s->first[from], n * sizeof *s->ids.id);
    memmove(s->counted + s->first[to], s->counted + s->first[from], n);
    s->first[to + 1] = s->first[to] + n;
}

/* Splits the last sample, which has more than S positions, into pieces of at most S positions. Pieces in which no
 * target counts are removed. */
static pb_status split_last(pb_samples *s, size_t S)
{
    const size_t at = s->n - 1, a = s->first[at], n = pb_sample_positions(s, at), pieces = (n + S - 1) / S;
    PB_TOK_ROOM(s->ids.id, s->ids.room, s->ids.n + pieces);
    PB_TOK_ROOM(s->counted, s->counted_room, s->ids.n + pieces);
    PB_TOK_ROOM(s->first, s->first_room, s->n + pieces + 1);
    /* Piece k moves up by k tokens, because each piece repeats the last token of the piece before it. */
    for (size_t k = pieces; k-- > 0;) { /* from the last piece, so that no piece overwrites one that has not moved */
        const size_t from = a + k * S, to = from + k, len = (n - k * S < S ? n - k * S : S) + 1;
        memmove(s->ids.id + to, s->ids.id + from, len * sizeof *s->ids.id);
        memmove(s->counted + to, s->counted + from, len);
        s->first[at + k] = to;
        s->first[at + k + 1] = to + len;
    }
    size_t kept = at;
    s->first[at + pieces] = a + n + pieces;
    for (size_t k = at; k < at + pieces; k++)
        if (targets_that_count(s, k)) move_down(s, k, kept++);
    s->n = kept;
    s->ids.n = s->first[kept];
    return PB_OK;
}

/* Applies the policy for long conversations to the last sample. */
static pb_status shorten(const reading *r)
{
    pb_samples *s = &r->d->samples;
    const size_t n = pb_sample_positions(s, s->n - 1), S = (size_t)r->d->cfg.S;
    if (n <= S) return PB_OK;
    switch (r->d->cfg.long_ones) {
    case PB_LONG_CUT:
        s->first[s->n] -= n - S;
        s->ids.n = s->first[s->n];
        r->counts->cut++;
        return PB_OK;
    case PB_LONG_SPLIT: r->counts->split++; return split_last(s, S);
    case PB_LONG_DROP:
        drop_last(s);
        r->counts->dropped++;
        return PB_OK;
    case PB_LONG_REFUSE:
    case PB_NLONGS: break;
    }
    drop_last(s);
    return pb_fail(PB_EINVAL, "%zu tokens do not fit into a row of %zu", n + 1, S);
}

/* True if the next conversation is in the part of the held_out split that is read. This depends only on the seed and on
 * the conversation's index in the file. */
static bool wanted(reading *r)
{
    static const uint64_t stream = 0x5eed0fe7a15e7ull; /* separates these random numbers from those of the shuffles */
    const pb_dataset_config *c = &r->d->cfg;
    return (pb_uniform(c->seed ^ stream, r->conversations++) < c->held_out) == c->evaluation;
}

/* Adds one kept conversation, whose samples are [from, s->n), to the counts. `counted`: number of targets in these
 * samples that count in the loss. */
static void count_kept(const reading *r, size_t from, size_t counted)
{
    const pb_samples *s = &r->d->samples;
    pb_dataset_counts *c = r->counts;
    c->kept++;
    c->counted += counted;
    for (size_t i = from; i < s->n; i++) {
        c->tokens += pb_sample_positions(s, i);
        if (r->d->cfg.pack != PB_PACK_STREAM) continue;
        c->tokens++; /* in a stream its first token is a target too, that of the token before it */
        c->counted += s->counted[s->first[i]];
    }
}

static pb_status take(void *self, const pb_chat *chat)
{
    reading *r = self;
    pb_samples *s = &r->d->samples;
    const size_t before = s->n, dropped = r->counts->dropped;
    size_t counted = 0;
    if (!wanted(r)) {
        r->counts->elsewhere++;
        return PB_OK;
    }
    PB_TRY(pb_encode_chat(r->t, chat, &r->d->cfg.chat, r->d->cfg.mask, s));
    if (r->d->cfg.pack != PB_PACK_STREAM) PB_TRY(shorten(r));
    if (r->counts->dropped > dropped) return PB_OK;
    for (size_t i = before; i < s->n; i++) counted += targets_that_count(s, i);
    if (counted) {
        count_kept(r, before, counted);
        return PB_OK;
    }
    if (s->n > before) drop_last(s);
    r->counts->empty++;
    return PB_OK;
}

/* ---- opening a data set ------------------------------------------------------------------------------ */

static pb_status check(const pb_dataset_config *c)
{
    const bool stream = c->pack == PB_PACK_STREAM;
    if (c->S < 1) return pb_fail(PB_EINVAL, "data: rows of %d tokens, need at least 1", c->S);
    if (!(c->held_out >= 0 && c->held_out < 1))
        return pb_fail(PB_EINVAL, "data: a held-out share of %g, need at least 0 and less than 1", c->held_out);
    if (!(c->min_counted >= 0 && c->min_counted <= 1))
        return pb_fail(PB_EINVAL, "data: a least share of loss tokens of %g, need 0 to 1", c->min_counted);
    if (!stream && c->min_counted > 0)
        return pb_fail(PB_EINVAL, "data: only rows of a stream can have a least share of loss tokens");
    if (stream && c->long_ones != PB_LONG_SPLIT)
        return pb_fail(PB_EINVAL, "data: in a stream no conversation is too long: need split");
    if (stream && c->align > 1) return pb_fail(PB_EINVAL, "data: conversations of a stream cannot be aligned");
    return PB_OK;
}

static pb_status open_rows(pb_dataset *d, const char *path, pb_dataset_counts *counts)
{
    const size_t n = d->samples.n;
    if (!n && counts->elsewhere && !counts->dropped && !counts->empty)
        return pb_fail(PB_EINVAL, "%s: with a held-out share of %g, none of its %zu conversations is left %s", path,
                       d->cfg.held_out, counts->elsewhere, d->cfg.evaluation ? "to evaluate on" : "to train on");
    if (!n) return pb_fail(PB_EINVAL, "%s: no conversation in it to learn from", path);
    const bool stream = d->cfg.pack == PB_PACK_STREAM;
    const size_t rows = stream ? pb_stream_windows(d) : n;
    d->order = malloc(n * sizeof *d->order);
    d->next = malloc(n * sizeof *d->next);
    d->row = malloc((rows ? rows : 1) * sizeof *d->row);
    if (!d->order || !d->next || !d->row) return pb_fail(PB_ENOMEM, "no memory for %zu rows", rows);
    pb_dataset_plan(d);
    if (!d->rows)
        return pb_fail(PB_EINVAL, "%s: %zu tokens have no row of %d with enough loss tokens", path, d->samples.ids.n,
                       d->cfg.S);
    counts->passed_over = stream ? rows - d->rows : 0;
    return PB_OK;
}

pb_status pb_dataset_open(const char *path, pb_tokenizer *t, const pb_dataset_config *cfg, pb_dataset_counts *counts,
                          pb_dataset **out)
{
    *counts = (pb_dataset_counts){0};
    PB_TRY(check(cfg));
    pb_dataset *d = calloc(1, sizeof *d);
    if (!d) return pb_fail(PB_ENOMEM, "no memory for a data set");
    d->cfg = *cfg;
    reading r = {d, t, counts, 0};
    pb_status s = pb_jsonl_read(path, cfg->bad_lines, take, &r, &counts->lines);
    if (s == PB_OK) s = open_rows(d, path, counts);
    if (s == PB_OK) *out = d;
    else pb_dataset_close(d);
    return s;
}

void pb_dataset_close(pb_dataset *d)
{
    if (!d) return;
    pb_samples_free(&d->samples);
    free(d->order);
    free(d->next);
    free(d->row);
    free(d);
}
