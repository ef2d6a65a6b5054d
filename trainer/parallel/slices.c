/* slices.c - divides the buckets of gradients into slices, one per rank. */
#include "trainer/parallel/slices.h"

#include <stdlib.h>

#include "kernels/clip/clip.h"
#include "trainer/parallel/matrix_cuts.h"

size_t pb_slice_at(const pb_slices *s, int bucket, int rank)
{
    size_t at = 0;
    for (int r = 0; r < rank; r++) at += s->count[(size_t)bucket * (size_t)s->ranks + (size_t)r];
    return at;
}

/* Returns the index in m->order of the last tensor that begins at or before element `at` of the vector. */
static int tensor_at(const pb_model *m, size_t at)
{
    int low = 0, high = m->ordered;
    while (high - low > 1) {
        const int mid = low + (high - low) / 2;
        if (m->order[mid]->at <= at) low = mid;
        else high = mid;
    }
    return low;
}

size_t pb_cut_run(const pb_param *p)
{
    const size_t run = pb_clip_run(pb_param_n(p));
    size_t all = run;
    while (p->moments == PB_ADAMW_8BIT && all % PB_ADAMW_BLOCK) all += run;
    return all;
}

/* Returns the last place at or before element `at` of the vector where a slice may end. */
static size_t cut_before(const pb_model *m, size_t at)
{
    const pb_param *p = m->order[tensor_at(m, at)];
    const size_t run = pb_cut_run(p);
    return p->at + (at - p->at) / run * run;
}

/* ---- equal counts: AdamW trains all tensors --------------------------------------------------------------- */

static void divide(const pb_model *m, const pb_bucket *b, int ranks, size_t *count)
{
    size_t from = b->at;
    for (int r = 0; r < ranks; r++) {
        const size_t even = b->at + (size_t)((double)b->n * (r + 1) / ranks);
        const size_t cut = r + 1 < ranks ? cut_before(m, even) : b->at + b->n;
        const size_t to = cut > from ? cut : from;
        count[r] = to - from;
        from = to;
    }
}

/* ---- equal costs: NorMuon ----------------------------------------------------------------------------------- */

/* A part: consecutive elements of a bucket that must not be divided between ranks. It begins where the part before it
 * ends. */
typedef struct part {
    size_t end; /* in the vector */
    uint64_t cost;
} part;

/* Lists the parts of a tensor, at most pb_clip_slots of its elements, and returns their number. */
static int parts_of_matrix(const pb_model *m, const pb_param *p, bool per_head, part *out)
{
    const size_t run = pb_clip_run(pb_param_n(p));
    pb_matrix_cut c[PB_MATRIX_CUTS];
    uint64_t cost = 0;
    size_t row = 0;
    int n = 0;
    pb_matrix_cuts(m, p, per_head, c);
    for (int i = 0; i < PB_MATRIX_CUTS; i++)
        for (size_t k = 0; c[i].rows && k < c[i].times; k++) {
            row += c[i].rows;
            cost += pb_matrix_cost(c[i].rows, p->cols);
            if (row * p->cols % run && row < p->rows) continue;
            out[n++] = (part){p->at + row * p->cols, cost};
            cost = 0;
        }
    return n;
}

static int parts_of_others(const pb_param *p, part *out)
{
    const size_t all = pb_param_n(p), run = pb_clip_run(all);
    int n = 0;
    for (size_t first = 0; first < all; first += run) {
        const size_t some = all - first < run ? all - first : run;
        out[n++] = (part){p->at + first + some, PB_ADAMW_COST * (uint64_t)some};
    }
    return n;
}

static int list_parts(const pb_model *m, const pb_bucket *b, bool per_head, part *out)
{
    int n = 0;
    for (int i = tensor_at(m, b->at); i < m->ordered && m->order[i]->at < b->at + b->n; i++) {
        const pb_param *p = m->order[i];
        const bool last = i + 1 == m->ordered || m->order[i + 1]->at >= b->at + b->n;
        n += p->by_rows ? parts_of_matrix(m, p, per_head, out + n) : parts_of_others(p, out + n);
        out[n - 1].end = last ? b->at + b->n : m->order[i + 1]->at; /* with the gap after the tensor */
    }
    return n;
}

/* Divides n parts, which begin at element `from`, so that no rank that gets one has a load above `most`; returns
 * whether they all find a place. */
