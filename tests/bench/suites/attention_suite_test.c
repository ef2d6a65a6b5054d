/* attention_suite_test.c - tests of the suite attention: which errors its comparison with the reference finds, which
 * rows of requirements and crossovers it derives, and one case from measurement to result rows. */
#include <unistd.h>

#include "bench/suites/attention_requirements.h"
#include "bench/derived/attention_crossover.h"
#include "bench/suites/suite.h"
#include "kernels/engine/op.h"
#include "bench/suites/step_ratios.h"
#include "tests/bench/suites/attention_cases.h"
#include "tests/bench/emitter.h"

/* ---- errors that the comparison with the reference must find ------------------------------------------------ */

static pb_deviation deviation(int n, const double *want, const double *got)
{
    pb_deviation d = {0};
    for (int i = 0; i < n; i++) pb_deviation_add(&d, want[i], got[i]);
    return d;
}

static void deviations_are_those_of_their_formulas(void **state)
{
    const double want[] = {3, 4}, got[] = {3, 5}, zero[] = {0, 0}, nan[] = {(double)NAN, 4};
    pb_deviation d = deviation(2, want, got);
    (void)state;
    CHECK_NEAR(pb_deviation_rel(&d), 0.2, 1e-15);
    CHECK_NEAR(pb_deviation_most(&d), 1 / sqrt(12.5), 1e-15);
    CHECK_NEAR(pb_deviation_rel_diff(&d), 1 - 2 * 29.0 / 59, 1e-15);
    d = deviation(2, zero, zero);
    CHECK_NEAR(pb_deviation_rel(&d) + pb_deviation_most(&d) + pb_deviation_rel_diff(&d), 0, 0);
    d = deviation(2, want, nan);
    assert_true(isnan(pb_deviation_rel(&d)) && isnan(pb_deviation_most(&d)) && isnan(pb_deviation_rel_diff(&d)));
    d = deviation(2, nan, want);
    assert_true(isnan(pb_deviation_rel(&d)) && isnan(pb_deviation_most(&d)) && isnan(pb_deviation_rel_diff(&d)));
}

static pb_attn_error error_of(pb_ctx *ctx, pb_attn_call *c)
{
    pb_attn_error e;
    CHECK_OK(pb_attn_check(ctx, c, &e));
    return e;
}

static void must_be_right(pb_ctx *ctx, pb_attn_call *c)
{
    char why[200];
    CHECK_OK(pb_attn_run(ctx, c));
    const pb_attn_error e = error_of(ctx, c);
    if (!pb_attn_right(&e, why, sizeof why)) fail_msg("%s", why);
    for (int k = 0; k < PB_CHECKED && e.name[k]; k++) assert_true(e.of[k].n > 0);
}

static void must_say(pb_ctx *ctx, pb_attn_call *c, const char *what)
{
    char why[200] = "";
    const pb_attn_error e = error_of(ctx, c);
    assert_false(pb_attn_right(&e, why, sizeof why));
    if (!strstr(why, what)) fail_msg("'%s' does not say '%s'", why, what);
}

static void every_variant_and_list_is_right(void **state)
{
    static const char *const lines[] = {
        "fwd seq=70 heads=3 qk=32 topk=20",
        "bwd seq=70 heads=3 qk=32 topk=20",
        "bwd seq=70 heads=3 qk=32 topk=20 dtype=bf16",
        "bwd seq=70 heads=3 qk=32 topk=20 masked=75",
        "bwd seq=70 heads=3 qk=32 topk=20 masked=100",
        "fwd seq=70 heads=3 qk=32 topk=20 masked=100",
        "bwd seq=300 heads=2 qk=32 topk=150 list=v4",
        "fwd seq=300 heads=2 qk=576 topk=40 list=causal",
        "bwd seq=70 heads=3 qk=576 topk=20 list=causal",
        "fwd seq=70 heads=3 qk=32 topk=0 variant=dense list=causal",
        "bwd seq=70 heads=3 qk=32 topk=0 variant=dense list=causal",
        "bwd seq=70 heads=3 qk=32 topk=9 variant=dense list=causal",
        "bwd seq=3 heads=2 qk=32 topk=9 variant=deterministic",
    };
    for (size_t k = 0; k < sizeof lines / sizeof *lines; k++) {
        const pb_attn a = sizes_of(lines[k]);
        pb_attn_call c;
        CHECK_OK(pb_attn_open(*state, &a, &c));
        must_be_right(*state, &c);
        pb_attn_close(&c);
    }
}

