/* requirements_test.c - tests of the verdicts on requirements: on measured cases and on ratios of two cases. The rows
 * are made up to look like those of a GPU, so no GPU is needed. */
#include <string.h>

#include "bench/derived/requirements.h"
#include "bench/rows/metric.h"
#include "bench/suites/plan.h"
#include "bench/suites/suite.h"
#include "kernels/engine/op.h"
#include "tests/bench/emitter.h"

/* An id that requirements.def does not have is a programming error, and is reported as one. */
static void an_unknown_requirement_fails(void **state)
{
    pb_emitter s;
    (void)state;
    open_emitter(&s);
    assert_int_equal(pb_requirement_emit(&s, "NO-SUCH-ID", NULL, 0, 1, true, ""), PB_EINVAL);
    assert_non_null(strstr(pb_error(), "NO-SUCH-ID is not in requirements.def"));
    assert_null(strstr(results(), "requirement/"));
    close_emitter(&s);
}

static void put_rate(pb_emitter *s, const char *tuning, const char *seq, const char *mode, const char *clip,
                     double rate)
{
    pb_case c = {.suite = "backward", .name = "step"};
    const char *const axes[][2] = {{"batch", "4"}, {"clip", clip}, {"mode", mode}, {"seq", seq}, {"tuning", tuning}};
    for (int i = 0; i < 5; i++) CHECK_OK(pb_case_set(&c, axes[i][0], axes[i][1]));
    pb_case_finish(&c);
    CHECK_OK(pb_emit(s, &c, "tokens_per_second", rate, 1, PB_ROW_OK, ""));
}

/* LoRA and QLoRA each get a verdict from their own cases; tuning=full and seq=128 get no row of the requirement. */
static void ratios_are_judged_per_tuning(void **state)
{
    pb_ctx gpu = {.be = &pb_backend_cuda, .id = PB_CUDA}; /* only its name and id are read */
    static const char *const rows[] = {
        "003a?batch=4&clip=fused&mode=graph&seq=512&tuning=lora,requirement,1,none,1.2,0,pass,",
        "003b?batch=4&clip=fused&mode=graph&seq=512&tuning=lora,requirement,1,none,2.4,0,pass,",
        "003a?batch=4&clip=fused&mode=graph&seq=512&tuning=qlora,requirement,1,none,1.05,0,fail,",
        "003b?batch=4&clip=fused&mode=graph&seq=512&tuning=qlora,requirement,1,none,1.5,0,pass,"};
    pb_emitter s;
    (void)state;
    open_emitter(&s);
    put_rate(&s, "lora", "512", "graph", "fused", 1200), put_rate(&s, "lora", "512", "eager", "fused", 1000);
    put_rate(&s, "lora", "512", "eager", "sync", 500), put_rate(&s, "qlora", "512", "graph", "fused", 1050);
    put_rate(&s, "qlora", "512", "eager", "fused", 1000), put_rate(&s, "qlora", "512", "eager", "sync", 700);
    put_rate(&s, "full", "512", "graph", "fused", 900), put_rate(&s, "full", "512", "eager", "fused", 1000);
    put_rate(&s, "qlora", "128", "graph", "fused", 900), put_rate(&s, "qlora", "128", "eager", "fused", 1000);
    CHECK_OK(pb_requirement_ratios(&gpu, &s));
    char *text = results();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strstr(text, rows[i])) fail_msg("no row %s", rows[i]);
    assert_null(strstr(strstr(text, "requirement/"), "tuning=full"));
    assert_null(strstr(strstr(text, "requirement/"), "seq=128"));
    close_emitter(&s);
}

/* The requirement's row is `unsupported` for a tuning that was not measured, and for a row length that the requirement
 * does not cover; the latter's note gives the length and the ratio. */
static void ratios_of_other_runs_are_unsupported(void **state)
{
    pb_ctx gpu = {.be = &pb_backend_cuda, .id = PB_CUDA};
    pb_emitter s;
    (void)state;
    open_emitter(&s);
    put_rate(&s, "qlora", "128", "graph", "fused", 1500), put_rate(&s, "qlora", "128", "eager", "fused", 1000);
    CHECK_OK(pb_requirement_ratios(&gpu, &s));
    char *text = results();
    assert_non_null(strstr(text, "003a?tuning=lora,requirement,1,none,,0,unsupported,"));
    assert_non_null(strstr(text, "003b?tuning=lora,requirement,1,none,,0,unsupported,"));
    char *row =
        strstr(text, "003a?batch=4&clip=fused&mode=graph&seq=128&tuning=qlora,requirement,1,none,1.5,0,unsupported,");
    assert_non_null(row);
    assert_non_null(strstr(row, "here cuda, seq 128: 1.500"));
    close_emitter(&s);
}

static void put_kernel(pb_emitter *s, const char *op, const char *dtype, const char *impl, const char *shape,
                       const char *metric, double value)
{
    pb_case c = {.suite = "kernels"};
    snprintf(c.name, sizeof c.name, "%s", op);
    CHECK_OK(pb_case_set(&c, "dtype", dtype));
    CHECK_OK(pb_case_set(&c, "impl", impl));
    CHECK_OK(pb_case_set(&c, "shape", shape));
    pb_case_finish(&c);
    CHECK_OK(pb_emit(s, &c, metric, value, 1, PB_ROW_OK, ""));
}

