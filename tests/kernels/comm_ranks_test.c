/* comm_ranks_test.c - tests the results of collectives between 2, 3, 4 and 8 processes, which mpirun starts: every
 * collective and dtype, ragged counts, empty tensors, in place, ordered sums bit for bit. PB_TEST_BACKEND=cuda runs it
 * on GPUs; with one rank it then uses a communicator of NCCL with one rank. */
#include "tests/kernels/comm_ranks.h"

/* ---- reductions ----------------------------------------------------------------------------------------------- */

static const size_t counts_to_try[] = {0, 1, 7, 16, 128, 129, 1000, 4099};
enum { COUNTS = sizeof counts_to_try / sizeof *counts_to_try };

static bool is_exact(const pb_comm_all_reduce_args *a) { return a->ordered || a->op == PB_COMM_MAX; }

static void check_all_reduce(pb_comm_all_reduce_args a, bool in_place, int salt)
{
    void *x = input_tensor(a.dtype, rank, 0, a.count, salt), *y = in_place ? x : tensor(a.count, a.dtype);
    a.comm = all, a.x = x, a.y = y;
    CHECK_OK(pb_comm_all_reduce(ctx, &a));
    if (a.overlap) CHECK_OK(pb_comm_wait(ctx, &(pb_comm_wait_args){all}));
    check_reduced(y, a.dtype, 0, a.count, salt, a.op, is_exact(&a));
    if (!in_place) pb_release(ctx, y);
    pb_release(ctx, x);
}

static void all_reduce_adds_and_compares(void **state)
{
    (void)state;
    for (int k = 0; k < COUNTS; k++)
        for (int variant = 0; variant < 32; variant++)
            check_all_reduce((pb_comm_all_reduce_args){.count = counts_to_try[k],
                                                       .dtype = variant & 1 ? PB_BF16 : PB_F32,
                                                       .op = variant & 2 ? PB_COMM_MAX : PB_COMM_SUM,
                                                       .ordered = variant & 4,
                                                       .overlap = variant & 16},
                             variant & 8, k + 1);
}

/* Large enough for several runs of the adding loop and, in MPI, several fragments. */
static void a_large_ordered_sum_is_exact(void **state)
{
    (void)state;
    check_all_reduce((pb_comm_all_reduce_args){.count = 200003, .ordered = true}, true, 50);
}

/* Cutting a tensor in two gives the bits of the whole. */
static void an_ordered_sum_does_not_depend_on_the_cut(void **state)
{
    (void)state;
    const size_t n = 3001, cut = 1234;
    float *x = input_tensor(PB_F32, rank, 0, n, 60), *y = tensor(n, PB_F32), *z = tensor(n, PB_F32);
    pb_comm_all_reduce_args a = {.comm = all, .x = x, .y = y, .count = n, .ordered = true};
    CHECK_OK(pb_comm_all_reduce(ctx, &a));
    a.y = z, a.count = cut;
    CHECK_OK(pb_comm_all_reduce(ctx, &a));
    a.x = x + cut, a.y = z + cut, a.count = n - cut;
    CHECK_OK(pb_comm_all_reduce(ctx, &a));
    float *whole = test_fetch(ctx, y, n * sizeof *x), *parts = test_fetch(ctx, z, n * sizeof *x);
    assert_memory_equal(whole, parts, n * sizeof *x);
    free(whole), free(parts);
    pb_release(ctx, z), pb_release(ctx, y), pb_release(ctx, x);
}

/* 0 + -0 is +0: a sum that begins with 0 instead of the first rank's value has other bits. */
static void a_sum_of_minus_zeros_is_minus_zero(void **state)
{
    enum { N = 40 };
    float host[N];
    (void)state;
    for (int i = 0; i < N; i++) host[i] = -0.0f;
    void *x = tensor(N, PB_F32);
    CHECK_OK(pb_upload(ctx, x, host, sizeof host));
    CHECK_OK(
        pb_comm_all_reduce(ctx, &(pb_comm_all_reduce_args){.comm = all, .x = x, .y = x, .count = N, .ordered = true}));
    CHECK_OK(pb_download(ctx, host, x, sizeof host));
    for (int i = 0; i < N; i++) assert_true(host[i] == 0 && signbit(host[i]));
    pb_release(ctx, x);
}

