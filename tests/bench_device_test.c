/* bench_device_test.c - rows that benchmarks derive on a GPU, and the machine id of a GPU machine. Needs no GPU. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/derived/bars.h"
#include "bench/derived/requirements.h"
#include "bench/machine/fingerprint.h"
#include "bench/derived/graph_gain.h"
#include "bench/run/process.h"
#include "bench/run/plan.h"
#include "bench/run/supervise.h"
#include "bench/suites/suite.h"
#include "kernels/engine/op.h"
#include "tests/sink.h"

/* ---- the crossover ---------------------------------------------------------------------------------- */

static void the_crossover_lies_between_its_neighbours(void **state)
{
    pb_gain_point p[] = {{2048, 1.01}, {128, 4}, {512, 1.85}, {8192, 1}};
    double tokens = 0;
    (void)state;
    assert_int_equal(pb_crossover(p, 4, 1.43, &tokens), PB_CROSSES);
    /* 1.43 is half way from 1.85 (at 512) to 1.01 (at 2048), and 1024 is half way between them on a log scale */
    CHECK_NEAR(tokens, 1024, 1e-9 * 1024);
}

/* A ratio that falls and recovers is not a crossover. Points of equal size are averaged. */
static void the_last_fall_counts(void **state)
{
    pb_gain_point dip[] = {{100, 2}, {200, 1}, {400, 2}, {1600, 1}}, twice[] = {{100, 1.5}, {400, 1.2}, {400, 0.8}};
    double tokens = 0;
    (void)state;
    assert_int_equal(pb_crossover(dip, 4, 1.5, &tokens), PB_CROSSES);
    CHECK_NEAR(tokens, 800, 1e-6);
    assert_int_equal(pb_crossover(twice, 3, 1.25, &tokens), PB_CROSSES);
    CHECK_NEAR(tokens, 200, 1e-6); /* halfway between 1.5 at 100 and the mean at 400, 1.0 */
}

static void a_graph_may_always_or_never_pay(void **state)
{
    pb_gain_point p[] = {{128, 1.3}, {512, 1.1}};
    double tokens = -1;
    (void)state;
    assert_int_equal(pb_crossover(p, 2, 1.05, &tokens), PB_ALWAYS_PAYS);
    assert_int_equal(pb_crossover(p, 2, 1.5, &tokens), PB_NEVER_PAYS);
    p[1].ratio = (double)NAN; /* NaN: not known to be faster */
    assert_int_equal(pb_crossover(p, 2, 1.5, &tokens), PB_NEVER_PAYS);
    CHECK_NEAR(tokens, -1, 0);
}

/* ---- emitted rows ----------------------------------------------------------------------------------- */

static void put_batch(pb_sink *s, const char *batch, const char *mode, const char *seq, const char *metric,
                      double value)
{
    pb_case c = {.suite = "backward", .name = "step"};
    CHECK_OK(pb_case_set(&c, "batch", batch));
    CHECK_OK(pb_case_set(&c, "clip", "fused"));
    CHECK_OK(pb_case_set(&c, "mode", mode));
    CHECK_OK(pb_case_set(&c, "seq", seq));
    pb_case_finish(&c);
    CHECK_OK(pb_emit(s, &c, metric, value, 1, "ok", ""));
}

static void put(pb_sink *s, const char *mode, const char *seq, const char *metric, double value)
{
    put_batch(s, "2", mode, seq, metric, value);
}

