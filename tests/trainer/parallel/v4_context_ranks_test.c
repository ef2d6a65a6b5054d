/* v4_context_ranks_test.c - tests context parallelism of V4 attention: ranks that share rows have the loss and every
 * gradient of one rank with the same rows, with dense and sparse attention, trained indexers, FP8 keys, packed rows,
 * recomputed activations and recorded graphs; also together with data parallelism. */
#include "tests/trainer/parallel/context_fixture.h"

/* Slices are multiples of 128 tokens. Of the conversations of packed rows, one begins with a slice, and one crosses the
 * border of two, with two ranks in `usual`, with three in `thirds`. */
static const layout usual = {.row = 512, .second = 256, .third = 384},
                    crossing = {.row = 512, .second = 128, .third = 384},
                    thirds = {.row = 384, .second = 128, .third = 384};

static int slices(void) { return pb_comm_size(context); }
static const layout *rows_of(int number) { return slices() == 3 ? &thirds : number % 2 ? &crossing : &usual; }

static pb_train_config v4_config(pb_attention_variant attention, pb_dtype dtype)
{
    pb_train_config c = context_config("v4-tiny", PB_FULL, dtype, rows_of(0)->row);
    c.attention = attention;
    c.comm = all;
    c.context = context;
    return c;
}

static double tolerance(pb_dtype dtype) { return dtype == PB_F32 ? 1e-5 : 2e-2; }

static void ranks_have_the_gradients_of_one(void **state)
{
    for (int k = 0; k < 8; k++) {
        const pb_dtype dtype = k / 4 ? PB_BF16 : PB_F32;
        if (TEST_SANITIZED && k % 3) continue;
        pb_train_config c = v4_config(k % 2 ? PB_ATTENTION_SPARSE : PB_ATTENTION_DENSE, dtype);
        c.packed = k / 2 % 2;
        check(*state, &c, k % 3 == 0, rows_of(k), rows_of(k + 1), tolerance(dtype));
    }
}

/* A token attends to as many tokens before it as a slice has, with two ranks, and to more. */
static void windows_may_be_longer_than_a_slice(void **state)
{
    for (int k = 0; k < 2; k++) {
        pb_train_config c = v4_config(PB_ATTENTION_SPARSE, PB_F32);
        pb_v4_geometry wide = *c.model.geometry->v4;
        pb_geometry g = *c.model.geometry;
        wide.window = k ? 300 : 257;
        g.v4 = &wide;
        c.model.geometry = &g;
        c.packed = k;
        check(*state, &c, k, rows_of(k), rows_of(k + 1), 1e-5);
    }
}

/* The indexers' loss depends on all keys of the row, and their keys are pooled across the borders of slices. */
static void indexers_learn_the_same(void **state)
{
    for (int k = 0; k < 4; k++) {
        pb_train_config c = v4_config(PB_ATTENTION_SPARSE, PB_F32);
        c.model.index_loss = 0.3f;
        c.packed = k % 2;
        c.kv_qat = k / 2 ? PB_KV_QAT_UE8M0 : PB_KV_QAT_NONE;
        check(*state, &c, k == 3, rows_of(k), rows_of(k), 1e-5);
    }
}

static void recomputed_activations_give_the_same(void **state)
{
    for (int k = 0; k < PB_NRECOMPUTES; k++) {
        if (k == PB_RECOMPUTE_PRODUCTS || (TEST_SANITIZED && k != PB_RECOMPUTE_LAYER)) continue;
        pb_train_config c = v4_config(PB_ATTENTION_SPARSE, PB_F32);
        c.packed = true;
        c.model.index_loss = 0.3f;
        c.recompute = (pb_recompute)k;
        check(*state, &c, k == PB_RECOMPUTE_LAYER, rows_of(k), rows_of(k), 1e-5);
    }
}

/* Two pairs of ranks: each pair shares the rows of one micro-batch. */
static void pairs_share_rows_and_gradients_are_those_of_all(void **state)
{
    for (int k = 0; pair && k < 2; k++) {
        pb_train_config c = v4_config(PB_ATTENTION_SPARSE, PB_F32);
        c.context = pair;
        c.packed = true;
        check(*state, &c, k == 1, rows_of(k), rows_of(k + 1), 1e-5);
    }
}

