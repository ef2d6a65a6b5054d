/* trainer_graph_test.c - tests of training steps with rows of different lengths: padding does not change the result,
 * each row length is recorded as a graph once, a loss scale that is a power of two changes no bit, and a loss scale
 * with which gradients overflow makes the step be skipped. */
#include "tests/trainer/step/trainer_fixture.h"
#include "trainer/step/graphs.h"

enum { STEPS = 10 };
/* Row lengths of the steps: three lengths up to S, each more than once. */
static const int lengths[STEPS] = {S, 5, 12, 5, S, 12, 12, S, 5, S};
static const float scales[STEPS] = {1, 256, 256, 1, 1024, 0.5f, 1, 1, 4096, 2};

/* A batch of B rows of `length` positions. The first `filled` positions of a row are seeded tokens; the others are
 * padding with arbitrary ids and targets and mask 0. */
typedef struct rows {
    int32_t ids[T], targets[T], start[T], pos[T];
    float mask[T];
} rows;

static void fill(rows *r, int V, uint64_t seed, int filled, int length)
{
    for (int i = 0; i < B * length; i++) {
        const int b = i / length, s = i % length;
        const uint64_t at = (uint64_t)(b * S + s) + (s < filled ? 0 : 1000), cut = (uint64_t)filled / 3;
        r->ids[i] = (int32_t)(pb_uniform(seed, at) * V);
        r->targets[i] = (int32_t)(pb_uniform(seed + 1, at) * V);
        r->mask[i] = s < filled && pb_uniform(seed + 2, at) < 0.7;
        /* two samples per row; each padding position attends only to itself */
        r->start[i] = s >= filled ? s : s < (int)cut ? 0 : (int)cut;
        r->pos[i] = s >= filled ? 0 : s - r->start[i];
    }
}

static void set_rows(pb_trainer *t, uint64_t seed, int filled, int length)
{
    rows r;
    const bool packed = pb_trainer_config(t)->packed;
    fill(&r, pb_trainer_model(t)->g.V, seed, filled, length);
    CHECK_OK(pb_trainer_set_batch(t, &(pb_batch){.ids = r.ids,
                                                 .targets = r.targets,
                                                 .mask = r.mask,
                                                 .start = packed ? r.start : NULL,
                                                 .pos = packed ? r.pos : NULL,
                                                 .S = length}));
}

/* ---- padding and shorter rows ----------------------------------------------------------------------------------- */

static void padding_changes_neither_loss_nor_gradients(void **state)
{
    pb_ctx *ctx = *state;
    static const int padded[] = {8, 12, S};
    for (int i = 0; i < 2 * PB_NTUNINGS; i++) {
        size_t n;
        pb_train_config c = config(i == 1 ? "doge-tiny" : i % 2 ? "tiny-qwen3" : "tiny", (pb_tuning)(i / 2));
        c.packed = i % 2;
        pb_trainer *t = open_trainer(ctx, &c);
        set_rows(t, 7, 7, 7);
        run_phases(ctx, t, PB_PHASE_forward, PB_PHASE_backward);
        const double loss = loss_of(t);
        float *want = snapshot(t, true, &n);
        assert_true(loss > 1);
        for (size_t k = 0; k < sizeof padded / sizeof *padded; k++) {
            set_rows(t, 7, 7, padded[k]);
            run_phases(ctx, t, PB_PHASE_forward, PB_PHASE_backward);
            CHECK_NEAR(loss_of(t), loss, 2e-6 * loss);
            float *got = snapshot(t, true, &n);
            const pb_diff d = pb_diff_arrays(want, got, n, PB_F32);
            if (!pb_diff_ok(&d, 2e-5))
                fail_msg("case %d: gradients at %d tokens differ by %g (max %g)", i, padded[k], d.rel, d.max);
            free(got);
        }
        free(want);
        pb_trainer_close(t);
    }
}

/* A trainer for short rows, and a trainer for longer rows that has just processed full rows, give equal results for the
 * same short rows. */
static void short_rows_give_the_result_of_a_short_trainer(void **state)
{
    pb_ctx *ctx = *state;
    size_t n;
    pb_train_config c = config("tiny-llama", PB_FULL);
    ctx->deterministic = true;
    pb_trainer *large = open_trainer(ctx, &c);
    c.S = 9;
    pb_trainer *small = open_trainer(ctx, &c);
    set_rows(large, 3, S, S);
    run_phases(ctx, large, PB_PHASE_forward, PB_PHASE_backward);
    for (int step = 0; step < 3; step++) {
        set_rows(large, 20 + (uint64_t)step, 9, 9);
        set_rows(small, 20 + (uint64_t)step, 9, 9);
        CHECK_OK(pb_train_step(ctx, large));
        CHECK_OK(pb_train_step(ctx, small));
    }
    assert_true(loss_of(large) == loss_of(small));
    float *a = snapshot(large, false, &n), *b = snapshot(small, false, &n);
    assert_same(a, b, n);
    pb_trainer_close(large), pb_trainer_close(small);
    ctx->deterministic = false;
}