static char *results(void)
{
    static char text[1 << 18];
    char path[128];
    snprintf(path, sizeof path, "%s/results.csv", dir);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

static void a_process_says_what_its_graphs_bought(void **state)
{
    pb_sink s;
    (void)state;
    open_sink(&s);
    put(&s, "eager", "64", "backward_time", 0.004);
    put(&s, "graph", "64", "backward_time", 0.002);
    put(&s, "graph", "64", "record_time", 0.05);
    put(&s, "graph", "1024", "backward_time", 0.010);
    put(&s, "graph", "1024", "record_time", 0.05);
    put(&s, "eager", "1024", "backward_time", 0.010);
    put(&s, "graph", "4096", "backward_time", 0.040); /* there is no eager case of this length */
    CHECK_OK(pb_graph_gain_conclude(&s, "backward", "backward_time"));
    char *text = results();
    assert_non_null(strstr(text, "mode=graph&seq=64,break_even,1,none,25,0,ok"));
    assert_non_null(strstr(text, "mode=graph&seq=1024,break_even,1,none,,0,unsupported"));
    assert_null(strstr(text, "seq=4096,break_even"));
    char *row = strstr(text, "crossover/backward?clip=fused,crossover,1,none,");
    assert_non_null(row);
    CHECK_NEAR(atof(row + strlen("crossover/backward?clip=fused,crossover,1,none,")), 128 * pow(16, 0.95), 0.01);
    assert_null(strstr(row + 1, "crossover/backward")); /* one row per family */
    assert_non_null(strstr(row, "2 sizes; gain at most 2.000"));
    close(s.results);
    s.results = open("/dev/full", O_WRONLY);
    assert_true(s.results >= 0);
    CHECK_FAILS(pb_graph_gain_conclude(&s, "backward", "backward_time"), PB_EIO, "No space left");
    close_sink(&s);
}

/* Two cases of 256 tokens are one size. */
static void cases_of_one_size_count_once(void **state)
{
    static const char *const shapes[][2] = {{"1", "256"}, {"2", "128"}, {"2", "512"}};
    pb_sink s;
    (void)state;
    open_sink(&s);
    for (int i = 0; i < 3; i++) {
        put_batch(&s, shapes[i][0], "eager", shapes[i][1], "backward_time", 0.004);
        put_batch(&s, shapes[i][0], "graph", shapes[i][1], "backward_time", i < 2 ? 0.002 : 0.004);
    }
    CHECK_OK(pb_graph_gain_conclude(&s, "backward", "backward_time"));
    assert_non_null(strstr(results(), "2 sizes; gain at most 2.000"));
    close_sink(&s);
}

/* Graphs gain 2 up to 299 lengths and nothing at the 300th, the longest: no point of a crossover may be dropped. */
static void every_size_counts(void **state)
{
    pb_sink s;
    (void)state;
    open_sink(&s);
    for (int i = 1; i <= 300; i++) {
        char seq[16];
        snprintf(seq, sizeof seq, "%d", 8 * i);
        put(&s, "eager", seq, "backward_time", 0.004);
        put(&s, "graph", seq, "backward_time", i < 300 ? 0.002 : 0.004);
    }
    CHECK_OK(pb_graph_gain_conclude(&s, "backward", "backward_time"));
    char *row = strstr(results(), "crossover/backward?clip=fused,crossover,1,none,");
    assert_non_null(row);
    assert_non_null(strstr(row, "300 sizes; gain at most 2.000; of tokens a step"));
    close_sink(&s);
}

/* An id that requirements.def does not have is a programming error, and is reported as one. */
static void an_unknown_requirement_fails(void **state)
{
    pb_sink s;
    (void)state;
    open_sink(&s);
    assert_int_equal(pb_requirement_emit(&s, "NO-SUCH-ID", NULL, 0, 1, true, ""), PB_EINVAL);
    assert_non_null(strstr(pb_error(), "NO-SUCH-ID is not in requirements.def"));
    assert_null(strstr(results(), "requirement/"));
    close_sink(&s);
}

static void put_kernel(pb_sink *s, const char *op, const char *dtype, const char *impl, const char *shape,
                       const char *metric, double value)
{
    pb_case c = {.suite = "kernels"};
    snprintf(c.name, sizeof c.name, "%s", op);
    CHECK_OK(pb_case_set(&c, "dtype", dtype));
    CHECK_OK(pb_case_set(&c, "impl", impl));
    CHECK_OK(pb_case_set(&c, "shape", shape));
    pb_case_finish(&c);
    CHECK_OK(pb_emit(s, &c, metric, value, 1, "ok", ""));
}

/* A requirement is checked against the fastest implementation of its case. Cases without a requirement get no row. */
static void bars_judge_the_best_implementation(void **state)
{
    static const char shape[] = "B2.S4096.H64.K8.D128.c1.p0.n0", norm[] = "B4.S4096.D4096.a0.f0";
    pb_sink s;
    (void)state;
    open_sink(&s);
    s.machine_id = "cuda-nvidia-h200-132sm-00000000";
    put_kernel(&s, "attention_fwd", "bf16", "mma", shape, "kernel_flops", 300e12);
    put_kernel(&s, "attention_fwd", "bf16", "wgmma", shape, "kernel_flops", 550e12);
    put_kernel(&s, "attention_bwd", "bf16", "wgmma", shape, "kernel_flops", 400e12);
    put_kernel(&s, "attention_fwd", "f32", "simt", shape, "kernel_flops", 900e12);
    put_kernel(&s, "xent_bwd", "bf16", "rows", "B2.S4096.V128256", "kernel_time", 1.4e-3);
    put_kernel(&s, "xent_bwd", "bf16", "resident", "B2.S4096.V128256", "kernel_time", 1.2e-3);
    put_kernel(&s, "addnorm_fwd", "bf16", "rows", norm, "roofline_fraction", 0.91);
    put_kernel(&s, "addnorm_fwd", "bf16", "rows", "B1.S256.D576.a0.f0", "roofline_fraction", 0.2);
    CHECK_OK(pb_bars_conclude(&s, "kernels"));
    s.machine_id = "cuda-nvidia-h100-132sm-00000000";
    CHECK_OK(pb_bars_conclude(&s, "kernels"));
    char *text = results();
    assert_non_null(
        strstr(text, "h200-132sm-00000000,0,requirement/SPEED-ATTENTION-FWD?dtype=bf16&impl=wgmma&op=attention_fwd&"
                     "shape=B2.S4096.H64.K8.D128.c1.p0.n0,requirement,1,none,5.5e+14,0,pass,"));
    assert_non_null(
        strstr(text, "op=attention_bwd&shape=B2.S4096.H64.K8.D128.c1.p0.n0,requirement,1,none,4e+14,0,fail,"));
    assert_non_null(strstr(text, "impl=resident&op=xent_bwd&shape=B2.S4096.V128256,requirement,1,none,0.0012,0,pass,"));
    assert_non_null(strstr(text, "op=addnorm_fwd&shape=B4.S4096.D4096.a0.f0,requirement,1,none,0.91,0,pass,"));
    assert_null(strstr(text, "op=addnorm_fwd&shape=B1"));
    assert_null(strstr(text, "h200-132sm-00000000,0,requirement/SPEED-XENT?dtype=bf16&impl=rows"));
    assert_non_null(strstr(strstr(text, "h100-132sm-00000000,0,requirement/SPEED-XENT"), "unsupported"));
    assert_non_null(strstr(strstr(text, "h100-132sm-00000000,0,requirement/SPEED-ROOFLINE"), "0.91,0,pass"));
    close_sink(&s);
}

static void put_step(pb_sink *s, const char *key, double seconds)
{
    pb_case c;
    CHECK_OK(pb_case_parse(key, &c));
    CHECK_OK(pb_emit(s, &c, "step_time", seconds, 5, "ok", ""));
}

/* Requirements on whole steps: every axis that the requirement names must match; it does not name `clip`, so the
 * best clip counts. */
static void bars_judge_whole_steps(void **state)
{
    pb_sink s;
    (void)state;
    open_sink(&s);
    s.machine_id = "cuda-nvidia-h200-132sm-00000000";
#define AT(batch, clip, mode, seq, tuning)                                                                             \
    "throughput/step?batch=" batch "&clip=" clip "&dtype=bf16&layers=0&mode=" mode                                     \
    "&model=qwen2.5-1.5b&rank=16&seq=" seq "&targets=q+v&tuning=" tuning
    put_step(&s, AT("4", "multi", "graph", "512", "qlora"), 0.0261);
    put_step(&s, AT("4", "fused", "graph", "512", "qlora"), 0.0400);
    put_step(&s, AT("4", "multi", "eager", "512", "qlora"), 0.0200);
    put_step(&s, AT("4", "multi", "graph", "2048", "lora"), 0.0900);
    put_step(&s, AT("4", "multi", "graph", "2048", "qlora"), 0.1110);
    put_kernel(&s, "attention_fwd", "bf16", "wgmma", "B2.S4096.H64.K8.D128.c1.p0.n0", "kernel_flops", 550e12);
    CHECK_OK(pb_bars_conclude(&s, "throughput"));
    char *text = results();
    char *met = strstr(text, "requirement/SPEED-STEP-1.5B-B4-S512?batch=4&clip=multi&"), *missed;
    assert_non_null(met);
    assert_non_null(strstr(met, "mode=graph&model=qwen2.5-1.5b&rank=16&seq=512&targets=q+v&tuning=qlora,"
                                "requirement,1,none,0.0261,0,pass,"));
    missed = strstr(text, "requirement/SPEED-STEP-1.5B-B4-S2048?");
    assert_non_null(missed);
    assert_non_null(strstr(missed, ",requirement,1,none,0.111,0,fail,"));
    assert_null(strstr(text, "SPEED-STEP-1.5B-B1"));
    assert_null(strstr(text, "SPEED-ATTENTION"));
    close_sink(&s);
}

typedef struct sought {
    const pb_case *of;
    bool found;
} sought;

static pb_status look_at(void *user, const pb_case *c)
{
    sought *s = user;
    bool same = strcmp(c->suite, s->of->suite) == 0 && strcmp(c->name, s->of->name) == 0;
    for (int i = 0; i < s->of->n && same; i++) {
        const char *v = pb_case_get(c, s->of->axes[i].name);
        same = v && strcmp(v, s->of->axes[i].value) == 0;
    }
    s->found |= same;
    return PB_OK;
}

static bool in_grid_of_op(const pb_case *of)
{
    const pb_op *op = pb_op_find(of->name);
    char text[PB_AXIS_TEXT];
    for (const pb_dims *dim = op ? op->device_grid : NULL; dim && (*dim)[0]; dim++) {
        pb_dims_text(op, *dim, text, sizeof text);
        if (strcmp(text, pb_case_get(of, "shape")) == 0) return true;
    }
    return false;
}

/* A requirement whose case is in no grid would never be checked. */
static void every_bar_is_in_its_grid(void **state)
{
    const char *key;
    size_t bars = 0;
    (void)state;
    for (; (key = pb_bar_case(bars)); bars++) {
        pb_case of;
        CHECK_OK(pb_case_parse(key, &of));
        sought s = {&of, strcmp(of.suite, "kernels") == 0 && in_grid_of_op(&of)};
        const pb_suite *suite = pb_suite_find(of.suite);
        assert_non_null(suite);
        for (const char *const *line = suite->device_grid; line && *line; line++)
            CHECK_OK(pb_grid_expand(suite->name, suite->axes, *line, look_at, &s));
        if (!s.found) fail_msg("%s is not in its grid", key);
    }
    assert_true(bars > 0);
}

/* ---- planning ----------------------------------------------------------------------------------------- */

static pb_status weigh(void *user, const pb_case *c)
{
    const pb_plan p = {.device = true, .suite = pb_suite_find(c->suite)};
    const double e = pb_plan_expect(&p, c);
    if (!(e > 0.05 && e < 120)) fail_msg("%s: %g s", c->key, e);
    *(double *)user += e;
    return PB_OK;
}

/* Without an estimate a case counts as 1 s, which is wrong by a factor of 10 for a model of 1.5 billion weights. */
static void every_grid_has_an_estimate_on_a_gpu(void **state)
{
    static const struct {
        const char *suite;
        double least, most; /* seconds of the device grid */
    } want[] = {{"load", 10, 40}, {"ceiling", 3, 8}, {"self", 3, 8}};
    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const pb_suite *s = pb_suite_find(want[i].suite);
        double all = 0;
        assert_non_null(s->device_expect);
        for (const char *const *line = s->device_grid ? s->device_grid : s->grid; *line; line++)
            CHECK_OK(pb_grid_expand(s->name, s->axes, *line, weigh, &all));
        if (!(all > want[i].least && all < want[i].most)) fail_msg("%s: %g s in all", s->name, all);
    }
    for (const pb_suite *const *s = pb_suites; *s; s++)
        if ((*s)->expect && !(*s)->device_expect) fail_msg("%s: no estimate on a GPU", (*s)->name);
}

