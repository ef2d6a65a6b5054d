/* v4_context.c - V4 attention over rows that several ranks share (trainer/parallel/context.h), in contiguous slices.
 *
 * A rank computes queries, keys and compressed rows of its slice. It gathers the compressed rows of the whole row, and
 * the compressed keys of the indexer. Of the tokens' keys, its queries attend to their own and to those of the window
 * before them. So it needs only the last ones of the previous rank (row_window.h); where a slice is shorter than that,
 * the keys of all tokens are gathered. Its queries give a term of the gradient of each of these keys. The terms are
 * summed over the ranks in f32, and each rank gets the sums of its own keys. Gathered keys are not kept: the backward
 * pass gathers them again.
 *
 * The length of a slice is a multiple of every layer's ratio. Without `overlap` (compressor.h), every compressed row
 * therefore pools tokens of one slice only. With overlap, row 0 of a slice also pools the last `ratio` tokens of the
 * slice before it, the edge:
 *
 *     forward:   a rank gets the edge from the previous rank. A second call of the compressor pools the edge and the first
 *                `ratio` tokens of the slice into two rows; its second row replaces row 0 of the slice.
 *     backward:  the gradient of row 0 goes through that second call only. The rank sends the gradients of the edge back
 *                to the previous rank.
 *
 * Of the columns of a token, one half is pooled into the row of its own group, the other half into the next row. Each
 * element of the gradient therefore comes from one of the two calls only, and is copied, not added. */
#include <stdlib.h>

#include "kernels/cast/cast.h"
#include "kernels/comm/comm.h"
#include "kernels/compressor/compressor.h"
#include "kernels/copy/copy.h"
#include "trainer/blocks/v4.h"
#include "trainer/parallel/row_chunks.h"
#include "trainer/parallel/row_window.h"

enum { EDGE = PB_V4_OVERLAPPING }; /* tokens that a rank sends to the next one */

static size_t elements(const pb_v4_pass *p, size_t n) { return n * pb_dtype_size(p->dtype); }
/* Pointer to element i of a tensor of the model's dtype. */
static void *at(const pb_v4_pass *p, const void *x, size_t i) { return (unsigned char *)x + elements(p, i); }
static bool follows_another(const pb_v4_pass *p) { return p->t->context.rank > 0; }
static bool precedes_another(const pb_v4_pass *p) { return p->t->context.rank < p->t->context.ranks - 1; }

/* Number of tokens before a token to which it attends without compression. */
static int before(const pb_trainer *t) { return t->model.g.v4->window - 1; }
/* True if a rank needs tokens of the previous rank only; otherwise the keys of all tokens are gathered. */
static bool windowed(const pb_trainer *t) { return before(t) <= t->S; }

/* ---- reserving buffers, and inputs of a batch ------------------------------------------------------------------ */

void pb_v4_context_carve(pb_trainer *t, const pb_v4_shape *s, bool backward)
{
    pb_v4 *v = t->block_state;
    pb_arena *m = &t->acts;
    const bool trained = t->cfg.model.index_loss > 0;
    const size_t one = t->cfg.context ? 1 : 0, B = (size_t)t->cfg.B, ranks = (size_t)t->context.ranks;
    const size_t e = pb_dtype_size(t->model.cfg.dtype), keys = one * B * s->row_kv * t->model.g.d;
    const size_t index = one * s->indexed * B * s->row_G * t->model.g.v4->index_d;
    const size_t C = (size_t)(s->C > s->index_C ? s->C : s->index_C), edge = one * B * EDGE * 2 * C;
    if (backward) {
        v->dall = pb_carve(m, keys * sizeof *v->dall);
        v->dpart = pb_carve(m, one * B * s->S_kv * t->model.g.d * sizeof *v->dpart);
        v->dindex = pb_carve(m, trained * index * sizeof *v->dindex);
        v->djoint = pb_carve(m, 2 * edge * e);
        return;
    }
    v->all = pb_carve(m, keys * e);
    v->window_room = pb_carve(m, windowed(t) * one * ranks * (size_t)before(t) * t->model.g.d * sizeof(float));
    v->index_all = pb_carve(m, index * e);
    v->start = pb_carve(m, t->cfg.packed ? one * (size_t)t->T * sizeof *v->start : 0);
    v->joint_start = pb_carve(m, t->cfg.packed ? one * B * 2 * EDGE * sizeof *v->joint_start : 0);
    v->edge_own = pb_carve(m, edge * e);
    v->edge_all = pb_carve(m, ranks * edge * e);
    v->joint = pb_carve(m, 2 * edge * e);
    v->edge_row = pb_carve(m, one * B * C * e); /* C is 2D where groups overlap */
}

