/* dynmask_traps_test.c - what must not change the result of dynamic-mask attention: NaN where no query looks, rows and
 * lists without keys, tiles that no query attends to, what earlier calls left in memory, other batch rows, other
 * conversations of a row, the number of threads. Most are faults that public kernels had. Runs with every
 * implementation. */
#include <omp.h>

#include "kernels/dynmask_attention/lists.h"
#include "tests/kernels/dynmask_problem.h"

/* ---- outputs of two problems of equal sizes ----------------------------------------------------------------- */

enum { OUTPUTS = 6 };

typedef struct output {
    const char *name;
    const float *x;
    size_t n;
} output;

static output output_of(const problem *p, int i)
{
    const output all[OUTPUTS] = {{"o", p->o, problem_queries(p)},   {"lse", p->lse, problem_rows(p)},
                                 {"dq", p->dq, problem_queries(p)}, {"dk", p->dk, problem_keys(p)},
                                 {"dv", p->dv, problem_keys(p)},    {"dbias", p->dbias, problem_biases(p)}};
    return all[i];
}

/* Fails unless all outputs have the same bits. */
static void check_same(const char *what, const problem *want, const problem *got)
{
    for (int i = 0; i < OUTPUTS; i++) {
        const output w = output_of(want, i), g = output_of(got, i);
        for (size_t e = 0; e < w.n; e++)
            if (memcmp(&w.x[e], &g.x[e], sizeof *w.x) != 0)
                fail_msg("%s: %s[%zu] is %.9g, want %.9g", what, w.name, e, (double)g.x[e], (double)w.x[e]);
    }
}

static void fill(problem *p, enum pb_dynmask_lists kind)
{
    p->L = pb_dynmask_lists_size(kind, p->z.S_kv, p->z.keep);
    CHECK_OK(pb_dynmask_lists_fill(kind, p->z.B, p->z.S_kv, p->z.K, p->z.keep, p->list, p->until));
}

static problem make(const sizes *z, enum pb_dynmask_lists kind)
{
    problem p = problem_make(z, PB_F32);
    fill(&p, kind);
    return p;
}

static void set(void *x, size_t from, size_t n, float value)
{
    for (size_t e = 0; e < n; e++) ((float *)x)[from + e] = value;
}

/* ---- NaN where no query looks ------------------------------------------------------------------------------- */

static void keys_that_nobody_attends_to_may_be_nan(void **state)
{
    const sizes z = {.B = 2, .S = 140, .S_kv = 150, .H = 4, .K = 2, .D = 40, .keep = 12};
    for (int kind = PB_LISTS_EXACT; kind <= PB_LISTS_BLOCKS; kind++) {
        problem clean = make(&z, (enum pb_dynmask_lists)kind), planted = make(&z, (enum pb_dynmask_lists)kind);
        const pb_dynmask_attention_fwd_args a = problem_fwd(&planted);
        CHECK_OK(pb_dynmask_plant(&a));
        assert_memory_not_equal(clean.k, planted.k, problem_keys(&clean) * sizeof(float));
        problem_run(*state, &clean), problem_run(*state, &planted);
        check_same("NaN in other keys", &clean, &planted);
        problem_drop(&clean), problem_drop(&planted);
    }
}

/* Key 20 becomes NaN; it is listed, but only the queries from 20 to 29 attend to it. */
static void a_nan_key_reaches_only_queries_that_attend_to_it(void **state)
{
    const sizes z = {.B = 1, .S = 100, .S_kv = 100, .H = 2, .K = 1, .D = 32, .keep = 100};
    for (int tensor = 0; tensor < 3; tensor++) {
        problem clean = problem_make(&z, PB_F32), bad = problem_make(&z, PB_F32);
        problem_list_all(&clean), problem_list_all(&bad);
        clean.until[20] = bad.until[20] = 30;
        set(tensor == 0   ? bad.k
            : tensor == 1 ? bad.v
                          : bad.bias,
            tensor < 2 ? 20 * 32 : 20, tensor < 2 ? 32 : 1, tensor == 1 ? INFINITY : NAN);
        problem_run(*state, &clean), problem_run(*state, &bad);
        for (int i = 0; i < 2; i++) { /* o, dq: [S,H,D] */
            const float *w = output_of(&clean, 2 * i).x, *g = output_of(&bad, 2 * i).x;
            for (int e = 0; e < 100 * 64; e++) {
                const bool reached = e / 64 >= 20 && e / 64 < 30;
                if (reached ? isfinite(g[e]) : memcmp(&g[e], &w[e], sizeof *g) != 0)
                    fail_msg("%s of query %d is %g, was %g", i ? "dq" : "o", e / 64, (double)g[e], (double)w[e]);
            }
        }
        for (int e = 30 * 32; e < 100 * 32; e++) /* later keys: no query that attends to key 20 attends to them */
            assert_true(((float *)bad.dk)[e] == ((float *)clean.dk)[e] &&
                        ((float *)bad.dv)[e] == ((float *)clean.dv)[e]);
        for (int e = 30; e < 100; e++) assert_true(bad.dbias[e] == clean.dbias[e]);
        problem_drop(&clean), problem_drop(&bad);
    }
}