static pb_status cost_of(void *user, const pb_case *c)
{
    *(double *)user = pb_plan_expect(&(pb_plan){0}, c);
    return PB_OK;
}

static void more_work_takes_longer_on_the_cpu(void **state)
{
    static const struct {
        const char *suite, *less, *more;
    } pairs[] = {
        {"backward", "batch=1", "batch=4"},
        {"backward", "tuning=lora", "tuning=full"}, /* also gradients of the frozen weights */
        {"attention", "fwd topk=32", "fwd topk=128"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const pb_suite *s = pb_suite_find(pairs[i].suite);
        double less = 0, more = 0;
        CHECK_OK(pb_grid_expand(s->name, s->axes, pairs[i].less, cost_of, &less));
        CHECK_OK(pb_grid_expand(s->name, s->axes, pairs[i].more, cost_of, &more));
        if (!(less > 0 && more > less))
            fail_msg("%s: %s %g s, %s %g s", s->name, pairs[i].less, less, pairs[i].more, more);
    }
}

static pb_status check_of(void *user, const pb_case *c)
{
    const pb_suite *s = user;
    return s->check(c);
}

static void a_word_that_an_axis_lacks_is_refused(void **state)
{
    const pb_suite *s = pb_suite_find("backward");
    (void)state;
    CHECK_OK(pb_grid_expand(s->name, s->axes, "clip=sync", check_of, (void *)s));
    CHECK_FAILS(pb_grid_expand(s->name, s->axes, "clip=odd", check_of, (void *)s), PB_EINVAL, "axis clip: 'odd'");
}

/* A case that is stuck gets SIGTERM at the deadline and SIGKILL PB_GRACE seconds later; both lie within the budget. */
static void a_budget_reserves_the_grace(void **state)
{
    (void)state;
    for (int i = 0; i < 90; i++) {
        const double budget = 24 * pow(1.1, i);
        const double reserve = 1000 + budget - pb_budget_deadline(1000, budget);
        assert_true(reserve >= PB_GRACE + 0.999 && reserve < 10.001);
    }
    CHECK_NEAR(pb_budget_deadline(7, 100), 7 + 94, 1e-9);
    CHECK_NEAR(pb_budget_deadline(7, 160), 7 + 152, 1e-9);
    CHECK_NEAR(pb_budget_deadline(7, 3600), 7 + 3590, 1e-9);
    CHECK_NEAR(pb_budget_deadline(7, 2), 7 + 1.5, 1e-9); /* a short budget keeps three quarters to measure in */
}

/* ---- the machine -------------------------------------------------------------------------------------- */

static void name_of(const pb_device_facts *f, const char *cpu, char id[PB_MACHINE_TEXT])
{
    json_t *o = json_pack("{s:{s:s,s:s},s:{}}", "hard", "device", "cuda", "cpu", cpu, "soft");
    pb_fingerprint_gpu(json_object_get(o, "hard"), json_object_get(o, "soft"), f);
    pb_machine_id(o, id);
    json_decref(o);
}

static void a_gpu_names_its_machine(void **state)
{
    pb_device_facts f = {.name = "NVIDIA H200", .multiprocessors = 132, .capability = 90, .memory = 150120169472u};
    char id[PB_MACHINE_TEXT], same[PB_MACHINE_TEXT], other[PB_MACHINE_TEXT];
    (void)state;
    name_of(&f, "Xeon", id);
    assert_int_equal(strncmp(id, "cuda-nvidia-h200-132sm-", 23), 0);
    f.driver = 13000, f.clock_hz = 1.98e9; /* changes only "soft" facts: the machine id stays the same */
    name_of(&f, "Xeon", same);
    assert_string_equal(id, same);
    name_of(&f, "EPYC", other);
    assert_string_not_equal(id, other);
    f.memory = (size_t)80 << 30;
    name_of(&f, "Xeon", other);
    assert_string_not_equal(id, other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_crossover_lies_between_its_neighbours),
        cmocka_unit_test(the_last_fall_counts),
        cmocka_unit_test(a_graph_may_always_or_never_pay),
        cmocka_unit_test(a_process_says_what_its_graphs_bought),
        cmocka_unit_test(cases_of_one_size_count_once),
        cmocka_unit_test(every_size_counts),
        cmocka_unit_test(an_unknown_requirement_fails),
        cmocka_unit_test(bars_judge_the_best_implementation),
        cmocka_unit_test(bars_judge_whole_steps),
        cmocka_unit_test(every_bar_is_in_its_grid),
        cmocka_unit_test(every_grid_has_an_estimate_on_a_gpu),
        cmocka_unit_test(more_work_takes_longer_on_the_cpu),
        cmocka_unit_test(a_word_that_an_axis_lacks_is_refused),
        cmocka_unit_test(a_budget_reserves_the_grace),
        cmocka_unit_test(a_gpu_names_its_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
