/* comm_test.c - tests the collectives of one rank, bad arguments, and the memory of communicators on the plan backend.
 * Several ranks: comm_ranks_test, comm_order_test. */
#include "kernels/comm/backend.h"
#include "tests/test.h"

static void one_rank_copies(void **state)
{
    const float x[3] = {1, -2, 3};
    const int32_t flags[3] = {0, -5, 1};
    const size_t counts[1] = {3};
    float y[5][3];
    int32_t agreed[3] = {7, 7, 7};
    memset(y, 0, sizeof y);
    CHECK_OK(pb_comm_all_reduce(*state, &(pb_comm_all_reduce_args){.x = x, .y = y[0], .count = 3, .ordered = true}));
    CHECK_OK(pb_comm_reduce_scatter(*state, &(pb_comm_reduce_scatter_args){.x = x, .y = y[1], .counts = counts}));
    CHECK_OK(pb_comm_all_gather(*state, &(pb_comm_all_gather_args){.x = x, .y = y[2], .counts = counts}));
    CHECK_OK(
        pb_comm_all_to_all(*state, &(pb_comm_all_to_all_args){.x = x, .y = y[3], .send = counts, .receive = counts}));
    CHECK_OK(pb_comm_broadcast(*state, &(pb_comm_broadcast_args){.x = x, .y = y[4], .count = 3, .overlap = true}));
    for (int i = 0; i < 5; i++) assert_memory_equal(x, y[i], sizeof x);
    CHECK_OK(pb_comm_agree(*state, &(pb_comm_agree_args){.x = flags, .y = agreed, .count = 3, .dtype = PB_I32}));
    assert_true(agreed[0] == 0 && agreed[1] == 1 && agreed[2] == 1);
    CHECK_OK(pb_comm_wait(*state, &(pb_comm_wait_args){0}));
}

static void one_rank_agrees_on_nan(void **state)
{
    float x[4] = {NAN, 0, -0.0f, 1e-40f};
    CHECK_OK(pb_comm_agree(*state, &(pb_comm_agree_args){.x = x, .y = x, .count = 4, .dtype = PB_F32}));
    assert_true(x[0] == 1 && x[1] == 0 && x[2] == 0 && x[3] == 1);
}

static void empty_tensors_need_no_memory(void **state)
{
    CHECK_OK(pb_comm_all_reduce(*state, &(pb_comm_all_reduce_args){0}));
    CHECK_OK(pb_comm_reduce_scatter(*state, &(pb_comm_reduce_scatter_args){0}));
    CHECK_OK(pb_comm_all_gather(*state, &(pb_comm_all_gather_args){0}));
    CHECK_OK(pb_comm_all_to_all(*state, &(pb_comm_all_to_all_args){0}));
    CHECK_OK(pb_comm_broadcast(*state, &(pb_comm_broadcast_args){0}));
    CHECK_OK(pb_comm_agree(*state, &(pb_comm_agree_args){0}));
}

static void bad_arguments_are_named(void **state)
{
    float x[8] = {0};
    const size_t send[2] = {1, 2}, receive[2] = {2, 2};
    CHECK_FAILS(pb_comm_all_reduce(*state, &(pb_comm_all_reduce_args){.y = x, .count = 3}), PB_EINVAL, "NULL");
    CHECK_FAILS(pb_comm_all_reduce(*state, &(pb_comm_all_reduce_args){.x = x, .y = x + 1, .count = 3}), PB_EINVAL,
                "x and y overlap");
    CHECK_FAILS(pb_comm_all_reduce(*state, &(pb_comm_all_reduce_args){.x = x, .y = x, .count = 3, .dtype = PB_I32}),
                PB_EINVAL, "need f32 or bf16");
    CHECK_FAILS(pb_comm_all_reduce(*state, &(pb_comm_all_reduce_args){.op = (pb_comm_op)2}), PB_EINVAL, "op 2");
    CHECK_FAILS(pb_comm_reduce_scatter(*state, &(pb_comm_reduce_scatter_args){.x = x, .count = 3}), PB_EINVAL, "NULL");
    CHECK_FAILS(pb_comm_all_gather(*state, &(pb_comm_all_gather_args){.x = x, .y = x + 2, .count = 3}), PB_EINVAL,
                "x and y overlap");
    CHECK_FAILS(pb_comm_all_gather(*state, &(pb_comm_all_gather_args){.dtype = PB_NDTYPES}), PB_EINVAL, "dtype 4");
    CHECK_FAILS(pb_comm_all_to_all(*state, &(pb_comm_all_to_all_args){.send = send}), PB_EINVAL, "is NULL");
    CHECK_FAILS(pb_comm_all_to_all(*state, &(pb_comm_all_to_all_args){.send = send, .receive = receive}), PB_EINVAL,
                "sends 1 elements to itself, but expects 2");
    CHECK_FAILS(pb_comm_broadcast(*state, &(pb_comm_broadcast_args){.root = 1}), PB_EINVAL, "root 1, need 0 to 0");
    CHECK_FAILS(pb_comm_agree(*state, &(pb_comm_agree_args){.dtype = PB_BF16}), PB_EINVAL, "need f32 or i32");
}

