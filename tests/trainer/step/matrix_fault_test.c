/* matrix_fault_test.c - which matrix made the NaN guard skip a step, and the capture of its update: a replay reproduces
 * the NaN, and, of a block whose update is finite, the bits that the step computed. */
#include "os/disk.h"
#include "tests/folder_test.h"
#include "tests/trainer/step/trainer_fixture.h"
#include "trainer/capture/replay.h"
#include "trainer/io/safetensors.h"
#include "trainer/step/matrices.h"
#include "trainer/step/matrix_fault.h"

enum { LIMIT = 64 << 20, AT = 5 };

typedef struct settings {
    pb_guard_momentum momentum;
    bool nesterov, graph, bf16;
    pb_clip_variant clip;
} settings;

/* Trains a step, writes NaN into element AT of the momentum of layer 1's o, and trains a step that the guard skips. */
static pb_trainer *skipped(pb_ctx *ctx, const settings *s)
{
    const float nan = NAN;
    pb_train_config c = config("tiny", PB_FULL);
    pb_trainer *t;
    pb_graph *g = NULL;
    pb_adamw_state state;
    c.model.dtype = s->bf16 ? PB_BF16 : PB_F32;
    c.optimizer = PB_OPTIMIZER_NORMUON;
    c.normuon.guard = true;
    c.normuon.momentum = s->momentum;
    c.normuon.nesterov = s->nesterov;
    c.clip = s->clip;
    t = open_fixture(ctx, &c);
    CHECK_OK(pb_train_step(ctx, t));
    if (s->graph) CHECK_OK(pb_record(ctx, pb_train_step, t, &g));
    CHECK_OK(pb_upload(ctx, (float *)param_named(pb_trainer_model(t), "layers.1.o")->m + AT, &nan, sizeof nan));
    CHECK_OK(g ? pb_replay(ctx, g) : pb_train_step(ctx, t));
    pb_graph_free(ctx, g);
    CHECK_OK(pb_trainer_state(t, &state));
    assert_int_equal(state.guarded, 1);
    return t;
}

static const settings all[] = {
    {PB_GUARD_RESTORE, false, false, false, PB_CLIP_MULTI}, {PB_GUARD_RESTORE, true, true, false, PB_CLIP_NONE},
    {PB_GUARD_RESTORE, true, false, true, PB_CLIP_FUSED},   {PB_GUARD_KEEP, false, false, true, PB_CLIP_MULTI},
    {PB_GUARD_KEEP, true, false, false, PB_CLIP_MULTI},
};
enum { SETTINGS = sizeof all / sizeof *all };

/* Captures a block, and opens the file. */
static pb_captured *capture(pb_trainer *t, const pb_matrix_fault *f, const char *path)
{
    pb_capture *c;
    pb_captured *read;
    CHECK_OK(pb_matrix_fault_capture(t, f, LIMIT, &c));
    CHECK_OK(pb_capture_write(c, &pb_disk_posix, path));
    pb_capture_close(c);
    CHECK_OK(pb_captured_open(path, &read));
    return read;
}

/* Replays the last call, the orthogonalisation. */
static pb_replay_row factor(pb_captured *c, pb_ctx *ctx, const char *impl)
{
    pb_replay_row row[PB_MAX_BOUND];
    int n;
    CHECK_OK(pb_captured_replay(c, pb_captured_calls(c) - 1, ctx, impl, row, &n));
    assert_int_equal(n, 1);
    assert_string_equal(row[0].tensor, "y");
    return row[0];
}

static void the_matrix_is_found(void **state)
{
    pb_trainer *t = skipped(*state, &all[0]);
    const pb_matrices *x = &t->matrices;
    pb_matrix_fault f;
    const float inf = INFINITY;
    CHECK_OK(pb_matrix_fault_find(t, &f));
    assert_string_equal(f.name, "layers.1.o");
    assert_int_equal(f.layer, 1);
    assert_int_equal(f.row, 0);
    assert_int_equal(f.others, 0);
    for (int i = 0; i < x->blocks; i++) { /* a block that does not begin at row 0 of its tensor, and one more */
        const pb_matrix_block *b = &x->block[i];
        if (b->first == 0 || b->p->layer != 0) continue;
        CHECK_OK(pb_upload(t->ctx, (float *)x->u + b->at + b->p->cols + 2, &inf, sizeof inf));
        CHECK_OK(pb_matrix_fault_find(t, &f));
        assert_string_equal(f.name, b->p->name);
        assert_int_equal(f.row, b->first + 1);
        assert_int_equal(f.col, 2);
        assert_int_equal(f.elements, 1);
        assert_int_equal(f.others, 1);
        break;
    }
    CHECK_OK(pb_train_step(*state, t)); /* skipped again, with fresh updates */
    pb_trainer_close(t);
}

