/* embedding_test.c - tests of the table lookup that the comparison with the reference does not cover: ids outside the
 * table, the order in which gradients are summed, independence of the number of threads, outputs large enough for
 * streaming stores, errors. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/embedding/embedding.h"
#include "tests/test.h"

static void an_id_outside_the_table_gives_nan(void **state)
{
    float table[6] = {1, 2, 3, 4, 5, 6}, y[8], dtable[6];
    int32_t ids[4] = {1, -1, 3, 2};
    CHECK_OK(
        pb_embedding_fwd(*state, &(pb_embedding_fwd_args){.table = table, .ids = ids, .y = y, .T = 4, .V = 3, .D = 2}));
    for (int i = 2; i < 6; i++) assert_true(isnan(y[i]));
    assert_true(y[0] == 3 && y[1] == 4 && y[6] == 5 && y[7] == 6);
    const float dy[8] = {1, 2, 100, 100, 100, 100, 3, 4}, want[6] = {0, 0, 1, 2, 3, 4};
    CHECK_OK(pb_embedding_bwd(
        *state, &(pb_embedding_bwd_args){.dy = dy, .ids = ids, .dtable = dtable, .T = 4, .V = 3, .D = 2}));
    assert_memory_equal(dtable, want, sizeof want);
}

/* In f32, 2^25 + 2 is 2^25. So the sum is -1 in the order of tokens: ((1 + 2^25) + 2) - 2^25 - 1, where 1 is the old
 * value of the table. Every other order gives another sum (except that without accumulate the first two values
 * commute). Pairwise sums also give another one, and so does adding the tokens' sum to the old value. */
static void sums_in_the_order_of_tokens(void **state)
{
    const float dy[4] = {0x1p25f, 2, -0x1p25f, -1};
    const int32_t ids[4] = {0, 0, 0, 0};
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        float dtable[1] = {1};
        CHECK_OK(pb_embedding_bwd(
            *state, &(pb_embedding_bwd_args){
                        .dy = dy, .ids = ids, .dtable = dtable, .T = 4, .V = 1, .D = 1, .accumulate = accumulate}));
        assert_true(dtable[0] == -1);
    }
}

/* 600 tokens add 1 to one row. A bf16 sum of ones does not grow beyond 256, so a row that is rounded after each token
 * ends there; 600 and 608 are bf16 numbers. */
static void a_bf16_table_is_rounded_once(void **state)
{
    enum { T = 600, D = 19 };
    static float dy[T * D];
    static int32_t ids[T];
    for (size_t i = 0; i < T * D; i++) dy[i] = 1;
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        uint16_t dtable[2 * D];
        for (size_t i = 0; i < 2 * D; i++) pb_store(dtable, i, PB_BF16, 8);
        CHECK_OK(pb_embedding_bwd(*state, &(pb_embedding_bwd_args){.dy = dy,
                                                                   .ids = ids,
                                                                   .dtable = dtable,
                                                                   .T = T,
                                                                   .V = 2,
                                                                   .D = D,
                                                                   .accumulate = accumulate,
                                                                   .table_dtype = PB_BF16}));
        for (size_t d = 0; d < D; d++) {
            assert_true(pb_load(dtable, d, PB_BF16) == (accumulate ? 608 : 600));
            assert_true(pb_load(dtable, D + d, PB_BF16) == (accumulate ? 8 : 0));
        }
    }
}

static void the_number_of_threads_changes_nothing(void **state)
{
    enum { T = 500, V = 40, D = 70 };
    static float dy[T * D], one[V * D], many[V * D];
    static uint16_t one16[V * D], many16[V * D];
    int32_t ids[T];
    for (size_t i = 0; i < T * D; i++) dy[i] = (float)pb_uniform(1, i);
    for (size_t t = 0; t < T; t++) ids[t] = (int32_t)(V * pb_uniform(2, t));
    pb_embedding_bwd_args a = {.dy = dy, .ids = ids, .dtable = one, .T = T, .V = V, .D = D};
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    pb_status s = pb_embedding_bwd(*state, &a);
    pb_embedding_bwd_args narrow = a;
    narrow.dtable = one16, narrow.table_dtype = PB_BF16;
    if (s == PB_OK) s = pb_embedding_bwd(*state, &narrow);
    a.dtable = many, narrow.dtable = many16;
    omp_set_num_threads(3);
    if (s == PB_OK) s = pb_embedding_bwd(*state, &a);
    if (s == PB_OK) s = pb_embedding_bwd(*state, &narrow);
    omp_set_num_threads(threads);
    CHECK_OK(s);
    assert_memory_equal(one, many, sizeof one);
    assert_memory_equal(one16, many16, sizeof one16);
    for (size_t i = 0; i < V * D; i++) { /* the f32 sum, rounded */
        uint16_t want;
        pb_store(&want, 0, PB_BF16, (double)one[i]);
        assert_int_equal(one16[i], want);
    }
}

/* The output is large enough for streaming stores. */
static void a_large_lookup_copies_exactly(void **state)
{
    enum { T = 33000, V = 300, D = 256 };
    float *table = aligned_alloc(256, V * D * sizeof *table), *y = aligned_alloc(256, (size_t)T * D * sizeof *y);
    int32_t *ids = malloc(T * sizeof *ids);
    assert_true(table && y && ids);
    for (size_t i = 0; i < V * D; i++) table[i] = (float)i;
    for (size_t t = 0; t < T; t++) ids[t] = (int32_t)(V * pb_uniform(2, t));
    ids[1000] = V;
    CHECK_OK(
        pb_embedding_fwd(*state, &(pb_embedding_fwd_args){.table = table, .ids = ids, .y = y, .T = T, .V = V, .D = D}));
    for (size_t t = 0; t < T; t++) {
        if (t == 1000) assert_true(isnan(y[t * D]) && isnan(y[t * D + D - 1]));
        else if (memcmp(y + t * D, table + (size_t)ids[t] * D, D * sizeof *y) != 0) fail_msg("token %zu", t);
    }
    free(table), free(y), free(ids);
}

static void bad_arguments_are_named(void **state)
{
    CHECK_FAILS(pb_embedding_fwd(*state, &(pb_embedding_fwd_args){.T = 1, .D = 1}), PB_EINVAL, "V=0");
    CHECK_FAILS(pb_embedding_bwd(*state, &(pb_embedding_bwd_args){.T = 1, .V = 1}), PB_EINVAL, "D=0");
    CHECK_FAILS(pb_embedding_bwd(*state, &(pb_embedding_bwd_args){.V = 1, .D = 1, .table_dtype = PB_I32}), PB_EINVAL,
                "f32 or bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_outside_the_table_gives_nan), cmocka_unit_test(sums_in_the_order_of_tokens),
        cmocka_unit_test(a_bf16_table_is_rounded_once),      cmocka_unit_test(the_number_of_threads_changes_nothing),
        cmocka_unit_test(a_large_lookup_copies_exactly),     cmocka_unit_test(bad_arguments_are_named),
    };
    return test_every_impl(&pb_op_embedding_fwd, tests, sizeof tests / sizeof *tests);
}
