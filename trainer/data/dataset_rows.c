/* dataset_rows.c - decides which samples form each row of an epoch, writes rows into batches, and keeps the position of
 * the next row. */
#include "kernels/engine/bind.h"
#include "trainer/data/dataset_impl.h"

#include <string.h>

enum { OPEN_ROWS = 64 };
#define NONE SIZE_MAX

/* ---- the random order of the samples ---------------------------------------------------------------- */

/* Fills `order` with 0..n-1 in an order drawn from the seed (Fisher-Yates). */
static void shuffle(size_t *order, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) order[i] = i;
    for (size_t i = n; i > 1; i--) {
        const size_t k = (size_t)(pb_uniform(seed, i) * (double)i), swap = order[k];
        order[k] = order[i - 1];
        order[i - 1] = swap;
    }
}

/* ---- packing whole conversations into rows ------------------------------------------------------------ */

typedef struct open_row {
    size_t head, tail; /* first and last sample, linked by next[] */
    size_t used;
} open_row;

/* Returns the first aligned position at or after `used`, where the next conversation may begin. */
static size_t begin_after(const pb_dataset *d, size_t used)
{
    const size_t align = d->cfg.align > 1 ? (size_t)d->cfg.align : 1;
    return (used + align - 1) / align * align;
}

/* Returns the index of the fullest of `open` rows that has room for a sample of `need` positions; `open` if none
 * has. */
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
    d->row[d->rows++] = (pb_token_at){rows[i].head, d->samples.first[rows[i].head]};
    rows[i] = rows[--*open];
}

static void plan_whole(pb_dataset *d)
{
    const bool pack = d->cfg.pack == PB_PACK_ON;
    open_row rows[OPEN_ROWS];
    size_t open = 0;
    for (size_t i = 0; i < d->samples.n; i++) {
        const size_t sample = d->order[i], need = pb_sample_positions(&d->samples, sample);
        size_t to = pack ? best_fit(d, rows, open, need) : open;
        d->next[sample] = NONE;
        if (to < open) {
            d->next[rows[to].tail] = sample;
            rows[to].tail = sample;
            rows[to].used = begin_after(d, rows[to].used) + need;
            continue;
        }
        if (open == (pack ? OPEN_ROWS : 1)) {
            for (size_t k = to = 0; k < open; k++)
                if (rows[k].used > rows[to].used) to = k;
            close_row(d, rows, &open, to);
        }
        rows[open++] = (open_row){sample, sample, need};
    }
    while (open) close_row(d, rows, &open, 0);
}

/* ---- cutting the stream into rows --------------------------------------------------------------------- */

/* Returns the token that follows `at` in the stream. */
static pb_token_at following(const pb_dataset *d, pb_token_at at)
{
    const pb_samples *s = &d->samples;
    if (at.token + 1 < s->first[at.sample + 1]) return (pb_token_at){at.sample, at.token + 1};
    const size_t next = d->next[at.sample];
    return (pb_token_at){next, s->first[next]};
}

static void plan_stream(pb_dataset *d)
{
    const pb_samples *s = &d->samples;
    const size_t S = (size_t)d->cfg.S, head = d->order[0];
    const double least = d->cfg.min_counted * (double)S;
    pb_token_at at = {head, s->first[head]};
    for (size_t i = 0; i < s->n; i++) d->next[d->order[i]] = i + 1 < s->n ? d->order[i + 1] : NONE;
    for (size_t w = pb_stream_windows(d); w; w--) {
        const pb_token_at first = at;
        size_t counted = 0;
        for (size_t k = 0; k < S; k++) {
            at = following(d, at);
            counted += s->counted[at.token];
        }
        if (counted && (double)counted >= least) d->row[d->rows++] = first;
    }
}

/* ---- planning the rows of an epoch ---------------------------------------------------------------------- */

static void plan_order(pb_dataset *d, uint64_t epoch)
{
    d->rows = 0;
    shuffle(d->order, d->samples.n, d->cfg.seed + epoch * 0x9e3779b97f4a7c15u);
    if (d->cfg.pack == PB_PACK_STREAM) plan_stream(d);
    else plan_whole(d);
}

void pb_dataset_plan(pb_dataset *d)
{
    plan_order(d, d->at.epoch);
    if (!d->rows) plan_order(d, 0);
}

/* ---- writing a row into a batch ------------------------------------------------------------------------- */

/* Writes element i of all arrays of `out`. `start` and `pos` count from the first position of the row. */
static void put(const pb_rows *out, size_t i, int32_t id, int32_t target, float mask, size_t start, size_t pos)
{
    out->ids[i] = id;
    out->targets[i] = target;
    out->mask[i] = mask;
    if (out->start) out->start[i] = (int32_t)start;
    if (out->pos) out->pos[i] = (int32_t)pos;
}

