/* context_ranks_test.c - tests context parallelism: ranks that share rows have the loss and every gradient of one rank
 * with the same rows, for every tuning, both divisions, packed rows, several rows, recomputed activations and recorded
 * graphs; also together with data parallelism. */
#include "tests/ranks/ranks_test.h"
#include "tests/trainer/step/trainer_fixture.h"
#include "trainer/step/graphs.h"
#include "trainer/step/trainer_impl.h"

enum { ROW = 48, ROWS = 2, TOKENS = ROW * ROWS };

static pb_comm *all, *context, *pair; /* all ranks; the same as a context; pairs of neighbours, NULL: an odd number */

static int open_comms(void **state)
{
    if (test_open_ranks(state) != 0) return -1;
    const int rank = pb_world_rank(test_world), ranks = pb_world_size(test_world);
    CHECK_OK(pb_comm_open(test_world, *state, "dp", 0, rank, &all));
    CHECK_OK(pb_comm_open(test_world, *state, "cp", 0, rank, &context));
    if (ranks % 2 == 0 && ranks > 2) CHECK_OK(pb_comm_open(test_world, *state, "cp", rank / 2, rank % 2, &pair));
    return 0;
}

static int close_comms(void **state)
{
    pb_comm_close(pair);
    pb_comm_close(context);
    pb_comm_close(all);
    return test_close_ranks(state);
}

typedef struct rows {
    int32_t ids[TOKENS], targets[TOKENS], start[TOKENS], pos[TOKENS];
    float mask[TOKENS];
} rows;

/* Rows of conversations of 7, 24 and 17 tokens, so that conversations cross the borders of chunks. */
static void fill(rows *r, int number, int V)
{
    static const int begin[] = {0, 7, 31, ROW};
    for (int i = 0; i < TOKENS; i++) {
        const uint64_t at = (uint64_t)(number * TOKENS + i);
        int k = 0;
        while (i % ROW >= begin[k + 1]) k++;
        r->ids[i] = (int32_t)(pb_uniform(1, at) * V);
        r->targets[i] = (int32_t)(pb_uniform(2, at) * V);
        r->mask[i] = pb_uniform(3, at) < 0.7 - 0.3 * (i / ROW);
        r->start[i] = begin[k];
        r->pos[i] = i % ROW - begin[k];
    }
}

static pb_train_config context_config(const char *model, pb_tuning tuning, pb_dtype dtype)
{
    pb_train_config c = config(model, tuning);
    c.model.dtype = dtype;
    c.B = ROWS;
    c.S = ROW;
    c.bucket_bytes = 30000;
    return c;
}

/* Sets micro-batch `number` of a step of `n`. row: tokens of its rows. */
static void set(pb_trainer *t, int number, int n, int row)
{
    rows r[4], *own = &r[number];
    double count = 0;
    for (int i = 0; i < n; i++) {
        fill(&r[i], i, pb_trainer_model(t)->g.V);
        for (int b = 1; b < ROWS && row < ROW; b++) { /* shorter rows: the beginnings of the long ones */
            memmove(r[i].ids + b * row, r[i].ids + b * ROW, (size_t)row * sizeof *r[i].ids);
            memmove(r[i].targets + b * row, r[i].targets + b * ROW, (size_t)row * sizeof *r[i].targets);
            memmove(r[i].mask + b * row, r[i].mask + b * ROW, (size_t)row * sizeof *r[i].mask);
            memmove(r[i].start + b * row, r[i].start + b * ROW, (size_t)row * sizeof *r[i].start);
            memmove(r[i].pos + b * row, r[i].pos + b * ROW, (size_t)row * sizeof *r[i].pos);
        }
        for (int k = 0; k < ROWS * row; k++) count += (double)r[i].mask[k];
    }
    const bool packed = pb_trainer_config(t)->packed;
    CHECK_OK(pb_trainer_set_batch(t, &(pb_batch){.ids = own->ids,
                                                 .targets = own->targets,
                                                 .mask = own->mask,
                                                 .count = count,
                                                 .start = packed ? own->start : NULL,
                                                 .pos = packed ? own->pos : NULL,
                                                 .S = row}));
}

static double norm_of(const float *x, const float *y, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)x[i] - (y ? (double)y[i] : 0);
        sum += d * d;
    }
    return sqrt(sum);
}

/* Compares the loss `want`, and the gradient of every tensor with that of one rank: relative L2 norm of the
 * difference. */
static void compare(pb_ctx *ctx, pb_trainer *t, pb_trainer *alone, double want, double tol)
{
    double part[8], loss = 0;
    bool stop;
    CHECK_OK(pb_trainer_losses(t, part, &stop));
    for (int i = 0; i < pb_comm_size(all); i++) loss += part[i];
    if (!(fabs(loss - want) <= tol * want)) fail_msg("loss %.9g, but %.9g on one rank", loss, want);
    for (int i = 0; i < t->model.ordered; i++) {
        const pb_param *p = t->model.order[i], *q = alone->model.order[i];
        const size_t n = pb_param_n(p);
        float *x = test_fetch(ctx, p->sum, n * sizeof *x), *y = test_fetch(ctx, q->sum, n * sizeof *y);
        const double d = norm_of(x, y, n), of = norm_of(y, NULL, n);
        if (!(d <= tol * of)) fail_msg("%s: gradient differs by %.3g of its norm %.3g", p->name, d / of, of);
        free(x);
        free(y);
    }
}