static void the_nan_is_replayed(void **state)
{
    for (int i = 0; i < SETTINGS; i++) {
        pb_trainer *t = skipped(*state, &all[i]);
        pb_matrix_fault f;
        CHECK_OK(pb_matrix_fault_find(t, &f));
        pb_captured *c = capture(t, &f, in_folder("nan"));
        assert_int_equal(pb_captured_calls(c), 1 + (all[i].momentum == PB_GUARD_RESTORE || all[i].nesterov));
        assert_string_equal(pb_captured_note(c, PB_NOTE_layer), "1");
        assert_string_equal(pb_captured_note(c, PB_NOTE_phase), "optimizer");
        assert_non_null(strstr(pb_captured_note(c, PB_NOTE_why), "first row 0, column 0 of layers.1.o"));
        assert_true(f.elements > 0);
        for (int ref = 0; ref < 2; ref++) {
            const pb_replay_row y = factor(c, *state, ref ? "ref" : NULL);
            assert_int_equal(y.captured, f.elements);
            assert_int_equal(y.now, f.elements);
            assert_true(y.agrees);
        }
        pb_captured_close(c);
        pb_trainer_close(t);
    }
}

/* A block with a finite update: the replay computes the bits of the step, so its inputs are those of the step. */
static void the_step_is_replayed(void **state)
{
    for (int i = 0; i < SETTINGS; i++) {
        pb_trainer *t = skipped(*state, &all[i]);
        const pb_matrices *x = &t->matrices;
        for (int b = 0; b < x->blocks; b += 11) {
            const pb_param *p = x->block[b].p;
            if (strcmp(p->name, "layers.1.o") == 0) continue;
            const pb_matrix_fault f = {.name = p->name, .layer = p->layer, .block = b};
            pb_captured *c = capture(t, &f, in_folder("step"));
            const pb_replay_row y = factor(c, *state, NULL);
            if (!y.same_bits) fail_msg("settings %d, block %d of %s: differs by %g", i, b, p->name, y.rel);
            assert_int_equal(y.captured, 0);
            pb_captured_close(c);
        }
        pb_trainer_close(t);
    }
}

static void extra_tensors_are_stored(void **state)
{
    pb_trainer *t = skipped(*state, &all[0]);
    const pb_param *p = param_named(pb_trainer_model(t), "layers.1.o");
    const struct {
        const char *name;
        const float *at;
    } tensors[] = {{"extra/gradient", p->sum}, {"extra/momentum", p->m}, {"extra/v", p->v}, {"extra/w", p->w}};
    pb_matrix_fault f;
    pb_safetensors *file;
    pb_capture *c;
    CHECK_OK(pb_matrix_fault_find(t, &f));
    pb_captured_close(capture(t, &f, in_folder("extra")));
    CHECK_OK(pb_st_open(in_folder("extra"), &file));
    for (int i = 0; i < 4; i++) {
        const pb_st_tensor *x = pb_st_find(file, tensors[i].name);
        assert_non_null(x);
        assert_int_equal(x->n, i == 2 ? p->rows : pb_param_n(p));
        float *want = test_fetch(t->ctx, tensors[i].at, x->bytes);
        assert_memory_equal(x->data, want, x->bytes);
        free(want);
    }
    pb_st_close(file);
    CHECK_FAILS(pb_matrix_fault_capture(t, &f, 1000, &c), PB_EINVAL, "more than its limit of 1000");
    pb_trainer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_matrix_is_found),
        cmocka_unit_test(the_nan_is_replayed),
        cmocka_unit_test(the_step_is_replayed),
        cmocka_unit_test(extra_tensors_are_stored),
    };
    return cmocka_run_group_tests(tests, test_open_folder, test_close_folder);
}
