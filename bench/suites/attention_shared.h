/* attention_shared.h - the pass of a case of suite attention with context parallelism: N ranks share the row
 * (trainer/parallel/context.h). Each rank has the queries, and the rows of kv, of its chunks.
 *
 *   forward    gathers kv of the whole row (all-gather), then computes o and lse of the rank's queries. With the lists
 *              of DeepSeek-V4 it gathers, of the tokens' rows, only those that its queries attend to (row_window.h)
 *   backward   gathers kv again, computes dq of the rank's queries and their terms of dkv in f32, adds these over the
 *              ranks (reduce-scatter; of rows that row_window.h gathers: all-gather and addition), and rounds the sums
 *              of its own rows
 *
 * This is what the blocks of DeepSeek-V4 do in training (trainer/blocks/v4_context.c). dsink, H numbers, is added over
 * the ranks in training together with the gradients of all weights, so its sum is not a part of the pass. */
#ifndef PB_ATTENTION_SHARED_H
#define PB_ATTENTION_SHARED_H
#include "bench/suites/attention_call.h"
#include "kernels/comm/comm.h"

typedef struct pb_attn_shared {
    pb_attn_call
        whole;     /* all tensors of the row, with the same inputs on every rank; outputs only of this rank's chunks */
    pb_comm *comm; /* of the ranks; not owned */
    pb_context context;
    pb_arena memory; /* owns what follows */
    void *kv;        /* [S_kv,D] gathered; rows that no query of this rank attends to may be unwritten */
    void *blocks;    /* rows of all ranks in the order of the ranks: chunks of one tensor, or row_window.h's rows */
    float *dkv;      /* [S_kv,D] terms of this rank's queries; NULL in a forward case, as the next three */
    float *dpart;    /* [S_kv,D] of its first chunk, if it has two */
    float *down;     /* [S_kv/N,D] sums of the ranks */
    float *dsink;    /* [2,H] terms of this rank's chunks */
} pb_attn_shared;

/* Allocates and fills the tensors, as pb_attn_open() does. Every rank calls it, with the case and a communicator of
 * a->context.ranks ranks. The caller closes *out. On failure *out is unchanged. */
pb_status pb_attn_shared_open(pb_ctx *ctx, const pb_attn *a, pb_comm *comm, pb_attn_shared *out);
void pb_attn_shared_close(pb_attn_shared *s);
/* A pb_fn whose self is a pb_attn_shared: runs the pass. */
pb_status pb_attn_shared_run(pb_ctx *ctx, void *self);
/* Collects the outputs of all ranks in s->whole, on every rank. pb_attn_check() can then check them. */
pb_status pb_attn_shared_collect(pb_ctx *ctx, pb_attn_shared *s);
/* (Query, key) pairs of the rank that computes the most of them / mean of the ranks. */
double pb_attn_shared_imbalance(const pb_attn_shared *s);
#endif