/* Writes padding to positions [from,to) of a row. `row` is the index of the row's first position in the arrays of
 * `out`. */
static void fill_gap(size_t row, size_t from, size_t to, const pb_rows *out)
{
    for (size_t at = from; at < to; at++) put(out, row + at, 0, 0, 0, at, 0);
}

/* Writes a row of whole conversations: the samples linked by next[] from `first` on, and padding after them. Returns
 * the number of positions that the samples use. */
static size_t fill_whole(const pb_dataset *d, size_t first, size_t row, const pb_rows *out)
{
    const pb_samples *s = &d->samples;
    size_t at = 0;
    for (size_t i = first; i != NONE; i = d->next[i]) {
        const size_t start = begin_after(d, at);
        fill_gap(row, at, start, out);
        at = start;
        for (size_t t = s->first[i]; t + 1 < s->first[i + 1]; t++, at++)
            put(out, row + at, s->ids.id[t], s->ids.id[t + 1], s->counted[t + 1], start, at - start);
    }
    fill_gap(row, at, (size_t)d->cfg.S, out);
    return at;
}

/* Writes a row of a stream: the S positions from `at` on. Returns S. */
static size_t fill_window(const pb_dataset *d, pb_token_at at, size_t row, const pb_rows *out)
{
    const pb_samples *s = &d->samples;
    const size_t S = (size_t)d->cfg.S;
    for (size_t k = 0; k < S; k++) {
        const pb_token_at target = following(d, at);
        put(out, row + k, s->ids.id[at.token], s->ids.id[target.token], s->counted[target.token], 0, k);
        at = target;
    }
    return S;
}

/* Writes row `row` of the epoch as row b of `out`. */
static void fill_row(const pb_dataset *d, size_t row, size_t b, const pb_rows *out)
{
    const pb_token_at first = d->row[row];
    const size_t to = b * (size_t)d->cfg.S;
    const size_t used =
        d->cfg.pack == PB_PACK_STREAM ? fill_window(d, first, to, out) : fill_whole(d, first.sample, to, out);
    if (out->used) out->used[b] = (int32_t)used;
}

void pb_dataset_next(pb_dataset *d, int B, const pb_rows *out)
{
    for (int b = 0; b < B; b++) {
        if (d->at.row == d->rows) {
            d->at = (pb_data_position){d->at.epoch + 1, 0};
            pb_dataset_plan(d);
        }
        fill_row(d, (size_t)d->at.row++, (size_t)b, out);
    }
}

void pb_dataset_batch(const pb_dataset *d, int B, size_t index, const pb_rows *out)
{
    for (size_t b = 0; b < (size_t)B; b++) fill_row(d, (index * (size_t)B + b) % d->rows, b, out);
}

void pb_dataset_blank(const pb_dataset *d, int first, int B, const pb_rows *out)
{
    const size_t S = (size_t)d->cfg.S;
    for (int b = first; b < B; b++) {
        if (out->used) out->used[b] = 0;
        fill_gap((size_t)b * S, 0, S, out);
    }
}

int pb_rows_length(const pb_rows *r, size_t n, int S, int bucket)
{
    int longest = 1;
    if (bucket < 1) return S;
    for (size_t i = 0; i < n; i++) longest = r->used[i] > longest ? r->used[i] : longest;
    const int up = (longest + bucket - 1) / bucket * bucket;
    return up < S ? up : S;
}

void pb_rows_shorten(const pb_rows *r, size_t n, int from, int to)
{
    void *const all[] = {r->ids, r->targets, r->mask, r->start, r->pos}; /* elements of 4 bytes */
    for (size_t k = 0; k < sizeof all / sizeof *all && to < from; k++)
        for (size_t i = 1; all[k] && i < n; i++)
            memmove((char *)all[k] + 4 * i * (size_t)to, (char *)all[k] + 4 * i * (size_t)from, 4 * (size_t)to);
}

pb_data_position pb_dataset_position(const pb_dataset *d) { return d->at; }
size_t pb_dataset_rows(const pb_dataset *d) { return d->rows; }

pb_status pb_dataset_seek(pb_dataset *d, pb_data_position at)
{
    const pb_data_position before = d->at;
    d->at = at;
    pb_dataset_plan(d);
    if (at.row <= d->rows) return PB_OK;
    const size_t rows = d->rows;
    d->at = before;
    pb_dataset_plan(d);
    return pb_fail(PB_EINVAL, "data: epoch %llu has %zu rows, and the position is row %llu: other data or another seed",
                   (unsigned long long)at.epoch, rows, (unsigned long long)at.row);
}
