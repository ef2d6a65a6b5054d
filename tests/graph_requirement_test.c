/* graph_requirement_test.c - the requirements that train the model `tiny`: they pass on correct code, notice gradients
 * that are clipped too far, emit no row after an interrupt, and fail when the disk is full. */
#include <fcntl.h>
#include <omp.h>

#include "bench/rows/read.h"
#include "bench/run/plan.h"
#include "bench/suites/graph_requirement.h"
#include "bench/suites/suite.h"
#include "tests/sink.h"
#include "trainer/step/trainer.h"

static float factor = 1; /* the clipped gradients are multiplied by it */
static int calls_left;   /* of pb_interrupted() until it says true; 0: it never does */

/* The suite calls this after the replay and before it reads the gradients. */
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
    }
    return __real_pb_trainer_clip_states(t, out);
}

bool __wrap_pb_interrupted(void);
bool __wrap_pb_interrupted(void)
{
    if (calls_left > 1) calls_left--;
    return calls_left == 1;
}

/* The note of F-GRAPH-BWD-001 has the losses of the steps 10, 50 and 100: training must lower them. */
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
    static const char *const names[] = {"F-GRAPH-BWD-001", "F-GRAPH-BWD-002", "F-GRAPH-BWD-004"};
    pb_sink s;
    pb_table t;
    open_sink(&s);
    CHECK_OK(pb_graph_requirements(ctx, &s));
    CHECK_OK(pb_table_read(dir, &t));
    for (int i = 0; i < 3; i++) {
        *status[i] = 0;
        for (size_t k = 0; k < t.n; k++)
            if (strstr(t.rows[k].key, names[i])) snprintf(status[i], 16, "%s", t.rows[k].status);
        for (size_t k = 0; k < t.n && !i; k++)
            if (strstr(t.rows[k].key, names[i])) check_losses_fall(&t.rows[k]);
    }
    pb_table_free(&t);
    close_sink(&s);
}

static void clipping_too_far_is_noticed(void **state)
{
    static const struct {
        float factor;
        const char *clip;
    } want[] = {{1, "pass"}, {0.999f, "fail"}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char status[3][16];
        factor = want[i].factor;
        run(*state, status);
        factor = 1;
        assert_string_equal(status[0], "pass");
        assert_string_equal(status[1], "pass");
        assert_string_equal(status[2], want[i].clip);
    }
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

static pb_status keep(void *user, const pb_case *c)
{
    pb_case *out = user;
    *out = *c;
    return PB_OK;
}

/* A row that cannot be written is a failure of the case and of the requirements. */
static void a_full_disk_is_reported(void **state)
{
    const pb_suite *backward = pb_suite_find("backward");
    pb_case c;
    pb_sink s;
    CHECK_OK(pb_grid_expand("backward", backward->axes, "model=tiny seq=8 layers=1", keep, &c));
    open_sink(&s);
    close(s.results);
    s.results = open("/dev/full", O_WRONLY);
    assert_true(s.results >= 0);
    CHECK_FAILS(backward->run(*state, &c, &s), PB_EIO, "No space left");
    CHECK_FAILS(pb_graph_requirements(*state, &s), PB_EIO, "No space left");
    close_sink(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(clipping_too_far_is_noticed),
                                       cmocka_unit_test(an_interrupt_ends_the_requirements),
                                       cmocka_unit_test(a_full_disk_is_reported)};
    omp_set_num_threads(1); /* the model is tiny */
    return cmocka_run_group_tests(tests, test_open_device, test_close);
}
