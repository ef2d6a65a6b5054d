/* attention_shared.c - the attention pass of a row that several ranks share: gathers, calls of the ops on this rank's
 * chunks, and reductions. */
#include "bench/suites/attention_shared.h"

#include "kernels/cast/cast.h"
#include "kernels/copy/copy.h"
#include "kernels/gradient/gradient.h"
#include "trainer/parallel/row_chunks.h"
#include "trainer/parallel/row_window.h"

/* Rows first .. first + rows - 1 of a tensor, divided over the ranks. One collective moves one chunk of `length` rows
 * per rank: with part 0 each rank's first chunk, with part 1 its second one, which only zigzag slices have. */
typedef struct block {
    int first, rows, length, part;
} block;

/* Writes the blocks of a tensor with a row per token (and, for kv, per compressed group) to out[2]; returns how
 * many. */
static int blocks_of(const pb_attn_shared *s, bool kv, block out[2])
{
    const int S = s->whole.a.S, more = kv ? s->whole.a.S_kv - S : 0, ranks = s->context.ranks;
    const int length = pb_context_length(&s->context, S);
    out[0] = (block){0, S, length, 0};
    out[1] = s->context.zigzag ? (block){0, S, length, 1} : (block){S, more, more / ranks, 0};
    return s->context.zigzag || more ? 2 : 1;
}

/* own_row: the first row of this rank's chunk. first_row: the first row of any rank's chunk. The second chunks of
 * zigzag slices are the second half of the rows, in the reverse order of the ranks. */
static size_t own_row(const pb_attn_shared *s, const block *b)
{
    return (size_t)b->first + (size_t)pb_context_chunk(&s->context, b->part) * (size_t)b->length;
}
static size_t first_row(const block *b) { return (size_t)b->first + (b->part ? (size_t)b->rows / 2 : 0); }

static void *at(void *x, size_t row, size_t width, pb_dtype t)
{
    return (unsigned char *)x + row * width * pb_dtype_size(t);
}

static pb_row_chunks chunks_of(const pb_attn_shared *s, const block *b, size_t width)
{
    return (pb_row_chunks){.comm = s->comm,
                           .length = b->length,
                           .width = width,
                           .reversed = b->part,
                           .room = s->blocks,
                           .ordered = s->whole.a.variant == PB_VARIANT_DETERMINISTIC};
}

static pb_status gather_block(pb_ctx *ctx, const pb_attn_shared *s, const block *b, void *x, void *y, size_t width,
                              pb_dtype t)
{
    const pb_row_chunks c = chunks_of(s, b, width);
    return pb_row_chunks_gather(ctx, &c, at(x, own_row(s, b), width, t), at(y, first_row(b), width, t), t);
}

/* Gathers rows of `width` elements: this rank's rows of x become those rows of y on all ranks. y may be x. */
static pb_status gather(pb_ctx *ctx, const pb_attn_shared *s, bool kv, void *x, void *y, size_t width, pb_dtype t)
{
    block b[2];
    const int n = blocks_of(s, kv, b);
    for (int i = 0; i < n; i++) PB_TRY(gather_block(ctx, s, &b[i], x, y, width, t));
    return PB_OK;
}

/* How many tokens before its own a query attends to without compression, if a rank needs only tokens of the previous
 * rank for that; -1: it needs the tokens of all ranks. */
static int tokens_before(const pb_attn_shared *s)
{
    const pb_attn *a = &s->whole.a;
    const int before = pb_attn_window(a) - 1;
    const bool near = a->list == PB_LIST_V4 && a->variant != PB_VARIANT_DENSE;
    return near && before <= pb_context_length(&s->context, a->S) ? before : -1;
}

/* Gathers the rows of kv that the queries of this rank may attend to. */
static pb_status gather_keys(pb_ctx *ctx, const pb_attn_shared *s)
{
    const pb_attn *a = &s->whole.a;
    const size_t D = (size_t)a->D;
    const int before = tokens_before(s);
    block b[2];
    if (before < 0) return gather(ctx, s, true, s->whole.kv, s->kv, D, a->dtype);
    const int n = blocks_of(s, true, b);
    const pb_row_chunks c = chunks_of(s, &b[0], D);
    PB_TRY(pb_row_window_gather(ctx, &c, before, at(s->whole.kv, own_row(s, &b[0]), D, a->dtype), s->kv, a->dtype));
    return n > 1 ? gather_block(ctx, s, &b[1], s->whole.kv, s->kv, D, a->dtype) : PB_OK;
}

