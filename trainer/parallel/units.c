/* units.c - divides the weights of a model into units, and the units into slices, one per rank. */
#include "trainer/parallel/units.h"

#include <stdlib.h>

static size_t aligned(size_t bytes) { return (bytes + PB_UNIT_ALIGN - 1) / PB_UNIT_ALIGN * PB_UNIT_ALIGN; }

size_t pb_nf4_codes(const pb_param *p) { return aligned((pb_param_n(p) + 1) / 2); }

static size_t blocks_of(const pb_model *m, const pb_param *p)
{
    const size_t block = (size_t)m->cfg.nf4_block;
    return (pb_param_n(p) + block - 1) / block;
}

/* Bytes of absmax_q, and of absmax2 with the offset after it. */
static size_t scale_codes(const pb_model *m, const pb_param *p) { return aligned(blocks_of(m, p)); }
static size_t scale_groups(const pb_model *m, const pb_param *p)
{
    return aligned(((blocks_of(m, p) + 255) / 256 + 1) * sizeof(float));
}

size_t pb_frozen_bytes(const pb_model *m, const pb_param *p)
{
    if (!pb_param_quantised(m, p)) return aligned(pb_param_n(p) * pb_dtype_size(p->dtype));
    if (!m->cfg.nf4_double) return pb_nf4_codes(p) + aligned(blocks_of(m, p) * sizeof(float));
    return pb_nf4_codes(p) + scale_codes(m, p) + scale_groups(m, p);
}

pb_nf4_scales pb_nf4_scales_at(const pb_model *m, const pb_param *p, unsigned char *at)
{
    pb_nf4_scales s = {.block = m->cfg.nf4_block};
    if (!m->cfg.nf4_double) {
        s.absmax = (float *)(void *)at;
        return s;
    }
    s.absmax_q = at;
    s.absmax2 = (float *)(void *)(at + scale_codes(m, p));
    s.offset = s.absmax2 + (blocks_of(m, p) + 255) / 256;
    s.code = m->nf4_code;
    return s;
}

size_t pb_unit_slice_at(const pb_units *u, int unit, int rank)
{
    size_t words = 0;
    for (int r = 0; r < rank; r++) words += u->count[(size_t)unit * (size_t)u->ranks + (size_t)r];
    return words * PB_UNIT_WORD;
}

/* Divides `bytes` frozen bytes; count: [ranks] words. */
static void divide(size_t bytes, int ranks, size_t *count)
{
    const size_t blocks = bytes / PB_UNIT_ALIGN, each = (blocks + (size_t)ranks - 1) / (size_t)ranks;
    for (size_t r = 0, left = blocks; r < (size_t)ranks; r++) {
        const size_t some = left < each ? left : each;
        count[r] = some * (PB_UNIT_ALIGN / PB_UNIT_WORD);
        left -= some;
    }
}

/* Places the trained tensors of a bucket after the frozen ones of its unit. */
static void place_bucket(const pb_model *m, const pb_bucket *b, int bucket, pb_units *u)
{
    const size_t e = pb_dtype_size(m->cfg.dtype);
    pb_unit *unit = &u->unit[b->stage];
    unit->bucket = bucket;
    unit->size = aligned(unit->frozen + b->n * e);
    for (int i = 0; i < m->ordered; i++) {
        const pb_param *p = m->order[i];
        if (p->at >= b->at && p->at < b->at + b->n) u->place[p - m->params] = unit->frozen + (p->at - b->at) * e;
    }
}

static void lay_out(const pb_model *m, const pb_buckets *b, const pb_slices *s, pb_units *u)
{
    const size_t ranks = (size_t)u->ranks;
    for (int i = 0; i < u->n; i++) u->unit[i].bucket = -1;
    for (int i = 0; i < m->n; i++) {
        const pb_param *p = &m->params[i];
        if (p->trained) continue;
        u->place[i] = u->unit[p->stage].frozen;
        u->unit[p->stage].frozen += pb_frozen_bytes(m, p);
    }
    for (int i = 0; i < u->n; i++) {
        pb_unit *unit = &u->unit[i];
        unit->size = unit->frozen;
        unit->own = u->own;
        divide(unit->frozen, u->ranks, u->count + (size_t)i * ranks);
        u->own += u->count[(size_t)i * ranks + (size_t)u->rank] * PB_UNIT_WORD;
    }
    for (int i = 0; i < b->n && b->bucket[i].at < m->wide; i++) {
        place_bucket(m, &b->bucket[i], i, u);
        u->trained = s->own[i] + s->count[(size_t)i * ranks + (size_t)u->rank];
    }
}

pb_status pb_units_make(const pb_model *m, const pb_buckets *b, const pb_slices *s, pb_units *out)
{
    pb_units u = {.n = m->g.L + 2, .ranks = s->ranks, .rank = s->rank};
    u.unit = calloc((size_t)u.n, sizeof *u.unit);
    u.place = calloc((size_t)m->n, sizeof *u.place);
    u.count = calloc((size_t)u.n * (size_t)u.ranks, sizeof *u.count);
    if (!u.unit || !u.place || !u.count) {
        pb_units_free(&u);
        return pb_fail(PB_ENOMEM, "no memory for the slices of the weights of %d ranks", s->ranks);
    }
    lay_out(m, b, s, &u);
    *out = u;
    return PB_OK;
}

void pb_units_free(pb_units *u)
{
    free(u->unit);
    free(u->place);
    free(u->count);
    *u = (pb_units){0};
}
