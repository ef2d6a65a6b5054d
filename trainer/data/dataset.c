/* dataset.c - reads the conversations of a file, and packs them into rows, epoch by epoch. */
#include "trainer/data/dataset.h"

#include "kernels/engine/bind.h"
#include "trainer/tokenizer/room.h"

enum { OPEN_ROWS = 64 };
#define NONE SIZE_MAX

typedef struct open_row {
    size_t head, tail; /* first and last sample, linked by next[] */
    size_t used;
} open_row;

struct pb_dataset {
    pb_dataset_config cfg;
    pb_samples samples;
    size_t *order, *next; /* [n] */
    size_t *row, rows;    /* [n] the first sample of each row */
    pb_data_position at;
};

typedef struct reading {
    pb_dataset *d;
    pb_tokenizer *t;
    pb_dataset_counts *counts;
    size_t conversations; /* number of conversations seen so far */
} reading;

/* ---- reading --------------------------------------------------------------------------------------- */

static size_t places(const pb_samples *s, size_t i) { return s->first[i + 1] - s->first[i] - 1; }

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
    const size_t at = s->n - 1, a = s->first[at], n = places(s, at), pieces = (n + S - 1) / S;
    PB_TOK_ROOM(s->ids.id, s->ids.room, s->ids.n + pieces);
    PB_TOK_ROOM(s->counted, s->counted_room, s->ids.n + pieces);
    PB_TOK_ROOM(s->first, s->first_room, s->n + pieces + 1);
    /* Piece k moves up by k tokens, because each piece repeats the last token of the piece before it. */
    for (size_t k = pieces; k-- > 0;) { /* from the back: each piece moves up by k tokens */
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
    const size_t n = places(s, s->n - 1), S = (size_t)r->d->cfg.S;
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
    PB_TRY(shorten(r));
    if (r->counts->dropped > dropped) return PB_OK;
    for (size_t i = before; i < s->n; i++) counted += targets_that_count(s, i);
    if (!counted) {
        if (s->n > before) drop_last(s);
        r->counts->empty++;
        return PB_OK;
    }
    r->counts->kept++;
    for (size_t i = before; i < s->n; i++) r->counts->tokens += places(s, i);
    r->counts->counted += counted;
    return PB_OK;
}

/* ---- rows ------------------------------------------------------------------------------------------- */

void pb_shuffle(size_t *order, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) order[i] = i;
    for (size_t i = n; i > 1; i--) {
        const size_t k = (size_t)(pb_uniform(seed, i) * (double)i), swap = order[k];
        order[k] = order[i - 1];
        order[i - 1] = swap;
    }
}

/* The first aligned position at or after `used`: where the next conversation may begin. */
static size_t begin_after(const pb_dataset *d, size_t used)
{
    const size_t align = d->cfg.align > 1 ? (size_t)d->cfg.align : 1;
    return (used + align - 1) / align * align;
}

/* The fullest open row that has room for a sample of `need` positions; `open` if no row has. */
static size_t best_fit(const pb_dataset *d, const open_row *rows, size_t open, size_t need)
{
    const size_t S = (size_t)d->cfg.S;
    size_t best = open;
    for (size_t i = 0; i < open; i++)
        if (begin_after(d, rows[i].used) + need <= S && (best == open || rows[i].used > rows[best].used)) best = i;
    return best;
}

static void close_row(pb_dataset *d, open_row *rows, size_t *open, size_t i)
{
    d->row[d->rows++] = rows[i].head;
    rows[i] = rows[--*open];
}

static void plan(pb_dataset *d)
{
    const size_t n = d->samples.n;
    open_row rows[OPEN_ROWS];
    size_t open = 0;
    d->rows = 0;
    pb_shuffle(d->order, n, d->cfg.seed + d->at.epoch * 0x9e3779b97f4a7c15u);
    for (size_t i = 0; i < n; i++) {
        const size_t sample = d->order[i], need = places(&d->samples, sample);
        size_t to = d->cfg.pack ? best_fit(d, rows, open, need) : open;
        d->next[sample] = NONE;
        if (to < open) {
            d->next[rows[to].tail] = sample;
            rows[to].tail = sample;
            rows[to].used = begin_after(d, rows[to].used) + need;
            continue;
        }
        if (open == (d->cfg.pack ? OPEN_ROWS : 1)) {
            for (size_t k = to = 0; k < open; k++)
                if (rows[k].used > rows[to].used) to = k;
            close_row(d, rows, &open, to);
        }
        rows[open++] = (open_row){sample, sample, need};
    }
    while (open) close_row(d, rows, &open, 0);
}

