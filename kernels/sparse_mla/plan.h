/* plan.h - how the vectorised CPU implementation of MLA is divided into tiles and tasks, and its workspace. The
 * division is the same for every instruction set and does not depend on the number of threads. */
#ifndef PB_MLA_PLAN_H
#define PB_MLA_PLAN_H
#include <stddef.h>

/* A task computes HEADS heads of one token and processes the rows of kv in tiles of KEYS. */
enum { HEADS = 64, KEYS = 64 };

/* Row length of f32 tiles: D rounded up to the longest vector (16 floats). */
static inline size_t pb_mla_width(int D) { return ((size_t)D + 15) / 16 * 16; }

/* Workspace of tiles per thread, in floats. Forward: q and o transposed, scores, rows of kv. */
static inline size_t pb_mla_fwd_tiles(int D, int V)
{
    return HEADS * (pb_mla_width(D) + pb_mla_width(V)) + KEYS * (HEADS + pb_mla_width(D));
}
/* Backward: q, do and dq transposed, q and do, p and ds, rows of kv, rows of dkv. */
static inline size_t pb_mla_bwd_tiles(int D, int V)
{
    return HEADS * (3 * pb_mla_width(D) + 2 * pb_mla_width(V)) + KEYS * (2 * HEADS + 2 * pb_mla_width(D));
}

/* How many partial sums of dkv the backward pass keeps per batch row, one task each: enough for 16 tasks, at least four
 * tokens each, and at most 256 MB in total unless a single part per batch row needs more. */
static inline int pb_mla_parts(int B, int S, int S_kv, int D)
{
    const size_t room = ((size_t)1 << 26) / ((size_t)B * S_kv * pb_mla_width(D));
    const int want = (16 + B - 1) / B, most = (S + 3) / 4;
    const int parts = want < most ? want : most;
    return room < 1 ? 1 : (size_t)parts < room ? parts : (int)room;
}
/* Size of the partial sums, in floats: dkv [B,parts,S_kv,width] and dsink [B,parts,H] in double. */
static inline size_t pb_mla_bwd_sums(int B, int S, int S_kv, int H, int D)
{
    return (size_t)B * pb_mla_parts(B, S, S_kv, D) * (S_kv * pb_mla_width(D) + 2 * H);
}
#endif
