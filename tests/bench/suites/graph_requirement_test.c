/* graph_requirement_test.c - tests of the requirements F-GRAPH-BWD-001, 002 and 004, which train the model `tiny`: they
 * pass on correct code, fail if gradients are clipped too far or NaN, emit no row after an interrupt, and report an
 * error if the disk is full. */
#include <fcntl.h>
#include <omp.h>

#include "bench/rows/read.h"
#include "bench/suites/plan.h"
#include "bench/rows/series.h"
#include "bench/suites/graph_requirement.h"
#include "bench/suites/suite.h"
#include "bench/suites/train_case.h"
#include "tests/bench/emitter.h"
#include "trainer/step/trainer.h"

static float factor = 1; /* every clipped gradient is multiplied by it; NaN: only the first tensor is */
static int calls_left;   /* calls of pb_interrupted() until it returns true; 0: it never does */

/* Replaces pb_trainer_clip_states(), which the requirements call after replaying the graph and before reading the
 * gradients: multiplies the gradients by `factor`. */
pb_status __real_pb_trainer_clip_states(pb_trainer *t, pb_clip_state *out);
pb_status __wrap_pb_trainer_clip_states(pb_trainer *t, pb_clip_state *out);
pb_status __wrap_pb_trainer_clip_states(pb_trainer *t, pb_clip_state *out)
{
    const pb_model *m = pb_trainer_model(t);
    for (int i = 0; i < m->n && factor != 1; i++) {
        const pb_param *p = &m->params[i];
        if (!p->trained) continue;
        float *g = test_fetch(m->ctx, p->grad, pb_param_n(p) * sizeof *g);
        for (size_t k = 0; k < pb_param_n(p); k++) g[k] *= factor;
        CHECK_OK(pb_upload(m->ctx, p->grad, g, pb_param_n(p) * sizeof *g));
        free(g);
        if (isnan(factor)) break;
    }
    return __real_pb_trainer_clip_states(t, out);
}

/* Calls of pb_trainer_loss until one returns a NaN (losses_left), and of pb_gradient_apart until one meets a NaN
 * (comparisons_left); 0: never. */
static int losses_left, comparisons_left;

pb_status __real_pb_trainer_loss(pb_trainer *t, double *out);
pb_status __wrap_pb_trainer_loss(pb_trainer *t, double *out);
pb_status __wrap_pb_trainer_loss(pb_trainer *t, double *out)
{
    const pb_status s = __real_pb_trainer_loss(t, out);
    if (losses_left && !--losses_left) *out = (double)NAN;
    return s;
}

/* Replaces pb_gradient_apart(): one call finds a NaN in the first gradient of the trainer. A maximum over the gradients
 * must not lose it, although all later values are finite. */
pb_status __real_pb_gradient_apart(pb_trainer *t, pb_trainer *other, const float *copy, pb_apart *out);
pb_status __wrap_pb_gradient_apart(pb_trainer *t, pb_trainer *other, const float *copy, pb_apart *out);
pb_status __wrap_pb_gradient_apart(pb_trainer *t, pb_trainer *other, const float *copy, pb_apart *out)
{
    const pb_model *m = pb_trainer_model(t);
    const float nan = NAN;
    int first = 0;
    while (!m->params[first].trained) first++;
    if (comparisons_left && !--comparisons_left) PB_TRY(pb_upload(m->ctx, m->params[first].grad, &nan, sizeof nan));
    return __real_pb_gradient_apart(t, other, copy, out);
}

bool __wrap_pb_interrupted(void);
bool __wrap_pb_interrupted(void)
{
    if (calls_left > 1) calls_left--;
    return calls_left == 1;
}

/* Reads the losses of steps 10, 50 and 100 from the note of F-GRAPH-BWD-001. They must fall. */
static void check_losses_fall(const pb_row *r)
{
    double at10, at50, at100;
    const char *losses = strstr(r->note, "graphed loss ");
    assert_non_null(losses);
    assert_int_equal(sscanf(losses, "graphed loss %lf, %lf, %lf", &at10, &at50, &at100), 3);
    assert_true(at10 > 0 && at50 < at10 && at100 < at50);
}