/* ---- nothing to attend to ------------------------------------------------------------------------------------ */

/* Queries 0 to 49 come before every key; their do is NaN and infinite, which 0 times something would let through. */
static void queries_without_keys_give_exact_zeros(void **state)
{
    const sizes z = {.B = 2, .S = 130, .S_kv = 80, .H = 2, .K = 1, .D = 32, .keep = 9};
    problem p = make(&z, PB_LISTS_EXACT), calm = make(&z, PB_LISTS_EXACT);
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < 50; i++) {
            set(p.dO, (size_t)(b * 130 + i) * 64, 64, i % 2 ? NAN : INFINITY);
            set(calm.dO, (size_t)(b * 130 + i) * 64, 64, 0);
        }
    problem_run(*state, &p), problem_run(*state, &calm);
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < 50; i++)
            for (int e = 0; e < 64; e++) {
                const int at = (b * 130 + i) * 64 + e;
                assert_true(((float *)p.o)[at] == 0 && ((float *)p.dq)[at] == 0);
                assert_true(p.lse[(b * 2 + e / 32) * 130 + i] == -INFINITY);
            }
    check_same("do of queries without keys", &calm, &p);
    problem_drop(&p), problem_drop(&calm);
}

/* The list of kv head 1 of batch row 0 is empty. */
static void an_empty_list_gives_exact_zeros(void **state)
{
    const sizes z = {.B = 2, .S = 70, .S_kv = 70, .H = 4, .K = 2, .D = 32, .keep = 20};
    problem p = make(&z, PB_LISTS_EXACT);
    for (int l = 0; l < 70; l++) p.list[70 + l] = -1;
    problem_run(*state, &p);
    problem_check(&p, 4e-6);
    for (int i = 0; i < 70; i++) {
        for (int e = 64; e < 128; e++)
            assert_true(((float *)p.o)[i * 128 + e] == 0 && ((float *)p.dq)[i * 128 + e] == 0);
        for (int e = 32; e < 64; e++) assert_true(((float *)p.dk)[i * 64 + e] == 0 && ((float *)p.dv)[i * 64 + e] == 0);
        assert_true(p.dbias[70 + i] == 0 && p.lse[2 * 70 + i] == -INFINITY && p.lse[3 * 70 + i] == -INFINITY);
    }
    for (int l = 0; l < 280; l++) p.list[l] = l % 2 ? -1 : 70; /* no list has a key */
    problem_run(*state, &p);
    problem_check(&p, 4e-6);
    problem_drop(&p);
}

/* ---- tiles without work, and what earlier work left ------------------------------------------------------------ */

/* Bit k of a pattern: the keys of block k of 64 are listed. A query attends to those of its own block and of the block
 * before it only, so that blocks of queries and tiles of keys without work come before, between and after others. */
static void any_pattern_of_blocks_with_work_is_right(void **state)
{
    static const unsigned patterns[] = {0x10, 0x01, 0x15, 0x0a, 0x1c, 0x07, 0x11, 0x00};
    const sizes z = {.B = 1, .S = 300, .S_kv = 300, .H = 2, .K = 1, .D = 32, .keep = 300};
    problem p = problem_make(&z, PB_F32);
    for (size_t n = 0; n < sizeof patterns / sizeof *patterns; n++) {
        for (int j = 0; j < 300; j++) {
            p.list[j] = patterns[n] >> j / 64 & 1 ? j : -1;
            p.until[j] = (j / 64 + 2) * 64 < 300 ? (j / 64 + 2) * 64 : 300;
        }
        problem_run(*state, &p);
        problem_check(&p, 4e-6);
    }
    problem_drop(&p);
}