/* Adds s->dkv over the ranks, and writes the rows of this rank to whole.dkv. */
static pb_status reduce(pb_ctx *ctx, const pb_attn_shared *s)
{
    const pb_attn *a = &s->whole.a;
    const size_t D = (size_t)a->D;
    const int before = tokens_before(s);
    block b[2];
    const int n = blocks_of(s, true, b);
    for (int i = 0; i < n; i++) {
        const pb_row_chunks c = chunks_of(s, &b[i], D);
        PB_TRY(i == 0 && before >= 0 ? pb_row_window_reduce(ctx, &c, before, s->dkv, s->down)
                                     : pb_row_chunks_reduce(ctx, &c, s->dkv + first_row(&b[i]) * D, s->down));
        PB_TRY(pb_cast_bwd(ctx, &(pb_cast_bwd_args){.dy = s->down,
                                                    .dx = at(s->whole.dkv, own_row(s, &b[i]), D, a->dtype),
                                                    .T = b[i].length,
                                                    .D = a->D,
                                                    .lddx = D,
                                                    .scale = 1,
                                                    .dtype = a->dtype}));
    }
    return PB_OK;
}

/* ---- the pass of one chunk -------------------------------------------------------------------------------------- */

static bool is_dense(const pb_attn_shared *s) { return s->whole.a.variant == PB_VARIANT_DENSE; }

/* The call for the queries of chunk `part`. A dense query sees the rows up to its own, so the call gets only the rows
 * up to the end of the chunk. */
static pb_attn_call chunk_call(const pb_attn_shared *s, int part)
{
    pb_attn_call c = s->whole;
    const pb_attn *a = &s->whole.a;
    const int length = pb_context_length(&s->context, a->S), chunk = pb_context_chunk(&s->context, part);
    const size_t token = (size_t)chunk * (size_t)length, H = (size_t)a->H, q = H * (size_t)a->D, o = H * (size_t)a->V;
    c.a.S = length;
    if (is_dense(s)) c.a.S_kv = (chunk + 1) * length;
    c.kv = s->kv;
    c.q = at(c.q, token, q, a->dtype), c.o = at(c.o, token, o, a->dtype), c.lse += token * H;
    if (c.idx) c.idx += token * (size_t)a->W;
    if (!a->backward) return c;
    c.dO = at(c.dO, token, o, a->dtype), c.dq = at(c.dq, token, q, a->dtype);
    c.dkv = part || !s->context.zigzag ? s->dkv : s->dpart;
    c.dsink = s->dsink + (size_t)part * H;
    c.wide = true;
    return c;
}

/* The last chunk sees the most rows: its terms are written first, with zeros after them, and those of the first chunk
 * are added. */
static pb_status chunks_backward(pb_ctx *ctx, const pb_attn_shared *s)
{
    const pb_attn *a = &s->whole.a;
    const size_t D = (size_t)a->D;
    pb_attn_call last = chunk_call(s, pb_context_parts(&s->context) - 1);
    PB_TRY(pb_attn_run(ctx, &last));
    PB_TRY(pb_copy_rows(ctx, &(pb_copy_rows_args){.y = s->dkv + (size_t)last.a.S_kv * D,
                                                  .T = a->S_kv - last.a.S_kv,
                                                  .D = a->D,
                                                  .ldx = D,
                                                  .ldy = D,
                                                  .dtype = PB_F32}));
    if (!s->context.zigzag) return PB_OK;
    pb_attn_call first = chunk_call(s, 0);
    PB_TRY(pb_attn_run(ctx, &first));
    return pb_gradient_add(
        ctx, &(pb_gradient_add_args){.x = s->dpart, .y = s->dkv, .n = (size_t)first.a.S_kv * D, .add = true});
}

pb_status pb_attn_shared_run(pb_ctx *ctx, void *self)
{
    const pb_attn_shared *s = self;
    const pb_attn *a = &s->whole.a;
    PB_TRY(gather_keys(ctx, s));
    if (a->backward) {
        PB_TRY(chunks_backward(ctx, s));
        return reduce(ctx, s);
    }
    for (int part = 0; part < pb_context_parts(&s->context); part++) {
        pb_attn_call c = chunk_call(s, part);
        PB_TRY(pb_attn_run(ctx, &c));
    }
    return PB_OK;
}

/* ---- outputs of all ranks ------------------------------------------------------------------------------------- */