static void invalid_lengths_are_refused(void **state)
{
    pb_train_config c = config("tiny", PB_LORA);
    pb_trainer *t = open_trainer(*state, &c);
    rows r;
    fill(&r, 200, 1, 4, 4);
    pb_batch b = {.ids = r.ids, .targets = r.targets, .mask = r.mask, .S = S + 1};
    CHECK_FAILS(pb_trainer_set_batch(t, &b), PB_EINVAL, "rows of 18 tokens: need 1 to 17");
    b.S = -1;
    CHECK_FAILS(pb_trainer_set_batch(t, &b), PB_EINVAL, "rows of -1 tokens");
    CHECK_FAILS(pb_trainer_reserve(t, S + 1), PB_EINVAL, "rows of 18 tokens");
    CHECK_FAILS(pb_trainer_reserve(t, 0), PB_EINVAL, "rows of 0 tokens");
    CHECK_FAILS(pb_trainer_set_loss_scale(t, 0), PB_EINVAL, "loss scale 0");
    CHECK_FAILS(pb_trainer_set_loss_scale(t, INFINITY), PB_EINVAL, "loss scale inf");
    CHECK_FAILS(pb_trainer_set_loss_scale(t, NAN), PB_EINVAL, "loss scale");
    pb_trainer_close(t);
}

/* Reserving allocates enough scratch memory for every later step, and runs no op. */
static void reserved_scratch_is_enough(void **state)
{
    pb_ctx *ctx = *state;
    size_t n;
    pb_train_config c = config("tiny", PB_FULL);
    pb_trainer *t = open_trainer(ctx, &c);
    pb_ctx_release_scratch(ctx);
    float *before = snapshot(t, false, &n);
    const pb_counts counts = ctx->counts;
    for (int length = S; length; length--) CHECK_OK(pb_trainer_reserve(t, length));
    assert_int_equal(ctx->counts.kernel_launches, counts.kernel_launches);
    assert_true(ctx->scratch_bytes > 0);
    assert_same(before, snapshot(t, false, &n), n);
    const uint64_t allocs = ctx->counts.allocs;
    for (int i = 0; i < STEPS; i++) {
        set_rows(t, (uint64_t)i, lengths[i], lengths[i]);
        CHECK_OK(pb_train_step(ctx, t));
    }
    assert_int_equal(ctx->counts.allocs, allocs);
    pb_trainer_close(t);
}

/* ---- graphs for rows of several lengths ------------------------------------------------------------------------- */

static void prepare(pb_trainer *t, int step)
{
    CHECK_OK(pb_trainer_set_lr(t, 1e-3f / (float)(step + 1)));
    CHECK_OK(pb_trainer_set_loss_scale(t, scales[step]));
}

static void compare(pb_ctx *ctx, const pb_train_config *c)
{
    pb_trainer *eager = open_trainer(ctx, c), *graphed = open_trainer(ctx, c);
    pb_graphs g = {0};
    size_t n;
    for (int step = 0; step < STEPS; step++) {
        const uint64_t seed = 10 * (uint64_t)step;
        prepare(eager, step), prepare(graphed, step);
        set_rows(eager, seed, lengths[step] - 1, lengths[step]);
        set_rows(graphed, seed, lengths[step] - 1, lengths[step]);
        CHECK_OK(pb_train_step(ctx, eager));
        CHECK_OK(pb_graphs_run(&g, ctx, graphed, pb_train_step));
        if (loss_of(eager) != loss_of(graphed)) fail_msg("step %d: %g, %g", step, loss_of(eager), loss_of(graphed));
    }
    float *a = snapshot(eager, false, &n), *b = snapshot(graphed, false, &n);
    assert_same(a, b, n);
    assert_int_equal(g.recorded, 3);
    assert_int_equal(g.replayed, STEPS - 3);
    assert_true(g.nodes > 3 && g.seconds > 0);
    pb_graphs_free(&g, ctx);
    pb_trainer_close(eager), pb_trainer_close(graphed);
}