/* A requirement is checked against the fastest implementation of its case. Cases without a requirement get no row. */
static void the_best_implementation_is_judged(void **state)
{
    static const char shape[] = "B2.S4096.H64.K8.D128.c1.p0.n0", norm[] = "B4.S4096.D4096.a0.f0";
    pb_emitter s;
    (void)state;
    open_emitter(&s);
    s.machine_id = "cuda-nvidia-h200-132sm-00000000";
    put_kernel(&s, "attention_fwd", "bf16", "mma", shape, "kernel_flops", 300e12);
    put_kernel(&s, "attention_fwd", "bf16", "wgmma", shape, "kernel_flops", 550e12);
    put_kernel(&s, "attention_bwd", "bf16", "wgmma", shape, "kernel_flops", 400e12);
    put_kernel(&s, "attention_fwd", "f32", "simt", shape, "kernel_flops", 900e12);
    put_kernel(&s, "xent_bwd", "bf16", "rows", "B2.S4096.V128256", "kernel_time", 1.4e-3);
    put_kernel(&s, "xent_bwd", "bf16", "resident", "B2.S4096.V128256", "kernel_time", 1.2e-3);
    put_kernel(&s, "addnorm_fwd", "bf16", "rows", norm, "roofline_fraction", 0.91);
    put_kernel(&s, "addnorm_fwd", "bf16", "rows", "B1.S256.D576.a0.f0", "roofline_fraction", 0.2);
    CHECK_OK(pb_requirements_conclude(&s, "kernels", NULL));
    s.machine_id = "cuda-nvidia-h100-132sm-00000000";
    CHECK_OK(pb_requirements_conclude(&s, "kernels", NULL));
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
    close_emitter(&s);
}

static void put_step(pb_emitter *s, const char *key, double seconds)
{
    pb_case c;
    CHECK_OK(pb_case_parse(key, &c));
    CHECK_OK(pb_emit(s, &c, "step_time", seconds, 5, PB_ROW_OK, ""));
}

/* Requirements on whole steps: every axis that the requirement names must match; it does not name `clip`, so the
 * best clip counts. */
static void whole_steps_are_judged(void **state)
{
    pb_emitter s;
    (void)state;
    open_emitter(&s);
    s.machine_id = "cuda-nvidia-h200-132sm-00000000";
#define AT(batch, clip, mode, seq, tuning)                                                                             \
    "throughput/step?batch=" batch "&clip=" clip "&dtype=bf16&layers=0&mode=" mode                                     \
    "&model=qwen2.5-1.5b&rank=16&seq=" seq "&targets=q+v&tuning=" tuning
    put_step(&s, AT("4", "multi", "graph", "512", "qlora"), 0.0231);
    put_step(&s, AT("4", "fused", "graph", "512", "qlora"), 0.0400);
    put_step(&s, AT("4", "multi", "eager", "512", "qlora"), 0.0200);
    put_step(&s, AT("4", "multi", "graph", "2048", "lora"), 0.0900);
    put_step(&s, AT("4", "multi", "graph", "2048", "qlora"), 0.1110);
    put_kernel(&s, "attention_fwd", "bf16", "wgmma", "B2.S4096.H64.K8.D128.c1.p0.n0", "kernel_flops", 550e12);
    CHECK_OK(pb_requirements_conclude(&s, "throughput", pb_suite_find("throughput")->omitted));
    char *text = results();
    char *met = strstr(text, "requirement/SPEED-STEP-1.5B-B4-S512?batch=4&clip=multi&"), *missed;
    assert_non_null(met);
    assert_non_null(strstr(met, "mode=graph&model=qwen2.5-1.5b&rank=16&seq=512&targets=q+v&tuning=qlora,"
                                "requirement,1,none,0.0231,0,pass,"));
    missed = strstr(text, "requirement/SPEED-STEP-1.5B-B4-S2048?");
    assert_non_null(missed);
    assert_non_null(strstr(missed, ",requirement,1,none,0.111,0,fail,"));
    assert_null(strstr(text, "SPEED-STEP-1.5B-B1"));
    assert_null(strstr(text, "SPEED-ATTENTION"));
    close_emitter(&s);
}

static void put_value(pb_emitter *s, const char *key, const char *metric, double value)
{
    pb_case c;
    CHECK_OK(pb_case_parse(key, &c));
    CHECK_OK(pb_emit(s, &c, metric, value, 0, PB_ROW_OK, ""));
}

/* Steps of several ranks have requirements of their own, and each type of reduction has one. A step of several ranks,
 * or one that recomputes activations, is not judged as the step of one rank. */
