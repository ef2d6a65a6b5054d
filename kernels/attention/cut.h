/* cut.h - how the wgmma backward pass divides its work into CTAs, from the shape and the number of SMs. Plain C for
 * host and device, so that a test can check it.
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

#ifndef PB_CUT_FN /* device code defines it with __host__ __device__ */
#define PB_CUT_FN static inline
#endif

enum {
    PB_CUT_KEYS = 128,
    PB_CUT_SMS = 132,  /* SMs counted at most, so that the workspace does not depend on the device */
    PB_CUT_ROUNDS = 2, /* parts per SM at most */
    PB_CUT_ENDS = 2,   /* fixed cost of a part in steps: start-up and storing its sums take 6 us, a step 3 us */
};

typedef struct pb_cut {
    int group, tiles, keys; /* query heads per key head, tiles per head, blocks of keys per head */
    int hidden;             /* causal: a block of keys has this many tiles fewer than the block before; else 0 */
    bool by_heads;          /* a part is a range of whole query heads, and all blocks of keys have the same ranges */
    int most;               /* largest number of steps of a part; by_heads: largest number of query heads */
} pb_cut;

PB_CUT_FN int pb_cut_up(int x, int y) { return (x + y - 1) / y; }
/* Returns the number of steps (tiles of queries, over all query heads) of block of keys j. */
PB_CUT_FN int pb_cut_steps(const pb_cut *c, int j) { return c->group * (c->tiles - j * c->hidden); }
PB_CUT_FN int pb_cut_parts(const pb_cut *c, int j)
{
    return pb_cut_up(c->by_heads ? c->group : pb_cut_steps(c, j), c->most);
}
/* Returns the number of steps of each part of block of keys j. The last part may have fewer. */
PB_CUT_FN int pb_cut_length(const pb_cut *c, int j)
{
    const int even = pb_cut_up(pb_cut_steps(c, j), pb_cut_parts(c, j));
    return c->by_heads ? c->most * (c->tiles - j * c->hidden) : even;
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
static inline pb_cut pb_cut_whole(int S, int group, int queries, bool causal, bool by_heads)
{
    const pb_cut c = {group,
                      pb_cut_up(S, queries),
                      pb_cut_up(S, PB_CUT_KEYS),
                      causal ? PB_CUT_KEYS / queries : 0,
                      by_heads,
                      by_heads ? group : group * pb_cut_up(S, queries)};
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

/* Returns the division with the earliest estimated end. heads: key heads of all batch rows. The fixed cost PB_CUT_ENDS
 * is added for divided blocks of keys only, because the others store no partial sums. */
static inline pb_cut pb_cut_of(int heads, int S, int group, int queries, bool causal, bool by_heads, int sms)
{
    const pb_cut whole = pb_cut_whole(S, group, queries, causal, by_heads);
    pb_cut best = whole;
    long share = 0, cost = pb_cut_steps(&whole, 0);
    if (sms > PB_CUT_SMS) sms = PB_CUT_SMS;
    if ((long)heads * whole.keys > PB_CUT_ROUNDS * sms) return whole;
    for (int j = 0; j < whole.keys; j++) share += (long)heads * pb_cut_steps(&whole, j);
    share = (share + sms - 1) / sms;
    if (cost < share) cost = share;
    for (int rounds = 1; rounds <= PB_CUT_ROUNDS; rounds++) {
        pb_cut c = whole;
        int low = 1, high = whole.most;
        while (low < high) { /* the smallest `most` with no more than rounds * sms parts */
            c.most = (low + high) / 2;
            if ((long)heads * pb_cut_before(&c, c.keys) <= (long)rounds * sms) high = c.most;
            else low = c.most + 1;
        }
        c.most = high;
        if (high < whole.most && pb_cut_end(&c, rounds, share) < cost) best = c, cost = pb_cut_end(&c, rounds, share);
    }
    return best;
}

/* Returns an upper bound of the number of parts that store partial sums, for this shape on any device. */
static inline int pb_cut_room(int heads, int S, int group, int queries)
{
    const long keys = (long)heads * pb_cut_up(S, PB_CUT_KEYS), steps = keys * group * pb_cut_up(S, queries);
    if (keys > PB_CUT_ROUNDS * PB_CUT_SMS) return 0;
    return steps < PB_CUT_ROUNDS * PB_CUT_SMS ? (int)steps : PB_CUT_ROUNDS * PB_CUT_SMS;
}
#endif