static void graphs_equal_eager_while_lengths_change(void **state)
{
    pb_ctx *ctx = *state;
    ctx->deterministic = true;
    for (int i = 0; i < 2 * PB_NTUNINGS; i++) {
        pb_train_config c = config("tiny", (pb_tuning)(i / 2));
        c.clip = i % 2 ? PB_CLIP_MULTI : PB_CLIP_FUSED;
        c.model.dtype = i % 2 ? PB_BF16 : PB_F32;
        c.packed = i % 2;
        c.max_norm = 0.1f;
        compare(ctx, &c);
    }
    ctx->deterministic = false;
}

/* Each step has three micro-batches and three graphs: one for the first micro-batch, which overwrites the gradients,
 * one for the others, which add to them, and one for clip and optimizer. */
static void accumulated_graphs_equal_eager(void **state)
{
    pb_ctx *ctx = *state;
    size_t n;
    ctx->deterministic = true;
    pb_train_config c = config("tiny-qwen3", PB_LORA);
    c.clip = PB_CLIP_MULTI;
    pb_trainer *t[2] = {open_trainer(ctx, &c), open_trainer(ctx, &c)};
    pb_graphs g = {0};
    for (int step = 0; step < STEPS; step++)
        for (int k = 0; k < 2; k++) {
            prepare(t[k], step);
            for (int micro = 0; micro < 3; micro++) {
                pb_trainer_accumulate(t[k], micro > 0);
                set_rows(t[k], 10 * (uint64_t)step + (uint64_t)micro, lengths[step], lengths[step]);
                CHECK_OK(k ? pb_graphs_run(&g, ctx, t[k], pb_train_micro) : pb_train_micro(ctx, t[k]));
            }
            CHECK_OK(k ? pb_graphs_run(&g, ctx, t[k], pb_train_finish) : pb_train_finish(ctx, t[k]));
        }
    float *a = snapshot(t[0], false, &n), *b = snapshot(t[1], false, &n);
    assert_same(a, b, n);
    assert_int_equal(g.recorded, 3 * 2 + 1);
    pb_graphs_free(&g, ctx);
    pb_trainer_close(t[0]), pb_trainer_close(t[1]);
    ctx->deterministic = false;
}

/* With more shapes than the cache holds, the least recently used recording is evicted, and recorded again when its
 * shape returns. */
static void the_least_recently_used_graph_is_evicted(void **state)
{
    enum { MORE = PB_GRAPHS_MOST + 2 };
    pb_ctx *ctx = *state;
    pb_train_config c = config("tiny", PB_LORA);
    c.S = MORE, c.B = 1, c.model.layers = 1;
    pb_trainer *t = open_trainer(ctx, &c);
    pb_graphs g = {0};
    int32_t ids[MORE] = {0};
    float mask[MORE] = {1};
    for (int length = 1; length <= MORE; length++)
        for (int run = 0; run < 2; run++) {
            CHECK_OK(pb_trainer_set_batch(t, &(pb_batch){.ids = ids, .targets = ids, .mask = mask, .S = length}));
            const uint64_t syncs = ctx->counts.host_syncs;
            CHECK_OK(pb_graphs_run(&g, ctx, t, pb_train_step));
            /* the host syncs before it frees the evicted graph, which may still be running */
            if (length > PB_GRAPHS_MOST && run == 0) assert_true(ctx->counts.host_syncs > syncs);
        }
    assert_int_equal(g.recorded, MORE);
    assert_int_equal(g.n, PB_GRAPHS_MOST);
    for (int i = 0; i < g.n; i++) assert_true(g.shape[i].S > 2);
    pb_graphs_free(&g, ctx);
    pb_trainer_close(t);
}

static void a_failed_recording_ends_cleanly(void **state)
{
    pb_ctx *ctx = *state;
    size_t n;
    pb_train_config c = config("tiny", PB_LORA);
    c.clip = PB_CLIP_SYNC;
    pb_trainer *t = open_trainer(ctx, &c), *eager = open_trainer(ctx, &c);
    pb_graphs g = {0};
    set_rows(t, 1, S, S), set_rows(eager, 1, S, S);
    CHECK_OK(pb_graphs_run(&g, ctx, t, pb_train_step));
    float *before = snapshot(t, false, &n);
    for (int i = 0; i < 2; i++)
        CHECK_FAILS(pb_graphs_run(&g, ctx, t, pb_train_step), PB_EUNSUPPORTED,
                    "a step of 2 rows of 17 tokens could not be recorded: a host read cannot be recorded");
    assert_same(before, snapshot(t, false, &n), n); /* the step was not run eagerly instead */
    assert_true(!ctx->recording && g.recorded == 0 && g.replayed == 0);
    assert_int_equal(g.runs, 1);     /* the eager step only */
    CHECK_OK(pb_train_step(ctx, t)); /* the next step runs as if nothing had been recorded */
    for (int i = 0; i < 2; i++) CHECK_OK(pb_train_step(ctx, eager));
    float *a = snapshot(eager, false, &n);
    assert_same(a, snapshot(t, false, &n), n);
    CHECK_OK(pb_trainer_set_clip(t, PB_CLIP_FUSED, 1));
    CHECK_OK(pb_graphs_run(&g, ctx, t, pb_train_step));
    assert_int_equal(g.recorded, 1);
    pb_graphs_free(&g, ctx);
    pb_trainer_close(t), pb_trainer_close(eager);
}

