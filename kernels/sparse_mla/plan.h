/* plan.h - how the vectorised CPU implementation of MLA is divided into tiles and tasks, and its workspace. The
 * division is the same for every instruction set and does not depend on the number of threads. */
#ifndef PB_MLA_PLAN_H
#define PB_MLA_PLAN_H
#include <stddef.h>

/* A task computes HEADS heads of one token and processes the rows of kv in tiles of KEYS. */
enum { HEADS = 64, KEYS = 64 };

/* Returns the row length of f32 tiles: D rounded up to the longest vector (16 floats). */
static inline size_t pb_mla_width(int D) { return ((size_t)D + 15) / 16 * 16; }

/* Returns the workspace for the forward tiles of one thread, in floats: q and o transposed, scores, rows of kv. */
static inline size_t pb_mla_fwd_tiles(int D, int V)
{
    return HEADS * (pb_mla_width(D) + pb_mla_width(V)) + KEYS * (HEADS + pb_mla_width(D));
}
/* Returns the workspace for the backward tiles of one thread, in floats: transposed copies of q, do and dq; q and do
 * again, not transposed; p and ds; rows of kv; rows of dkv. */
static inline size_t pb_mla_bwd_tiles(int D, int V)
{
    return HEADS * (3 * pb_mla_width(D) + 2 * pb_mla_width(V)) + KEYS * (2 * HEADS + 2 * pb_mla_width(D));
}

/* Returns the number of partial sums of dkv per batch row in the backward pass. One task computes each. The number
 * gives at least 16 tasks, but it is lower if a task would get fewer than four tokens, or if all partial sums together
 * would exceed 256 MB. It is at least 1. */
static inline int pb_mla_parts(int B, int S, int S_kv, int D)
{
    const size_t room = ((size_t)1 << 26) / ((size_t)B * S_kv * pb_mla_width(D));
    const int want = (16 + B - 1) / B, most = (S + 3) / 4;
    const int parts = want < most ? want : most;
    return room < 1 ? 1 : (size_t)parts < room ? parts : (int)room;
}
/* Returns the size of the partial sums, in floats: dkv [B,parts,S_kv,width] and dsink [B,parts,H] in double. */
static inline size_t pb_mla_bwd_sums(int B, int S, int S_kv, int H, int D)
{
    return (size_t)B * pb_mla_parts(B, S, S_kv, D) * (S_kv * pb_mla_width(D) + 2 * H);
}
#endif
