/* ratios_test.c - tests of the metrics of ratios.def: from which two cases of a process a ratio is computed, its value,
 * and which cases get no ratio. */
#include "bench/derived/ratios.h"
#include "bench/suites/profile_level.h"
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

/* A process may have rows of several suites; kernels and attention have equal metrics and axes. */
static void another_suite_gets_no_ratio(void **state)
{
    pb_emitter e;
    (void)state;
    open_emitter(&e);
    put(&e, "kernels/swiglu_fwd?dtype=bf16&impl=avx2", "kernel_time", 1);
    put(&e, "kernels/swiglu_fwd?dtype=f32&impl=avx2", "kernel_time", 2);
    CHECK_OK(pb_ratios_conclude(&e, "attention"));
    must_lack("bf16_over_f32");
    close_emitter(&e);
}

/* Keys omit shard=none, so the other case is the one without the axis. */
static void sharded_parameters_are_divided_by_the_replicated_step(void **state)
{
    pb_emitter e;
    (void)state;
    open_emitter(&e);
    put(&e, "throughput/step?batch=1&ranks=2", "step_time", 4);
    put(&e, "throughput/step?batch=1&ranks=2&shard=parameters", "step_time", 6);
    put(&e, "throughput/step?batch=1&ranks=2&shard=optimizer", "step_time", 5);
    put(&e, "throughput/step?batch=1&ranks=2&reduce=bf16&shard=parameters", "step_time", 7);
    CHECK_OK(pb_ratios_conclude(&e, "throughput"));
    must_hold("ranks=2&shard=parameters,sharded_over_replicated,1,lower,1.5,0,ok,6 over 4");
    must_lack("shard=optimizer,sharded_over");
    must_lack("reduce=bf16&shard=parameters,sharded_over");
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

/* Each line of ratios.def whose two cases differ in one axis gives its ratio, and no other. */
static void every_line_of_the_table_gives_its_ratio(void **state)
{
    static const struct {
        const char *suite, *metric, *key, *other, *ratio;
    } lines[] = {
        {"kernels", "kernel_time", "kernels/linear_fwd?dtype=f32&impl=avx512&shape=B1", "impl=blas",
         "own_over_library"},
        {"kernels", "kernel_time", "kernels/linear_fwd?dtype=f32&impl=avx2&shape=B1", "impl=blas", "own_over_library"},
        {"kernels", "kernel_time", "kernels/linear_fwd?dtype=f32&impl=omp&shape=B1", "impl=blas", "own_over_library"},
        {"kernels", "kernel_time", "kernels/nf4_linear_dx?dtype=bf16&impl=wgmma&shape=B1", "impl=cublaslt",
         "own_over_library"},
        {"kernels", "kernel_time", "kernels/attention_bwd?dtype=bf16&impl=wgmma_ordered&shape=B1", "impl=wgmma",
         "deterministic_over_varying"},
        {"attention", "kernel_time", "attention/bwd?seq=4096&variant=deterministic", "variant=sparse",
         "deterministic_over_varying"},
        {"load", "load_time", "load/step?seq=128&tuning=qlora", "tuning=full", "nf4_over_dense"},
        {"comm", "time", "comm/all_reduce?bytes=1024&dtype=bf16", "dtype=f32", "bf16_over_f32"},
        {"backward", "backward_time", "backward/step?dtype=bf16&seq=128", "dtype=f32", "bf16_over_f32"},
        {"throughput", "step_time", "throughput/step?dtype=bf16&seq=128", "dtype=f32", "bf16_over_f32"},
        {"kernels", "kernel_time", "kernels/swiglu_fwd?dtype=bf16&impl=avx2&shape=B1", "dtype=f32", "bf16_over_f32"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char axis[32], want[256];
        pb_emitter e;
        pb_case other = case_of(lines[i].key);
        const int n = (int)strcspn(lines[i].other, "=");
        snprintf(axis, sizeof axis, "%.*s", n, lines[i].other);
        CHECK_OK(pb_case_set(&other, axis, lines[i].other + n + 1));
        pb_case_finish(&other);
        open_emitter(&e);
        put(&e, lines[i].key, lines[i].metric, 3);
        put(&e, other.key, lines[i].metric, 4);
        CHECK_OK(pb_ratios_conclude(&e, lines[i].suite));
        snprintf(want, sizeof want, "%s,%s,1,lower,0.75,0,ok,3 over 4", lines[i].key, lines[i].ratio);
        must_hold(want);
        close_emitter(&e);
    }
}

static void every_level_of_recording_is_divided_by_off(void **state)
{
    static const char *const levels[] = {
#define X(level, what) #level,
        PB_LEVEL_MAP(X)
#undef X
    };
    pb_emitter e;
    char text[80];
    (void)state;
    open_emitter(&e);
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        snprintf(text, sizeof text, "profile/step?level=%s&mode=graph", levels[i]);
        put(&e, text, "step_time", 2 + (double)i);
    }
    CHECK_OK(pb_ratios_conclude(&e, "profile"));
    for (size_t i = 1; i < sizeof levels / sizeof *levels; i++) {
        snprintf(text, sizeof text, "level=%s&mode=graph,recorded_over_off,1,lower,%g", levels[i], 1 + (double)i / 2);
        must_hold(text);
    }
    must_lack("level=off&mode=graph,recorded_over_off");
    close_emitter(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_feature_is_divided_by_the_case_without_it),
        cmocka_unit_test(only_cases_that_differ_in_the_axis_alone_are_compared),
        cmocka_unit_test(another_suite_gets_no_ratio),
        cmocka_unit_test(sharded_parameters_are_divided_by_the_replicated_step),
        cmocka_unit_test(sparse_attention_is_divided_by_dense_attention_of_its_length),
        cmocka_unit_test(every_line_of_the_table_gives_its_ratio),
        cmocka_unit_test(every_level_of_recording_is_divided_by_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
