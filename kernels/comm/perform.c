/* perform.c - collectives as sequences of steps, the same for every library: which parts of a collective the library
 * does, and the reduction in rank order. */
#include "kernels/comm/backend.h"

/* An ordered all_reduce works on N equal pieces, of a multiple of 32 bytes, so that blocks stay aligned, and on a rest
 * of fewer than N * PIECE elements, which every rank gathers and adds. More than pb_comm_chunk bytes are made chunk by
 * chunk, each of N pieces. */
enum { PIECE = 16 };

size_t pb_comm_chunk = (size_t)64 << 20;

static size_t piece_of(size_t count, int size) { return count / (size_t)size / PIECE * PIECE; }

static size_t chunk_of(const pb_comm *c, const pb_comm_call *call)
{
    const size_t unit = (size_t)c->size * PIECE, most = pb_comm_chunk / pb_dtype_size(call->dtype) / unit * unit;
    return call->count < most || !most ? call->count : most;
}

/* True if blocks are exchanged and added in rank order, instead of by the library. */
static bool adds_itself(const pb_comm *c, const pb_comm_call *call)
{
    const bool mpi = c->ctx->id == PB_CPU;
    if (call->ordered && call->op == PB_COMM_SUM) return true;
    if (call->kind == PB_COMM_REDUCE_SCATTER) return mpi || call->send;
    return mpi && call->dtype != PB_F32;
}

size_t pb_comm_memory(const pb_comm *c, const pb_comm_call *call)
{
    const size_t n = (size_t)c->size, each = pb_dtype_size(call->dtype);
    switch (call->kind) {
    case PB_COMM_ALL_REDUCE: {
        const size_t piece = piece_of(chunk_of(c, call), c->size), rest = call->count % (n * PIECE);
        return adds_itself(c, call) ? n * (piece > rest ? piece : rest) * each : 0;
    }
    case PB_COMM_REDUCE_SCATTER:
        return adds_itself(c, call) ? n * (call->send ? call->send[c->rank] : call->count) * each : 0;
    case PB_COMM_AGREE: return call->count * sizeof(float);
    default: return 0;
    }
}

static pb_status all_reduce_in_order(pb_comm *c, const pb_comm_call *call)
{
    const pb_comm_steps *s = c->be->steps;
    const size_t each = pb_dtype_size(call->dtype), chunk = chunk_of(c, call);
    const size_t whole = (size_t)c->size * piece_of(call->count, c->size), rest = call->count - whole;
    const char *x = call->x;
    char *y = call->y;
    for (size_t at = 0, piece; at < whole; at += (size_t)c->size * piece) {
        piece = piece_of(whole - at < chunk ? whole - at : chunk, c->size);
        char *out = y + at * each, *mine = out + (size_t)c->rank * piece * each;
        PB_TRY(s->exchange(c, x + at * each, c->scratch, piece, NULL, NULL, call->dtype));
        PB_TRY(s->add_blocks(c, c->scratch, mine, piece, call->dtype, call->op));
        PB_TRY(s->gather(c, mine, out, piece, NULL, call->dtype));
    }
    if (!rest) return PB_OK;
    PB_TRY(s->gather(c, x + whole * each, c->scratch, rest, NULL, call->dtype));
    return s->add_blocks(c, c->scratch, y + whole * each, rest, call->dtype, call->op);
}

static pb_status reduce_scatter_in_order(pb_comm *c, const pb_comm_call *call, size_t mine)
{
    const pb_comm_steps *s = c->be->steps;
    PB_TRY(s->exchange(c, call->x, c->scratch, mine, call->send, NULL, call->dtype));
    return s->add_blocks(c, c->scratch, call->y, mine, call->dtype, call->op);
}

static pb_status agree(pb_comm *c, const pb_comm_call *call)
{
    const pb_comm_steps *s = c->be->steps;
    PB_TRY(s->flags(c, call->x, call->dtype, c->scratch, PB_F32, call->count));
    PB_TRY(s->reduce(c, c->scratch, c->scratch, call->count, PB_F32, PB_COMM_MAX));
    return s->flags(c, c->scratch, PB_F32, call->y, call->dtype, call->count);
}

pb_status pb_comm_perform(pb_comm *c, const pb_comm_call *call)
{
    const pb_comm_steps *s = c->be->steps;
    switch (call->kind) {
    case PB_COMM_ALL_REDUCE:
        if (adds_itself(c, call)) return all_reduce_in_order(c, call);
        return s->reduce(c, call->x, call->y, call->count, call->dtype, call->op);
    case PB_COMM_REDUCE_SCATTER:
        if (adds_itself(c, call))
            return reduce_scatter_in_order(c, call, call->send ? call->send[c->rank] : call->count);
        return s->reduce_scatter(c, call->x, call->y, call->count, call->dtype, call->op);
    case PB_COMM_ALL_GATHER: return s->gather(c, call->x, call->y, call->count, call->receive, call->dtype);
    case PB_COMM_ALL_TO_ALL:
        return s->exchange(c, call->x, call->y, call->count, call->send, call->receive, call->dtype);
    case PB_COMM_BROADCAST: return s->broadcast(c, call->x, call->y, call->count, call->dtype, call->root);
    default: return agree(c, call);
    }
}