/* Uploads the first token of each token's conversation: v4.start counts tokens from the beginning of the slice,
 * v4.joint_start from the beginning of the edge. Of joint_start, the compressor reads only the entry of the slice's
 * first token. */
pb_status pb_v4_context_rows(pb_trainer *t, const pb_batch *b, int S)
{
    const pb_v4 *v = pb_v4_of(t);
    const size_t own = (size_t)(S / t->context.ranks), from = own * (size_t)t->context.rank, B = (size_t)t->cfg.B;
    if (!t->cfg.context || !t->cfg.packed) return PB_OK;
    int32_t *start = calloc(B * (own + 2 * EDGE), sizeof *start);
    if (!start) return pb_fail(PB_ENOMEM, "no memory for the conversations of a batch");
    int32_t *joint = start + B * own;
    for (size_t i = 0; i < B * own; i++) start[i] = b->start[i / own * (size_t)S + from + i % own] - (int32_t)from;
    for (size_t i = 0; i < B * 2 * EDGE; i++) joint[i] = start[i / (2 * EDGE) * own] + EDGE;
    pb_status s = pb_upload(t->ctx, v->start, start, B * own * sizeof *start);
    if (s == PB_OK) s = pb_upload(t->ctx, v->joint_start, joint, B * 2 * EDGE * sizeof *joint);
    free(start);
    return s;
}

/* ---- keys of the whole row, and their gradients ---------------------------------------------------------------- */

/* One chunk of every rank: n consecutive rows of D elements of a batch row. */
static pb_row_chunks chunks_of(const pb_v4_pass *p, int n, int D)
{
    return (pb_row_chunks){.comm = p->t->cfg.context,
                           .length = n,
                           .width = (size_t)D,
                           .room = p->v->window_room,
                           .ordered = p->t->cfg.ordered};
}

/* Gathers rows from .. from+n-1 of every batch row of x [B,each,D] from all ranks, into rows ranks*from ..
 * ranks*(from+n)-1 of y [B,ranks*each,D], in the order of the ranks. */
static pb_status gather(const pb_v4_pass *p, const void *x, void *y, int from, int n, int each, int D)
{
    const size_t ranks = (size_t)p->t->context.ranks;
    const pb_row_chunks c = chunks_of(p, n, D);
    for (size_t b = 0; n > 0 && b < (size_t)p->t->cfg.B; b++) {
        const size_t row = b * (size_t)each + (size_t)from;
        PB_TRY(
            pb_row_chunks_gather(p->ctx, &c, at(p, x, row * (size_t)D), at(p, y, ranks * row * (size_t)D), p->dtype));
    }
    return PB_OK;
}

/* The backward of gather: sums x [B,ranks*each,D] over the ranks; each rank gets the sums of its rows in y
 * [B,each,D]. */
static pb_status reduce(const pb_v4_pass *p, const float *x, float *y, int from, int n, int each, int D)
{
    const size_t ranks = (size_t)p->t->context.ranks;
    const pb_row_chunks c = chunks_of(p, n, D);
    for (size_t b = 0; n > 0 && b < (size_t)p->t->cfg.B; b++) {
        const size_t row = b * (size_t)each + (size_t)from;
        PB_TRY(pb_row_chunks_reduce(p->ctx, &c, x + ranks * row * (size_t)D, y + row * (size_t)D));
    }
    return PB_OK;
}

/* The keys of this rank's tokens, and of those before them that its queries attend to. */
static pb_status gather_window(const pb_v4_pass *p)
{
    const pb_row_chunks c = chunks_of(p, p->t->S, p->g->d);
    const size_t each = (size_t)p->s.S_kv * c.width, whole = (size_t)p->t->context.ranks * each;
    for (size_t b = 0; b < (size_t)p->t->cfg.B; b++)
        PB_TRY(pb_row_window_gather(p->ctx, &c, before(p->t), at(p, p->a->kv, b * each), at(p, p->v->all, b * whole),
                                    p->dtype));
    return PB_OK;
}

static pb_status reduce_window(const pb_v4_pass *p)
{
    const pb_row_chunks c = chunks_of(p, p->t->S, p->g->d);
    const size_t each = (size_t)p->s.S_kv * c.width, whole = (size_t)p->t->context.ranks * each;
    for (size_t b = 0; b < (size_t)p->t->cfg.B; b++)
        PB_TRY(pb_row_window_reduce(p->ctx, &c, before(p->t), p->v->dall + b * whole, p->v->dpart + b * each));
    return PB_OK;
}

static pb_status to_dtype(const pb_v4_pass *p, const float *x, void *y, int rows, int D)
{
    return pb_cast_bwd(
        p->ctx,
        &(pb_cast_bwd_args){.dy = x, .dx = y, .T = rows, .D = D, .lddx = (size_t)D, .scale = 1, .dtype = p->dtype});
}