static bool fill(const part *x, int n, size_t from, const uint64_t *load, uint64_t most, int ranks, size_t *count)
{
    int i = 0;
    for (int r = 0; r < ranks; r++) {
        const size_t begin = from;
        for (uint64_t sum = load[r]; i < n && sum + x[i].cost <= most; sum += x[i++].cost) from = x[i].end;
        count[r] = from - begin;
    }
    return i == n;
}

/* Divides a bucket by the costs of its n parts x, and adds them to the loads of the ranks. */
static void divide_costs(const part *x, int n, size_t from, int ranks, uint64_t *load, size_t *count)
{
    uint64_t low = 0, high = 0, sum = 0;
    for (int r = 0; r < ranks; r++)
        if (load[r] > high) high = load[r];
    for (int i = 0; i < n; i++) high += x[i].cost;
    while (low < high) { /* the smallest `most` with which all parts find a place */
        const uint64_t mid = low + (high - low) / 2;
        if (fill(x, n, from, load, mid, ranks, count)) high = mid;
        else low = mid + 1;
    }
    (void)fill(x, n, from, load, low, ranks, count);
    size_t end = from;
    for (int r = 0, i = 0; r < ranks; r++, sum = 0) {
        end += count[r];
        while (i < n && x[i].end <= end) sum += x[i++].cost;
        load[r] += sum;
    }
}

static pb_status divide_all_costs(const pb_model *m, const pb_buckets *b, int ranks, bool per_head, size_t *count)
{
    size_t slots = 1;
    for (int i = 0; i < m->ordered; i++) slots += (size_t)pb_clip_slots(pb_param_n(m->order[i]));
    part *x = calloc(slots, sizeof *x);
    uint64_t *load = calloc((size_t)ranks, sizeof *load);
    const bool room = x && load;
    for (int i = 0; room && i < b->n; i++) {
        const int n = list_parts(m, &b->bucket[i], per_head, x);
        divide_costs(x, n, b->bucket[i].at, ranks, load, count + (size_t)i * (size_t)ranks);
    }
    free(load);
    free(x);
    return room ? PB_OK : pb_fail(PB_ENOMEM, "no memory for the costs of %d ranks", ranks);
}

/* ---- the slices of one rank ------------------------------------------------------------------------------------ */

/* Lists the parts of tensors in elements from .. to-1 of the vector. */
static void list_pieces(const pb_model *m, size_t from, size_t to, size_t own, int bucket, pb_slices *s)
{
    for (int i = tensor_at(m, from); i < m->ordered && m->order[i]->at < to; i++) {
        const pb_param *p = m->order[i];
        const size_t n = pb_param_n(p), first = from > p->at ? from - p->at : 0;
        const size_t end = to - p->at < n ? to - p->at : n;
        if (first >= end) continue;
        s->piece[s->n++] = (pb_piece){p, first, end - first, own + p->at + first - from, bucket};
    }
}

static pb_status divide_all(const pb_model *m, const pb_buckets *b, int ranks, bool per_head, size_t *count)
{
    if (m->cfg.row_moments) return divide_all_costs(m, b, ranks, per_head, count);
    for (int i = 0; i < b->n; i++) divide(m, &b->bucket[i], ranks, count + (size_t)i * (size_t)ranks);
    return PB_OK;
}

pb_status pb_slices_make(const pb_model *m, const pb_buckets *b, int ranks, int rank, bool per_head, pb_slices *out)
{
    pb_slices s = {.ranks = ranks, .rank = rank};
    const size_t buckets = (size_t)b->n + 1;
    s.count = calloc(buckets * (size_t)ranks, sizeof *s.count);
    s.own = calloc(buckets, sizeof *s.own);
    s.piece = calloc((size_t)m->ordered + buckets, sizeof *s.piece);
    pb_status status = s.count && s.own && s.piece ? divide_all(m, b, ranks, per_head, s.count)
                                                   : pb_fail(PB_ENOMEM, "no memory for the slices of %d ranks", ranks);
    if (status != PB_OK) {
        pb_slices_free(&s);
        return status;
    }
    for (int i = 0; i < b->n; i++) {
        const size_t n = s.count[(size_t)i * (size_t)ranks + (size_t)rank];
        const size_t from = b->bucket[i].at + pb_slice_at(&s, i, rank);
        s.own[i] = s.total;
        if (n) list_pieces(m, from, from + n, s.total, i, &s);
        s.total += n;
    }
    *out = s;
    return PB_OK;
}

void pb_slices_free(pb_slices *s)
{
    free(s->count);
    free(s->own);
    free(s->piece);
    *s = (pb_slices){0};
}
