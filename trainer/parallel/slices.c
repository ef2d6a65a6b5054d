/* slices.c - divides the buckets of gradients into slices, one per rank. */
#include "trainer/parallel/slices.h"

#include <stdlib.h>

#include "kernels/clip/clip.h"

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

/* Returns the last place at or before element `at` of the vector where a slice may end. */
static size_t cut_before(const pb_model *m, size_t at)
{
    const pb_param *p = m->order[tensor_at(m, at)];
    const size_t run = pb_clip_run(pb_param_n(p));
    return p->at + (at - p->at) / run * run;
}

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

pb_status pb_slices_make(const pb_model *m, const pb_buckets *b, int ranks, int rank, pb_slices *out)
{
    pb_slices s = {.ranks = ranks, .rank = rank};
    const size_t buckets = (size_t)b->n + 1;
    s.count = calloc(buckets * (size_t)ranks, sizeof *s.count);
    s.own = calloc(buckets, sizeof *s.own);
    s.piece = calloc((size_t)m->ordered + buckets, sizeof *s.piece);
    if (!s.count || !s.own || !s.piece) {
        pb_slices_free(&s);
        return pb_fail(PB_ENOMEM, "no memory for the slices of %d ranks", ranks);
    }
    for (int i = 0; i < b->n; i++) {
        const pb_bucket *x = &b->bucket[i];
        size_t *count = s.count + (size_t)i * (size_t)ranks;
        divide(m, x, ranks, count);
        const size_t from = x->at + pb_slice_at(&s, i, rank);
        s.own[i] = s.total;
        if (count[rank]) list_pieces(m, from, from + count[rank], s.total, i, &s);
        s.total += count[rank];
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