/* One bad element is found at any index, whether the check samples that row or not, and whether a list names it or
 * not. */
static void one_bad_element_is_noticed(void **state)
{
    const pb_attn a = sizes_of("bwd seq=70 heads=3 qk=32 topk=1");
    pb_attn_call c;
    CHECK_OK(pb_attn_open(*state, &a, &c));
    must_say(*state, &c, "never written, the first in dq");
    float *outs[] = {c.dq, c.dkv, c.dsink};
    const size_t at[] = {41 * 96 + 5, 33 * 32 + 7, 1};
    const char *names[] = {"1 elements are not finite or never written, the first in dq", "the first in dkv",
                           "the first in dsink"};
    for (int k = 0; k < 3; k++) {
        must_be_right(*state, &c);
        outs[k][at[k]] = k % 2 ? (float)INFINITY : (float)NAN;
        must_say(*state, &c, names[k]);
    }
    pb_attn_close(&c);
}

/* A gradient (dq, dkv or dsink) whose elements are all 2 % too large, or one of them, is found. */
static void a_wrong_sum_is_noticed(void **state)
{
    const pb_attn a = sizes_of("bwd seq=200 heads=3 qk=32 topk=40 dtype=bf16");
    pb_attn_call c;
    CHECK_OK(pb_attn_open(*state, &a, &c));
    must_be_right(*state, &c);
    for (size_t i = 0; i < (size_t)a.S * a.H * a.D; i++) pb_store(c.dq, i, PB_BF16, 1.02 * pb_load(c.dq, i, PB_BF16));
    must_say(*state, &c, "dq differs");
    must_be_right(*state, &c);
    for (size_t i = 0; i < (size_t)a.S_kv * a.D; i++) pb_store(c.dkv, i, PB_BF16, 1.02 * pb_load(c.dkv, i, PB_BF16));
    must_say(*state, &c, "dkv differs");
    must_be_right(*state, &c);
    c.dsink[2] *= 1.02f;
    must_say(*state, &c, "dsink differs");
    pb_attn_close(&c);
}

/* When one query is missing from the sum of a dkv row, the error is found. */
static void a_lost_query_is_noticed(void **state)
{
    const pb_attn a = sizes_of("bwd seq=64 heads=2 qk=32 topk=64");
    pb_attn_call c;
    CHECK_OK(pb_attn_open(*state, &a, &c));
    /* changes the device's copy of the list only; the reference keeps its own */
    for (int w = 0; w < a.W; w++) c.idx[17 * 64 + w] = -1;
    CHECK_OK(pb_attn_run(*state, &c));
    must_say(*state, &c, "dkv differs");
    pb_attn_close(&c);
}

/* ---- rows for requirements and crossovers ------------------------------------------------------------------- */

static void must_hold(const char *text)
{
    if (!strstr(results(), text)) fail_msg("no '%s' in\n%s", text, results());
}

static void must_lack(const char *text)
{
    if (strstr(results(), text)) fail_msg("'%s' in\n%s", text, results());
}

#define SHAPE "heads=64 topk=640 seq=1280"
static pb_attn_error right_error(void)
{
    const double x[] = {1, -2}, y[] = {1.0001, -2};
    pb_attn_error e = {.name = {"dq", "dkv", "dsink"}, .bad_in = NULL};
    for (int k = 0; k < PB_CHECKED; k++) e.of[k] = deviation(2, x, y);
    return e;
}

static void requirements(const char *line, const pb_attn_error *e, pb_emitter *s)
{
    const pb_case c = case_of(line);
    const pb_attn a = sizes_of(line);
    CHECK_OK(pb_attn_requirements(s, &c, &a, e));
}

