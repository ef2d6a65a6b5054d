/* cut.h - into how many blocks the tensor-core backward pass of sm_90 is cut, from the shape and the number of
 * multiprocessors. Plain C for host and device, so that a test can ask.
 *
 * A block of keys (128) passes over the queries of its group: a step is a tile of queries of one head. Where there are
 * too few blocks of keys for the device, or the first of them have far more to do than the last, the steps of each are
 * dealt to several parts, one thread block each; more than one part leave f32 sums of dk and dv that are added later.
 * Steps run head by head, and within a head from the first tile that sees the keys. */
#ifndef PB_ATTENTION_CUT_H
#define PB_ATTENTION_CUT_H
#include <stdbool.h>

#ifndef PB_CUT_FN /* device code says more */
#define PB_CUT_FN static inline
#endif

enum {
    PB_CUT_KEYS = 128,
    PB_CUT_SMS = 132,  /* no more are counted on, so that the room for sums is known without a device */
    PB_CUT_ROUNDS = 2, /* at most so many parts a multiprocessor */
    PB_CUT_ENDS = 2,   /* steps that beginning a part and leaving its sums is worth: 3 us a step, 6 us at the ends */
};

typedef struct pb_cut {
    int group, tiles, keys; /* query heads a key head, tiles a head, blocks of keys a head */
    int hidden;             /* causal: tiles that each block of keys sees fewer than the one before it, else 0 */
    bool by_heads;          /* parts hold whole heads, the same ones for all keys */
    int most;               /* steps of a part at most; by_heads: heads */
} pb_cut;

PB_CUT_FN int pb_cut_up(int x, int y) { return (x + y - 1) / y; }
/* Steps of block of keys j. */
PB_CUT_FN int pb_cut_steps(const pb_cut *c, int j) { return c->group * (c->tiles - j * c->hidden); }
PB_CUT_FN int pb_cut_parts(const pb_cut *c, int j)
{
    return pb_cut_up(c->by_heads ? c->group : pb_cut_steps(c, j), c->most);
}
/* Steps of a part of block of keys j; of the last part, what is left. */
PB_CUT_FN int pb_cut_length(const pb_cut *c, int j)
{
    const int even = pb_cut_up(pb_cut_steps(c, j), pb_cut_parts(c, j));
    return c->by_heads ? c->most * (c->tiles - j * c->hidden) : even;
}
/* Parts of the blocks of keys before j. */
PB_CUT_FN int pb_cut_before(const pb_cut *c, int j)
{
    int sum = 0;
    for (int i = 0; i < j; i++) sum += pb_cut_parts(c, i);
    return sum;
}

PB_CUT_FN bool pb_cut_is_whole(const pb_cut *c) { return c->most >= c->group * (c->by_heads ? 1 : c->tiles); }

/* Each block of keys in one part. */
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

/* When a cut ends, in steps. One part a multiprocessor: with the longest; two: the longest come first, so that the last
 * to begin are short ones and begin when an even share (of all steps) is done. */
static inline long pb_cut_end(const pb_cut *c, int rounds, long share)
{
    const long longest = c->by_heads ? (long)c->most * c->tiles : c->most;
    long end = share + pb_cut_length(c, c->keys - 1);
    if (end > rounds * longest) end = rounds * longest;
    return (end < longest ? longest : end) + rounds * PB_CUT_ENDS;
}

/* The cut that should end first; `heads` key heads over all batch rows. Whole, a block of keys has its ends too, but
 * leaves no sums: counted as nothing. */
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
        while (low < high) { /* the smallest `most` that makes no more parts */
            c.most = (low + high) / 2;
            if ((long)heads * pb_cut_before(&c, c.keys) <= (long)rounds * sms) high = c.most;
            else low = c.most + 1;
        }
        c.most = high;
        if (high < whole.most && pb_cut_end(&c, rounds, share) < cost) best = c, cost = pb_cut_end(&c, rounds, share);
    }
    return best;
}

/* No cut of this shape has more parts that leave sums, whatever the device. */
static inline int pb_cut_room(int heads, int S, int group, int queries)
{
    const long keys = (long)heads * pb_cut_up(S, PB_CUT_KEYS), steps = keys * group * pb_cut_up(S, queries);
    if (keys > PB_CUT_ROUNDS * PB_CUT_SMS) return 0;
    return steps < PB_CUT_ROUNDS * PB_CUT_SMS ? (int)steps : PB_CUT_ROUNDS * PB_CUT_SMS;
}
#endif