/* A call with long lists leaves its sums in the scratch memory; a call with short lists must not find them. */
static void earlier_calls_leave_no_trace(void **state)
{
    const sizes z = {.B = 1, .S = 200, .S_kv = 200, .H = 4, .K = 2, .D = 64, .keep = 10};
    problem fresh = make(&z, PB_LISTS_EXACT), after = problem_make(&z, PB_F32);
    pb_ctx ctx;
    CHECK_OK(pb_ctx_open(&ctx, PB_CPU, 0));
    ctx.impl = ((pb_ctx *)*state)->impl;
    problem_run(&ctx, &fresh);
    pb_ctx_close(&ctx);
    problem_list_all(&after);
    problem_run(*state, &after);
    memcpy(after.list, fresh.list, problem_biases(&fresh) * sizeof *fresh.list);
    memcpy(after.until, fresh.until, problem_biases(&fresh) * sizeof *fresh.until);
    problem_run(*state, &after);
    check_same("a second call", &fresh, &after);
    problem_drop(&fresh), problem_drop(&after);
}

/* ---- scale and do ---------------------------------------------------------------------------------------------- */

/* Twice do gives exactly twice the gradients, and do = 0 gives 0: nothing but do enters the sums. */
static void gradients_are_linear_in_do(void **state)
{
    const sizes z = {.B = 1, .S = 150, .S_kv = 150, .H = 2, .K = 1, .D = 48, .keep = 40};
    problem one = make(&z, PB_LISTS_EXACT), two = make(&z, PB_LISTS_EXACT);
    for (int times = 0; times <= 2; times += 2) {
        for (size_t e = 0; e < problem_queries(&one); e++) ((float *)two.dO)[e] = (float)times * ((float *)one.dO)[e];
        problem_run(*state, &one), problem_run(*state, &two);
        for (int i = 2; i < OUTPUTS; i++) {
            const output w = output_of(&one, i), g = output_of(&two, i);
            for (size_t e = 0; e < w.n; e++)
                if (!(g.x[e] == (float)times * w.x[e])) fail_msg("%s[%zu] is not linear in do", w.name, e);
        }
    }
    problem_drop(&one), problem_drop(&two);
}

/* Twice q at half the scale gives the same scores: dk, dv and dbias stay, dq is halved. */
static void the_scale_is_applied_once(void **state)
{
    const sizes z = {.B = 1, .S = 90, .S_kv = 110, .H = 4, .K = 2, .D = 96, .keep = 30};
    problem one = make(&z, PB_LISTS_EXACT), two = make(&z, PB_LISTS_EXACT);
    two.scale = one.scale / 2;
    for (size_t e = 0; e < problem_queries(&one); e++) ((float *)two.q)[e] *= 2;
    problem_run(*state, &one), problem_run(*state, &two);
    for (size_t e = 0; e < problem_queries(&two); e++) ((float *)two.dq)[e] *= 2;
    check_same("twice q at half the scale", &one, &two);
    problem_drop(&one), problem_drop(&two);
}

/* ---- other rows, other conversations, other threads
 * --------------------------------------------------------------- */

/* Copies batch row b, or a part of it, of a tensor [B,rows,width] to a tensor of its own. */
static void cut(void *to, const void *from, int rows, size_t width, int b, int begin, int n)
{
    memcpy(to, (const float *)from + ((size_t)b * rows + begin) * width, n * width * sizeof(float));
}

static void cut_biases(const problem *p, problem *one, int b, int begin)
{
    for (int k = 0; k < p->z.K; k++)
        for (int j = 0; j < one->z.S_kv; j++)
            one->bias[k * one->z.S_kv + j] = p->bias[(b * p->z.K + k) * p->z.S_kv + begin + j];
}

/* Compares tokens begin .. begin + n - 1 of batch row b with a problem of these tokens alone, whose lists are given.
 * The gradients of keys may be summed in another order. */
static void check_part(pb_ctx *ctx, const problem *p, problem *one, int b, int begin)
{
    const int n = one->z.S, S = p->z.S;
    const size_t w = (size_t)p->z.H * p->z.D, u = (size_t)p->z.K * p->z.D;
    float *part = malloc(n * w * sizeof *part);
    assert_non_null(part);
    cut(one->q, p->q, S, w, b, begin, n), cut(one->dO, p->dO, S, w, b, begin, n);
    cut(one->k, p->k, S, u, b, begin, n), cut(one->v, p->v, S, u, b, begin, n);
    cut_biases(p, one, b, begin);
    problem_run(ctx, one);
    cut(part, p->o, S, w, b, begin, n), problem_near("o", one->o, part, n * w, 1e-6);
    cut(part, p->dq, S, w, b, begin, n), problem_near("dq", one->dq, part, n * w, 2e-6);
    cut(part, p->dk, S, u, b, begin, n), problem_near("dk", one->dk, part, n * u, 2e-6);
    cut(part, p->dv, S, u, b, begin, n), problem_near("dv", one->dv, part, n * u, 2e-6);
    for (int k = 0; k < p->z.K; k++)
        problem_near("dbias", one->dbias + k * n, p->dbias + (size_t)(b * p->z.K + k) * S + begin, n, 2e-6);
    free(part);
}