static void a_planted_nan_breaks_the_requirements(void **state)
{
    pb_attn_error e = right_error();
    const double x[] = {1, -2}, off[] = {1.012, -2};
    pb_emitter s;
    (void)state;
    open_emitter(&s);
    requirements("bwd dtype=f32 " SHAPE, &e, &s);
    requirements("bwd dtype=bf16 heads=32 topk=640 seq=1280", &e, &s);
    must_lack("requirement/");
    requirements("bwd dtype=bf16 " SHAPE, &e, &s);
    must_hold("requirement/MLA-FINITE?dtype=bf16&heads=64&list=random&masked=0&pass=bwd&qk=512&seq=1280&topk=640&"
              "variant=sparse,requirement,1,none,0,0,pass,");
    must_hold("topk=640&variant=sparse,requirement,1,none,9.99980099e-10,0,pass,"); /* MLA-REL-DIFF-Q: 1e-8 / 10.0002 */
    must_lack(",fail,");
    e.bad = 1, e.bad_in = "dkv";
    requirements("bwd dtype=bf16 masked=75 " SHAPE, &e, &s);
    must_hold("masked=75&pass=bwd&qk=512&seq=1280&topk=640&variant=sparse,requirement,1,none,1,0,fail,");
    must_hold("the first in dkv");
    e = right_error();
    pb_deviation_add(&e.of[0], 1, (double)NAN);
    requirements("bwd dtype=bf16 variant=deterministic " SHAPE, &e, &s);
    must_hold("MLA-REL-DIFF-Q?dtype=bf16&heads=64&list=random&masked=0&pass=bwd&qk=512&seq=1280&topk=640&"
              "variant=deterministic,requirement,1,none,,0,fail,");
    e = right_error();
    /* relative difference 1.44e-4 / 10.024: above the limit of MLA-REL-DIFF-Q, below that of MLA-REL-DIFF-KV */
    e.of[0] = e.of[2] = deviation(2, x, off);
    requirements("bwd dtype=bf16 masked=100 " SHAPE, &e, &s);
    must_hold(
        "MLA-REL-DIFF-Q?dtype=bf16&heads=64&list=random&masked=100&pass=bwd&qk=512&seq=1280&topk=640&variant=sparse,"
        "requirement,1,none,1.43653164e-05,0,fail");
    must_hold(
        "MLA-REL-DIFF-KV?dtype=bf16&heads=64&list=random&masked=100&pass=bwd&qk=512&seq=1280&topk=640&variant=sparse,"
        "requirement,1,none,1.43653164e-05,0,pass");
    close_emitter(&s);
}

static void put(pb_emitter *s, const char *line, double seconds)
{
    const pb_case c = case_of(line);
    CHECK_OK(pb_emit(s, &c, "kernel_time", seconds, 1, PB_ROW_OK, ""));
}

static void a_process_says_from_where_sparse_is_faster(void **state)
{
    pb_emitter s;
    (void)state;
    open_emitter(&s);
#define D "variant=dense list=causal topk=0 seq="
    put(&s, "fwd " D "1024", 1), put(&s, "fwd " D "4096", 16), put(&s, "bwd " D "1024", 2),
        put(&s, "bwd " D "4096", 32);
    /* dense/sparse ratios: 1.5 at 1024, 0.5 at 4096; the crossover is half way between them, in log scale */
    put(&s, "fwd topk=64 seq=1024", 1.5), put(&s, "fwd topk=64 seq=4096", 8);
    put(&s, "bwd topk=64 seq=1024", 1), put(&s, "bwd topk=64 seq=4096", 4);
    put(&s, "fwd topk=512 seq=1024", 3), put(&s, "fwd topk=512 seq=4096", 17);
    put(&s, "fwd topk=512 seq=8192", 9);              /* not used: no dense case has this length */
    put(&s, "fwd topk=512 seq=2048 masked=75", 1e-3); /* not used: a case with masked slots, which no real model has */
    put(&s, "fwd variant=deterministic topk=512 seq=1024", 9);
    put(&s, "fwd topk=2048 seq=1024", 9); /* only one length: no crossover */
    CHECK_OK(pb_attn_crossovers(&s));
    must_hold("crossover/attention?dtype=f32&heads=8&list=random&pass=fwd&qk=512&topk=64,sparse_from,1,none,2048,0,ok,"
              "\"2 lengths from 1024 to 4096; interpolated; dense is faster below, sparse above\"");
    must_hold("pass=bwd&qk=512&topk=64,sparse_from,1,none,,0,unsupported,2 lengths from 1024 to 4096; sparse is faster "
              "at every length");
    /* pass=both adds the times of forward and backward: sparse 2.5 and dense 3 at 1024, sparse 12 and dense 48 at
     * 4096 */
    must_hold("pass=both&qk=512&topk=64,sparse_from,1,none,,0,unsupported,");
    must_hold("pass=fwd&qk=512&topk=512,sparse_from,1,none,,0,unsupported,2 lengths from 1024 to 4096; dense is still "
              "faster at the longest length");
    must_lack("pass=both&qk=512&topk=512");
    must_lack("topk=2048,sparse_from");
    assert_null(strstr(strstr(results(), "pass=fwd&qk=512&topk=64") + 1, "pass=fwd&qk=512&topk=64")); /* one row */
    close_emitter(&s);
}