/* A sum made in chunks of at most 4096 bytes, the last one smaller, and a rest that does not divide by the ranks. */
static void an_ordered_sum_in_chunks_is_exact(void **state)
{
    const size_t usual = pb_comm_chunk;
    (void)state;
    pb_comm_chunk = 4096;
    for (int in_place = 0; in_place < 2; in_place++)
        for (pb_dtype t = PB_F32; t <= PB_BF16; t++)
            check_all_reduce((pb_comm_all_reduce_args){.count = 9173, .dtype = t, .ordered = true}, in_place, 55);
    pb_comm_chunk = usual;
}

static int busy_meanwhile; /* ctx->busy_sms during the last sum_and_wait */

static pb_status sum_and_wait(pb_ctx *c, void *self)
{
    PB_TRY(pb_comm_all_reduce(c, self));
    busy_meanwhile = c->busy_sms;
    return pb_comm_wait(c, &(pb_comm_wait_args){all});
}

/* Sums a buffer of pb_comm_window_memory twice eagerly, then by three replays of one graph, with other inputs each
 * time. */
static void check_window(size_t count, pb_dtype t, bool in_place)
{
    const pb_memory_source *source = pb_comm_window_memory(all, 0);
    const size_t bytes = count * pb_dtype_size(t);
    pb_comm_all_reduce_args a = {.comm = all, .count = count, .dtype = t, .overlap = true};
    pb_graph *graph = NULL;
    void *x, *y;
    CHECK_OK(pb_alloc_from(ctx, source, bytes, &x));
    CHECK_OK(pb_alloc_from(ctx, source, bytes, &y));
    a.x = in_place ? y : x, a.y = y;
    for (int k = 0; k < 5; k++) {
        void *values = input_tensor(t, rank, 0, count, 70 + k);
        CHECK_OK(pb_copy(ctx, in_place ? y : x, values, bytes));
        if (k < 2) CHECK_OK(sum_and_wait(ctx, &a));
        if (k == 2) CHECK_OK(pb_record(ctx, sum_and_wait, &a, &graph));
        assert_true((busy_meanwhile > 0) == (source && bytes >= (size_t)1 << 20));
        assert_int_equal(ctx->busy_sms, 0);
        if (k >= 2) CHECK_OK(pb_replay(ctx, graph));
        check_reduced(y, t, 0, count, 70 + k, PB_COMM_SUM, false);
        pb_release(ctx, values);
    }
    pb_graph_free(ctx, graph);
    pb_release(ctx, y), pb_release(ctx, x);
}

/* Collectives that would hang with memory of a window fail instead. */
static void check_refused(const pb_memory_source *source)
{
    enum { N = 4000 };
    void *x;
    CHECK_OK(pb_alloc_from(ctx, source, N * sizeof(float), &x));
    CHECK_FAILS(
        pb_comm_all_reduce(ctx, &(pb_comm_all_reduce_args){.comm = all, .x = x, .y = x, .count = N, .ordered = true}),
        PB_EUNSUPPORTED, "no ordered all_reduce");
    void *y = tensor(N, PB_F32);
    CHECK_FAILS(
        pb_comm_all_to_all(ctx, &(pb_comm_all_to_all_args){.comm = all, .x = x, .y = y, .count = (size_t)(N / ranks)}),
        PB_EUNSUPPORTED, "no all_to_all");
    pb_release(ctx, y), pb_release(ctx, x);
}

/* On a CPU, and without PB_NCCL_WINDOWS, the memory is like any other. */
static void sums_of_window_memory_are_right(void **state)
{
    const char *asked = getenv("PB_NCCL_WINDOWS");
    (void)state;
    if (ctx->id == PB_CUDA && ranks > 1 && asked && strcmp(asked, "0") != 0 && !pb_comm_window_memory(all, 0))
        fail_msg("PB_NCCL_WINDOWS=%s, but there are no windows: they need one host and NCCL 2.28", asked);
    if (pb_comm_window_memory(all, 0)) check_refused(pb_comm_window_memory(all, 0));
    for (int k = 0; k < 4; k++) {
        const pb_dtype t = k & 1 ? PB_BF16 : PB_F32;
        check_window(1001, t, k & 2);
        if (pb_comm_window_memory(all, 0)) check_window(600007, t, k & 2); /* 1 MiB and more */
    }
}

/* Counts that differ by rank; one is 0. Returns their sum. */
static size_t ragged(size_t counts[MOST_RANKS], size_t unit)
{
    size_t sum = 0;
    for (int r = 0; r < ranks; r++) sum += counts[r] = r == 1 ? 0 : unit * (size_t)(r + 1) + (size_t)(r % 3);
    return sum;
}

