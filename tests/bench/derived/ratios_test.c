/* ratios_test.c - the ratios of two cases of one process: which cases form one, its value, and what has none. */
#include "bench/derived/ratios.h"
#include "tests/bench/emitter.h"

static pb_case case_of(const char *key)
{
    pb_case c;
    CHECK_OK(pb_case_parse(key, &c));
    return c;
}

static void put(pb_emitter *e, const char *key, const char *metric, double value)
{
    const pb_case c = case_of(key);
    CHECK_OK(pb_emit(e, &c, metric, value, 1, PB_ROW_OK, ""));
}

static void must_hold(const char *text)
{
    if (!strstr(results(), text)) fail_msg("'%s' is not in\n%s", text, results());
}

static void must_lack(const char *text)
{
    if (strstr(results(), text)) fail_msg("'%s' is in\n%s", text, results());
}

static void each_feature_is_divided_by_the_case_without_it(void **state)
{
    pb_emitter e;
    (void)state;
    open_emitter(&e);
    put(&e, "backward/step?batch=1&clip=sync&mode=eager", "backward_time", 4);
    put(&e, "backward/step?batch=1&clip=fused&mode=eager", "backward_time", 3);
    put(&e, "backward/step?batch=1&clip=fused&mode=graph", "backward_time", 1.5);
    put(&e, "backward/step?batch=1&clip=multi&mode=eager", "backward_time", 1);
    CHECK_OK(pb_ratios_conclude(&e, "backward"));
    must_hold("clip=fused&mode=graph,graph_over_eager,1,lower,0.5,0,ok,1.5 over 3");
    must_hold("clip=fused&mode=eager,clip_over_sync,1,lower,0.75,0,ok,3 over 4");
    must_hold("clip=multi&mode=eager,clip_over_sync,1,lower,0.25,0,ok,1 over 4");
    must_lack("clip=sync&mode=eager,clip_over_sync");
    must_lack("mode=graph,clip_over_sync"); /* no graph was measured with clip=sync */
    must_lack("mode=eager,graph_over_eager");
    close_emitter(&e);
}

static void only_cases_that_differ_in_the_axis_alone_are_compared(void **state)
{
    pb_emitter e;
    (void)state;
    open_emitter(&e);
    put(&e, "backward/step?batch=1&clip=fused&mode=eager", "backward_time", 3);
    put(&e, "backward/step?batch=2&clip=fused&mode=graph", "backward_time", 2);
    put(&e, "throughput/step?batch=1&clip=multi&mode=eager", "step_time", 3);
    put(&e, "throughput/step?batch=1&clip=multi&mode=graph", "step_time", 1);
    CHECK_OK(pb_ratios_conclude(&e, "backward"));
    must_lack("_over_");
    CHECK_OK(pb_ratios_conclude(&e, "throughput"));
    must_hold("throughput/step?batch=1&clip=multi&mode=graph,graph_over_eager,1,lower,0.333333333,0,ok,1 over 3");
    close_emitter(&e);
}

static void sparse_attention_is_divided_by_dense_attention_of_its_length(void **state)
{
    pb_emitter e;
    (void)state;
    open_emitter(&e);
#define CASE(list, seq, topk, variant)                                                                                 \
    "attention/fwd?dtype=bf16&heads=8&list=" list "&masked=0&qk=512&seq=" seq "&topk=" topk "&variant=" variant
    put(&e, CASE("causal", "1024", "0", "dense"), "kernel_time", 2);
    put(&e, CASE("causal", "4096", "0", "dense"), "kernel_time", 32);
    put(&e, CASE("random", "4096", "64", "sparse"), "kernel_time", 8);
    put(&e, CASE("random", "8192", "64", "sparse"), "kernel_time", 9);
    CHECK_OK(pb_ratios_conclude(&e, "attention"));
    must_hold("seq=4096&topk=64&variant=sparse,sparse_over_dense,1,lower,0.25,0,ok,8 over 32");
    must_lack("seq=8192&topk=64&variant=sparse,sparse_over_dense");
    close_emitter(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_feature_is_divided_by_the_case_without_it),
        cmocka_unit_test(only_cases_that_differ_in_the_axis_alone_are_compared),
        cmocka_unit_test(sparse_attention_is_divided_by_dense_attention_of_its_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