static void without_cases_there_is_no_crossover(void **state)
{
    pb_emitter s;
    (void)state;
    open_emitter(&s);
    CHECK_OK(pb_attn_crossovers(&s));
    must_lack("crossover");
    close_emitter(&s);
}

static void put_step(pb_emitter *s, const char *model, const char *attention, const char *seq, const char *metric,
                     double v)
{
    pb_case c = {.suite = "throughput", .name = "step"};
    CHECK_OK(pb_case_set(&c, "attention", attention));
    CHECK_OK(pb_case_set(&c, "model", model));
    CHECK_OK(pb_case_set(&c, "seq", seq));
    pb_case_finish(&c);
    CHECK_OK(pb_emit(s, &c, metric, v, 1, PB_ROW_OK, ""));
}

static void a_v4_step_is_dense_over_sparse(void **state)
{
    pb_emitter s;
    (void)state;
    open_emitter(&s);
    put_step(&s, "v4-flash-layer", "sparse", "1024", "step_time", 0.05); /* no dense case has this length */
    put_step(&s, "v4-tiny", "dense", "4096", "step_time", 1), put_step(&s, "v4-tiny", "sparse", "4096", "step_time", 2);
    CHECK_OK(pb_step_ratios_conclude(&s));
    must_hold("requirement/V4-STEP,requirement,1,none,,0,unsupported,");
    must_hold("this run has not measured its step with both dense and sparse attention");
    put_step(&s, "v4-flash-layer", "dense", "4096", "step_time", 0.100);
    put_step(&s, "v4-flash-layer", "dense", "4096", "model_flops", 4e14);
    put_step(&s, "v4-flash-layer", "sparse", "4096", "step_time", 0.080);
    put_step(&s, "v4-flash-layer", "sparse", "4096", "model_flops", 3e14);
    put_step(&s, "v4-flash-layer", "dense", "1024", "step_time", 0.02);
    CHECK_OK(pb_step_ratios_conclude(&s));
    must_hold("requirement/V4-STEP?attention=sparse&model=v4-flash-layer&seq=4096,requirement,1,none,1.25,0,pass,");
    must_hold("dense 100 ms, 400 TFLOP/s; sparse 80 ms, 300 TFLOP/s");
    must_hold("requirement/V4-STEP?attention=sparse&model=v4-flash-layer&seq=1024,requirement,1,none,0.4,0,fail,");
    must_lack("V4-STEP?attention=sparse&model=v4-tiny");
    close_emitter(&s);
}

static void a_guard_is_on_over_off(void **state)
{
    static const char *const guards[] = {"off", "on"};
    pb_emitter s;
    (void)state;
    open_emitter(&s);
    for (int i = 0; i < 4; i++) { /* 1.02 of NorMuon; AdamW has no guard, whatever its case says */
        pb_case c = {.suite = "throughput", .name = "step"};
        CHECK_OK(pb_case_set(&c, "guard", guards[i % 2]));
        CHECK_OK(pb_case_set(&c, "optimizer", i < 2 ? "normuon" : "adamw"));
        pb_case_finish(&c);
        CHECK_OK(pb_emit(&s, &c, "step_time", i % 2 ? 0.102 : 0.1, 1, PB_ROW_OK, ""));
    }
    /* a ratio is emitted after all cases, with the key of one of them */
    pb_case first = {.suite = "throughput", .name = "step"};
    CHECK_OK(pb_case_set(&first, "guard", "off"));
    CHECK_OK(pb_case_set(&first, "optimizer", "normuon"));
    pb_case_finish(&first);
    CHECK_OK(pb_emit(&s, &first, "graph_over_eager", 1.1, 1, PB_ROW_OK, ""));
    CHECK_OK(pb_step_ratios_conclude(&s));
    must_hold("requirement/NAN-GUARD?guard=off&optimizer=normuon,requirement,1,none,1.02,0,fail,");
    assert_null(strstr(strstr(results(), "NAN-GUARD?") + 1, "NAN-GUARD?")); /* one row */
    must_hold("on 102 ms");
    must_lack("NAN-GUARD?guard=off&optimizer=adamw");
    close_emitter(&s);
}

