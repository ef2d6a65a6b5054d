/* dynmask_keys_test.c - tests key lists against a sort of each query's own prefix: ties, keys with bias -inf, packed
 * rows, and `keep` below, at and above the length; known lists; and that NaN and +inf are refused. Runs with every
 * implementation. */
#include "kernels/dynmask_keys/dynmask_keys.h"

#include <omp.h>

#include "tests/kernels/dynmask_oracle.h"
#include "tests/test.h"

static void build(pb_ctx *ctx, const pb_dynmask_keys_build_args *a) { CHECK_OK(pb_dynmask_keys_build(ctx, a)); }

/* ---- known lists ------------------------------------------------------------------------------------- */

static void a_key_leaves_when_better_ones_come_and_stays_away(void **state)
{
    const float bias[] = {3, 1, 2, 5, 4};
    const int32_t keys[] = {0, 1, 2, 3, 4}, leave[] = {4, 2, 3, 5, 5};
    int32_t list[6], until[6];
    pb_dynmask_keys_build_args a = {
        .bias = bias, .list = list, .until = until, .B = 1, .S = 5, .K = 1, .L = 6, .keep = 2, .exact = true};
    build(*state, &a);
    assert_memory_equal(list, keys, sizeof keys);
    assert_memory_equal(until, leave, sizeof leave);
    assert_true(list[5] == -1 && until[5] == 0);
    a.exact = false, a.L = 2;
    build(*state, &a);
    assert_true(list[0] == 3 && list[1] == 4 && until[0] == 5 && until[1] == 5);
}

/* With equal biases, and with 0 and -0, the lowest keys stay; a later key never enters. */
static void of_equal_keys_the_lowest_stay(void **state)
{
    const float bias[] = {0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f};
    int32_t list[6], until[6];
    for (int exact = 0; exact < 2; exact++) {
        build(
            *state,
            &(pb_dynmask_keys_build_args){
                .bias = bias, .list = list, .until = until, .B = 1, .S = 6, .K = 1, .L = 6, .keep = 3, .exact = exact});
        for (int l = 0; l < 6; l++) assert_true(list[l] == (l < 3 ? l : -1) && until[l] == (l < 3 ? 6 : 0));
    }
}

/* ---- comparison with a sort for each query -------------------------------------------------------------- */

enum { B = 3, K = 2, S = 61 };
enum kind { UNIFORM, FEW_VALUES, EQUAL, HOLES, NOTHING, RISING, FALLING, KINDS };

static float value(enum kind kind, int j, uint64_t i)
{
    const double x = pb_uniform(3, i), y = pb_uniform(4, i);
    switch (kind) {
    case FEW_VALUES: return (float)(floor(4 * x) - 2) * (y < 0.5 ? 0.0f : 1.0f);
    case EQUAL: return -1.5f;
    case HOLES: return y < 0.6 ? -INFINITY : (float)floor(6 * x);
    case NOTHING: return -INFINITY;
    case RISING: return (float)j;
    case FALLING: return (float)-j;
    default: return (float)x;
    }
}

/* Conversations of batch row b begin at b, b + step, b + 2 step, ... The last tokens of row 2 are padding: each is a
 * conversation of its own. */
static void pack(int32_t *first, int b, int step)
{
    for (int j = 0; j < S; j++) first[j] = j < b + step ? 0 : (j - b) / step * step + b;
    for (int j = S - 5; b == 2 && j < S; j++) first[j] = j;
}

/* Fails unless the list describes the mask, ascends, and ends with unused slots. */
static void check_list(const char *what, const int32_t *list, const int32_t *until, int L, const bool *mask)
{
    static bool seen[S * S];
    int last = -1, n = 0;
    memset(seen, 0, sizeof seen);
    for (; n < L && list[n] >= 0; n++) {
        if (list[n] <= last || list[n] >= S) fail_msg("%s: slot %d has key %d after key %d", what, n, list[n], last);
        last = list[n];
        if (until[n] <= last || until[n] > S) fail_msg("%s: key %d until %d", what, last, until[n]);
        for (int i = last; i < until[n]; i++) seen[i * S + last] = true;
    }
    for (; n < L; n++)
        if (list[n] != -1 || until[n] != 0)
            fail_msg("%s: unused slot %d holds %d until %d", what, n, list[n], until[n]);
    for (int e = 0; e < S * S; e++)
        if (seen[e] != mask[e])
            fail_msg("%s: query %d %s key %d", what, e / S, seen[e] ? "attends to" : "misses", e % S);
}

