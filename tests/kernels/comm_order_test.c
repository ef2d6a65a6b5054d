/* comm_order_test.c - tests the order of collectives between several processes: overlap, recordings, groups, and calls
 * that differ between ranks. Runs like comm_ranks_test. */
#define _DEFAULT_SOURCE
#include <unistd.h>

#include "tests/kernels/comm_ranks.h"

/* ---- order, overlap, recordings ------------------------------------------------------------------------------- */

/* Rank 0 enqueues before a host barrier, the others after it. A collective that did not overlap would never return.
 * NCCL connects the ranks in the first collective of a kind, which therefore waits on the host, and is made before. */
static void overlap_does_not_wait_for_other_ranks(void **state)
{
    (void)state;
    void *x = input_tensor(PB_F32, rank, 0, 500, 21);
    pb_comm_all_reduce_args a = {.comm = all, .x = x, .y = x, .count = 500, .ordered = true, .overlap = true};
    CHECK_OK(pb_comm_all_reduce(ctx, &a));
    CHECK_OK(pb_comm_wait(ctx, &(pb_comm_wait_args){all}));
    pb_release(ctx, x);
    a.x = a.y = x = input_tensor(PB_F32, rank, 0, 500, 21);
    if (rank == 0) CHECK_OK(pb_comm_all_reduce(ctx, &a));
    CHECK_OK(pb_world_barrier(test_world, "overlap"));
    if (rank != 0) CHECK_OK(pb_comm_all_reduce(ctx, &a));
    CHECK_OK(pb_comm_wait(ctx, &(pb_comm_wait_args){all}));
    check_reduced(x, PB_F32, 0, 500, 21, PB_COMM_SUM, true);
    pb_release(ctx, x);
}

/* A chain on one tensor: each collective needs the result of the one before. */
typedef struct chain {
    float *x, *gathered;
    size_t n;
} chain;

static pb_status run_chain(pb_ctx *c, void *self)
{
    const chain *k = self;
    PB_TRY(
        pb_comm_all_reduce(c, &(pb_comm_all_reduce_args){
                                  .comm = all, .x = k->x, .y = k->x, .count = k->n, .ordered = true, .overlap = true}));
    PB_TRY(pb_comm_broadcast(
        c, &(pb_comm_broadcast_args){
               .comm = all, .x = k->x, .y = k->x, .count = k->n, .root = ranks - 1, .overlap = true}));
    PB_TRY(pb_comm_all_gather(
        c, &(pb_comm_all_gather_args){.comm = all, .x = k->x, .y = k->gathered, .count = k->n, .overlap = true}));
    PB_TRY(pb_comm_wait(c, &(pb_comm_wait_args){all}));
    /* Without overlap, after the wait: sums the copies of the first rank again. */
    return pb_comm_all_reduce(
        c, &(pb_comm_all_reduce_args){.comm = all, .x = k->gathered, .y = k->x, .count = k->n, .op = PB_COMM_MAX});
}

static void reset_chain(const chain *k, int salt)
{
    void *x = input_tensor(PB_F32, rank, 0, k->n, salt);
    CHECK_OK(pb_copy(ctx, k->x, x, k->n * sizeof(float)));
    CHECK_OK(pb_zero(ctx, k->gathered, (size_t)ranks * k->n * sizeof(float)));
    CHECK_OK(pb_sync(ctx));
    pb_release(ctx, x);
}

static void check_chain(const chain *k, int salt)
{
    check_reduced(k->x, PB_F32, 0, k->n, salt, PB_COMM_SUM, true);
    for (int r = 0; r < ranks; r++)
        check_reduced(k->gathered + (size_t)r * k->n, PB_F32, 0, k->n, salt, PB_COMM_SUM, true);
}

static void overlapped_collectives_keep_their_order_also_replayed(void **state)
{
    (void)state;
    chain k = {.n = 777};
    pb_graph *graph = NULL;
    k.x = tensor(k.n, PB_F32), k.gathered = tensor((size_t)ranks * k.n, PB_F32);
    reset_chain(&k, 31);
    CHECK_OK(run_chain(ctx, &k));
    check_chain(&k, 31);
    CHECK_OK(pb_record(ctx, run_chain, &k, &graph));
    for (int replay = 0; replay < 3; replay++) {
        reset_chain(&k, 32 + replay);
        CHECK_OK(pb_replay(ctx, graph));
        check_chain(&k, 32 + replay);
    }
    pb_graph_free(ctx, graph);
    pb_release(ctx, k.gathered), pb_release(ctx, k.x);
}