/* Makes three backward passes of one micro-batch, with rows of `row` tokens in the last two (eager, or recorded and
 * replayed), and compares them with one rank. */
static void check(pb_ctx *ctx, const pb_train_config *c, bool graph, int row, double tol)
{
    pb_train_config one = *c;
    pb_graphs g = {0};
    one.comm = one.context = NULL;
    one.recompute = PB_RECOMPUTE_NONE;
    pb_trainer *t = open_trainer(ctx, c), *alone = open_trainer(ctx, &one);
    const int groups = pb_comm_size(all) / pb_comm_size(c->context),
              number = pb_comm_rank(all) / pb_comm_size(c->context);
    for (int i = 0; i < 3; i++) {
        set(t, number, groups, i ? row : ROW);
        CHECK_OK(graph ? pb_graphs_run(&g, ctx, t, pb_train_micro) : pb_train_micro(ctx, t));
    }
    assert_true(!graph || g.replayed > 0);
    double loss = 0;
    for (int i = 0; i < groups; i++) {
        set(alone, i, groups, row);
        pb_trainer_accumulate(alone, i > 0);
        CHECK_OK(pb_train_micro(ctx, alone));
        loss += loss_of(alone);
    }
    compare(ctx, t, alone, loss, tol);
    pb_graphs_free(&g, ctx);
    pb_trainer_close(alone);
    pb_trainer_close(t);
}

static int unit(pb_slicing slicing) { return pb_comm_size(context) * (slicing == PB_SLICING_ZIGZAG ? 2 : 1); }

static void ranks_have_the_gradients_of_one(void **state)
{
    for (int k = 0; k < 2 * 2 * PB_NTUNINGS * 2; k++) {
        pb_train_config c =
            context_config(k % 2 ? "tiny-qwen3" : "tiny", (pb_tuning)(k / 4 % PB_NTUNINGS), k / 12 ? PB_BF16 : PB_F32);
        c.slicing = (pb_slicing)(k / 2 % 2);
        if (ROW % unit(c.slicing)) continue;
        c.packed = k % 3 != 0;
        c.comm = all;
        c.context = context;
        check(*state, &c, k % 5 == 0, ROW, c.model.dtype == PB_F32 ? 1e-5 : 2e-2);
    }
}

/* Shorter rows after longer ones: what the longer rows left in the buffers is not added. */
static void rows_may_become_shorter(void **state)
{
    for (int k = 0; k < 4; k++) {
        pb_train_config c = context_config("tiny", PB_FULL, PB_F32);
        c.slicing = (pb_slicing)(k % 2);
        if (24 % unit(c.slicing)) continue;
        c.comm = all;
        c.context = context;
        c.packed = k / 2;
        check(*state, &c, false, 24, 1e-5);
    }
}

static void recomputed_activations_give_the_same(void **state)
{
    for (int k = 0; k < PB_NRECOMPUTES; k++) {
        pb_train_config c = context_config("tiny-qwen3", PB_LORA, PB_F32);
        if (ROW % unit(c.slicing)) return;
        c.comm = all;
        c.context = context;
        c.packed = true;
        c.recompute = (pb_recompute)k;
        check(*state, &c, k == PB_RECOMPUTE_LAYER, ROW, 1e-5);
    }
}

/* Two pairs of ranks: each pair shares the rows of one micro-batch. */
static void pairs_share_rows_and_gradients_are_those_of_all(void **state)
{
    for (int k = 0; pair && k < 2; k++) {
        pb_train_config c = context_config("tiny", PB_FULL, PB_F32);
        c.slicing = (pb_slicing)k;
        c.comm = all;
        c.context = pair;
        c.packed = true;
        check(*state, &c, k == 1, ROW, 1e-5);
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
        pb_train_config c = context_config("tiny-qwen3", PB_LORA, PB_BF16);
        pb_ctx plan;
        pb_comm *planned, *shared;
        pb_memory is, said;
        c.slicing = (pb_slicing)k;
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
    pb_train_config c = context_config("tiny", PB_FULL, PB_F32);
    c.comm = all;
    c.context = context;
    c.S = ROW + 1;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "rows of 49 tokens");
    c.S = ROW;
    c.comm = NULL;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "needs the ranks that add gradients");
    c = context_config("v4-tiny", PB_FULL, PB_F32);
    c.comm = all;
    c.context = context;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "not for v4-tiny");
    c = context_config("doge-tiny", PB_FULL, PB_F32);
    c.comm = all;
    c.context = context;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "no dynamic-mask attention, which doge-tiny has");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_have_the_gradients_of_one),
        cmocka_unit_test(rows_may_become_shorter),
        cmocka_unit_test(recomputed_activations_give_the_same),
        cmocka_unit_test(pairs_share_rows_and_gradients_are_those_of_all),
        cmocka_unit_test(memory_is_what_the_plan_says),
        cmocka_unit_test(what_does_not_divide_is_refused),
    };
    return cmocka_run_group_tests(tests, open_comms, close_comms);
}
