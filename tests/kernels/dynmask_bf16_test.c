/* dynmask_bf16_test.c - dynamic-mask attention in bf16 with heads of 64 and 128, which tensor-core kernels take:
 * lengths around their tiles and all group sizes against the definition, and what NaN must not reach. The tests of the
 * same name in dynmask_traps_test.c use f32 and the CPU.
 *
 * usage: dynmask_bf16_test     runs the default implementation on the CPU; with PB_TEST_BACKEND=cuda, on the GPU */
#include "kernels/dynmask_attention/lists.h"
#include "tests/kernels/dynmask_problem.h"

enum { TOLERANCE_PER_MILLE = 6, HEADS = 2 };
static const int widths[HEADS] = {64, 128};

static void fill(problem *p, enum pb_dynmask_lists kind)
{
    p->L = pb_dynmask_lists_size(kind, p->z.S_kv, p->z.keep);
    CHECK_OK(pb_dynmask_lists_fill(kind, p->z.B, p->z.S_kv, p->z.K, p->z.keep, p->list, p->until));
}

static problem make(const sizes *z, enum pb_dynmask_lists kind)
{
    problem p = problem_make(z, PB_BF16);
    fill(&p, kind);
    return p;
}

/* ---- access to rows and outputs -------------------------------------------------------------------------------- */

static void set(void *x, size_t from, size_t n, float value)
{
    for (size_t e = 0; e < n; e++) pb_store(x, from + e, PB_BF16, (double)value);
}

/* Fails unless elements from .. from + n - 1 of two tensors have the same bits. */
static void same(const char *what, const void *want, const void *got, size_t from, size_t n, pb_dtype t)
{
    const size_t e = pb_dtype_size(t);
    for (size_t i = from; i < from + n; i++)
        if (memcmp((const char *)want + i * e, (const char *)got + i * e, e) != 0)
            fail_msg("%s[%zu] is %g, want %g", what, i, pb_load(got, i, t), pb_load(want, i, t));
}

static void all_not_finite(const char *what, const void *x, size_t from, size_t n)
{
    for (size_t i = from; i < from + n; i++)
        if (isfinite(pb_load(x, i, PB_BF16))) fail_msg("%s[%zu] is %g", what, i, pb_load(x, i, PB_BF16));
}

static void check_same(const problem *want, const problem *got)
{
    same("o", want->o, got->o, 0, problem_queries(want), PB_BF16);
    same("lse", want->lse, got->lse, 0, problem_rows(want), PB_F32);
    same("dq", want->dq, got->dq, 0, problem_queries(want), PB_BF16);
    same("dk", want->dk, got->dk, 0, problem_keys(want), PB_BF16);
    same("dv", want->dv, got->dv, 0, problem_keys(want), PB_BF16);
    same("dbias", want->dbias, got->dbias, 0, problem_biases(want), PB_F32);
}

/* ---- against the definition ------------------------------------------------------------------------------------ */

static void check_case(pb_ctx *ctx, sizes z, enum pb_dynmask_lists kind, float offset)
{
    for (int w = 0; w < HEADS; w++) {
        z.D = widths[w];
        problem p = make(&z, kind);
        for (size_t e = 0; e < problem_biases(&p); e++) p.bias[e] += e % 3 ? offset : -offset;
        problem_run(ctx, &p);
        problem_check(&p, TOLERANCE_PER_MILLE / 1e3);
        problem_drop(&p);
    }
}

static void lengths_around_tiles_equal_the_definition(void **state)
{
    static const int lengths[] = {1, 63, 64, 65, 127, 128, 129, 191, 257};
    enum { N = sizeof lengths / sizeof *lengths };
    for (int s = 0; s < N; s++)
        for (int t = s % 2; t < N; t += 2) {
            const sizes z = {.B = 1, .S = lengths[s], .S_kv = lengths[t], .H = 2, .K = 1, .keep = lengths[t] / 2 + 1};
            check_case(*state, z, (enum pb_dynmask_lists)((s + t / 2) % (PB_LISTS_BLOCKS + 1)), 0);
        }
}

static void every_group_size_equals_the_definition(void **state)
{
    static const int groups[] = {1, 2, 4, 7, 8};
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        const sizes z = {.B = 2, .S = 70, .S_kv = 140, .H = 2 * groups[g], .K = 2, .keep = 40};
        check_case(*state, z, g % 2 ? PB_LISTS_UNION : PB_LISTS_EXACT, 0);
    }
}