static void check_reduce_scatter(const size_t *counts, size_t count, int variant, int salt)
{
    const pb_dtype t = variant & 1 ? PB_BF16 : PB_F32;
    const size_t total = pb_comm_offset(counts, count, ranks), from = pb_comm_offset(counts, count, rank);
    const size_t mine = counts ? counts[rank] : count;
    const bool in_place = variant & 8;
    char *x = input_tensor(t, rank, 0, total, salt);
    void *y = in_place ? x + from * pb_dtype_size(t) : tensor(mine, t);
    pb_comm_reduce_scatter_args a = {.comm = all, .x = x, .y = y, .count = count, .counts = counts, .dtype = t};
    a.op = variant & 2 ? PB_COMM_MAX : PB_COMM_SUM;
    a.ordered = variant & 4;
    a.overlap = variant & 16;
    CHECK_OK(pb_comm_reduce_scatter(ctx, &a));
    if (a.overlap) CHECK_OK(pb_comm_wait(ctx, &(pb_comm_wait_args){all}));
    check_reduced(y, t, from, mine, salt, a.op, a.ordered || a.op == PB_COMM_MAX);
    if (!in_place) pb_release(ctx, y);
    pb_release(ctx, x);
}

static void reduce_scatter_leaves_each_rank_its_block(void **state)
{
    size_t counts[MOST_RANKS];
    (void)state;
    for (int variant = 0; variant < 32; variant++) {
        check_reduce_scatter(NULL, 0, variant, 1);
        check_reduce_scatter(NULL, 33, variant, 2);
        ragged(counts, 40);
        check_reduce_scatter(counts, 0, variant, 3);
    }
}

/* ---- moves ---------------------------------------------------------------------------------------------------- */

static void check_all_gather(const size_t *counts, size_t count, pb_dtype t, int variant)
{
    const size_t total = pb_comm_offset(counts, count, ranks), from = pb_comm_offset(counts, count, rank);
    const size_t mine = counts ? counts[rank] : count, each = pb_dtype_size(t);
    char *y = tensor(total, t);
    void *x = input_tensor(t, rank, 0, mine, 9);
    if (variant & 1) CHECK_OK(pb_copy(ctx, y + from * each, x, mine * each));
    CHECK_OK(pb_comm_all_gather(ctx, &(pb_comm_all_gather_args){.comm = all,
                                                                .x = variant & 1 ? y + from * each : x,
                                                                .y = y,
                                                                .count = count,
                                                                .counts = counts,
                                                                .dtype = t,
                                                                .overlap = variant & 2}));
    CHECK_OK(pb_comm_wait(ctx, &(pb_comm_wait_args){all}));
    unsigned char *host = test_fetch(ctx, y, total * each);
    for (int r = 0; r < ranks; r++)
        for (size_t i = 0; i < (counts ? counts[r] : count); i++)
            assert_true(pb_load(host, pb_comm_offset(counts, count, r) + i, t) == input(t, r, i, 9));
    free(host);
    pb_release(ctx, x), pb_release(ctx, y);
}

static void all_gather_puts_blocks_in_rank_order(void **state)
{
    size_t counts[MOST_RANKS];
    (void)state;
    for (int t = 0; t < PB_NDTYPES; t++)
        for (int variant = 0; variant < 4; variant++) {
            check_all_gather(NULL, 0, (pb_dtype)t, variant);
            check_all_gather(NULL, 65, (pb_dtype)t, variant);
            ragged(counts, 30);
            check_all_gather(counts, 0, (pb_dtype)t, variant);
        }
}

/* Elements that rank `from` sends to rank `to`; some are 0. */
static size_t sent(int from, int to) { return from == to + 1 ? 0 : (size_t)(3 + 5 * from + 2 * to); }

static void check_all_to_all(bool uneven, pb_dtype t, bool overlap)
{
    size_t send[MOST_RANKS] = {0}, receive[MOST_RANKS] = {0}, out = 0, in = 0, offset = 0;
    for (int r = 0; r < ranks; r++) {
        out += send[r] = uneven ? sent(rank, r) : 21;
        in += receive[r] = uneven ? sent(r, rank) : 21;
    }
    void *x = input_tensor(t, rank, 0, out, 11), *y = tensor(in, t);
    CHECK_OK(pb_comm_all_to_all(ctx, &(pb_comm_all_to_all_args){.comm = all,
                                                                .x = x,
                                                                .y = y,
                                                                .count = uneven ? 0 : 21,
                                                                .send = uneven ? send : NULL,
                                                                .receive = uneven ? receive : NULL,
                                                                .dtype = t,
                                                                .overlap = overlap}));
    CHECK_OK(pb_comm_wait(ctx, &(pb_comm_wait_args){all}));
    unsigned char *host = test_fetch(ctx, y, in * pb_dtype_size(t));
    for (int r = 0; r < ranks; r++) {
        size_t theirs = 0; /* elements before the block that rank r sends to this rank */
        for (int k = 0; k < rank; k++) theirs += uneven ? sent(r, k) : 21;
        for (size_t i = 0; i < receive[r]; i++)
            assert_true(pb_load(host, offset + i, t) == input(t, r, theirs + i, 11));
        offset += receive[r];
    }
    free(host);
    pb_release(ctx, y), pb_release(ctx, x);
}