/* Runs the requirements. status[i]: the status of F-GRAPH-BWD-001, 002 and 004; "": no row. */
static void run(pb_ctx *ctx, char status[3][16])
{
    static const char *const names[] = {"F-GRAPH-BWD-001?", "F-GRAPH-BWD-002?", "F-GRAPH-BWD-004?"};
    pb_emitter s;
    pb_table t;
    open_emitter(&s);
    CHECK_OK(pb_graph_requirements(ctx, &s));
    CHECK_OK(pb_table_read(dir, &t));
    for (int i = 0; i < 3; i++) {
        *status[i] = 0;
        for (size_t k = 0; k < t.n; k++)
            if (strstr(t.rows[k].key, names[i])) snprintf(status[i], 16, "%s", pb_row_status_name(t.rows[k].status));
        for (size_t k = 0; k < t.n && !i; k++)
            if (strstr(t.rows[k].key, names[i])) check_losses_fall(&t.rows[k]);
    }
    pb_table_free(&t);
    close_emitter(&s);
}

static void clipping_too_far_is_noticed(void **state)
{
    static const struct {
        float factor;
        const char *clip;
    } want[] = {{1, "pass"}, {0.999f, "fail"}, {NAN, "fail"}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char status[3][16];
        if (TEST_SANITIZED && i) break; /* each trains 100 steps twice */
        factor = want[i].factor;
        run(*state, status);
        factor = 1;
        assert_string_equal(status[0], "pass");
        assert_string_equal(status[1], "pass");
        assert_string_equal(status[2], want[i].clip);
    }
}

static pb_status keep(void *user, const pb_case *c)
{
    pb_case *out = user;
    *out = *c;
    return PB_OK;
}

/* One loss is NaN; the losses before and after it are finite. */
static void a_loss_that_is_not_finite_fails(void **state)
{
    char status[3][16];
    losses_left = 60;
    run(*state, status);
    assert_int_equal(losses_left, 0);
    assert_string_equal(status[0], "fail");
    assert_string_equal(status[2], "pass");
}

/* If a replayed graph computes a NaN in one element of the gradient, the case is `wrong` and has no time. */
static void a_replayed_gradient_with_nan_is_wrong(void **state)
{
    const pb_suite *backward = pb_suite_find("backward");
    pb_emitter s;
    pb_table t;
    pb_case c;
    int wrong = 0;
    const pb_suite_env env = {.emitter = &s, .asked = {.min_time = -1}};
    CHECK_OK(pb_grid_expand("backward", backward->axes, "model=tiny seq=8 layers=1 mode=graph", keep, &c));
    open_emitter(&s);
    comparisons_left = 1; /* after the replay */
    CHECK_OK(backward->run(*state, &c, &env));
    assert_int_equal(comparisons_left, 0);
    CHECK_OK(pb_table_read(dir, &t));
    for (size_t i = 0; i < t.n; i++) {
        if (strcmp(t.rows[i].metric, "backward_time") != 0 && strcmp(t.rows[i].metric, "graph_difference") != 0)
            continue;
        assert_int_equal(t.rows[i].status, PB_ROW_WRONG);
        wrong++;
    }
    assert_int_equal(wrong, 2);
    pb_table_free(&t);
    close_emitter(&s);
}

static void an_interrupt_ends_the_requirements(void **state)
{
    char status[3][16];
    calls_left = 20; /* in the middle of the 100 steps */
    run(*state, status);
    calls_left = 0;
    assert_string_equal(status[0], "");
    assert_string_equal(status[1], "pass");
    assert_string_equal(status[2], "");
}

/* If a row cannot be written to results.csv, the case and the requirements return an error. */
static void a_full_disk_is_reported(void **state)
{
    const pb_suite *backward = pb_suite_find("backward");
    pb_case c;
    pb_emitter s;
    const pb_suite_env env = {.emitter = &s, .asked = {.min_time = -1}};
    CHECK_OK(pb_grid_expand("backward", backward->axes, "model=tiny seq=8 layers=1", keep, &c));
    open_emitter(&s);
    close(s.results);
    s.results = open("/dev/full", O_WRONLY);
    assert_true(s.results >= 0);
    CHECK_FAILS(backward->run(*state, &c, &env), PB_EIO, "No space left");
    CHECK_FAILS(pb_graph_requirements(*state, &s), PB_EIO, "No space left");
    close_emitter(&s);
}