pb_status pb_v4_gather_keys(const pb_v4_pass *p)
{
    if (!p->t->cfg.context) return PB_OK;
    PB_TRY(windowed(p->t) ? gather_window(p) : gather(p, p->a->kv, p->v->all, 0, p->t->S, p->s.S_kv, p->g->d));
    return gather(p, p->a->kv, p->v->all, p->t->S, p->s.G, p->s.S_kv, p->g->d);
}

pb_status pb_v4_gather_index(const pb_v4_pass *p)
{
    if (!p->t->cfg.context) return PB_OK;
    return gather(p, p->a->index.k, p->v->index_all, 0, p->s.G, p->s.G, p->g->v4->index_d);
}

pb_status pb_v4_reduce_keys(const pb_v4_pass *p)
{
    if (!p->t->cfg.context) return PB_OK;
    PB_TRY(windowed(p->t) ? reduce_window(p) : reduce(p, p->v->dall, p->v->dpart, 0, p->t->S, p->s.S_kv, p->g->d));
    PB_TRY(reduce(p, p->v->dall, p->v->dpart, p->t->S, p->s.G, p->s.S_kv, p->g->d));
    return to_dtype(p, p->v->dpart, p->v->dkv, p->t->cfg.B * p->s.S_kv, p->g->d);
}

pb_status pb_v4_reduce_index(const pb_v4_pass *p)
{
    if (!p->t->cfg.context) return PB_OK;
    PB_TRY(reduce(p, p->v->dindex, p->v->dpart, 0, p->s.G, p->s.G, p->g->v4->index_d));
    return to_dtype(p, p->v->dpart, p->v->index_back.dk, p->t->cfg.B * p->s.G, p->g->v4->index_d);
}

/* ---- the compressed row that pools tokens of two slices ---------------------------------------------------------- */

/* A copy of n rows of `columns` elements for every batch row. x and y point to the first element for batch row 0. Rows
 * are ldx and ldy elements apart, batch rows nextx and nexty elements. x NULL: zeros. */
typedef struct part {
    const void *x;
    void *y;
    int n, columns;
    size_t ldx, ldy, nextx, nexty;
} part;

static pb_status copy(const pb_v4_pass *p, const part *c)
{
    for (size_t b = 0; b < (size_t)p->t->cfg.B; b++)
        PB_TRY(pb_copy_rows(p->ctx, &(pb_copy_rows_args){.x = c->x ? at(p, c->x, b * c->nextx) : NULL,
                                                         .y = at(p, c->y, b * c->nexty),
                                                         .T = c->n,
                                                         .D = c->columns,
                                                         .ldx = c->ldx,
                                                         .ldy = c->ldy,
                                                         .dtype = p->dtype}));
    return PB_OK;
}

/* Makes v4.joint [B,2 EDGE,2C]: the last tokens of the previous rank, then the first ones of this rank. x: the columns
 * of the compressor's values and gates, rows ld elements apart. */
static pb_status exchange(const pb_v4_pass *p, const void *x, size_t ld, int C)
{
    const pb_v4 *v = p->v;
    const size_t w = 2 * (size_t)C, S = (size_t)p->t->S, all = (size_t)p->t->cfg.B * EDGE * w;
    PB_TRY(copy(p, &(part){at(p, x, (S - EDGE) * ld), v->edge_own, EDGE, (int)w, ld, w, S * ld, EDGE * w}));
    PB_TRY(pb_comm_all_gather(
        p->ctx, &(pb_comm_all_gather_args){
                    .comm = p->t->cfg.context, .x = v->edge_own, .y = v->edge_all, .count = all, .dtype = p->dtype}));
    if (!follows_another(p)) return PB_OK;
    const void *previous = at(p, v->edge_all, (size_t)(p->t->context.rank - 1) * all);
    PB_TRY(copy(p, &(part){previous, v->joint, EDGE, (int)w, w, w, EDGE * w, 2 * EDGE * w}));
    return copy(p, &(part){x, at(p, v->joint, EDGE * w), EDGE, (int)w, ld, w, S * ld, 2 * EDGE * w});
}

static bool has_edge(const pb_v4_pass *p) { return p->t->cfg.context && p->s.ratio == PB_V4_OVERLAPPING; }

