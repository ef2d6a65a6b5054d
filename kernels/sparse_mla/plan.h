/* plan.h - how the vectorised MLA is cut into tiles and tasks, and the memory that takes. The same for every
 * instruction set and any number of threads. */
#ifndef PB_MLA_PLAN_H
#define PB_MLA_PLAN_H
#include <stddef.h>

/* A task owns HEADS heads of one token and meets the rows of kv that it sees KEYS at a time. */
enum { HEADS = 64, KEYS = 64 };

/* Row length of f32 tiles: D rounded up to the longest vector. */
static inline size_t pb_mla_width(int D) { return ((size_t)D + 15) / 16 * 16; }

/* Floats of tiles that each thread needs. Forward: q and o on their side, scores, rows of kv. */
static inline size_t pb_mla_fwd_tiles(int D, int V)
{
    return HEADS * (pb_mla_width(D) + pb_mla_width(V)) + KEYS * (HEADS + pb_mla_width(D));
}
/* Backward: q, do and dq on their side, q and do as they lie, p and ds, rows of kv, rows of dkv. */
static inline size_t pb_mla_bwd_tiles(int D, int V)
{
    return HEADS * (3 * pb_mla_width(D) + 2 * pb_mla_width(V)) + KEYS * (2 * HEADS + 2 * pb_mla_width(D));
}

/* The backward pass sums dkv of a batch row in so many parts, one task each: enough for several cores, at least four
 * tokens in each, and no more than 256 MB of them unless one part alone takes more. */
static inline int pb_mla_parts(int B, int S, int S_kv, int D)
{
    const size_t room = ((size_t)1 << 26) / ((size_t)B * S_kv * pb_mla_width(D));
    const int want = (16 + B - 1) / B, most = (S + 3) / 4;
    const int parts = want < most ? want : most;
    return room < 1 ? 1 : (size_t)parts < room ? parts : (int)room;
}
/* Floats of these parts: dkv [B,parts,S_kv,width] and dsink [B,parts,H] in double. */
static inline size_t pb_mla_bwd_sums(int B, int S, int S_kv, int H, int D)
{
    return (size_t)B * pb_mla_parts(B, S, S_kv, D) * (S_kv * pb_mla_width(D) + 2 * H);
}
#endif
