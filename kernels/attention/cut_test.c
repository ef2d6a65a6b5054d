/* cut_test.c - tests how the backward pass of attention divides its work over CTAs (cut.h). */
#include "kernels/attention/cut.h"
#include "tests/test.h"

/* Checks a division: the parts of a block of keys cover every step once, no part is empty or too long, and there are no
 * more parts than the workspace has room for. */
static void check_cut(int heads, int S, int group, int queries, bool causal, bool by_heads, int sms)
{
    const pb_cut c = pb_cut_of(heads, S, group, queries, causal, by_heads, sms);
    const int used = sms < PB_CUT_SMS ? sms : PB_CUT_SMS, whole = heads * pb_cut_up(S, PB_CUT_KEYS);
    const int all = heads * pb_cut_before(&c, c.keys);
    for (int j = 0; j < c.keys; j++) {
        const int seen = c.tiles - (causal ? j * PB_CUT_KEYS / queries : 0);
        const int parts = pb_cut_parts(&c, j), length = pb_cut_length(&c, j),
                  left = group * seen - (parts - 1) * length;
        assert_int_equal(pb_cut_steps(&c, j), group * seen);
        assert_true(parts >= 1 && left >= 1 && left <= length);
        assert_true(length <= c.most * (by_heads ? seen : 1) && (!by_heads || length % seen == 0));
    }
    assert_true(all == whole || (all <= PB_CUT_ROUNDS * used && all <= pb_cut_room(heads, S, group, queries)));
    if (pb_cut_is_whole(&c)) assert_int_equal(all, whole);
}
static void backward_parts_cover_every_step_once(void **state)
{
    const int sms[] = {1, 3, 78, 132, 144}, heads[] = {1, 2, 8, 70, 300}, groups[] = {1, 6, 7};
    (void)state;
    for (int S = 1; S < 3000; S += S < 300 ? 37 : 613)
        for (int i = 0; i < 5 * 5 * 3 * 8; i++)
            check_cut(heads[i % 5], S, groups[i / 25 % 3], i / 75 & 1 ? 64 : 128, i / 75 & 2, i / 75 & 4,
                      sms[i / 5 % 5]);
}

/* Expected divisions on 132 SMs under a causal mask: the number of CTAs, and the number of steps of the longest CTA. */
static const struct {
    int heads, S, group, queries; /* heads: key heads of all batch rows; queries: per tile */
    bool by_heads;
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
};
static void backward_is_divided_until_the_gpu_is_full(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof divisions / sizeof *divisions; i++) {
        const int heads = divisions[i].heads;
        const pb_cut c = pb_cut_of(heads, divisions[i].S, divisions[i].group, divisions[i].queries, true,
                                   divisions[i].by_heads, 132);
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