static void check_case(pb_ctx *ctx, enum kind kind, int keep, bool exact, int step)
{
    static float bias[B * K * S];
    static int32_t start[B * S], list[B * K * S], until[B * K * S];
    static bool mask[S * S];
    double wide[S];
    ranked room[S];
    char what[120];
    const int L = exact || step || keep > S ? S : keep;
    for (int i = 0; i < B * K * S; i++) bias[i] = value(kind, i % S, (uint64_t)i);
    for (int b = 0; step && b < B; b++) pack(start + b * S, b, step);
    memset(list, 0x7f, sizeof list), memset(until, 0x7f, sizeof until);
    build(ctx, &(pb_dynmask_keys_build_args){.bias = bias,
                                             .start = step ? start : NULL,
                                             .list = list,
                                             .until = until,
                                             .B = B,
                                             .S = S,
                                             .K = K,
                                             .L = L,
                                             .keep = keep,
                                             .exact = exact});
    for (int r = 0; r < B * K; r++) {
        for (int j = 0; j < S; j++) wide[j] = (double)bias[r * S + j];
        oracle_select(wide, step ? start + r / K * S : NULL, S, keep, exact, mask, room);
        snprintf(what, sizeof what, "kind %d keep %d exact %d step %d row %d head %d", (int)kind, keep, exact, step,
                 r / K, r % K);
        check_list(what, list + r * L, until + r * L, L, mask);
    }
}

static void lists_equal_a_sort_of_every_prefix(void **state)
{
    static const int keeps[] = {1, 2, 7, 30, S - 1, S, S + 9}, steps[] = {0, 1, 7, 25};
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t k = 0; k < sizeof keeps / sizeof *keeps; k++)
            for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
                for (int exact = 0; exact < 2; exact++) check_case(*state, (enum kind)kind, keeps[k], exact, steps[s]);
}

/* ---- refused biases and arguments ------------------------------------------------------------------------ */

static void biases_without_a_rank_are_refused(void **state)
{
    const float bad[] = {NAN, -NAN, INFINITY};
    float bias[2 * 2 * 9];
    int32_t list[2 * 2 * 9], until[2 * 2 * 9];
    pb_dynmask_keys_build_args a = {
        .bias = bias, .list = list, .until = until, .B = 2, .S = 9, .K = 2, .L = 9, .keep = 3, .exact = true};
    for (int exact = 0; exact < 2; exact++)
        for (int n = 0; n < 3; n++) {
            for (int i = 0; i < 36; i++) bias[i] = (float)-i;
            bias[1 * 18 + 1 * 9 + 8] = bad[n]; /* the last key of the last list, beyond every kept key */
            memset(list, 0x55, sizeof list);
            a.exact = exact;
            CHECK_FAILS(pb_dynmask_keys_build(*state, &a), PB_EINVAL, "row 1, kv head 1, key 8");
            for (int i = 0; i < 36; i++) assert_int_equal(list[i], 0x55555555);
            bias[35] = -INFINITY;
            build(*state, &a);
        }
}

static void test_errors(void **state)
{
    const float bias[4] = {0};
    int32_t list[4], until[4], start[4] = {0};
    const pb_dynmask_keys_build_args good = {
        .bias = bias, .list = list, .until = until, .B = 1, .S = 4, .K = 1, .L = 2, .keep = 2};
    pb_dynmask_keys_build_args a;
#define REFUSED(change, text)                                                                                          \
    do {                                                                                                               \
        a = good;                                                                                                      \
        a.change;                                                                                                      \
        CHECK_FAILS(pb_dynmask_keys_build(*state, &a), PB_EINVAL, text);                                               \
    } while (0)
    build(*state, &good);
    REFUSED(B = 0, "B=0");
    REFUSED(S = -1, "S=-1");
    REFUSED(K = 0, "K=0");
    REFUSED(keep = 0, "keep=0");
    REFUSED(L = 1, "L=1, need at least 2");
    REFUSED(exact = true, "L=2, need at least 4");
    REFUSED(start = start, "L=2, need at least 4");
    REFUSED(keep = 9, "L=2, need at least 4");
    REFUSED(bias = NULL, "NULL");
    REFUSED(list = NULL, "NULL");
    REFUSED(until = NULL, "NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_leaves_when_better_ones_come_and_stays_away),
        cmocka_unit_test(of_equal_keys_the_lowest_stay),
        cmocka_unit_test(lists_equal_a_sort_of_every_prefix),
        cmocka_unit_test(biases_without_a_rank_are_refused),
        cmocka_unit_test(test_errors),
    };
    return test_every_impl(&pb_op_dynmask_keys_build, tests, sizeof tests / sizeof *tests);
}