/* Writes padding to positions [from,to) of a row. `row` is the index of the row's first position in the arrays of
 * `out`. */
static void fill_gap(size_t row, size_t from, size_t to, const pb_rows *out)
{
    for (size_t at = from; at < to; at++) {
        out->ids[row + at] = out->targets[row + at] = out->pos[row + at] = 0;
        out->mask[row + at] = 0;
        out->start[row + at] = (int32_t)at;
    }
}

/* Writes row `row` of the epoch as row b of `out`. */
static void fill_row(const pb_dataset *d, size_t row, size_t b, const pb_rows *out)
{
    const pb_samples *s = &d->samples;
    const size_t S = (size_t)d->cfg.S, to = b * S;
    size_t at = 0;
    for (size_t i = d->row[row]; i != NONE; i = d->next[i]) {
        const size_t start = begin_after(d, at);
        fill_gap(to, at, start, out);
        at = start;
        for (size_t t = s->first[i]; t + 1 < s->first[i + 1]; t++, at++) {
            out->ids[to + at] = s->ids.id[t];
            out->targets[to + at] = s->ids.id[t + 1];
            out->mask[to + at] = s->counted[t + 1];
            out->start[to + at] = (int32_t)start;
            out->pos[to + at] = (int32_t)(at - start);
        }
    }
    if (out->used) out->used[b] = (int32_t)at;
    fill_gap(to, at, S, out);
}

void pb_dataset_next(pb_dataset *d, int B, const pb_rows *out)
{
    for (int b = 0; b < B; b++) {
        if (d->at.row == d->rows) {
            d->at = (pb_data_position){d->at.epoch + 1, 0};
            plan(d);
        }
        fill_row(d, (size_t)d->at.row++, (size_t)b, out);
    }
}

void pb_dataset_blank(const pb_dataset *d, int first, int B, const pb_rows *out)
{
    const size_t S = (size_t)d->cfg.S;
    for (int b = first; b < B; b++) {
        if (out->used) out->used[b] = 0;
        fill_gap((size_t)b * S, 0, S, out);
    }
}

pb_data_position pb_dataset_position(const pb_dataset *d) { return d->at; }
size_t pb_dataset_rows(const pb_dataset *d) { return d->rows; }

pb_status pb_dataset_seek(pb_dataset *d, pb_data_position at)
{
    const pb_data_position before = d->at;
    d->at = at;
    plan(d);
    if (at.row <= d->rows) return PB_OK;
    const size_t rows = d->rows;
    d->at = before;
    plan(d);
    return pb_fail(PB_EINVAL, "data: epoch %llu has %zu rows, and the position is row %llu: other data or another seed",
                   (unsigned long long)at.epoch, rows, (unsigned long long)at.row);
}

/* ---- opening ----------------------------------------------------------------------------------------- */

static pb_status open_rows(pb_dataset *d, const char *path)
{
    const size_t n = d->samples.n;
    if (!n) return pb_fail(PB_EINVAL, "%s: no conversation in it to learn from", path);
    d->order = malloc(n * sizeof *d->order);
    d->next = malloc(n * sizeof *d->next);
    d->row = malloc(n * sizeof *d->row);
    if (!d->order || !d->next || !d->row) return pb_fail(PB_ENOMEM, "no memory for %zu rows", n);
    plan(d);
    return PB_OK;
}

pb_status pb_dataset_open(const char *path, pb_tokenizer *t, const pb_dataset_config *cfg, pb_dataset_counts *counts,
                          pb_dataset **out)
{
    *counts = (pb_dataset_counts){0};
    if (cfg->S < 1) return pb_fail(PB_EINVAL, "data: rows of %d tokens, need at least 1", cfg->S);
    if (!(cfg->held_out >= 0 && cfg->held_out < 1))
        return pb_fail(PB_EINVAL, "data: a held-out share of %g, need at least 0 and less than 1", cfg->held_out);
    pb_dataset *d = calloc(1, sizeof *d);
    if (!d) return pb_fail(PB_ENOMEM, "no memory for a data set");
    d->cfg = *cfg;
    reading r = {d, t, counts, 0};
    pb_status s = pb_jsonl_read(path, cfg->bad_lines, take, &r, &counts->lines);
    if (s == PB_OK) s = open_rows(d, path);
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
