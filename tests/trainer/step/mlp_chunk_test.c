/* mlp_chunk_test.c - tests of the MLP in chunks of tokens: the same loss and gradients as with all tokens at once,
 * eagerly and in graphs; memory for the MLP of a chunk only, which the plan backend predicts; evaluation. */
#include "tests/trainer/step/chunk_fixture.h"

/* A configuration whose MLP may be in chunks. */
static pb_train_config chunked_case(int i, int chunk)
{
    pb_train_config c = case_of(i);
    c.recompute = i % 2 ? PB_RECOMPUTE_LAYER : PB_RECOMPUTE_MLP;
    c.mlp_chunk = chunk;
    return c;
}

/* Sums over tokens, in gradients of weights, have another order; products of fewer rows may round differently. */
static void chunks_give_the_loss_and_gradients_of_all_tokens(void **state)
{
    static const int sizes[] = {1, 5, 17, T - 1, T, 1000};
    ((pb_ctx *)*state)->deterministic = true;
    for (int i = 0; i < CASES; i++) {
        pb_train_config c = chunked_case(i, 0);
        const bool narrow = c.model.dtype == PB_BF16;
        outcome all = train(*state, &c, false);
        c.mlp_chunk = sizes[i % 6];
        outcome some = train(*state, &c, false);
        for (int k = 0; k < MICRO; k++) CHECK_NEAR(some.loss[k], all.loss[k], (narrow ? 4e-3 : 2e-6) * all.loss[k]);
        const double d = apart(some.grads, all.grads, all.ngrads);
        if (!(d <= (narrow ? 2e-2 : 2e-5)))
            fail_msg("case %d, chunks of %d: gradients differ by %g", i, c.mlp_chunk, d);
        free_outcome(&all), free_outcome(&some);
    }
    ((pb_ctx *)*state)->deterministic = false;
}

static void graphs_give_the_same_bits(void **state)
{
    ((pb_ctx *)*state)->deterministic = true;
    for (int i = 0; i < CASES; i += 2) {
        pb_train_config c = chunked_case(i + 1 < CASES ? i + i / 2 % 2 : i, 7);
        outcome want = train(*state, &c, false), got = train(*state, &c, true);
        assert_memory_equal(want.loss, got.loss, sizeof want.loss);
        assert_same(want.grads, got.grads, want.ngrads);
        assert_same(want.state, got.state, want.nstate);
    }
    ((pb_ctx *)*state)->deterministic = false;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* The bytes of the buffers in which layers compute: those of the MLP of `rows` tokens, over which those of attention's
 * backward pass are, unless they are over the residual stream. */
static size_t working(const pb_trainer *t, size_t rows)
{
    const pb_geometry *g = &t->model.g;
    const size_t e = pb_dtype_size(t->model.cfg.dtype), I = (size_t)g->I, heads = (size_t)g->H * (size_t)g->d;
    const bool reads_both = t->model.cfg.tuning != PB_FULL; /* the adapter of `down` */
    const size_t mlp = piece(rows * 2 * I * e) + (reads_both ? 2 : 1) * piece(rows * I * e);
    const size_t width = heads + 2 * (size_t)g->K * (size_t)g->d;
    const size_t scratch = piece(T * width * e) + (heads > (size_t)g->D ? piece(T * heads * e) : 0);
    return t->cfg.recompute == PB_RECOMPUTE_MLP && scratch > mlp ? scratch : mlp;
}

static void only_a_chunk_of_the_mlp_is_in_memory(void **state)
{
    for (int i = 0; i < CASES; i++) {
        pb_train_config c = chunked_case(i, 0);
        pb_trainer *all = open_trainer(*state, &c);
        c.mlp_chunk = 3;
        pb_trainer *some = open_trainer(*state, &c);
        assert_int_equal(pb_trainer_memory(all).activations - pb_trainer_memory(some).activations,
                         working(all, T) - working(some, 3));
        pb_trainer_close(all), pb_trainer_close(some);
    }
}

static void the_plan_is_exact(void **state)
{
    for (int i = 0; i < CASES; i++) {
        const pb_train_config c = chunked_case(i, i % 3 ? 7 : 40);
        check_plan(*state, &c);
    }
}

/* ---- evaluation and what is refused --------------------------------------------------------------------------------- */

static void a_frozen_model_needs_no_recomputation(void **state)
{
    double loss[2];
    for (int i = 0; i < 2; i++) {
        pb_train_config c = config("tiny-qwen3", PB_LORA);
        c.model.frozen = true;
        c.mlp_chunk = i ? 6 : 0;
        pb_trainer *t = open_fixture(*state, &c);
        run_phases(*state, t, PB_PHASE_forward, PB_PHASE_loss);
        loss[i] = loss_of(t);
        pb_trainer_close(t);
    }
    CHECK_NEAR(loss[1], loss[0], 2e-6 * loss[0]);
}

static void what_cannot_be_is_refused(void **state)
{
    pb_train_config c = config("tiny", PB_LORA);
    pb_trainer *t = NULL;
    c.mlp_chunk = -1;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "MLP chunk -1");
    c.mlp_chunk = 8;
    c.recompute = PB_RECOMPUTE_ATTENTION;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL,
                "MLP chunk 8: the MLP's activations must be computed again");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_give_the_loss_and_gradients_of_all_tokens),
        cmocka_unit_test(graphs_give_the_same_bits),
        cmocka_unit_test(only_a_chunk_of_the_mlp_is_in_memory),
        cmocka_unit_test(the_plan_is_exact),
        cmocka_unit_test(a_frozen_model_needs_no_recomputation),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, test_open_device, test_close);
}
