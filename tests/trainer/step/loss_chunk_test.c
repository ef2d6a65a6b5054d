/* loss_chunk_test.c - tests of the head in chunks of tokens: the same loss and gradients as with the logits of all
 * tokens, eagerly, in graphs and with recomputed activations; memory for the logits of a chunk only, which the plan
 * backend predicts; evaluation without gradients. trainer_test compares the gradients with PyTorch's. */
#include "tests/trainer/step/chunk_fixture.h"

/* Sums over tokens have another order: the first step's loss and gradients differ by rounding of f32, also in bf16,
 * where the gradient of a token's logits is the same and gradients of weights are f32. */
static void chunks_give_the_loss_and_gradients_of_all_tokens(void **state)
{
    static const int sizes[] = {1, 5, 17, T - 1, T, 1000};
    ((pb_ctx *)*state)->deterministic = true;
    for (int i = 0; i < CASES; i++) {
        pb_train_config c = case_of(i);
        const double of_loss = c.model.dtype == PB_F32 ? 2e-6 : 4e-3, bound = c.model.dtype == PB_F32 ? 2e-5 : 4e-3;
        outcome all = train(*state, &c, false);
        c.loss_chunk = sizes[i % 6];
        outcome some = train(*state, &c, false);
        for (int k = 0; k < MICRO; k++) CHECK_NEAR(some.loss[k], all.loss[k], of_loss * all.loss[k]);
        const double d = apart(some.grads, all.grads, all.ngrads);
        if (!(d <= bound)) fail_msg("case %d, chunks of %d: gradients differ by %g", i, c.loss_chunk, d);
        free_outcome(&all), free_outcome(&some);
    }
    ((pb_ctx *)*state)->deterministic = false;
}

/* Replayed graphs and recomputed activations do not change a bit. */
static void graphs_and_recomputation_give_the_same_bits(void **state)
{
    ((pb_ctx *)*state)->deterministic = true;
    for (int i = 0; i < CASES; i += 2) {
        pb_train_config c = case_of(i);
        c.loss_chunk = 7;
        outcome want = train(*state, &c, false);
        c.recompute = (pb_recompute)(i / 2 % PB_NRECOMPUTES);
        outcome got = train(*state, &c, true);
        assert_memory_equal(want.loss, got.loss, sizeof want.loss);
        assert_same(want.grads, got.grads, want.ngrads);
        assert_same(want.state, got.state, want.nstate);
    }
    ((pb_ctx *)*state)->deterministic = false;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* The logits of a chunk use memory of the MLP, which is not in use while the loss is computed. The vocabulary is so large
 * that the logits of all tokens would not fit there. */
static void only_a_chunk_of_logits_is_in_memory(void **state)
{
    for (int i = 0; i < CASES; i += 5) {
        pb_train_config c = case_of(i);
        pb_geometry large = *c.model.geometry;
        large.V = 8 * large.I;
        c.model.geometry = &large;
        const size_t row = (size_t)large.V * pb_dtype_size(c.model.dtype);
        pb_trainer *all = open_trainer(*state, &c);
        c.loss_chunk = 3;
        pb_trainer *some = open_trainer(*state, &c);
        assert_int_equal(pb_trainer_memory(some).activations,
                         pb_trainer_memory(all).activations - piece(T * row) + piece(sizeof(float)));
        assert_null(pb_trainer_logits(some));
        pb_trainer_close(all), pb_trainer_close(some);
    }
}

static void the_plan_is_exact(void **state)
{
    for (int i = 0; i < CASES; i++) {
        pb_train_config c = case_of(i);
        c.loss_chunk = i % 2 ? 7 : 40;
        check_plan(*state, &c);
    }
}

/* ---- the loss alone ---------------------------------------------------------------------------------------------- */

/* An evaluation between steps gives the loss of a training step and leaves the gradients as they are. It also runs on a
 * frozen model, which has no gradients. */
static void an_evaluation_computes_no_gradient(void **state)
{
    pb_train_config c = config("tiny", PB_FULL);
    size_t n;
    c.loss_chunk = 9;
    pb_trainer *t = open_fixture(*state, &c);
    run_phases(*state, t, PB_PHASE_forward, PB_PHASE_backward);
    const double loss = loss_of(t);
    float *before = snapshot(t, true, &n);
    pb_trainer_evaluates(t, true);
    run_phases(*state, t, PB_PHASE_forward, PB_PHASE_loss);
    assert_true(loss_of(t) == loss);
    assert_same(before, snapshot(t, true, &n), n);
    pb_trainer_evaluates(t, false);
    fixture_batch(t, B, B, 0);
    run_phases(*state, t, PB_PHASE_forward, PB_PHASE_loss);
    assert_true(loss_of(t) != loss);
    pb_trainer_close(t);
    c.model.frozen = true;
    t = open_fixture(*state, &c);
    run_phases(*state, t, PB_PHASE_forward, PB_PHASE_loss);
    assert_true(loss_of(t) == loss);
    pb_trainer_close(t);
}

/* Rows that are shorter than the longest use the same chunks of the tokens that are there. */
static void shorter_rows_have_fewer_chunks(void **state)
{
    const int S_ = 8;
    float nll[2][B * 8];
    for (int i = 0; i < 2; i++) {
        pb_train_config c = config("tiny-llama", PB_LORA);
        int32_t ids[B * 8], targets[B * 8];
        float mask[B * 8];
        for (int k = 0; k < B * S_; k++) ids[k] = 3 * k + 1, targets[k] = 5 * k + 2, mask[k] = k % 3 > 0;
        c.loss_chunk = i ? 6 : 0;
        pb_trainer *t = open_trainer(*state, &c);
        CHECK_OK(pb_trainer_set_batch(t, &(pb_batch){.ids = ids, .targets = targets, .mask = mask, .S = S_}));
        run_phases(*state, t, PB_PHASE_forward, PB_PHASE_optimizer);
        CHECK_OK(pb_trainer_nll(t, nll[i]));
        pb_trainer_close(t);
    }
    for (int k = 0; k < B * S_; k++) CHECK_NEAR((double)nll[1][k], (double)nll[0][k], 1e-5);
}

static void a_negative_chunk_is_refused(void **state)
{
    pb_train_config c = config("tiny", PB_LORA);
    pb_trainer *t = NULL;
    c.loss_chunk = -1;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "loss chunk -1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_give_the_loss_and_gradients_of_all_tokens),
        cmocka_unit_test(graphs_and_recomputation_give_the_same_bits),
        cmocka_unit_test(only_a_chunk_of_logits_is_in_memory),
        cmocka_unit_test(the_plan_is_exact),
        cmocka_unit_test(an_evaluation_computes_no_gradient),
        cmocka_unit_test(shorter_rows_have_fewer_chunks),
        cmocka_unit_test(a_negative_chunk_is_refused),
    };
    return cmocka_run_group_tests(tests, test_open_device, test_close);
}