static pb_status collect_dsink(pb_ctx *ctx, const pb_attn_shared *s)
{
    const size_t H = (size_t)s->whole.a.H;
    if (s->context.zigzag)
        PB_TRY(pb_gradient_add(ctx, &(pb_gradient_add_args){.x = s->dsink + H, .y = s->dsink, .n = H, .add = true}));
    return pb_comm_all_reduce(
        ctx, &(pb_comm_all_reduce_args){
                 .comm = s->comm, .x = s->dsink, .y = s->whole.dsink, .count = H, .dtype = PB_F32, .op = PB_COMM_SUM});
}

pb_status pb_attn_shared_collect(pb_ctx *ctx, pb_attn_shared *s)
{
    const pb_attn_call *w = &s->whole;
    const size_t H = (size_t)w->a.H, D = (size_t)w->a.D, V = (size_t)w->a.V;
    if (!w->a.backward) {
        PB_TRY(gather(ctx, s, false, w->o, w->o, H * V, w->a.dtype));
        return gather(ctx, s, false, w->lse, w->lse, H, PB_F32);
    }
    PB_TRY(gather(ctx, s, false, w->dq, w->dq, H * D, w->a.dtype));
    PB_TRY(gather(ctx, s, true, w->dkv, w->dkv, D, w->a.dtype));
    return collect_dsink(ctx, s);
}

/* Pairs of query i. */
static double pairs_of(const void *self, int i)
{
    const pb_attn_call *c = self;
    double n = 0;
    if (c->a.variant == PB_VARIANT_DENSE) return c->a.W && c->a.W < i + 1 ? c->a.W : i + 1;
    for (int w = 0; w < c->a.W; w++) {
        const int32_t row = c->lists[(size_t)i * (size_t)c->a.W + (size_t)w];
        n += row >= 0 && row < c->a.S_kv;
    }
    return n;
}

double pb_attn_shared_imbalance(const pb_attn_shared *s)
{
    double most = 0;
    for (int r = 0; r < s->context.ranks; r++) {
        pb_context c = s->context;
        c.rank = r;
        const double load = pb_context_load(&c, s->whole.a.S, pairs_of, &s->whole);
        most = load > most ? load : most;
    }
    return most;
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static void carve(pb_attn_shared *s)
{
    const pb_attn *a = &s->whole.a;
    const size_t e = pb_dtype_size(a->dtype), kv = (size_t)a->S_kv * (size_t)a->D, wide = kv * sizeof(float);
    const size_t heads = (size_t)a->S * (size_t)a->H * (size_t)a->D * e; /* the largest tensor that is collected */
    s->kv = pb_carve(&s->memory, kv * e);
    const int before = tokens_before(s); /* with contiguous slices only */
    const size_t near = before > 0 ? (size_t)s->context.ranks * (size_t)before * (size_t)a->D * sizeof(float) : 0;
    s->blocks = pb_carve(&s->memory, !s->context.zigzag ? near : heads > wide ? heads : wide);
    if (!a->backward) return;
    s->dkv = pb_carve(&s->memory, wide);
    s->dpart = pb_carve(&s->memory, s->context.zigzag ? wide : 0);
    s->down = pb_carve(&s->memory, wide / (size_t)s->context.ranks);
    s->dsink = pb_carve(&s->memory, 2 * (size_t)a->H * sizeof *s->dsink);
}

/* Fills what the pass must write first with PB_UNWRITTEN, so that rows which no rank sends, and terms which are not
 * computed, make the result wrong. */
static pb_status fill(pb_ctx *ctx, pb_attn_shared *s)
{
    const pb_attn *a = &s->whole.a;
    pb_arena_begin(&s->memory, ctx);
    carve(s);
    PB_TRY(pb_arena_commit(&s->memory));
    carve(s);
    const size_t n = (size_t)a->S_kv * (size_t)a->D;
    if (s->dkv) PB_TRY(pb_attn_fill(ctx, s->dkv, n, PB_F32, 0, PB_UNWRITTEN, 0));
    return pb_attn_fill(ctx, s->kv, n, a->dtype, 0, PB_UNWRITTEN, 0);
}

pb_status pb_attn_shared_open(pb_ctx *ctx, const pb_attn *a, pb_comm *comm, pb_attn_shared *out)
{
    pb_attn_shared s = {.comm = comm, .context = a->context};
    s.context.rank = pb_comm_rank(comm);
    PB_TRY(pb_attn_open(ctx, a, &s.whole));
    const pb_status st = fill(ctx, &s);
    if (st == PB_OK) *out = s;
    else pb_attn_shared_close(&s);
    return st;
}

void pb_attn_shared_close(pb_attn_shared *s)
{
    pb_arena_free(&s->memory);
    pb_attn_close(&s->whole);
}