/* ---- loss scales change no bit or skip the step ----------------------------------------------------------------- */

/* A loss scale that is a power of two changes no bit: ten steps with every variant of clipping, with a limit that clips
 * and one that does not. */
static void a_power_of_two_loss_scale_changes_no_bit(void **state)
{
    pb_ctx *ctx = *state;
    ctx->deterministic = true;
    for (int i = 0; i < 2 * PB_NCLIPS; i++) {
        pb_train_config c = config("tiny", i % 3 ? PB_LORA : PB_FULL);
        size_t n;
        c.clip = (pb_clip_variant)(i / 2);
        c.max_norm = i % 2 ? 0.1f : 1e3f;
        pb_trainer *plain = open_trainer(ctx, &c);
        c.loss_scale = 65536;
        pb_trainer *scaled = open_trainer(ctx, &c);
        pb_clip_state x[8], y[8];
        for (int step = 0; step < STEPS; step++) {
            set_rows(plain, (uint64_t)step, S, S), set_rows(scaled, (uint64_t)step, S, S);
            CHECK_OK(pb_train_step(ctx, plain));
            CHECK_OK(pb_train_step(ctx, scaled));
            if (step == 5) CHECK_OK(pb_trainer_set_loss_scale(scaled, 0.125f));
        }
        assert_true(loss_of(plain) == loss_of(scaled));
        CHECK_OK(pb_trainer_clip_states(plain, x));
        CHECK_OK(pb_trainer_clip_states(scaled, y));
        for (int k = 0; k < pb_trainer_clip_groups(plain); k++) assert_true(x[k].norm == y[k].norm);
        float *a = snapshot(plain, false, &n), *b = snapshot(scaled, false, &n);
        assert_same(a, b, n);
        pb_trainer_close(plain), pb_trainer_close(scaled);
    }
    ctx->deterministic = false;
}

/* With a scale so large that gradients overflow, the step is skipped; with a smaller scale training continues. */
static void an_overflowing_loss_scale_skips_the_step(void **state)
{
    pb_ctx *ctx = *state;
    for (int variant = PB_CLIP_SYNC; variant <= PB_CLIP_MULTI; variant++) {
        pb_train_config c = config("tiny", PB_FULL);
        pb_adamw_state st;
        size_t n;
        c.clip = (pb_clip_variant)variant;
        c.loss_scale = 1e38f;
        pb_trainer *t = open_fixture(ctx, &c);
        float *before = snapshot(t, false, &n);
        CHECK_OK(pb_train_step(ctx, t));
        assert_true(isfinite(loss_of(t)));
        assert_same(before, snapshot(t, false, &n), n);
        CHECK_OK(pb_trainer_set_loss_scale(t, 1024));
        CHECK_OK(pb_train_step(ctx, t));
        CHECK_OK(pb_trainer_state(t, &st));
        assert_true(st.skipped == 1 && st.step == 1);
        pb_trainer_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(padding_changes_neither_loss_nor_gradients),
        cmocka_unit_test(short_rows_give_the_result_of_a_short_trainer),
        cmocka_unit_test(invalid_lengths_are_refused),
        cmocka_unit_test(reserved_scratch_is_enough),
        cmocka_unit_test(graphs_equal_eager_while_lengths_change),
        cmocka_unit_test(accumulated_graphs_equal_eager),
        cmocka_unit_test(the_least_recently_used_graph_is_evicted),
        cmocka_unit_test(a_failed_recording_ends_cleanly),
        cmocka_unit_test(a_power_of_two_loss_scale_changes_no_bit),
        cmocka_unit_test(an_overflowing_loss_scale_skips_the_step),
    };
    return cmocka_run_group_tests(tests, test_open_device, test_close);
}
