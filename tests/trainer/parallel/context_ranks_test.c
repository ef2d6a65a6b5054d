/* context_ranks_test.c - tests context parallelism: ranks that share rows have the loss and every gradient of one rank
 * with the same rows, for every tuning, both divisions, packed rows, several rows, recomputed activations and recorded
 * graphs; also together with data parallelism. */
#include "tests/trainer/parallel/context_fixture.h"

enum { ROW = 48 };

/* Conversations cross the borders of chunks. */
static const layout usual = {.row = ROW, .second = 7, .third = 31}, shorter = {.row = 24, .second = 7, .third = 20};

static int unit(pb_slicing slicing) { return pb_comm_size(context) * (slicing == PB_SLICING_CONTIGUOUS ? 1 : 2); }

static void ranks_have_the_gradients_of_one(void **state)
{
    for (int k = 0; k < 2 * 2 * PB_NTUNINGS * 2; k++) {
        pb_train_config c = context_config(k % 2 ? "tiny-qwen3" : "tiny", (pb_tuning)(k / 4 % PB_NTUNINGS),
                                           k / 12 ? PB_BF16 : PB_F32, ROW);
        c.slicing = (pb_slicing)(k / 2 % 2 + PB_SLICING_ZIGZAG);
        if (ROW % unit(c.slicing)) continue;
        c.packed = k % 3 != 0;
        c.comm = all;
        c.context = context;
        check(*state, &c, k % 5 == 0, &usual, &usual, c.model.dtype == PB_F32 ? 1e-5 : 2e-2);
    }
}

/* Dynamic-mask attention: keys are selected among those of the whole row, whatever rank has them. */
static void dynamic_masks_are_those_of_one(void **state)
{
    static const pb_attention_variant variants[] = {PB_ATTENTION_SPARSE, PB_ATTENTION_UNION, PB_ATTENTION_DENSE};
    for (int k = 0; k < 3 * 2 * 2 * 2; k++) {
        const pb_dtype dtype = k / 12 ? PB_BF16 : PB_F32;
        pb_train_config c = context_config("doge-tiny", k % 5 == 4 ? PB_LORA : PB_FULL, dtype, ROW);
        c.attention = variants[k % 3];
        c.slicing = (pb_slicing)(k / 3 % 2 + PB_SLICING_ZIGZAG);
        if (ROW % unit(c.slicing)) continue;
        c.packed = k / 6 % 2;
        c.recompute = k == 7 ? PB_RECOMPUTE_LAYER : PB_RECOMPUTE_NONE;
        c.comm = all;
        c.context = context;
        check(*state, &c, k % 4 == 0, &usual, k % 7 == 3 && 24 % unit(c.slicing) == 0 ? &shorter : &usual,
              dtype == PB_F32 ? 1e-5 : 2e-2);
    }
}

/* Shorter rows after longer ones: what the longer rows left in the buffers is not added. */
static void rows_may_become_shorter(void **state)
{
    for (int k = 0; k < 4; k++) {
        pb_train_config c = context_config("tiny", PB_FULL, PB_F32, ROW);
        c.slicing = (pb_slicing)(k % 2 + PB_SLICING_ZIGZAG);
        if (24 % unit(c.slicing)) continue;
        c.comm = all;
        c.context = context;
        c.packed = k / 2;
        check(*state, &c, false, &usual, &shorter, 1e-5);
    }
}

static void recomputed_activations_give_the_same(void **state)
{
    for (int k = 0; k < PB_NRECOMPUTES; k++) {
        pb_train_config c = context_config("tiny-qwen3", PB_LORA, PB_F32, ROW);
        if (ROW % unit(c.slicing)) return;
        c.comm = all;
        c.context = context;
        c.packed = true;
        c.recompute = (pb_recompute)k;
        check(*state, &c, k == PB_RECOMPUTE_LAYER, &usual, &usual, 1e-5);
    }
}

/* Two pairs of ranks: each pair shares the rows of one micro-batch. */
static void pairs_share_rows_and_gradients_are_those_of_all(void **state)
{
    for (int k = 0; pair && k < 2; k++) {
        pb_train_config c = context_config("tiny", PB_FULL, PB_F32, ROW);
        c.slicing = (pb_slicing)(k + PB_SLICING_ZIGZAG);
        c.comm = all;
        c.context = pair;
        c.packed = true;
        check(*state, &c, k == 1, &usual, &usual, 1e-5);
    }
}

/* The most memory that a trainer and a step allocate. */
static size_t peak_of(pb_ctx *ctx, pb_train_config c, pb_comm *comm, pb_comm *shared, pb_memory *memory)
{
    c.comm = comm;
    c.context = shared;
    pb_trainer *t = open_trainer(ctx, &c);
    CHECK_OK(pb_trainer_reserve(t, ROW));
    *memory = pb_trainer_memory(t);
    pb_trainer_close(t);
    return memory->activations;
}

static void memory_is_what_the_plan_says(void **state)
{
    for (int k = 0; k < 2; k++) {
        pb_train_config c = context_config("tiny-qwen3", PB_LORA, PB_BF16, ROW);
        pb_ctx plan;
        pb_comm *planned, *shared;
        pb_memory is, said;
        c.slicing = (pb_slicing)(k + PB_SLICING_ZIGZAG);
        if (ROW % unit(c.slicing)) continue;
        CHECK_OK(pb_ctx_open_plan(&plan, ((pb_ctx *)*state)->id));
        CHECK_OK(pb_comm_open_plan(&plan, "dp", pb_comm_rank(all), pb_comm_size(all), &planned));
        CHECK_OK(pb_comm_open_plan(&plan, "cp", pb_comm_rank(context), pb_comm_size(context), &shared));
        const size_t a = peak_of(*state, c, all, context, &is), b = peak_of(&plan, c, planned, shared, &said);
        assert_memory_equal(&is, &said, sizeof is);
        assert_int_equal(a, b);
        assert_true(a < peak_of(&plan, c, planned, NULL, &said)); /* less than with whole rows */
        pb_comm_close(shared);
        pb_comm_close(planned);
        pb_ctx_close(&plan);
    }
}

static void what_does_not_divide_is_refused(void **state)
{
    pb_trainer *t;
    pb_train_config c = context_config("tiny", PB_FULL, PB_F32, ROW);
    c.comm = all;
    c.context = context;
    c.S = ROW + 1;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "rows of 49 tokens");
    c.S = ROW;
    c.comm = NULL;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "needs the ranks that add gradients");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_have_the_gradients_of_one),
        cmocka_unit_test(dynamic_masks_are_those_of_one),
        cmocka_unit_test(rows_may_become_shorter),
        cmocka_unit_test(recomputed_activations_give_the_same),
        cmocka_unit_test(pairs_share_rows_and_gradients_are_those_of_all),
        cmocka_unit_test(memory_is_what_the_plan_says),
        cmocka_unit_test(what_does_not_divide_is_refused),
    };
    return cmocka_run_group_tests(tests, open_comms, close_comms);
}