/* ---- a case from end to end; when `plant` is set, the pass leaves a NaN in its output -------------------------- */

static bool plant;
pb_status __real_pb_attn_run(pb_ctx *ctx, void *call);
pb_status __wrap_pb_attn_run(pb_ctx *ctx, void *call);
pb_status __wrap_pb_attn_run(pb_ctx *ctx, void *call)
{
    const pb_attn_call *c = call;
    PB_TRY(__real_pb_attn_run(ctx, call));
    if (plant) ((float *)c->dkv)[3] = (float)NAN;
    return PB_OK;
}

static void ceiling(pb_emitter *s, const char *key, const char *metric, double value)
{
    pb_case c;
    CHECK_OK(pb_case_parse(key, &c));
    CHECK_OK(pb_emit(s, &c, metric, value, 1, PB_ROW_OK, ""));
}

static void a_case_has_its_rows(void **state)
{
    const pb_case c = case_of("bwd seq=40 heads=2 qk=16 topk=8");
    pb_emitter s;
    open_emitter(&s);
    pb_suite_env env = {.emitter = &s, .asked = {.warmup = 1, .samples = 2}};
    CHECK_OK(pb_suite_attention.run(*state, &c, &env));
    must_hold(",roofline_fraction,1,higher,,0,unsupported,this process has no ceilings");
    ceiling(&s, "ceiling/copy", "copy_rate", 1e3), ceiling(&s, "ceiling/matmul", "matmul_rate", 1e3);
    CHECK_OK(pb_suite_attention.run(*state, &c, &env));
    double time = 0, flops = 0, share = 0;
    assert_true(pb_emitted_value(&s, c.key, "kernel_time", &time) &&
                pb_emitted_value(&s, c.key, "kernel_flops", &flops));
    assert_true(pb_emitted_value(&s, c.key, "roofline_fraction", &share));
    must_hold("of listed pairs, 100.0 % of them valid");
    must_hold(",roofline_fraction,1,higher,");
    must_hold(",0,ok,matrix products");
    must_hold(",rel_diff,1,none,");
    close_emitter(&s);
}

static void a_wrong_case_has_no_time(void **state)
{
    const pb_case c = case_of("bwd seq=40 heads=2 qk=16 topk=8");
    pb_emitter s;
    open_emitter(&s);
    pb_suite_env env = {.emitter = &s, .asked = {.min_time = -1}};
    plant = true;
    const pb_status ran = pb_suite_attention.run(*state, &c, &env);
    plant = false;
    CHECK_OK(ran);
    must_hold(",error,1,none,");
    must_hold(",wrong,\"1 elements are not finite or never written, the first in dkv\"");
    must_lack("kernel_time");
    close_emitter(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deviations_are_those_of_their_formulas),
        cmocka_unit_test(every_variant_and_list_is_right),
        cmocka_unit_test(one_bad_element_is_noticed),
        cmocka_unit_test(a_wrong_sum_is_noticed),
        cmocka_unit_test(a_lost_query_is_noticed),
        cmocka_unit_test(a_planted_nan_breaks_the_requirements),
        cmocka_unit_test(a_process_says_from_where_sparse_is_faster),
        cmocka_unit_test(without_cases_there_is_no_crossover),
        cmocka_unit_test(a_v4_step_is_dense_over_sparse),
        cmocka_unit_test(a_guard_is_on_over_off),
        cmocka_unit_test(a_case_has_its_rows),
        cmocka_unit_test(a_wrong_case_has_no_time),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
