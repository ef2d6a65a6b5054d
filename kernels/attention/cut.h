/* cut.h - how the wgmma backward pass divides its work into CTAs, from the shape and the number of SMs. Plain C for
 * host and device, so that a test can check it.
 *
 * A batch row has S queries, which are those of the last S of its N keys.
 *
 * A block of keys is 128 keys of one key head. Its dk and dv are sums over the queries of all query heads that share
 * the key head. A step adds one tile of queries of one query head. One CTA can take all steps of a block of keys. When
 * there are too few blocks of keys to fill the GPU, or the first of them have many more steps than the last (causal
 * mask), the steps of each block are divided into parts, one CTA each. The parts of a divided block store f32 partial
 * sums of dk and dv, which a later kernel adds. Steps are ordered by head, and within a head from the first tile that
 * attends to the keys. */
#ifndef PB_ATTENTION_CUT_H
#define PB_ATTENTION_CUT_H
#include <stdbool.h>

#ifndef PB_CUT_FN /* .cu files define it before they include this header, to add __host__ __device__ */
#define PB_CUT_FN static inline
#endif

enum {
    PB_CUT_KEYS = 128,
    PB_CUT_SMS = 132,  /* limit on the SMs that are counted, so that the workspace is equal on all devices */
    PB_CUT_ROUNDS = 2, /* parts per SM at most */
    PB_CUT_ENDS = 2,   /* fixed cost of a part in steps: start-up and storing its sums take 6 us, a step 3 us */
};

typedef struct pb_cut_shape {
    int heads;   /* key heads of all batch rows */
    int S, N;    /* queries and keys of a batch row */
    int group;   /* query heads per key head */
    int queries; /* of a tile */
    bool causal;
    bool by_heads; /* see pb_cut */
} pb_cut_shape;

typedef struct pb_cut {
    int group, tiles, keys; /* query heads per key head, tiles per head, blocks of keys per head */
    int open;               /* blocks of keys 0 .. open have all tiles; 0 if N = S */
    int hidden;             /* causal: a later block has this many tiles fewer than the block before it; else 0 */
    bool by_heads;          /* a part is a range of whole query heads, and all blocks of keys have the same ranges */
    int most;               /* largest number of steps of a part; by_heads: largest number of query heads */
} pb_cut;

PB_CUT_FN int pb_cut_up(int x, int y) { return (x + y - 1) / y; }
/* Returns the number of the first tile of a query head that may attend to block of keys j; and how many tiles do. */
PB_CUT_FN int pb_cut_first(const pb_cut *c, int j) { return j > c->open ? (j - c->open) * c->hidden : 0; }
PB_CUT_FN int pb_cut_tiles(const pb_cut *c, int j) { return c->tiles - pb_cut_first(c, j); }
/* Returns the number of steps (tiles of queries, over all query heads) of block of keys j. */
PB_CUT_FN int pb_cut_steps(const pb_cut *c, int j) { return c->group * pb_cut_tiles(c, j); }
PB_CUT_FN int pb_cut_parts(const pb_cut *c, int j)
{
    return pb_cut_up(c->by_heads ? c->group : pb_cut_steps(c, j), c->most);
}
/* Returns the number of steps of each part of block of keys j. The last part may have fewer. */
PB_CUT_FN int pb_cut_length(const pb_cut *c, int j)
{
    const int even = pb_cut_up(pb_cut_steps(c, j), pb_cut_parts(c, j));
    return c->by_heads ? c->most * pb_cut_tiles(c, j) : even;
}
/* Returns the number of parts of all blocks of keys before block j, per key head. */
PB_CUT_FN int pb_cut_before(const pb_cut *c, int j)
{
    int sum = 0;
    for (int i = 0; i < j; i++) sum += pb_cut_parts(c, i);
    return sum;
}

PB_CUT_FN bool pb_cut_is_whole(const pb_cut *c) { return c->most >= c->group * (c->by_heads ? 1 : c->tiles); }

/* Returns the division in which each block of keys is one part. */
static inline pb_cut pb_cut_whole(const pb_cut_shape *s)
{
    const int tiles = pb_cut_up(s->S, s->queries);
    const pb_cut c = {s->group,
                      tiles,
                      pb_cut_up(s->N, PB_CUT_KEYS),
                      pb_cut_up(s->N - s->S, PB_CUT_KEYS),
                      s->causal ? PB_CUT_KEYS / s->queries : 0,
                      s->by_heads,
                      s->by_heads ? s->group : s->group * tiles};
    return c;
}

/* Estimates when the last part ends; the unit of time is one step. share: steps per SM if work were divided evenly.
 * rounds 1: all parts run at once, so the longest decides. rounds 2: the longest parts start first, so the last to
 * start are short and start at about time `share`. */
static inline long pb_cut_end(const pb_cut *c, int rounds, long share)
{
    const long longest = c->by_heads ? (long)c->most * c->tiles : c->most;
    long end = share + pb_cut_length(c, c->keys - 1);
    if (end > rounds * longest) end = rounds * longest;
    return (end < longest ? longest : end) + rounds * PB_CUT_ENDS;
}

/* Returns the division with the earliest estimated end. The fixed cost PB_CUT_ENDS is added for divided blocks of keys
 * only, because the others store no partial sums. */
static inline pb_cut pb_cut_of(const pb_cut_shape *s, int sms)
{
    const pb_cut whole = pb_cut_whole(s);
    const long heads = s->heads;
    pb_cut best = whole;
    long share = 0, cost = pb_cut_steps(&whole, 0);
    if (sms > PB_CUT_SMS) sms = PB_CUT_SMS;
    if (heads * whole.keys > PB_CUT_ROUNDS * sms) return whole;
    for (int j = 0; j < whole.keys; j++) share += heads * pb_cut_steps(&whole, j);
    share = (share + sms - 1) / sms;
    if (cost < share) cost = share;
    for (int rounds = 1; rounds <= PB_CUT_ROUNDS; rounds++) {
        pb_cut c = whole;
        int low = 1, high = whole.most;
        while (low < high) { /* the smallest `most` with no more than rounds * sms parts */
            c.most = (low + high) / 2;
            if (heads * pb_cut_before(&c, c.keys) <= (long)rounds * sms) high = c.most;
            else low = c.most + 1;
        }
        c.most = high;
        if (high < whole.most && pb_cut_end(&c, rounds, share) < cost) best = c, cost = pb_cut_end(&c, rounds, share);
    }
    return best;
}

/* Returns an upper bound of the number of parts that store partial sums, for this shape on any device. */
static inline int pb_cut_room(const pb_cut_shape *s)
{
    const long keys = (long)s->heads * pb_cut_up(s->N, PB_CUT_KEYS),
               steps = keys * s->group * pb_cut_up(s->S, s->queries);
    if (keys > PB_CUT_ROUNDS * PB_CUT_SMS) return 0;
    return steps < PB_CUT_ROUNDS * PB_CUT_SMS ? (int)steps : PB_CUT_ROUNDS * PB_CUT_SMS;
}
#endif