/* e^1e4 overflows. */
static void large_biases_stay_finite(void **state)
{
    check_case(*state, (sizes){.B = 1, .S = 100, .S_kv = 100, .H = 2, .K = 1, .keep = 70}, PB_LISTS_EXACT, 1e4f);
}

/* Bit k of a pattern: the keys of block k of 64 are listed. A query attends to those of its own block and of the block
 * before it only. */
static void any_pattern_of_blocks_with_work_is_right(void **state)
{
    static const unsigned patterns[] = {0x10, 0x01, 0x15, 0x0a, 0x1c, 0x00};
    const sizes z = {.B = 1, .S = 300, .S_kv = 300, .H = 2, .K = 1, .D = 64, .keep = 300};
    problem p = problem_make(&z, PB_BF16);
    for (size_t n = 0; n < sizeof patterns / sizeof *patterns; n++) {
        for (int j = 0; j < 300; j++) {
            p.list[j] = patterns[n] >> j / 64 & 1 ? j : -1;
            p.until[j] = (j / 64 + 2) * 64 < 300 ? (j / 64 + 2) * 64 : 300;
        }
        problem_run(*state, &p);
        problem_check(&p, TOLERANCE_PER_MILLE / 1e3);
    }
    problem_drop(&p);
}

/* ---- NaN
 * ----------------------------------------------------------------------------------------------------------- */

static void keys_that_nobody_attends_to_may_be_nan(void **state)
{
    for (int w = 0; w < HEADS; w++)
        for (int kind = PB_LISTS_EXACT; kind <= PB_LISTS_BLOCKS; kind++) {
            const sizes z = {.B = 2, .S = 140, .S_kv = 150, .H = 4, .K = 2, .D = widths[w], .keep = 12};
            problem clean = make(&z, (enum pb_dynmask_lists)kind), planted = make(&z, (enum pb_dynmask_lists)kind);
            const pb_dynmask_attention_fwd_args a = problem_fwd(&planted);
            CHECK_OK(pb_dynmask_plant(&a));
            problem_run(*state, &clean), problem_run(*state, &planted);
            check_same(&clean, &planted);
            problem_drop(&clean), problem_drop(&planted);
        }
}

/* Key 20 is NaN or infinite; the queries from 20 to 29 attend to it, and no other. They and the keys that they attend
 * to have gradients that are not finite; nothing else changes. */
static void a_nan_key_reaches_only_queries_that_attend_to_it(void **state)
{
    for (int w = 0; w < HEADS; w++)
        for (int tensor = 0; tensor < 3; tensor++) {
            const size_t D = (size_t)widths[w];
            const sizes z = {.B = 1, .S = 100, .S_kv = 100, .H = 2, .K = 1, .D = widths[w], .keep = 100};
            problem clean = problem_make(&z, PB_BF16), bad = problem_make(&z, PB_BF16);
            problem_list_all(&clean), problem_list_all(&bad);
            clean.until[20] = bad.until[20] = 30;
            if (tensor == 2) bad.bias[20] = NAN;
            else set(tensor ? bad.v : bad.k, 20 * D, D, tensor ? INFINITY : NAN);
            problem_run(*state, &clean), problem_run(*state, &bad);
            const void *want[] = {clean.o, clean.dq}, *got[] = {bad.o, bad.dq};
            for (int i = 0; i < 2; i++) {
                same("o or dq", want[i], got[i], 0, 20 * 2 * D, PB_BF16);
                all_not_finite("o or dq", got[i], 20 * 2 * D, 10 * 2 * D);
                same("o or dq", want[i], got[i], 30 * 2 * D, 70 * 2 * D, PB_BF16);
            }
            same("dk", clean.dk, bad.dk, 30 * D, 70 * D, PB_BF16);
            same("dv", clean.dv, bad.dv, 30 * D, 70 * D, PB_BF16);
            same("dbias", clean.dbias, bad.dbias, 30, 70, PB_F32);
            problem_drop(&clean), problem_drop(&bad);
        }
}

/* Queries 0 to 49 come before every key; their do and q are NaN and infinite. */
static void queries_without_keys_give_exact_zeros(void **state)
{
    for (int w = 0; w < HEADS; w++) {
        const size_t D = (size_t)widths[w];
        const sizes z = {.B = 2, .S = 130, .S_kv = 80, .H = 2, .K = 1, .D = widths[w], .keep = 9};
        problem p = make(&z, PB_LISTS_EXACT), calm = make(&z, PB_LISTS_EXACT);
        for (size_t b = 0; b < 2; b++)
            for (size_t i = 0; i < 50; i++) {
                set(p.dO, (b * 130 + i) * 2 * D, 2 * D, i % 2 ? NAN : INFINITY);
                set(p.q, (b * 130 + i) * 2 * D, 2 * D, i % 3 ? NAN : INFINITY);
                set(calm.dO, (b * 130 + i) * 2 * D, 2 * D, 0);
            }
        problem_run(*state, &p), problem_run(*state, &calm);
        for (size_t e = 0; e < problem_queries(&p); e++)
            if (e / (2 * D) % 130 < 50) assert_true(pb_load(p.o, e, PB_BF16) == 0 && pb_load(p.dq, e, PB_BF16) == 0);
        check_same(&calm, &p);
        problem_drop(&p), problem_drop(&calm);
    }
}

