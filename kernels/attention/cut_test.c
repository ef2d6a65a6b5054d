/* cut_test.c - tests how the backward pass of attention divides its work over CTAs (cut.h). */
#include "kernels/attention/cut.h"
#include "tests/test.h"

/* Checks a division: the parts of a block of keys cover every step once, no part is empty or too long, and there are no
 * more parts than the workspace has room for. */
static void check_cut(const pb_cut_shape *s, int sms)
{
    const pb_cut c = pb_cut_of(s, sms);
    const int used = sms < PB_CUT_SMS ? sms : PB_CUT_SMS, whole = s->heads * pb_cut_up(s->N, PB_CUT_KEYS);
    const int all = s->heads * pb_cut_before(&c, c.keys), group = s->group, before = s->N - s->S;
    for (int j = 0; j < c.keys; j++) {
        /* All queries attend to key N - S. Fewer tiles have the blocks after the first one that begins there or later. */
        const int later = j - pb_cut_up(before, PB_CUT_KEYS);
        const int first = s->causal && later > 0 ? later * PB_CUT_KEYS / s->queries : 0, seen = c.tiles - first;
        const int parts = pb_cut_parts(&c, j), length = pb_cut_length(&c, j),
                  left = group * seen - (parts - 1) * length;
        assert_int_equal(pb_cut_steps(&c, j), group * seen);
        assert_int_equal(pb_cut_first(&c, j), first);
        /* No query before the first tile attends to a key of the block. */
        assert_true(!s->causal || before + first * s->queries <= j * PB_CUT_KEYS || first == 0);
        assert_true(parts >= 1 && left >= 1 && left <= length);
        assert_true(length <= c.most * (s->by_heads ? seen : 1) && (!s->by_heads || length % seen == 0));
    }
    assert_true(all == whole || (all <= PB_CUT_ROUNDS * used && all <= pb_cut_room(s)));
    if (pb_cut_is_whole(&c)) assert_int_equal(all, whole);
}
static void backward_parts_cover_every_step_once(void **state)
{
    const int sms[] = {1, 3, 78, 132, 144}, heads[] = {1, 2, 8, 70, 300}, groups[] = {1, 6, 7};
    const int before[] = {0, 1, 128, 640, 2049};
    (void)state;
    for (int S = 1; S < 3000; S += S < 300 ? 37 : 613)
        for (int i = 0; i < 5 * 5 * 3 * 8 * 5; i++) {
            const pb_cut_shape s = {.heads = heads[i % 5],
                                    .S = S,
                                    .N = S + before[i / 600],
                                    .group = groups[i / 25 % 3],
                                    .queries = i / 75 & 1 ? 64 : 128,
                                    .causal = i / 75 & 2,
                                    .by_heads = i / 75 & 4};
            check_cut(&s, sms[i / 5 % 5]);
        }
}

/* Expected divisions on 132 SMs under a causal mask: the number of CTAs, and the number of steps of the longest CTA. */
static const struct {
    int heads, S, group, queries; /* as in pb_cut_shape */
    bool by_heads;
    int before; /* keys before the first query */
    int ctas, longest;
} divisions[] = {
    {.heads = 4 * 2, .S = 512, .group = 6, .queries = 64, .ctas = 128, .longest = 8}, /* undivided: 32 CTAs, 48 steps */
    {.heads = 4 * 2, .S = 512, .group = 6, .queries = 64, .by_heads = true, .ctas = 192, .longest = 8},
    {.heads = 1 * 2, .S = 512, .group = 7, .queries = 128, .ctas = 72, .longest = 2},
    {.heads = 1 * 2, .S = 128, .group = 6, .queries = 64, .ctas = 24, .longest = 1},
    {.heads = 2 * 8, .S = 4096, .group = 8, .queries = 64, .ctas = 512, .longest = 512}, /* undivided */
    {.heads = 2 * 8, .S = 4096, .group = 8, .queries = 64, .by_heads = true, .ctas = 512, .longest = 512},
    {.heads = 50, .S = 3, .group = 7, .queries = 128, .ctas = 100, .longest = 4}, /* the second part has 3 steps */
    {.heads = 30, .S = 3, .group = 5, .queries = 64, .ctas = 90, .longest = 2},
    /* 25 blocks of keys have all 8 tiles of 6 heads, 7 have fewer. Undivided: 64 CTAs, the longest of 48 steps */
    {.heads = 2, .S = 1024, .group = 6, .queries = 128, .ctas = 120, .longest = 24, .before = 3072},
};
static void backward_is_divided_until_the_gpu_is_full(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof divisions / sizeof *divisions; i++) {
        const int heads = divisions[i].heads;
        const pb_cut_shape s = {.heads = heads,
                                .S = divisions[i].S,
                                .N = divisions[i].S + divisions[i].before,
                                .group = divisions[i].group,
                                .queries = divisions[i].queries,
                                .causal = true,
                                .by_heads = divisions[i].by_heads};
        const pb_cut c = pb_cut_of(&s, 132);
        assert_int_equal(heads * pb_cut_before(&c, c.keys), divisions[i].ctas);
        assert_int_equal(pb_cut_length(&c, 0), divisions[i].longest);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backward_parts_cover_every_step_once),
        cmocka_unit_test(backward_is_divided_until_the_gpu_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