pb_status pb_v4_edge_forward(const pb_v4_pass *p, int ape, const void *x, size_t ld, int C, void *c, int D)
{
    const pb_v4 *v = p->v;
    const size_t w = 2 * (size_t)C, d = (size_t)D;
    if (!has_edge(p)) return PB_OK;
    PB_TRY(exchange(p, x, ld, C));
    if (!follows_another(p)) return PB_OK;
    PB_TRY(pb_compressor_fwd(p->ctx, &(pb_compressor_fwd_args){.a = v->joint,
                                                               .z = at(p, v->joint, (size_t)C),
                                                               .ape = pb_v4_param(p, ape)->w,
                                                               .start = p->t->start ? v->joint_start : NULL,
                                                               .c = v->edge_row,
                                                               .B = p->t->cfg.B,
                                                               .S = 2 * EDGE,
                                                               .D = D,
                                                               .ratio = EDGE,
                                                               .overlap = true,
                                                               .lda = w,
                                                               .ldz = w,
                                                               .in_dtype = p->dtype,
                                                               .dtype = p->dtype}));
    return copy(p, &(part){at(p, v->edge_row, d), c, 1, D, d, d, 2 * d, (size_t)p->s.G * d});
}

pb_status pb_v4_edge_take(const pb_v4_pass *p, void *dc, int D)
{
    const pb_v4 *v = p->v;
    const size_t d = (size_t)D, slice = (size_t)p->s.G * d;
    if (!has_edge(p) || !follows_another(p)) return PB_OK;
    PB_TRY(copy(p, &(part){NULL, v->edge_row, 1, D, d, d, 0, 2 * d}));
    PB_TRY(copy(p, &(part){dc, at(p, v->edge_row, d), 1, D, d, d, slice, 2 * d}));
    return copy(p, &(part){NULL, dc, 1, D, d, d, 0, slice});
}

/* Computes v4.djoint, the gradients of v4.joint, and copies those of this rank's first tokens to dx. */
static pb_status own_edge_back(const pb_v4_pass *p, int ape, void *dx, size_t ld, int C, int D)
{
    const pb_v4 *v = p->v;
    const size_t w = 2 * (size_t)C, next = (size_t)p->t->S * ld;
    PB_TRY(pb_compressor_bwd(p->ctx, &(pb_compressor_bwd_args){.dc = v->edge_row,
                                                               .a = v->joint,
                                                               .z = at(p, v->joint, (size_t)C),
                                                               .ape = pb_v4_param(p, ape)->w,
                                                               .start = p->t->start ? v->joint_start : NULL,
                                                               .da = v->djoint,
                                                               .dz = at(p, v->djoint, (size_t)C),
                                                               .dape = pb_v4_param(p, ape)->grad,
                                                               .B = p->t->cfg.B,
                                                               .S = 2 * EDGE,
                                                               .D = D,
                                                               .ratio = EDGE,
                                                               .overlap = true,
                                                               .lda = w,
                                                               .ldz = w,
                                                               .ldda = w,
                                                               .lddz = w,
                                                               .accumulate = true,
                                                               .in_dtype = p->dtype,
                                                               .dtype = p->dtype}));
    for (size_t half = 0; half < w; half += (size_t)C) { /* values, then gates */
        const size_t from = half + (size_t)D;
        PB_TRY(
            copy(p, &(part){at(p, v->djoint, EDGE * w + from), at(p, dx, from), EDGE, D, w, ld, 2 * EDGE * w, next}));
    }
    return PB_OK;
}

pb_status pb_v4_edge_backward(const pb_v4_pass *p, int ape, const void *x, void *dx, size_t ld, int C, int D)
{
    const pb_v4 *v = p->v;
    const size_t w = 2 * (size_t)C, all = (size_t)p->t->cfg.B * EDGE * w, S = (size_t)p->t->S;
    if (!has_edge(p)) return PB_OK;
    PB_TRY(exchange(p, x, ld, C));
    if (follows_another(p)) {
        PB_TRY(own_edge_back(p, ape, dx, ld, C, D));
        PB_TRY(copy(p, &(part){v->djoint, v->edge_own, EDGE, (int)w, w, w, 2 * EDGE * w, EDGE * w}));
    }
    /* Rank 0 sends values that no rank reads. */
    PB_TRY(pb_comm_all_gather(
        p->ctx, &(pb_comm_all_gather_args){
                    .comm = p->t->cfg.context, .x = v->edge_own, .y = v->edge_all, .count = all, .dtype = p->dtype}));
    if (!precedes_another(p)) return PB_OK;
    const void *after = at(p, v->edge_all, (size_t)(p->t->context.rank + 1) * all);
    for (size_t half = 0; half < w; half += (size_t)C) {
        void *last = at(p, dx, (S - EDGE) * ld + half);
        PB_TRY(copy(p, &(part){at(p, after, half), last, EDGE, D, w, ld, EDGE * w, S * ld}));
    }
    return PB_OK;
}
