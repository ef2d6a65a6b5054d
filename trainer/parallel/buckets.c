/* buckets.c - divides a model's vector of gradients into buckets. */
#include "trainer/parallel/buckets.h"

#include <stdlib.h>

/* True if tensor i is the last of its bucket, which begins at element `first`. */
static bool closes(const pb_model *m, int i, size_t first, size_t least, pb_bucket_ends ends)
{
    const pb_param *p = m->order[i], *next = i + 1 < m->ordered ? m->order[i + 1] : NULL;
    if (!next || (p->at < m->wide) != (next->at < m->wide)) return true;
    if (ends == PB_ENDS_AFTER_TENSORS) return p->at + pb_param_n(p) - first >= least;
    if (next->stage == p->stage) return false;
    if (ends == PB_ENDS_AFTER_EVERY_STAGE && p->at < m->wide) return true;
    return p->at + pb_param_n(p) - first >= least || (m->g.tied && next == m->outer[PB_P_embed]);
}

pb_status pb_buckets_make(const pb_model *m, size_t least, pb_bucket_ends ends, pb_buckets *out)
{
    pb_buckets b = {.bucket = calloc((size_t)m->ordered + 1, sizeof *b.bucket)};
    size_t first = 0;
    int stage = 0;
    if (!b.bucket) return pb_fail(PB_ENOMEM, "no memory for the buckets of gradients");
    for (int i = 0; i < m->ordered; i++) {
        const pb_param *p = m->order[i];
        if (p->stage > stage) stage = p->stage;
        if (!closes(m, i, first, least, ends)) continue;
        const size_t end = i + 1 < m->ordered ? m->order[i + 1]->at : m->vector;
        b.bucket[b.n++] = (pb_bucket){first, end - first, stage};
        first = end;
        stage = 0;
    }
    *out = b;
    return PB_OK;
}
