/* plan.h - how the vectorised CPU attention is divided into tiles and tasks, and its workspace. The division is the
 * same for every instruction set and does not depend on the number of threads. */
#ifndef PB_ATTENTION_PLAN_H
#define PB_ATTENTION_PLAN_H
#include <stddef.h>

/* A task computes QUERIES queries of one head and processes the keys in tiles of KEYS. A tile with masked pairs is
 * processed RUN keys at a time, so that queries which attend to none of these keys can be skipped. */
enum { QUERIES = 64, KEYS = 128, RUN = 16 };

static inline int pb_attn_blocks(int S) { return (S + QUERIES - 1) / QUERIES; }
/* Returns the row length of f32 tiles: D rounded up to the longest vector (16 floats). */
static inline size_t pb_attn_width(int D) { return ((size_t)D + 15) / 16 * 16; }

/* Return the workspace for the tiles of one thread, in floats. */
static inline size_t pb_attn_fwd_tiles(int D) { return (2 * QUERIES + KEYS) * pb_attn_width(D) + KEYS * QUERIES; }
static inline size_t pb_attn_bwd_tiles(int D)
{
    return (5 * QUERIES + 2 * KEYS) * pb_attn_width(D) + 2 * KEYS * QUERIES;
}

/* Returns the number of partial sums of dk and dv per key head in the backward pass. One task computes each. The number
 * is chosen so that at least 16 tasks exist. But a task gets at least four blocks of queries if there are as many,
 * because writing and adding partial sums costs memory traffic. */
static inline int pb_attn_parts(int B, int S, int H, int K)
{
    const int blocks = H / K * pb_attn_blocks(S), most = (blocks + 3) / 4, want = (16 + B * K - 1) / (B * K);
    return want < most ? want : most;
}
/* Returns the size of the partial sums for N keys, in floats: [B,K,parts,2,N,width]. */
static inline size_t pb_attn_bwd_sums(int B, int S, int N, int H, int K, int D)
{
    return (size_t)B * K * pb_attn_parts(B, S, H, K) * 2 * N * pb_attn_width(D);
}
#endif
