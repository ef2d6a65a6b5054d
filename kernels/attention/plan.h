/* plan.h - how the vectorised attention is cut into tiles and tasks, and the memory that takes. The same
 * for every instruction set and any number of threads. */
#ifndef PB_ATTENTION_PLAN_H
#define PB_ATTENTION_PLAN_H
#include <stddef.h>

/* A task owns QUERIES queries of one head and meets the keys KEYS at a time. Where some pairs are masked
 * it works in runs of RUN keys, so that it can leave out queries that lie before all of a run. */
enum { QUERIES = 64, KEYS = 128, RUN = 16 };

static inline int pb_attn_blocks(int S) { return (S + QUERIES - 1) / QUERIES; }
/* Row length of f32 tiles: D rounded up to the longest vector. */
static inline size_t pb_attn_width(int D) { return ((size_t)D + 15) / 16 * 16; }

/* Floats of tiles that each thread needs. */
static inline size_t pb_attn_fwd_tiles(int D) { return (2 * QUERIES + KEYS) * pb_attn_width(D) + KEYS * QUERIES; }
static inline size_t pb_attn_bwd_tiles(int D)
{
    return (5 * QUERIES + 2 * KEYS) * pb_attn_width(D) + 2 * KEYS * QUERIES;
}

/* The backward pass sums dk and dv of one kv head in so many parts, one task each: enough tasks for several
 * cores when there are few heads, but no more, because the parts are memory that is written and added up
 * again, and at least four blocks of queries in each. */
static inline int pb_attn_parts(int B, int S, int H, int K)
{
    const int blocks = H / K * pb_attn_blocks(S), most = (blocks + 3) / 4, want = (16 + B * K - 1) / (B * K);
    return want < most ? want : most;
}
/* Floats of these parts: [B,K,parts,2,S,width]. */
static inline size_t pb_attn_bwd_sums(int B, int S, int H, int K, int D)
{
    return (size_t)B * K * pb_attn_parts(B, S, H, K) * 2 * S * pb_attn_width(D);
}
#endif