/* On the plan backend, checks of arguments use the number of ranks, no op runs, and scratch memory is counted. */
static void a_plan_accounts_for_memory(void **state)
{
    pb_ctx plan;
    pb_comm *c;
    void *x;
    (void)state;
    CHECK_OK(pb_ctx_open_plan(&plan, PB_CPU));
    CHECK_OK(pb_comm_open_plan(&plan, "dp", 3, 4, &c));
    assert_true(pb_comm_rank(c) == 3 && pb_comm_size(c) == 4 && strcmp(pb_comm_role(c), "dp") == 0);
    CHECK_OK(pb_alloc(&plan, 4096, &x));
    const size_t before = plan.held;
    CHECK_OK(pb_comm_all_reduce(&plan, &(pb_comm_all_reduce_args){.comm = c, .x = x, .y = x, .count = 1024}));
    assert_true(plan.held == before); /* MPI reduces f32 itself */
    CHECK_OK(pb_comm_all_reduce(&plan,
                                &(pb_comm_all_reduce_args){.comm = c, .x = x, .y = x, .count = 1024, .ordered = true}));
    assert_true(plan.held == before + 4096);
    CHECK_OK(pb_comm_all_reduce(&plan,
                                &(pb_comm_all_reduce_args){.comm = c, .x = x, .y = x, .count = 512, .ordered = true}));
    assert_true(plan.held == before + 4096); /* enough already */
    CHECK_OK(pb_comm_wait(&plan, &(pb_comm_wait_args){c}));
    CHECK_OK(pb_comm_status(c));
    CHECK_FAILS(pb_comm_broadcast(&plan, &(pb_comm_broadcast_args){.comm = c, .root = 4}), PB_EINVAL, "need 0 to 3");
    pb_comm_close(c);
    assert_true(plan.held == before);
    CHECK_OK(pb_comm_open_plan(&plan, "dp", 0, 1, &c));
    assert_null(c);
    pb_ctx_close(&plan);
}

static void no_communicator_is_one_rank(void **state)
{
    char text[8] = "x";
    pb_comm *c = (pb_comm *)text;
    assert_true(pb_comm_rank(NULL) == 0 && pb_comm_size(NULL) == 1);
    CHECK_OK(pb_comm_status(NULL));
    pb_comm_current(NULL, text, sizeof text);
    assert_string_equal(text, "");
    pb_comm_abort(NULL);
    pb_comm_close(NULL);
    CHECK_OK(pb_comm_open(NULL, *state, "dp", 0, 0, &c));
    assert_null(c);
    CHECK_FAILS(pb_comm_open_plan(*state, "dp", 0, 2, &c), PB_EINVAL, "not of the plan backend");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_copies),
        cmocka_unit_test(one_rank_agrees_on_nan),
        cmocka_unit_test(empty_tensors_need_no_memory),
        cmocka_unit_test(bad_arguments_are_named),
        cmocka_unit_test(a_plan_accounts_for_memory),
        cmocka_unit_test(no_communicator_is_one_rank),
    };
    static const char *const impls[] = {"alone", "ref"}; /* "mpi" takes no call of one rank */
    int failed = 0;
    for (int i = 0; i < 2; i++) {
        test_impl_name = impls[i];
        failed += _cmocka_run_group_tests(impls[i], tests, sizeof tests / sizeof *tests, test_open_cpu, test_close);
    }
    return failed;
}