static void every_batch_row_equals_that_row_alone(void **state)
{
    const sizes z = {.B = 3, .S = 130, .S_kv = 130, .H = 4, .K = 2, .D = 32, .keep = 22};
    sizes alone = z;
    alone.B = 1;
    problem p = make(&z, PB_LISTS_EXACT), one = problem_make(&alone, PB_F32);
    problem_run(*state, &p);
    for (int b = 0; b < 3; b++) {
        memcpy(one.list, p.list + b * 260, 260 * sizeof *one.list);
        memcpy(one.until, p.until + b * 260, 260 * sizeof *one.until);
        check_part(*state, &p, &one, b, 0);
    }
    problem_drop(&p), problem_drop(&one);
}

/* Two conversations in a row, with lists that dynmask_keys makes of the biases, equal each in a row of its own. */
static void a_packed_row_equals_its_conversations(void **state)
{
    static const int begin[] = {0, 70, 150};
    const sizes z = {.B = 2, .S = 150, .S_kv = 150, .H = 4, .K = 2, .D = 32, .keep = 22};
    problem p = problem_make(&z, PB_F32);
    int32_t start[300];
    for (int t = 0; t < 300; t++) start[t] = t % 150 >= 70 ? 70 : 0;
    CHECK_OK(pb_dynmask_keys_build(*state, &(pb_dynmask_keys_build_args){.bias = p.bias,
                                                                         .start = start,
                                                                         .list = p.list,
                                                                         .until = p.until,
                                                                         .B = 2,
                                                                         .S = 150,
                                                                         .K = 2,
                                                                         .L = 150,
                                                                         .keep = 22,
                                                                         .exact = true}));
    problem_run(*state, &p);
    for (int b = 0; b < 2; b++)
        for (int c = 0; c < 2; c++) {
            const int n = begin[c + 1] - begin[c];
            const sizes alone = {.B = 1, .S = n, .S_kv = n, .H = 4, .K = 2, .D = 32, .keep = 22};
            problem one = problem_make(&alone, PB_F32);
            cut_biases(&p, &one, b, begin[c]);
            problem_list_exact(&one);
            check_part(*state, &p, &one, b, begin[c]);
            problem_drop(&one);
        }
    problem_drop(&p);
}

static void threads_do_not_change_a_bit(void **state)
{
    const sizes z = {.B = 2, .S = 200, .S_kv = 200, .H = 6, .K = 2, .D = 40, .keep = 50};
    const int most = omp_get_max_threads();
    problem one = make(&z, PB_LISTS_EXACT), more = make(&z, PB_LISTS_EXACT);
    omp_set_num_threads(1);
    problem_run(*state, &one);
    for (int n = 1; n <= 4; n++) {
        omp_set_num_threads(n);
        problem_run(*state, &more);
        check_same("other threads", &one, &more);
    }
    omp_set_num_threads(most);
    problem_drop(&one), problem_drop(&more);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_that_nobody_attends_to_may_be_nan),
        cmocka_unit_test(a_nan_key_reaches_only_queries_that_attend_to_it),
        cmocka_unit_test(queries_without_keys_give_exact_zeros),
        cmocka_unit_test(an_empty_list_gives_exact_zeros),
        cmocka_unit_test(any_pattern_of_blocks_with_work_is_right),
        cmocka_unit_test(earlier_calls_leave_no_trace),
        cmocka_unit_test(gradients_are_linear_in_do),
        cmocka_unit_test(the_scale_is_applied_once),
        cmocka_unit_test(every_batch_row_equals_that_row_alone),
        cmocka_unit_test(a_packed_row_equals_its_conversations),
        cmocka_unit_test(threads_do_not_change_a_bit),
    };
    return test_every_impl(&pb_op_dynmask_attention_fwd, tests, sizeof tests / sizeof *tests);
}
