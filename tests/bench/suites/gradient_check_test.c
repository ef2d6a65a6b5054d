/* gradient_check_test.c - pb_gradient_apart() against plain loops, with tensors of several pieces and blocks; and which
 * cases take the error of another one. */
#include <math.h>
#include <stdlib.h>

#include "bench/rows/rows.h"
#include "bench/suites/plan.h"
#include "bench/suites/train_case.h"
#include "tests/bench/emitter.h"
#include "trainer/step/trainer.h"

/* One layer of smollm2-135m: its embedding has 28 million values, more than one piece. */
static pb_trainer *open_trainer(pb_ctx *ctx)
{
    const pb_geometry *g;
    pb_trainer *t = NULL;
    CHECK_OK(pb_geometry_find("smollm2-135m", &g));
    pb_train_config c = pb_train_defaults(g);
    c.model.layers = 1;
    c.model.tuning = PB_FULL;
    c.B = 1, c.S = 4;
    CHECK_OK(pb_trainer_open(ctx, &c, &t));
    return t;
}

/* Sets all gradients to a pattern of value number i over all tensors. */
static void set_gradients(pb_trainer *t, double (*value)(size_t i))
{
    const pb_model *m = pb_trainer_model(t);
    size_t i = 0;
    for (int k = 0; k < m->n; k++) {
        const pb_param *p = &m->params[k];
        if (!p->trained) continue;
        float *g = malloc(pb_param_n(p) * sizeof *g);
        assert_non_null(g);
        for (size_t j = 0; j < pb_param_n(p); j++, i++) g[j] = (float)value(i);
        CHECK_OK(pb_upload(m->ctx, p->grad, g, pb_param_n(p) * sizeof *g));
        free(g);
    }
    assert_int_equal(i, m->trained);
}

static double first(size_t i) { return (double)(i % 1000) / 1000 - 0.3; }
static double second(size_t i) { return first(i) + (i % 7 == 0 ? 0.001 : 0); }

static void differences_are_those_of_plain_loops(void **state)
{
    pb_trainer *a = open_trainer(*state), *b = open_trainer(*state);
    double square = 0, norm = 0;
    pb_apart of_trainer, of_copy, none;
    float *copy;
    size_t n;
    set_gradients(a, first), set_gradients(b, second);
    for (size_t i = 0; i < pb_trainer_model(a)->trained; i++) {
        const double d = (double)(float)first(i) - (double)(float)second(i);
        square += d * d;
        norm += (double)(float)second(i) * (double)(float)second(i);
    }
    CHECK_OK(pb_gradient_copy(b, &copy, &n));
    assert_int_equal(n, pb_trainer_model(a)->trained);
    CHECK_OK(pb_gradient_apart(a, b, NULL, &of_trainer));
    CHECK_OK(pb_gradient_apart(a, NULL, copy, &of_copy));
    CHECK_OK(pb_gradient_apart(b, NULL, copy, &none));
    CHECK_NEAR(of_trainer.rel, sqrt(square / norm), 1e-9 * sqrt(square / norm));
    CHECK_NEAR(of_trainer.max, 0.001, 1e-6);
    assert_true(of_copy.rel == of_trainer.rel && of_copy.max == of_trainer.max);
    assert_true(none.rel == 0 && none.max == 0);
    free(copy);
    pb_trainer_close(a), pb_trainer_close(b);
}

/* One value that is larger, and one that is NaN, each at every place of the list: the first and last of the gradients,
 * the last of a block, and the first and last of a piece. */
static void every_value_counts(void **state)
{
    pb_trainer *t = open_trainer(*state);
    pb_apart apart;
    float *copy;
    size_t n;
    set_gradients(t, first);
    CHECK_OK(pb_gradient_copy(t, &copy, &n));
    const size_t piece = 256 << 16, places[] = {0, 65535, piece - 1, piece, n - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const float was = copy[places[i]];
        copy[places[i]] = was + 4;
        CHECK_OK(pb_gradient_apart(t, NULL, copy, &apart));
        CHECK_NEAR(apart.max, 4, 1e-6);
        copy[places[i]] = NAN;
        CHECK_OK(pb_gradient_apart(t, NULL, copy, &apart));
        assert_true(isnan(apart.max) && isnan(apart.rel));
        copy[places[i]] = was;
    }
    free(copy);
    pb_trainer_close(t);
}

static pb_status keep(void *user, const pb_case *c)
{
    *(pb_case *)user = *c;
    return PB_OK;
}

/* True if the last row that pb_train_case_gradient() emitted was measured in an earlier case. */
static bool reused(pb_ctx *ctx, const pb_case *of, const char *control, pb_emitter *e)
{
    pb_case c = *of;
    pb_trainer *t;
    pb_check v;
    pb_table rows;
    if (control) CHECK_OK(pb_case_set(&c, PB_CONTROL_AXIS, control));
    pb_case_finish(&c);
    CHECK_OK(pb_train_case_open(ctx, of, &t));
    CHECK_OK(pb_train_case_gradient(ctx, &c, t, e, &v));
    pb_trainer_close(t);
    CHECK_OK(pb_table_read(dir, &rows));
    const bool again = strstr(rows.rows[rows.n - 1].note, "measured in this process") != NULL;
    assert_string_equal(rows.rows[rows.n - 1].key, c.key);
    pb_table_free(&rows);
    return again;
}

/* A control case, which is a copy of a case, reports the error that was measured for that case, without a second check. A
 * case never reports the error of a copy: it is always checked. */
static void a_copy_takes_the_error_of_its_case(void **state)
{
    const pb_suite *s = pb_suite_find("throughput");
    pb_emitter e;
    pb_case c;
    CHECK_OK(pb_grid_expand("throughput", s->axes, "model=tiny layers=1 seq=8 tuning=lora", keep, &c));
    open_emitter(&e);
    assert_false(reused(*state, &c, PB_CONTROL_FIRST, &e));
    assert_false(reused(*state, &c, NULL, &e));
    assert_true(reused(*state, &c, PB_CONTROL_SECOND, &e));
    close_emitter(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(differences_are_those_of_plain_loops),
        cmocka_unit_test(every_value_counts),
        cmocka_unit_test(a_copy_takes_the_error_of_its_case),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