/* The second collective needs more memory of the communicator than the first, which is at another step in each
 * round. */
static void memory_grows_while_collectives_run(void **state)
{
    enum { ROUNDS = 8, TENSORS = 2 };
    static const size_t counts[TENSORS] = {200003, 200983};
    (void)state;
    for (int round = 0; round < (ranks > 1 ? ROUNDS : 0); round++) {
        pb_comm *c;
        void *x[TENSORS];
        CHECK_OK(pb_comm_open(test_world, ctx, "growing", 0, rank, &c));
        for (int i = 0; i < TENSORS; i++) x[i] = input_tensor(PB_F32, rank, 0, counts[i], 70 + i);
        for (int i = 0; i < TENSORS; i++) {
            CHECK_OK(pb_comm_all_reduce(
                ctx, &(pb_comm_all_reduce_args){
                         .comm = c, .x = x[i], .y = x[i], .count = counts[i], .ordered = true, .overlap = true}));
            (void)usleep(200 * (unsigned)round);
        }
        CHECK_OK(pb_comm_wait(ctx, &(pb_comm_wait_args){c}));
        for (int i = 0; i < TENSORS; i++) {
            check_reduced(x[i], PB_F32, 0, counts[i], 70 + i, PB_COMM_SUM, true);
            pb_release(ctx, x[i]);
        }
        pb_comm_close(c);
    }
}

static pb_status record_larger(pb_ctx *c, void *self)
{
    return pb_comm_all_reduce(
        c, &(pb_comm_all_reduce_args){.comm = all, .x = self, .y = self, .count = 1 << 20, .ordered = true});
}

static void a_recording_needs_memory_that_exists(void **state)
{
    pb_graph *graph = NULL;
    (void)state;
    void *x = tensor(1 << 20, PB_F32);
    CHECK_FAILS(pb_record(ctx, record_larger, x, &graph), PB_EUNSUPPORTED, "run the collective once before");
    pb_release(ctx, x);
}

/* ---- groups --------------------------------------------------------------------------------------------------- */

/* Two axes: each rank adds over its row, then over its column; the result is the sum over all. */
static void groups_along_two_axes_add_up(void **state)
{
    pb_topology t;
    pb_comm *dp, *cp;
    float mine = (float)(1 << rank);
    (void)state;
    if (ranks % 2) return; /* an odd number of ranks has no second axis */
    CHECK_OK(pb_topology_parse("cp=2", ranks, &t));
    CHECK_OK(pb_comm_open(test_world, ctx, "dp", pb_topology_colour(&t, rank, PB_ON(DP)),
                          pb_topology_index(&t, rank, PB_ON(DP)), &dp));
    CHECK_OK(pb_comm_open(test_world, ctx, "cp", pb_topology_colour(&t, rank, PB_ON(CP)),
                          pb_topology_index(&t, rank, PB_ON(CP)), &cp));
    assert_int_equal(pb_comm_size(dp), ranks / 2);
    assert_int_equal(pb_comm_size(cp), 2);
    assert_int_equal(pb_comm_rank(cp), rank % 2);
    assert_true(ranks == 2 ? !dp : pb_comm_rank(dp) == rank / 2); /* NULL: alone in its group */
    void *x = tensor(1, PB_F32);
    CHECK_OK(pb_upload(ctx, x, &mine, sizeof mine));
    CHECK_OK(pb_comm_all_reduce(ctx, &(pb_comm_all_reduce_args){.comm = cp, .x = x, .y = x, .count = 1}));
    CHECK_OK(pb_download(ctx, &mine, x, sizeof mine));
    assert_true(mine == (float)(3 << rank / 2 * 2));
    CHECK_OK(pb_comm_all_reduce(ctx, &(pb_comm_all_reduce_args){.comm = dp, .x = x, .y = x, .count = 1}));
    CHECK_OK(pb_download(ctx, &mine, x, sizeof mine));
    assert_true(mine == (float)((1 << ranks) - 1));
    pb_release(ctx, x);
    pb_comm_close(cp), pb_comm_close(dp);
}