static void steps_of_several_ranks_are_judged(void **state)
{
    static const char row[] = "&tuning=full,requirement,1,none,";
    pb_emitter s;
    (void)state;
    open_emitter(&s);
    s.machine_id = "cuda-nvidia-h100-132sm-00000000";
#define RANKS(tuning, model, reduce, shard)                                                                            \
    "throughput/step?batch=4&clip=multi&dtype=bf16&layers=0&mode=graph&model=qwen2.5-" model "&rank=16&ranks=2" reduce \
    "&seq=512" shard "&targets=q+v&tuning=" tuning
    put_value(&s, RANKS("full", "0.5b", "", ""), "scaling_efficiency", 0.92);
    put_value(&s, RANKS("full", "0.5b", "&reduce=bf16", ""), "scaling_efficiency", 0.93);
    put_value(&s, RANKS("full", "0.5b", "", "&shard=parameters"), "scaling_efficiency", 0.99);
    put_value(&s, RANKS("full", "0.5b", "", "&shard=parameters"), "sharded_over_replicated", 1.2);
    put_value(&s, RANKS("qlora", "1.5b", "", ""), "step_time", 0.02);
    put_value(&s,
              "throughput/step?batch=4&clip=multi&dtype=bf16&layers=0&mode=graph&model=qwen2.5-1.5b&rank=16"
              "&recompute=layers&seq=512&targets=q+v&tuning=qlora",
              "step_time", 0.02);
    CHECK_OK(pb_requirements_conclude(&s, "throughput", pb_suite_find("throughput")->omitted));
    char *text = results(), want[160];
    const char *const found[] = {"F32?%s&ranks=2&seq=512&targets=q+v%s0.92,0,pass,",
                                 "BF16?%s&ranks=2&reduce=bf16&seq=512&targets=q+v%s0.93,0,fail,"};
    for (int i = 0; i < 2; i++) {
        snprintf(want, sizeof want, found[i],
                 "batch=4&clip=multi&dtype=bf16&layers=0&mode=graph&model=qwen2.5-0.5b&rank=16", row);
        if (!strstr(text, want)) fail_msg("no %s in\n%s", want, text);
    }
    assert_non_null(strstr(strstr(text, "requirement/RANKS-SHARDED?"), "seq=512&shard=parameters&targets=q+v"));
    assert_non_null(strstr(strstr(text, "requirement/RANKS-SHARDED?"), ",requirement,1,none,1.2,0,fail,"));
    assert_null(strstr(text, "0.99,0,pass"));
    assert_null(strstr(text, "SPEED-STEP"));
    close_emitter(&s);
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
        same = strcmp(s->of->axes[i].name, "ranks") == 0 || (v && strcmp(v, s->of->axes[i].value) == 0);
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

static void check_judged_case(const char *key)
{
    pb_case of;
    CHECK_OK(pb_case_parse(key, &of));
    sought s = {&of, strcmp(of.suite, "kernels") == 0 && in_grid_of_op(&of)};
    const pb_suite *suite = pb_suite_find(of.suite);
    assert_non_null(suite);
    const bool ranks = pb_case_get(&of, "ranks") != NULL; /* an option, which no grid has */
    for (const char *const *line = ranks ? suite->device_ranks_grid : suite->device_grid; line && *line; line++)
        CHECK_OK(pb_grid_expand(suite->name, suite->axes, *line, look_at, &s));
    if (!s.found) fail_msg("%s is not in its grid", key);
    /* Otherwise a run with fewer layers, which is faster, would meet a requirement on the time of the whole model. */
    if (strstr(suite->axes, "layers=") && !pb_case_is(&of, "layers", "0")) fail_msg("%s takes any layers", key);
}

/* A requirement whose case is in no grid, or whose metric no suite emits, would never be checked. */
static void every_judged_case_is_in_its_grid(void **state)
{
    size_t cases = 0;
    (void)state;
    for (const pb_requirement *r = pb_requirements; r->id; r++)
        for (const pb_judged_case *c = r->cases; c && c->key; c++, cases++) {
            if (!pb_metric_find(r->metric)) fail_msg("%s: %s is no metric", r->id, r->metric);
            check_judged_case(c->key);
        }
    assert_true(cases > 0);
}

/* Results have the key requirement/ID?axes, without suite and name of the case. So two cases of a requirement must differ
 * in an axis; otherwise a run cannot be read again. */
static void rows_of_a_requirement_have_different_keys(void **state)
{
    (void)state;
    for (const pb_requirement *r = pb_requirements; r->id; r++)
        for (const pb_judged_case *c = r->cases; c && c->key; c++)
            for (const pb_judged_case *d = c + 1; d->key; d++)
                if (strcmp(strchr(c->key, '?'), strchr(d->key, '?')) == 0)
                    fail_msg("%s: %s and %s", r->id, c->key, d->key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_requirement_fails),
        cmocka_unit_test(ratios_are_judged_per_tuning),
        cmocka_unit_test(ratios_of_other_runs_are_unsupported),
        cmocka_unit_test(the_best_implementation_is_judged),
        cmocka_unit_test(whole_steps_are_judged),
        cmocka_unit_test(steps_of_several_ranks_are_judged),
        cmocka_unit_test(every_judged_case_is_in_its_grid),
        cmocka_unit_test(rows_of_a_requirement_have_different_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