static void all_to_all_transposes_blocks(void **state)
{
    (void)state;
    for (int t = 0; t < PB_NDTYPES; t++)
        for (int variant = 0; variant < 4; variant++) check_all_to_all(variant & 1, (pb_dtype)t, variant & 2);
}

static void broadcast_copies_from_every_root(void **state)
{
    (void)state;
    for (int root = 0; root < ranks; root++)
        for (int t = 0; t < PB_NDTYPES; t++)
            for (int in_place = 0; in_place < 2; in_place++) {
                const size_t n = 99 * (size_t)(root > 0); /* root 0 sends an empty tensor */
                void *x = input_tensor((pb_dtype)t, rank, 0, n, 13), *y = in_place ? x : tensor(n, (pb_dtype)t);
                CHECK_OK(pb_comm_broadcast(ctx, &(pb_comm_broadcast_args){.comm = all,
                                                                          .x = rank == root ? x : NULL,
                                                                          .y = y,
                                                                          .count = n,
                                                                          .dtype = (pb_dtype)t,
                                                                          .root = root}));
                unsigned char *host = test_fetch(ctx, y, n * pb_dtype_size((pb_dtype)t));
                for (size_t i = 0; i < n; i++)
                    assert_true(pb_load(host, i, (pb_dtype)t) == input((pb_dtype)t, root, i, 13));
                free(host);
                if (!in_place) pb_release(ctx, y);
                pb_release(ctx, x);
            }
}

/* Flag i is set on rank i only, as NaN, Inf or a small number; the last is set on no rank. */
static void agree_finds_a_flag_of_any_rank(void **state)
{
    const float kinds[4] = {NAN, -INFINITY, 1e-30f, -1};
    float host[MOST_RANKS + 1] = {0}, *got;
    int32_t whole[MOST_RANKS + 1] = {0}, *got_whole;
    const size_t n = (size_t)ranks + 1;
    (void)state;
    host[rank] = kinds[rank % 4];
    whole[rank] = -7;
    void *x = tensor(n, PB_F32), *y = tensor(n, PB_I32);
    CHECK_OK(pb_upload(ctx, x, host, n * sizeof *host));
    CHECK_OK(pb_upload(ctx, y, whole, n * sizeof *whole));
    CHECK_OK(pb_comm_agree(ctx, &(pb_comm_agree_args){.comm = all, .x = x, .y = x, .count = n, .dtype = PB_F32}));
    CHECK_OK(pb_comm_agree(
        ctx, &(pb_comm_agree_args){.comm = all, .x = y, .y = y, .count = n, .dtype = PB_I32, .overlap = true}));
    CHECK_OK(pb_comm_wait(ctx, &(pb_comm_wait_args){all}));
    got = test_fetch(ctx, x, n * sizeof *host), got_whole = test_fetch(ctx, y, n * sizeof *whole);
    for (int i = 0; i <= ranks; i++) assert_true(got[i] == (float)(i < ranks) && got_whole[i] == (i < ranks));
    free(got), free(got_whole);
    pb_release(ctx, y), pb_release(ctx, x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_adds_and_compares),
        cmocka_unit_test(a_large_ordered_sum_is_exact),
        cmocka_unit_test(an_ordered_sum_in_chunks_is_exact),
        cmocka_unit_test(sums_of_window_memory_are_right),
        cmocka_unit_test(an_ordered_sum_does_not_depend_on_the_cut),
        cmocka_unit_test(a_sum_of_minus_zeros_is_minus_zero),
        cmocka_unit_test(reduce_scatter_leaves_each_rank_its_block),
        cmocka_unit_test(all_gather_puts_blocks_in_rank_order),
        cmocka_unit_test(all_to_all_transposes_blocks),
        cmocka_unit_test(broadcast_copies_from_every_root),
        cmocka_unit_test(agree_finds_a_flag_of_any_rank),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
