/* train_step_test.c - tests pb_job_step, the step of the program train: a graph that cannot be recorded ends the step
 * with an error, and training can continue. */
#include "tests/trainer/step/trainer_fixture.h"
#include "train/step.h"

/* The options of a short LoRA run, parsed as the program parses its command line: options that are not named here have
 * their defaults. */
static pb_train_options options(void)
{
    char *words[] = {
        "--model=tiny",  "--tuning=lora", "--batch=2",           "--seq=96",    "--bucket=32",  "--rank=4",
        "--targets=q,v", "--lr=1e-3",     "--schedule=constant", "--dtype=f32", "--mode=graph", "--deterministic",
        "--quiet",       "--pack=off",    "--long-ones=split",   "--clip=fused"};
    const char *backend = getenv("PB_TEST_BACKEND");
    pb_train_options o = {.command = PB_COMMAND_run};
    CHECK_OK(pb_cli_parse(&pb_train_cli, o.command, sizeof words / sizeof *words, words, &o, &o.args));
    o.device = backend ? backend : "cpu";
    return o;
}

static void open_job(const pb_train_options *o, pb_job *j)
{
    CHECK_OK(pb_job_configure(o, j));
    CHECK_OK(pb_job_open(j, false));
    CHECK_OK(pb_job_reserve(j));
}

static void take(pb_job *j, pb_graphs *g)
{
    pb_step_result r;
    CHECK_OK(pb_job_step(j, g, 1e-3, &r));
    assert_string_equal(r.why, "");
    assert_true(r.S % 32 == 0 && r.S <= 96 && r.tokens == 2.0 * r.S && isfinite(r.loss));
}

/* If recording fails, the step returns the error and is not run eagerly instead. Later steps work, both eagerly and
 * recorded. */
static void a_step_that_cannot_be_recorded_ends_cleanly(void **state)
{
    (void)state;
    const pb_train_options o = options();
    pb_job a, b;
    pb_graphs g = {0};
    pb_step_result r = {.loss = 123};
    size_t n;
    open_job(&o, &a), open_job(&o, &b);
    for (int i = 0; i < 6; i++) take(&a, &g), take(&b, NULL);
    const uint64_t recorded = g.recorded;
    assert_true(recorded > 0);
    pb_graphs_free(&g, &a.ctx);
    CHECK_OK(pb_trainer_set_clip(a.trainer, PB_CLIP_SYNC, 1));
    CHECK_OK(pb_trainer_set_clip(b.trainer, PB_CLIP_SYNC, 1));
    float *before = snapshot(a.trainer, false, &n);
    const pb_data_position at = pb_dataset_position(a.data);
    int tries = 0;
    /* The first step of each row length runs eagerly and succeeds; the second records a graph, which fails with
     * clipping `sync`. Stops at the first failure. */
    while (pb_job_step(&a, &g, 1e-3, &r) == PB_OK && ++tries < 20) {
        free(before);
        before = snapshot(a.trainer, false, &n);
        r = (pb_step_result){.loss = 123};
        take(&b, NULL);
    }
    assert_true(tries > 0 && tries < 20 && r.loss == 123);
    assert_non_null(strstr(pb_error(), "could not be recorded: a host read cannot be recorded into a graph"));
    assert_same(before, snapshot(a.trainer, false, &n), n);
    assert_true(g.recorded == recorded && !a.ctx.recording);
    assert_true(pb_dataset_position(a.data).epoch > at.epoch || pb_dataset_position(a.data).row > at.row);
    CHECK_OK(pb_dataset_seek(b.data, pb_dataset_position(a.data)));
    take(&a, NULL), take(&b, NULL);
    CHECK_OK(pb_trainer_set_clip(a.trainer, PB_CLIP_FUSED, 1));
    CHECK_OK(pb_trainer_set_clip(b.trainer, PB_CLIP_FUSED, 1));
    for (int i = 0; i < 6; i++) take(&a, &g), take(&b, NULL);
    assert_true(g.recorded > recorded);
    float *x = snapshot(a.trainer, false, &n), *y = snapshot(b.trainer, false, &n);
    assert_same(x, y, n);
    pb_graphs_free(&g, &a.ctx);
    pb_job_close(&a), pb_job_close(&b);
}