/* do of query 40 is NaN. It attends to keys 0 to 9; keys 10 to 19 are those of the queries from 60 on. */
static void a_nan_gradient_reaches_only_keys_that_its_query_attends_to(void **state)
{
    for (int w = 0; w < HEADS; w++) {
        const size_t D = (size_t)widths[w];
        const sizes z = {.B = 1, .S = 100, .S_kv = 100, .H = 2, .K = 1, .D = widths[w], .keep = 100};
        problem clean = problem_make(&z, PB_BF16), bad = problem_make(&z, PB_BF16);
        for (int j = 0; j < 70; j++) {
            clean.list[j] = bad.list[j] = j < 10 || j >= 60 ? j : -1;
            clean.until[j] = bad.until[j] = j < 10 ? 50 : 100;
        }
        clean.L = bad.L = 70;
        set(bad.dO, 40 * 2 * D, D, NAN); /* of head 0 */
        problem_run(*state, &clean), problem_run(*state, &bad);
        same("o", clean.o, bad.o, 0, problem_queries(&clean), PB_BF16);
        same("dq", clean.dq, bad.dq, 0, 40 * 2 * D, PB_BF16);
        all_not_finite("dq", bad.dq, 40 * 2 * D, D);
        same("dq", clean.dq, bad.dq, 40 * 2 * D + D, 60 * 2 * D - D, PB_BF16);
        all_not_finite("dv", bad.dv, 0, 10 * D);
        all_not_finite("dk", bad.dk, 0, 10 * D);
        same("dk", clean.dk, bad.dk, 10 * D, 90 * D, PB_BF16);
        same("dv", clean.dv, bad.dv, 10 * D, 90 * D, PB_BF16);
        same("dbias", clean.dbias, bad.dbias, 10, 90, PB_F32);
        problem_drop(&clean), problem_drop(&bad);
    }
}

/* ---- repeated calls
 * ------------------------------------------------------------------------------------------------ */

/* The same call gives the same bits; twice do gives exactly twice the gradients. */
static void calls_repeat_and_are_linear_in_do(void **state)
{
    for (int w = 0; w < HEADS; w++) {
        const sizes z = {.B = 1, .S = 300, .S_kv = 300, .H = 4, .K = 1, .D = widths[w], .keep = 200};
        problem one = make(&z, PB_LISTS_EXACT), again = make(&z, PB_LISTS_EXACT);
        problem_run(*state, &one), problem_run(*state, &again);
        check_same(&one, &again);
        for (size_t e = 0; e < problem_queries(&one); e++)
            pb_store(again.dO, e, PB_BF16, 2 * pb_load(one.dO, e, PB_BF16));
        problem_run(*state, &again);
        for (size_t e = 0; e < problem_keys(&one); e++) {
            assert_true(pb_load(again.dv, e, PB_BF16) == 2 * pb_load(one.dv, e, PB_BF16));
            assert_true(pb_load(again.dk, e, PB_BF16) == 2 * pb_load(one.dk, e, PB_BF16));
        }
        for (size_t e = 0; e < problem_biases(&one); e++) assert_true(again.dbias[e] == 2 * one.dbias[e]);
        problem_drop(&one), problem_drop(&again);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_around_tiles_equal_the_definition),
        cmocka_unit_test(every_group_size_equals_the_definition),
        cmocka_unit_test(large_biases_stay_finite),
        cmocka_unit_test(any_pattern_of_blocks_with_work_is_right),
        cmocka_unit_test(keys_that_nobody_attends_to_may_be_nan),
        cmocka_unit_test(a_nan_key_reaches_only_queries_that_attend_to_it),
        cmocka_unit_test(queries_without_keys_give_exact_zeros),
        cmocka_unit_test(a_nan_gradient_reaches_only_keys_that_its_query_attends_to),
        cmocka_unit_test(calls_repeat_and_are_linear_in_do),
    };
    return cmocka_run_group_tests(tests, test_open_device, test_close);
}
