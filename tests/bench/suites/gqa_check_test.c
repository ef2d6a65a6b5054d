/* gqa_check_test.c - tests of grouped-query attention in the suite attention: which cases it refuses, that every
 * variant passes the comparison with the reference, and which errors this comparison finds. */
#include "bench/suites/gqa_check.h"

#include "bench/suites/suite.h"
#include "tests/bench/suites/attention_cases.h"

static pb_attn_error error_of(pb_ctx *ctx, const pb_gqa_call *c)
{
    pb_attn_error e;
    CHECK_OK(pb_gqa_check(ctx, c, &e));
    return e;
}

static void must_be_right(pb_ctx *ctx, pb_gqa_call *c)
{
    char why[200];
    CHECK_OK(pb_gqa_run(ctx, c));
    const pb_attn_error e = error_of(ctx, c);
    if (!pb_attn_right(&e, why, sizeof why)) fail_msg("%s", why);
    for (int k = 0; k < PB_CHECKED && e.name[k]; k++) assert_true(e.of[k].n > 0);
}

static void must_say(pb_ctx *ctx, const pb_gqa_call *c, const char *what)
{
    char why[200] = "";
    const pb_attn_error e = error_of(ctx, c);
    assert_false(pb_attn_right(&e, why, sizeof why));
    if (!strstr(why, what)) fail_msg("'%s' does not say '%s'", why, what);
}

static pb_gqa_call open_case(pb_ctx *ctx, const char *line)
{
    const pb_attn a = sizes_of(line);
    pb_gqa_call c;
    CHECK_OK(pb_gqa_open(ctx, &a, &c));
    return c;
}

static void every_variant_and_list_is_right(void **state)
{
    static const char *const lines[] = {
        "fwd variant=dynmask list=union seq=70 heads=8 qk=32 topk=20",
        "bwd variant=dynmask list=union seq=70 heads=8 qk=32 topk=20",
        "fwd variant=dynmask list=exact seq=70 heads=8 qk=32 topk=20",
        "bwd variant=dynmask list=union seq=2100 heads=4 qk=16 topk=40", /* two chunks of tokens */
        "bwd variant=dynmask list=exact seq=70 heads=8 qk=32 topk=20 dtype=bf16",
        "bwd variant=dynmask list=union seq=3 heads=4 qk=8 topk=500",
        "fwd variant=dense_gqa list=causal seq=70 heads=8 qk=32 topk=0",
        "bwd variant=dense_gqa list=causal seq=70 heads=8 qk=32 topk=0 dtype=bf16",
    };
    for (size_t k = 0; k < sizeof lines / sizeof *lines; k++) {
        pb_gqa_call c = open_case(*state, lines[k]);
        must_be_right(*state, &c);
        pb_gqa_close(&c);
    }
}

/* Union mode: the kept keys of 60 are 10; query i attends to those up to i. Exact mode: query i attends to min(i + 1,
 * 10) keys. Dense: to i + 1. */
static void pairs_are_those_of_the_lists(void **state)
{
    pb_gqa_call c = open_case(*state, "fwd variant=dynmask list=exact seq=60 heads=4 qk=8 topk=10");
    CHECK_NEAR(c.valid, 55 + 500, 0);
    assert_true(c.listed >= 60 * 10 && c.listed <= 60 * 60);
    pb_gqa_close(&c);
    c = open_case(*state, "fwd variant=dynmask list=union seq=60 heads=4 qk=8 topk=10");
    double want = 0;
    for (int l = 0; l < 10; l++) want += 60 - c.list[l];
    CHECK_NEAR(c.valid, want, 0);
    CHECK_NEAR(c.listed, 600, 0);
    pb_gqa_close(&c);
    c = open_case(*state, "fwd variant=dense_gqa list=causal seq=60 heads=4 qk=8 topk=0");
    CHECK_NEAR(c.valid, 1830, 0);
    pb_gqa_close(&c);
}

/* One bad element is found at any index, whether the check samples it or not. */
static void one_bad_element_is_noticed(void **state)
{
    pb_gqa_call c = open_case(*state, "bwd variant=dynmask list=exact seq=70 heads=8 qk=32 topk=9");
    must_say(*state, &c, "never written, the first in dq");
    float *outs[] = {c.dq, c.dk, c.dv, c.dbias};
    const size_t at[] = {41 * 256 + 5, 33 * 64 + 7, 69 * 64 + 63, 139};
    const char *names[] = {"1 elements are not finite or never written, the first in dq", "the first in dk",
                           "the first in dv", "the first in dbias"};
    for (int k = 0; k < 4; k++) {
        must_be_right(*state, &c);
        outs[k][at[k]] = k % 2 ? (float)INFINITY : (float)NAN;
        must_say(*state, &c, names[k]);
    }
    pb_gqa_close(&c);
}

/* A tensor whose elements are all 2 % too large is found, whichever output it is. */
static void a_wrong_sum_is_noticed(void **state)
{
    pb_gqa_call c = open_case(*state, "bwd variant=dynmask list=exact seq=200 heads=8 qk=32 topk=40");
    float *outs[] = {c.dq, c.dk, c.dv, c.dbias};
    const size_t n[] = {200 * 256, 200 * 64, 200 * 64, 400};
    const char *names[] = {"dq differs", "dk differs", "dv differs", "dbias differs"};
    for (int k = 0; k < 4; k++) {
        must_be_right(*state, &c);
        for (size_t e = 0; e < n[k]; e++) outs[k][e] *= 1.02f;
        must_say(*state, &c, names[k]);
    }
    pb_gqa_close(&c);
    c = open_case(*state, "fwd variant=dynmask list=union seq=200 heads=8 qk=32 topk=40");
    must_be_right(*state, &c);
    for (size_t e = 0; e < 200 * 256; e++) ((float *)c.o)[e] *= 1.02f;
    must_say(*state, &c, "o differs");
    must_be_right(*state, &c);
    for (size_t e = 0; e < 200 * 8; e++) c.lse[e] += 0.1f;
    must_say(*state, &c, "lse differs");
    pb_gqa_close(&c);
}

static void impossible_cases_are_refused(void **state)
{
    static const char *const lines[] = {"fwd variant=dynmask list=random",
                                        "fwd variant=sparse list=union",
                                        "fwd variant=dynmask list=union heads=6 qk=64",
                                        "fwd variant=dynmask list=union heads=8 qk=512",
                                        "fwd variant=dynmask list=union heads=8 qk=64 topk=0",
                                        "fwd variant=dense_gqa list=causal heads=8 qk=64 topk=3",
                                        "fwd variant=dense_gqa list=exact heads=8 qk=64 topk=0"};
    (void)state;
    for (size_t k = 0; k < sizeof lines / sizeof *lines; k++) {
        const pb_case c = case_of(lines[k]);
        pb_attn a;
        if (pb_attn_of(&c, &a) != PB_EINVAL) fail_msg("%s is not refused", lines[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_variant_and_list_is_right), cmocka_unit_test(pairs_are_those_of_the_lists),
        cmocka_unit_test(one_bad_element_is_noticed),      cmocka_unit_test(a_wrong_sum_is_noticed),
        cmocka_unit_test(impossible_cases_are_refused),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