static void memory_is_what_the_plan_says(void **state)
{
    pb_train_config c = v4_config(PB_ATTENTION_SPARSE, PB_BF16);
    pb_ctx plan;
    pb_comm *planned, *shared;
    c.packed = true;
    c.model.index_loss = 0.3f;
    CHECK_OK(pb_ctx_open_plan(&plan, ((pb_ctx *)*state)->id));
    CHECK_OK(pb_comm_open_plan(&plan, "dp", pb_comm_rank(all), pb_comm_size(all), &planned));
    CHECK_OK(pb_comm_open_plan(&plan, "cp", pb_comm_rank(context), pb_comm_size(context), &shared));
    pb_memory is, said;
    pb_trainer *t = open_trainer(*state, &c);
    CHECK_OK(pb_trainer_reserve(t, c.S));
    is = pb_trainer_memory(t);
    pb_trainer_close(t);
    c.comm = planned, c.context = shared;
    t = open_trainer(&plan, &c);
    CHECK_OK(pb_trainer_reserve(t, c.S));
    said = pb_trainer_memory(t);
    pb_trainer_close(t);
    assert_memory_equal(&is, &said, sizeof is);
    pb_comm_close(shared);
    pb_comm_close(planned);
    pb_ctx_close(&plan);
}

/* The FLOPs of a rank are the mean of the ranks. */
static void flops_are_those_of_one_rank_divided(void **state)
{
    for (int k = 0; k < 2; k++) {
        pb_train_config c = v4_config(k ? PB_ATTENTION_SPARSE : PB_ATTENTION_DENSE, PB_F32), one = c;
        one.comm = one.context = NULL;
        pb_trainer *t = open_trainer(*state, &c), *alone = open_trainer(*state, &one);
        const pb_flops is = pb_trainer_flops(t), whole = pb_trainer_flops(alone);
        CHECK_NEAR(is.forward * slices() / whole.forward, 1, 1e-12);
        CHECK_NEAR(is.backward * slices() / whole.backward, 1, 1e-12);
        pb_trainer_close(alone);
        pb_trainer_close(t);
    }
}

/* The expected numbers come from this loop in Python, with M = 128 (dense) and 48 (sparse):
 *     def keys(i): w = min(i + 1, 32); return 3 * w + min((i + 1) // 4, M) + min((i + 1) // 128, 4)
 *     sum(map(keys, range(256, 512))), sum(map(keys, range(512)))
 * The window has 32 tokens; of the compressed rows of 4 tokens, sparse attention selects 48. */
static void sparse_attention_is_nearly_balanced(void **state)
{
    if (slices() != 2) return;
    for (int k = 0; k < 2; k++) {
        pb_train_config c = v4_config(k ? PB_ATTENTION_SPARSE : PB_ATTENTION_DENSE, PB_F32);
        pb_trainer *t = open_trainer(*state, &c);
        CHECK_NEAR(pb_trainer_imbalance(t), k ? 2 * 37506.0 / 68356 : 2 * 49730.0 / 81076, 1e-12);
        pb_trainer_close(t);
    }
}

static void what_does_not_divide_is_refused(void **state)
{
    pb_trainer *t;
    pb_train_config c = v4_config(PB_ATTENTION_SPARSE, PB_F32);
    c.S += 64;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "so it needs a multiple of");
    c = v4_config(PB_ATTENTION_SPARSE, PB_F32);
    c.slicing = PB_SLICING_ZIGZAG;
    c.S = 256 * slices();
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "need contiguous slices: --slices contiguous");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_have_the_gradients_of_one),
        cmocka_unit_test(windows_may_be_longer_than_a_slice),
        cmocka_unit_test(indexers_learn_the_same),
        cmocka_unit_test(recomputed_activations_give_the_same),
        cmocka_unit_test(pairs_share_rows_and_gradients_are_those_of_all),
        cmocka_unit_test(memory_is_what_the_plan_says),
        cmocka_unit_test(flops_are_those_of_one_rank_divided),
        cmocka_unit_test(sparse_attention_is_nearly_balanced),
        cmocka_unit_test(what_does_not_divide_is_refused),
    };
    return cmocka_run_group_tests(tests, open_comms, close_comms);
}