/* Returns the row of F-GRAPH-BWD-001-QLORA in t; the test fails if t has none. */
static const pb_row *qlora_row(const pb_table *t)
{
    for (size_t k = 0; k < t->n; k++)
        if (pb_key_of(t->rows[k].key, "requirement") && strstr(t->rows[k].key, "/F-GRAPH-BWD-001-QLORA"))
            return &t->rows[k];
    fail_msg("no row of F-GRAPH-BWD-001-QLORA");
    return NULL;
}

/* On a CPU, F-GRAPH-BWD-001-QLORA is not measured; its row is `unsupported`, and the note gives the reason. */
static void a_cpu_does_not_judge_qlora(void **state)
{
    pb_emitter s;
    pb_table t;
    open_emitter(&s);
    calls_left = 2; /* the other rows are not needed */
    CHECK_OK(pb_graph_requirements(*state, &s));
    calls_left = 0;
    CHECK_OK(pb_table_read(dir, &t));
    assert_int_equal(qlora_row(&t)->status, PB_ROW_UNSUPPORTED);
    assert_non_null(strstr(qlora_row(&t)->note, "applies to a GPU, QLoRA of qwen2.5-1.5b; on a CPU, 50"));
    pb_table_free(&t);
    close_emitter(&s);
}

/* Runs the case that a GPU measures for F-GRAPH-BWD-001-QLORA, but with a small model and 50 steps, so that a CPU can
 * run it. Its row has the losses; the requirement is not judged. */
static void losses_of_a_case_are_compared(void **state)
{
    double at10, at25, at50;
    pb_emitter s;
    pb_table t;
    pb_case c;
    CHECK_OK(pb_case_parse("backward/losses?batch=2&clip=fused&dtype=f32&layers=0&mode=graph&model=tiny&rank=16&seq=64&"
                           "targets=q+v&tuning=qlora",
                           &c));
    open_emitter(&s);
    CHECK_OK(pb_graph_losses(*state, &c, &s));
    calls_left = 20;
    CHECK_OK(pb_graph_losses(*state, &c, &s)); /* interrupted: no second row */
    calls_left = 0;
    CHECK_OK(pb_table_read(dir, &t));
    assert_int_equal(t.n, 1);
    const pb_row *r = qlora_row(&t);
    assert_int_equal(r->status, PB_ROW_UNSUPPORTED);
    assert_non_null(strstr(r->key, "&mode=graph&model=tiny&"));
    CHECK_NEAR(r->value, 0, 1e-3);
    const char *losses = strstr(r->note, "graphed loss ");
    assert_non_null(losses);
    assert_int_equal(sscanf(losses, "graphed loss %lf, %lf, %lf at steps 10, 25, 50", &at10, &at25, &at50), 3);
    assert_true(at10 > 0 && at25 < at10 && at50 < at25);
    pb_table_free(&t);
    close_emitter(&s);
}

static void only_the_required_case_is_planned(void **state)
{
    static const struct {
        const char *key, *error;
    } want[] = {{"clip=fused&mode=graph&model=qwen2.5-1.5b&tuning=qlora", NULL},
                {"clip=fused&mode=eager&model=qwen2.5-1.5b&tuning=qlora", "mode=graph"},
                {"clip=sync&mode=graph&model=qwen2.5-1.5b&tuning=qlora", "other than sync"},
                {"clip=fused&mode=graph&model=qwen2.5-0.5b&tuning=qlora", "model=qwen2.5-1.5b"},
                {"clip=fused&mode=graph&model=qwen2.5-1.5b&tuning=lora", "tuning=qlora"}};
    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        pb_case c;
        char key[160];
        snprintf(key, sizeof key, "backward/losses?%s", want[i].key);
        CHECK_OK(pb_case_parse(key, &c));
        if (want[i].error) CHECK_FAILS(pb_graph_losses_check(&c), PB_EINVAL, want[i].error);
        else CHECK_OK(pb_graph_losses_check(&c));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(clipping_too_far_is_noticed),
                                       cmocka_unit_test(a_loss_that_is_not_finite_fails),
                                       cmocka_unit_test(a_replayed_gradient_with_nan_is_wrong),
                                       cmocka_unit_test(an_interrupt_ends_the_requirements),
                                       cmocka_unit_test(a_full_disk_is_reported),
                                       cmocka_unit_test(a_cpu_does_not_judge_qlora),
                                       cmocka_unit_test(losses_of_a_case_are_compared),
                                       cmocka_unit_test(only_the_required_case_is_planned)};
    omp_set_num_threads(1); /* the model is tiny */
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