/* With --pack stream the trainer gets rows without the arrays start and pos. The loss must equal that of packed rows
 * of the same tokens in which every start is 0. */
static void a_row_of_a_stream_is_one_text(void **state)
{
    (void)state;
    pb_train_options o = options();
    pb_job j;
    double whole, packed;
    o.pack = "stream", o.min_loss_tokens = 0.25, o.mode = "eager";
    open_job(&o, &j);
    pb_dataset_next(j.data, j.cfg.B, &j.rows);
    const int T_ = j.cfg.B * j.cfg.S;
    for (int i = 0; i < T_; i++) assert_true(j.rows.start[i] == 0 && j.rows.pos[i] == i % j.cfg.S);
    pb_batch b = pb_job_batch(&j, 0, j.cfg.S, 0);
    assert_true(!b.start && !b.pos);
    CHECK_OK(pb_trainer_set_batch(j.trainer, &b));
    run_phases(&j.ctx, j.trainer, PB_PHASE_forward, PB_PHASE_loss);
    CHECK_OK(pb_trainer_loss(j.trainer, &whole));
    pb_train_config c = j.cfg;
    c.packed = true;
    pb_trainer *t = open_trainer(&j.ctx, &c);
    b.start = j.rows.start, b.pos = j.rows.pos;
    CHECK_OK(pb_trainer_set_batch(t, &b));
    run_phases(&j.ctx, t, PB_PHASE_forward, PB_PHASE_loss);
    CHECK_OK(pb_trainer_loss(t, &packed));
    CHECK_NEAR(whole, packed, 1e-6 * packed);
    pb_trainer_close(t);
    pb_job_close(&j);
}

/* Makes the gradient of one parameter overflow: the gradient of the final norm's gain is proportional to the head's
 * weights, and with a gain that is as small as the head is large all other gradients stay finite. */
static void overflow_final_norm(pb_trainer *t)
{
    const pb_model *m = pb_trainer_model(t);
    const struct {
        const pb_param *p;
        float factor;
    } change[] = {{m->outer[PB_P_norm], 1e-24f}, {m->outer[PB_P_head], 1e24f}};
    for (int i = 0; i < 2; i++) {
        const size_t n = pb_param_n(change[i].p);
        float *w = test_fetch(m->ctx, change[i].p->w, n * sizeof *w);
        for (size_t k = 0; k < n; k++) w[k] *= change[i].factor;
        CHECK_OK(pb_upload(m->ctx, change[i].p->w, w, n * sizeof *w));
        free(w);
    }
}

static void a_norm_that_is_not_finite_is_named(void **state)
{
    (void)state;
    pb_train_options o = options();
    pb_step_result r;
    pb_job j;
    o.model = "tiny-qwen3", o.tuning = "full";
    open_job(&o, &j);
    overflow_final_norm(j.trainer);
    CHECK_OK(pb_job_step(&j, NULL, 1e-3, &r));
    assert_true(r.skipped && isfinite(r.loss));
    assert_string_equal(r.why, "the norm of the gradient of the parameters outside the layers is not finite");
    CHECK_OK(pb_trainer_set_clip(j.trainer, PB_CLIP_MULTI, 1));
    CHECK_OK(pb_job_step(&j, NULL, 1e-3, &r));
    assert_string_equal(r.why, "the gradient's norm is not finite");
    pb_job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_step_that_cannot_be_recorded_ends_cleanly),
                                       cmocka_unit_test(a_row_of_a_stream_is_one_text),
                                       cmocka_unit_test(a_norm_that_is_not_finite_is_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
