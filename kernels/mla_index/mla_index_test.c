/* mla_index_test.c - tests of mla_index: known lists, packed rows, and errors. */
#include <limits.h>

#include "kernels/mla_index/mla_index.h"
#include "tests/test.h"

static void build(pb_ctx *ctx, const pb_mla_index_build_args *a) { CHECK_OK(pb_mla_index_build(ctx, a)); }

/* Window 3, groups of 2 tokens; the expected lists follow from the definition in mla_index.h. */
static void known_lists(void **state)
{
    enum { S = 5, T = 2, W = 6 };
    static const int32_t want[S][W] = {
        {0, -1, -1, -1, -1, -1}, {0, 1, -1, 5, -1, -1}, {0, 1, 2, 5, -1, -1}, {1, 2, 3, 5, 6, -1}, {2, 3, 4, 5, 6, -1}};
    pb_ctx *ctx = *state;
    int32_t idx[S][W];
    for (const pb_impl *i = pb_mla_index_build_cpu; i->name; i++) {
        if (i->available && !i->available()) continue;
        ctx->impl = i->name;
        build(ctx, &(pb_mla_index_build_args){.idx = idx[0], .B = 1, .S = S, .T = T, .W = W, .window = 3, .ratio = 2});
        assert_memory_equal(idx, want, sizeof want);
    }
    ctx->impl = NULL;
}

/* Groups that are not visible yet (an indexer lists such groups for early tokens) and groups out of range become -1. */
static void invisible_groups_become_masked_slots(void **state)
{
    static const int32_t pick[] = {INT_MAX, INT_MIN, -1, 1, 0, 2};
    int32_t idx[4 * 10], picks[4][6];
    for (int i = 0; i < 4; i++) memcpy(picks[i], pick, sizeof pick);
    build(*state, &(pb_mla_index_build_args){
                      .pick = picks[0], .idx = idx, .B = 1, .S = 4, .T = 6, .W = 10, .window = 4, .ratio = 2});
    static const int32_t want[] = {0, 1, 2, 3, -1, -1, -1, 5, 4, -1};
    assert_memory_equal(idx + 30, want, sizeof want);
}

/* The lists of two conversations packed into a row of 16 tokens equal those of each conversation in a row of its own,
 * shifted by the conversation's offset. */
static void packed_conversations_are_independent(void **state)
{
    enum { S = 16, M = 8, T = 4, W = 10 };
    int32_t start[S], packed[S][W], alone[M][W];
    for (int i = 0; i < S; i++) start[i] = i / M * M;
    build(*state, &(pb_mla_index_build_args){
                      .start = start, .idx = packed[0], .B = 1, .S = S, .T = T, .W = W, .window = 5, .ratio = 4});
    build(*state, &(pb_mla_index_build_args){.idx = alone[0], .B = 1, .S = M, .T = T, .W = W, .window = 5, .ratio = 4});
    for (int i = 0; i < S; i++)
        for (int w = 0; w < 5 + T; w++) {
            const int group = w - 5 - i / M * (M / 4); /* number in the query's conversation; < 0: a group before it */
            int32_t want = w < 5 ? alone[i % M][w] : group < 0 ? -1 : alone[i % M][5 + group];
            if (want >= 0) want += w < 5 ? start[i] : S - M + i / M * (M / 4);
            assert_int_equal(packed[i][w], want);
        }
}

static void bad_arguments_are_named(void **state)
{
    int32_t idx[4];
    pb_mla_index_build_args a = {.idx = idx, .B = 1, .S = 2, .T = 3, .W = 4, .window = 128, .ratio = 4};
    CHECK_FAILS(pb_mla_index_build(*state, &a), PB_EINVAL, "W=4 T=3, need T >= 0 and W >= 2 + T");
    a.T = -1;
    CHECK_FAILS(pb_mla_index_build(*state, &a), PB_EINVAL, "T=-1");
    a.T = 1, a.ratio = 0;
    CHECK_FAILS(pb_mla_index_build(*state, &a), PB_EINVAL, "ratio=0");
    a.ratio = 4, a.offset = -1;
    CHECK_FAILS(pb_mla_index_build(*state, &a), PB_EINVAL, "offset=-1 keys=2, need 0 <= offset <= keys - 2");
    a.offset = 3, a.keys = 4;
    CHECK_FAILS(pb_mla_index_build(*state, &a), PB_EINVAL, "offset=3 keys=4");
    a.offset = a.keys = 0, a.idx = NULL;
    CHECK_FAILS(pb_mla_index_build(*state, &a), PB_EINVAL, "idx is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_lists),
        cmocka_unit_test(invisible_groups_become_masked_slots),
        cmocka_unit_test(packed_conversations_are_independent),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
