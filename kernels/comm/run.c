/* run.c - turns the arguments of each op into a pb_comm_call, and gives it to the communicator's library or, for one
 * rank, copies. Both backends use these functions. */
#include <stdio.h>
#include <string.h>

#include "kernels/comm/backend.h"
#include "profiles/ranges.h"

static pb_comm_call call_all_reduce(const pb_comm_all_reduce_args *a)
{
    return (pb_comm_call){
        PB_COMM_ALL_REDUCE,   a->x, a->y, a->count, .dtype = a->dtype, .op = a->op, .ordered = a->ordered,
        .overlap = a->overlap};
}

static pb_comm_call call_reduce_scatter(const pb_comm_reduce_scatter_args *a)
{
    return (pb_comm_call){PB_COMM_REDUCE_SCATTER,
                          a->x,
                          a->y,
                          a->count,
                          .send = a->counts,
                          .dtype = a->dtype,
                          .op = a->op,
                          .ordered = a->ordered,
                          .overlap = a->overlap};
}

static pb_comm_call call_all_gather(const pb_comm_all_gather_args *a)
{
    return (pb_comm_call){PB_COMM_ALL_GATHER,   a->x, a->y, a->count, .receive = a->counts, .dtype = a->dtype,
                          .overlap = a->overlap};
}

static pb_comm_call call_all_to_all(const pb_comm_all_to_all_args *a)
{
    return (pb_comm_call){PB_COMM_ALL_TO_ALL,   a->x, a->y, a->count, a->send, a->receive, .dtype = a->dtype,
                          .overlap = a->overlap};
}

static pb_comm_call call_broadcast(const pb_comm_broadcast_args *a)
{
    return (pb_comm_call){PB_COMM_BROADCAST,    a->x, a->y, a->count, .dtype = a->dtype, .root = a->root,
                          .overlap = a->overlap};
}

static pb_comm_call call_agree(const pb_comm_agree_args *a)
{
    return (pb_comm_call){PB_COMM_AGREE, a->x, a->y, a->count, .dtype = a->dtype, .overlap = a->overlap};
}

const char *pb_comm_kind_name(pb_comm_kind kind)
{
    static const char *const names[PB_COMM_NKINDS] = {"all_reduce", "reduce_scatter", "all_gather",
                                                      "all_to_all", "broadcast",      "agree"};
    return names[kind];
}

void pb_comm_call_text(const pb_comm_call *call, char *out, size_t n)
{
    snprintf(out, n, "%s of %zu %s%s", pb_comm_kind_name(call->kind), call->count, pb_dtype_name(call->dtype),
             call->send || call->receive ? " (uneven)" : "");
}

size_t pb_comm_offset(const size_t *counts, size_t count, int rank)
{
    size_t sum = 0;
    if (!counts) return (size_t)rank * count;
    for (int i = 0; i < rank; i++) sum += counts[i];
    return sum;
}

/* The elements of the larger buffer of this rank. */
static size_t larger_buffer(const pb_comm *c, const pb_comm_call *call)
{
    const size_t send = pb_comm_offset(call->send, call->count, c->size),
                 receive = pb_comm_offset(call->receive, call->count, c->size);
    switch (call->kind) {
    case PB_COMM_REDUCE_SCATTER: return send;
    case PB_COMM_ALL_GATHER: return receive;
    case PB_COMM_ALL_TO_ALL: return send > receive ? send : receive;
    default: return call->count;
    }
}

void pb_comm_range_push(const pb_comm *c, const pb_comm_call *call, uint64_t number)
{
    if (!__builtin_expect(pb_ranges_on, 0)) return;
    const pb_range_collective about = {c->group, pb_dtype_name(call->dtype), c->size, (int64_t)number};
    pb_range_push(PB_RANGE_collective, pb_comm_kind_name(call->kind),
                  (int64_t)(larger_buffer(c, call) * pb_dtype_size(call->dtype)));
    pb_range_note_collective(&about);
}

/* ---- several ranks ---------------------------------------------------------------------------------------------- */

/* Every struct of arguments begins with the communicator. */
static pb_comm *comm_of(const void *args)
{
    pb_comm *c;
    memcpy(&c, args, sizeof c);
    return c;
}

bool pb_comm_is_live(const void *args)
{
    const pb_comm *c = comm_of(args);
    return c && (c->be || c->size > 1);
}

bool pb_comm_is_alone(const void *args) { return !pb_comm_is_live(args); }

static pb_status same_context(const pb_ctx *ctx, const pb_comm *c)
{
    if (c->ctx == ctx) return PB_OK;
    return pb_fail(PB_EINVAL, "communicator %s was opened for another context", c->role);
}

static pb_status reserve(pb_ctx *ctx, pb_comm *c, const pb_comm_call *call)
{
    PB_TRY(same_context(ctx, c));
    return pb_comm_reserve(ctx, c, pb_comm_memory(c, call));
}

static pb_status copy(pb_ctx *ctx, const pb_comm_call *call, size_t count)
{
    if (call->x == call->y || !count) return PB_OK;
    ctx->counts.kernel_launches += ctx->id == PB_CUDA; /* on the CPU, pb_op_run has counted the call */
    if (ctx->id == PB_CUDA) pb_tally_add(ctx->tally, "comm_copy", "");
    return ctx->be->copy(ctx, call->y, call->x, count * pb_dtype_size(call->dtype));
}

/* With one rank, the elements of the only block: an array of counts has one entry then. */
static size_t only_block(const pb_comm_call *call)
{
    return call->send ? call->send[0] : call->receive ? call->receive[0] : call->count;
}

#define RUN(pass)                                                                                                      \
    pb_status pb_comm_run_##pass(pb_ctx *ctx, const void *args)                                                        \
    {                                                                                                                  \
        const pb_comm_call call = call_##pass(args);                                                                   \
        pb_comm *c = comm_of(args);                                                                                    \
        return c->skips ? PB_OK : c->be->enqueue(ctx, c, &call);                                                       \
    }                                                                                                                  \
    pb_status pb_comm_reserve_##pass(pb_ctx *ctx, const void *args)                                                    \
    {                                                                                                                  \
        const pb_comm_call call = call_##pass(args);                                                                   \
        return reserve(ctx, comm_of(args), &call);                                                                     \
    }
#define COPY(pass)                                                                                                     \
    pb_status pb_comm_copy_##pass(pb_ctx *ctx, const void *args)                                                       \
    {                                                                                                                  \
        const pb_comm_call call = call_##pass(args);                                                                   \
        return copy(ctx, &call, only_block(&call));                                                                    \
    }
RUN(all_reduce)
RUN(reduce_scatter)
RUN(all_gather)
RUN(all_to_all)
RUN(broadcast)
RUN(agree)
COPY(all_reduce)
COPY(reduce_scatter)
COPY(all_gather)
COPY(all_to_all)
COPY(broadcast)

pb_status pb_comm_run_wait(pb_ctx *ctx, const void *args)
{
    pb_comm *c = comm_of(args);
    return c->be->wait(ctx, c);
}

pb_status pb_comm_reserve_wait(pb_ctx *ctx, const void *args) { return same_context(ctx, comm_of(args)); }

pb_status pb_comm_copy_wait(pb_ctx *ctx, const void *args)
{
    (void)ctx, (void)args;
    return PB_OK;
}
