/* world_ranks_test.c - tests a world whose ranks mpirun started: members, host collectives, and opening it twice.
 * Failures of ranks: world_test. */
#include <unistd.h>

#include "tests/ranks/ranks_test.h"

static void every_rank_knows_every_member(void **state)
{
    const int ranks = pb_world_size(test_world), rank = pb_world_rank(test_world);
    (void)state;
    assert_true(ranks > 1 && pb_world_has_mpi(test_world));
    for (int r = 0; r < ranks; r++) { /* all are on this host */
        const pb_world_member *m = pb_world_member_of(test_world, r);
        assert_int_equal(m->local_rank, r);
        assert_int_equal(m->local_size, ranks);
        assert_string_equal(m->machine, pb_world_member_of(test_world, rank)->machine);
    }
    assert_int_equal(pb_world_member_of(test_world, rank)->pid, (int)getpid());
    assert_int_equal(pb_world_local_rank(test_world), rank);
    assert_true(pb_world_speaks(test_world) == (rank == 0));
}

static void bytes_reach_all_ranks(void **state)
{
    enum { LARGE = 1 << 20 };
    const int ranks = pb_world_size(test_world), rank = pb_world_rank(test_world);
    unsigned char *all = malloc((size_t)ranks * LARGE), *mine = malloc(LARGE);
    (void)state;
    assert_true(all && mine);
    for (size_t i = 0; i < LARGE; i++) mine[i] = (unsigned char)(i % 251 + (size_t)rank);
    CHECK_OK(pb_world_gather(test_world, "gathering", mine, LARGE, all));
    for (int r = 0; r < ranks; r++)
        for (size_t i = 0; i < LARGE; i++)
            assert_true(all[(size_t)r * LARGE + i] == (unsigned char)(i % 251 + (size_t)r));
    for (int root = 0; root < ranks; root++) {
        memset(mine, rank, LARGE);
        CHECK_OK(pb_world_broadcast(test_world, "sending", root, mine, LARGE));
        assert_true(mine[0] == root && mine[LARGE - 1] == root);
    }
    CHECK_OK(pb_world_barrier(test_world, "ending"));
    free(all), free(mine);
}

static void all_ranks_learn_of_a_failure(void **state)
{
    const int ranks = pb_world_size(test_world), rank = pb_world_rank(test_world);
    char want[160];
    (void)state;
    CHECK_OK(pb_world_agree(test_world, "reading", PB_OK));
    for (int bad = 0; bad < ranks; bad++) {
        const pb_status mine = rank >= bad ? pb_fail(PB_EPATH, "file %d is missing", rank) : PB_OK;
        snprintf(want, sizeof want, "rank %d on %s: file %d is missing", bad, pb_world_member_of(test_world, bad)->host,
                 bad);
        CHECK_FAILS(pb_world_agree(test_world, "reading", mine), PB_EPATH, want);
        assert_string_equal(pb_error(), want);
    }
    CHECK_OK(pb_world_same(test_world, "the layout", "equal"));
    snprintf(want, sizeof want, "%d", rank == ranks - 1);
    CHECK_FAILS(pb_world_same(test_world, "the layout", want), PB_EINVAL, "the layout differs: rank 0 has 0, rank");
}

static void one_gpu_for_two_ranks_is_refused(void **state)
{
    const int rank = pb_world_rank(test_world);
    char bus[32];
    (void)state;
    snprintf(bus, sizeof bus, "0000:%02x:00.0", rank);
    CHECK_OK(pb_world_check_devices(test_world, bus));
    CHECK_OK(pb_world_check_devices(test_world, ""));
    snprintf(bus, sizeof bus, "0000:%02x:00.0", rank < 2 ? 7 : rank);
    CHECK_FAILS(pb_world_check_devices(test_world, bus), PB_EINVAL, "ranks 0 and 1 on");
    CHECK_FAILS(pb_world_check_devices(test_world, bus), PB_EINVAL, "use the same GPU, 0000:07:00.0");
}

static void versions_that_differ_are_refused(void **state)
{
    const int rank = pb_world_rank(test_world);
    const pb_world_options o = {.version = rank == 1 ? "v2" : "v1", .mpi = true, .timeout = 30};
    pb_world *second = NULL;
    (void)state;
    CHECK_FAILS(pb_world_open(&o, &second), PB_EINVAL, "the program's version differs: rank 0 has v1, rank 1 on");
    assert_null(second);
    assert_true(pb_world_speaks(second) == (rank == 0));
    CHECK_OK(pb_world_open(&(pb_world_options){.mpi = true}, &second)); /* a later world works */
    CHECK_OK(pb_world_barrier(second, "again"));
    assert_true(pb_world_timeout(second) == 60);
    pb_world_close(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_knows_every_member),    cmocka_unit_test(bytes_reach_all_ranks),
        cmocka_unit_test(all_ranks_learn_of_a_failure),     cmocka_unit_test(one_gpu_for_two_ranks_is_refused),
        cmocka_unit_test(versions_that_differ_are_refused),
    };
    return cmocka_run_group_tests(tests, test_open_ranks, test_close_ranks);
}
