/* rows.h - pb_rope_rows: one struct for the arguments of the forward and of the backward pass. Every implementation
 * works on it, because both passes rotate rows and differ only in the sign of the angle. */
#ifndef PB_ROPE_ROWS_H
#define PB_ROPE_ROWS_H
#include "kernels/rope/rope.h"

#ifndef PB_ROPE_FN /* rope.cu defines it to add __host__ __device__ */
#define PB_ROPE_FN static inline
#endif

/* Describes a rotation of the rows x, written to y. sin is multiplied by `sign`. Index 0 of the arrays is q (or dq),
 * index 1 is k (or dk). */
typedef struct pb_rope_rows {
    const void *x[2];
    void *y[2];
    size_t ldx[2], ldy[2], seqx[2], seqy[2], ldpos;
    int heads[2];
    const float *cos, *sin;
    const int32_t *pos;
    int B, S, D, R, P, first, step;
    float sign;
    pb_rope_pairing pairing;
    pb_dtype dtype;
} pb_rope_rows;

/* Replaces each 0 that means a default by its value. */
static inline pb_rope_rows pb_rope_defaults(pb_rope_rows r)
{
    const size_t S = (size_t)r.S;
    for (int k = 0; k < 2; k++) {
        if (!r.seqx[k]) r.seqx[k] = S * r.ldx[k];
        if (!r.seqy[k]) r.seqy[k] = S * r.ldy[k];
    }
    if (!r.step) r.step = 1;
    if (!r.ldpos) r.ldpos = S * (size_t)r.step;
    if (!r.R) r.R = r.D;
    return r;
}

static inline pb_rope_rows pb_rope_fwd_rows(const pb_rope_fwd_args *a)
{
    const pb_rope_rows r = {{a->q, a->k},
                            {a->qr, a->kr},
                            {a->ldq, a->ldk},
                            {a->ldqr, a->ldkr},
                            {a->seqq, a->seqk},
                            {a->seqqr, a->seqkr},
                            a->ldpos,
                            {a->H, a->K},
                            a->cos,
                            a->sin,
                            a->pos,
                            a->B,
                            a->S,
                            a->D,
                            a->R,
                            a->P,
                            a->first,
                            a->step,
                            1,
                            a->pairing,
                            a->dtype};
    return pb_rope_defaults(r);
}

static inline pb_rope_rows pb_rope_bwd_rows(const pb_rope_bwd_args *a)
{
    const pb_rope_rows r = {{a->dqr, a->dkr},
                            {a->dq, a->dk},
                            {a->lddqr, a->lddkr},
                            {a->lddq, a->lddk},
                            {a->seqdqr, a->seqdkr},
                            {a->seqdq, a->seqdk},
                            a->ldpos,
                            {a->H, a->K},
                            a->cos,
                            a->sin,
                            a->pos,
                            a->B,
                            a->S,
                            a->D,
                            a->R,
                            a->P,
                            a->first,
                            a->step,
                            -1,
                            a->pairing,
                            a->dtype};
    return pb_rope_defaults(r);
}

/* Returns the position of token s of sequence b. Without `pos` it is less than P: the op's check ensures that. */
PB_ROPE_FN int pb_rope_position(const pb_rope_rows *r, size_t b, size_t s)
{
    return r->pos ? r->pos[b * r->ldpos + s * (size_t)r->step] : r->first + (int)s * r->step;
}
#endif
