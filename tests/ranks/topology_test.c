/* topology_test.c - tests how ranks are arranged along axes: coordinates, groups, and texts that are refused. */
#include "ranks/topology.h"
#include "tests/test.h"

static void dp_takes_the_ranks_that_are_left(void **state)
{
    pb_topology t;
    char text[64];
    (void)state;
    CHECK_OK(pb_topology_parse(NULL, 6, &t));
    assert_true(t.ranks == 6 && t.size[PB_AXIS_DP] == 6 && t.size[PB_AXIS_CP] == 1);
    CHECK_OK(pb_topology_parse("", 1, &t));
    assert_true(t.size[PB_AXIS_DP] == 1);
    pb_topology_text(&t, text, sizeof text);
    assert_string_equal(text, "dp=1");
    CHECK_OK(pb_topology_parse("cp=2", 8, &t));
    assert_true(t.size[PB_AXIS_DP] == 4 && t.size[PB_AXIS_CP] == 2);
    CHECK_OK(pb_topology_parse("cp=2,dp=4,tp=1,pp=1,ep=1", 8, &t));
    pb_topology_text(&t, text, sizeof text);
    assert_string_equal(text, "dp=4,cp=2");
    pb_topology_text(&t, text, 5);
    assert_string_equal(text, "dp=4");
}

/* The example of topology.h: cp varies faster than dp. */
static void neighbours_share_a_sequence(void **state)
{
    pb_topology t;
    (void)state;
    CHECK_OK(pb_topology_parse("dp=4,cp=2", 8, &t));
    for (int r = 0; r < 8; r++) {
        assert_int_equal(pb_topology_at(&t, r, PB_AXIS_CP), r % 2);
        assert_int_equal(pb_topology_at(&t, r, PB_AXIS_DP), r / 2);
        assert_int_equal(pb_topology_index(&t, r, PB_ON(DP)), r / 2);
        assert_int_equal(pb_topology_colour(&t, r, PB_ON(DP)), r % 2);
        assert_int_equal(pb_topology_colour(&t, r, PB_ON(DP) | PB_ON(CP)), 0);
        assert_int_equal(pb_topology_index(&t, r, PB_ON(DP) | PB_ON(CP)), r);
    }
    assert_int_equal(pb_topology_member(&t, 3, PB_ON(DP), 0), 1);
    assert_int_equal(pb_topology_member(&t, 3, PB_ON(DP), 3), 7);
    assert_int_equal(pb_topology_member(&t, 5, PB_ON(CP), 0), 4);
}

/* With sizes that no option accepts yet: every set of axes divides the ranks into groups, in which the members have the
 * indices 0..size-1 in the order of their ranks. */
static void groups_partition_the_ranks(void **state)
{
    const pb_topology t = {
        .ranks = 240,
        .size = {[PB_AXIS_TP] = 2, [PB_AXIS_CP] = 3, [PB_AXIS_EP] = 2, [PB_AXIS_DP] = 5, [PB_AXIS_PP] = 4}};
    (void)state;
    for (unsigned set = 0; set < 1u << PB_NAXES; set++) {
        const int size = pb_topology_group_size(&t, set);
        for (int r = 0; r < t.ranks; r++) {
            int at[PB_NAXES], before = -1;
            for (int a = 0; a < PB_NAXES; a++) at[a] = pb_topology_at(&t, r, (pb_axis)a);
            assert_int_equal(pb_topology_rank(&t, at), r);
            assert_int_equal(pb_topology_member(&t, r, set, pb_topology_index(&t, r, set)), r);
            assert_in_range(pb_topology_colour(&t, r, set), 0, t.ranks / size - 1);
            for (int i = 0; i < size; i++) {
                const int member = pb_topology_member(&t, r, set, i);
                assert_true(member > before && member < t.ranks);
                assert_int_equal(pb_topology_colour(&t, member, set), pb_topology_colour(&t, r, set));
                assert_int_equal(pb_topology_index(&t, member, set), i);
                before = member;
            }
        }
    }
}

static void what_does_not_fit_is_refused_with_the_numbers(void **state)
{
    static const struct {
        const char *text;
        int ranks;
        const char *says;
    } bad[] = {
        {"cp=3", 8, "--topology cp=3: 8 ranks do not divide by 3"},
        {"cp=16", 8, "8 ranks do not divide by 16"},
        {"dp=4,cp=2", 6, "--topology dp=4,cp=2 needs 8 ranks, but the job has 6"},
        {"dp=4", 8, "needs 4 ranks, but the job has 8"},
        {"tp=2", 8, "tp=2 is not supported: matrices are not divided between ranks"},
        {"pp=4", 8, "pp=4 is not supported"},
        {"ep=8", 8, "ep=8 is not supported"},
        {"dp=2,dp=4", 8, "dp is given twice"},
        {"xp=2", 8, "'xp=2' names no axis; the axes are dp and cp, and tp, pp and ep, which can only be 1"},
        {"dp", 8, "'dp' needs a positive number"},
        {"dp=", 8, "'dp=' needs a positive number"},
        {"dp=,cp=2", 8, "'dp=' needs a positive number"},
        {"dp=0", 8, "'dp=0' needs a positive number"},
        {"dp=-8", 8, "'dp=-8' needs a positive number"},
        {"dp= 8", 8, "needs a positive number"},
        {"dp=8x", 8, "'dp=8x' needs a positive number"},
        {"dp=99999999999999999999", 8, "needs a positive number"},
        {"dp=16777216,cp=16777216", 8, "needs 281474976710656 ranks"},
        {"dp=8,", 8, "ends with a comma"},
        {",dp=8", 8, "names no axis"},
        {"", 0, "at least one rank, not 0"},
    };
    pb_topology t;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_FAILS(pb_topology_parse(bad[i].text, bad[i].ranks, &t), PB_EINVAL, bad[i].says);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dp_takes_the_ranks_that_are_left),
        cmocka_unit_test(neighbours_share_a_sequence),
        cmocka_unit_test(groups_partition_the_ranks),
        cmocka_unit_test(what_does_not_fit_is_refused_with_the_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