/* Keys in falling order number the ranks backwards. */
static void the_key_orders_the_ranks(void **state)
{
    pb_comm *c;
    (void)state;
    CHECK_OK(pb_comm_open(test_world, ctx, "backwards", 0, -rank, &c));
    assert_int_equal(pb_comm_rank(c), ranks - 1 - rank);
    pb_comm_close(c);
}

/* ---- errors --------------------------------------------------------------------------------------------------- */

/* On the CPU, ranks whose calls differ all get EINVAL with both calls, and the communicator takes no more. */
static void a_count_that_differs_is_refused_on_all_ranks(void **state)
{
    char text[80], want[120];
    pb_comm *c;
    (void)state;
    if (ctx->id != PB_CPU || ranks == 1) return; /* NCCL cannot detect it */
    CHECK_OK(pb_comm_open(test_world, ctx, "counts", 0, rank, &c));
    void *x = tensor(5, PB_F32);
    const size_t n = rank == ranks - 1 ? 5 : 4;
    snprintf(want, sizeof want, "rank %d calls all_reduce of 5 f32, op 0, root 0, rank 0 calls all_reduce of 4 f32",
             ranks - 1);
    CHECK_FAILS(pb_comm_all_reduce(ctx, &(pb_comm_all_reduce_args){.comm = c, .x = x, .y = x, .count = n}), PB_EINVAL,
                want);
    CHECK_FAILS(pb_comm_wait(ctx, &(pb_comm_wait_args){c}), PB_EINVAL, want);
    CHECK_FAILS(pb_comm_status(c), PB_EINVAL, want);
    pb_comm_current(c, text, sizeof text);
    assert_string_equal(text, "");
    pb_release(ctx, x);
    pb_comm_close(c);
}

static void a_block_that_is_not_expected_is_refused(void **state)
{
    size_t send[MOST_RANKS], receive[MOST_RANKS];
    pb_comm *c;
    (void)state;
    if (ctx->id != PB_CPU || ranks == 1) return;
    CHECK_OK(pb_comm_open(test_world, ctx, "blocks", 0, rank, &c));
    for (int r = 0; r < ranks; r++) send[r] = receive[r] = 2;
    if (rank == 1) receive[0] = 3;
    void *x = tensor(64, PB_F32), *y = tensor(64, PB_F32);
    const pb_comm_all_to_all_args a = {.comm = c, .x = x, .y = y, .send = send, .receive = receive, .overlap = true};
    CHECK_OK(pb_comm_all_to_all(ctx, &a));
    CHECK_FAILS(pb_comm_wait(ctx, &(pb_comm_wait_args){c}), PB_EINVAL, "rank 1 expects another count from rank 0");
    pb_release(ctx, y), pb_release(ctx, x);
    pb_comm_close(c);
}

static void a_context_of_another_device_is_refused(void **state)
{
    pb_ctx other;
    float x = 1;
    (void)state;
    CHECK_OK(pb_ctx_open(&other, ctx->id, test_device(ctx->id)));
    CHECK_FAILS(pb_comm_all_reduce(&other, &(pb_comm_all_reduce_args){.comm = all, .x = &x, .y = &x, .count = 1}),
                PB_EINVAL, "opened for another context");
    pb_ctx_close(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overlap_does_not_wait_for_other_ranks),
        cmocka_unit_test(overlapped_collectives_keep_their_order_also_replayed),
        cmocka_unit_test(memory_grows_while_collectives_run),
        cmocka_unit_test(a_recording_needs_memory_that_exists),
        cmocka_unit_test(groups_along_two_axes_add_up),
        cmocka_unit_test(the_key_orders_the_ranks),
        cmocka_unit_test(a_count_that_differs_is_refused_on_all_ranks),
        cmocka_unit_test(a_block_that_is_not_expected_is_refused),
        cmocka_unit_test(a_context_of_another_device_is_refused),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
