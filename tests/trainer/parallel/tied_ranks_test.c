/* tied_ranks_test.c - tests the gradient of a tied embedding whose lookup part travels as rows of tokens: it is that of
 * one rank that accumulates the same micro-batches, up to rounding, for every reduction and every kind of sharding, and
 * the same on all ranks. Also tests which gradients the backward pass writes in bf16. */
#include "tests/ranks/ranks_test.h"
#include "tests/trainer/step/trainer_fixture.h"
#include "trainer/step/gradients.h"
#include "trainer/step/graphs.h"
#include "trainer/step/shards.h"
#include "trainer/step/token_rows.h"

static pb_comm *comm;

static int open_comm(void **state)
{
    if (test_open_ranks(state) != 0) return -1;
    CHECK_OK(pb_comm_open(test_world, *state, "dp", 0, pb_world_rank(test_world), &comm));
    return 0;
}

static int close_comm(void **state)
{
    pb_comm_close(comm);
    return test_close_ranks(state);
}

/* Runs micro-batches first, first+step, ... of `all`, without the optimizer; g NULL: eagerly. */
static void run_micro_batches(pb_ctx *ctx, pb_graphs *g, pb_trainer *t, int first, int step, int all)
{
    for (int i = first; i < all; i += step) {
        fixture_batch(t, i * B, B, 50);
        pb_trainer_accumulate(t, i != first);
        pb_trainer_reduce(t, i + step >= all);
        CHECK_OK(g ? pb_graphs_run(g, ctx, t, pb_train_micro) : pb_train_micro(ctx, t));
    }
}

/* Compares n elements with those of one rank, whose largest one is `most`. */
static void check_near(const float *got, const float *want, size_t n, double most, double tol)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= tol * most))
            fail_msg("element %zu: %.9g, but %.9g on one rank (largest %.3g)", i, (double)got[i], (double)want[i],
                     most);
}

static void check_step(pb_ctx *ctx, const pb_train_config *c, int parts)
{
    const int ranks = pb_comm_size(comm), all = parts * ranks;
    pb_train_config one = *c;
    pb_graphs g = {0};
    one.comm = NULL;
    pb_trainer *t = open_trainer(ctx, c), *alone = open_trainer(ctx, &one);
    CHECK_OK(pb_trainer_shard(t));
    assert_true(t->rows.on);
    /* eagerly, then recorded and replayed, then replayed */
    for (int i = 0; i < 3; i++) run_micro_batches(ctx, &g, t, pb_comm_rank(comm), ranks, all);
    assert_true(g.replayed >= 2);
    run_micro_batches(ctx, NULL, alone, 0, 1, all);
    const pb_param *embed = t->model.outer[PB_P_embed];
    for (int i = 0; i < t->gradients.buckets.n; i++) {
        const pb_bucket *b = &t->gradients.buckets.bucket[i];
        assert_int_equal(pb_bucket_due(t, b), b->at == embed->at ? 0 : b->stage); /* before the layers' */
    }
    const size_t n = pb_param_n(embed);
    float *want = test_fetch(ctx, alone->model.outer[PB_P_embed]->sum, n * sizeof *want);
    double most = 0;
    for (size_t i = 0; i < n; i++) most = fmax(most, fabs((double)want[i]));
    /* f32: the same numbers in another order. bf16: three roundings, of each rank's head part, of their sum, and of that
     * sum after the rows are added. */
    const bool bf16 = c->reduce == PB_REDUCE_BF16;
    const double tol = bf16 ? (parts + 2) * 0x1p-8 : 1e-5;
    for (int i = 0; i < t->gradients.slices.n; i++) {
        const pb_piece *x = &t->gradients.slices.piece[i];
        if (x->p != embed || (bf16 && !t->shards.on)) continue; /* p->sum is not valid then */
        float *got = test_fetch(ctx, pb_shards_grad(t, x), x->n * sizeof *got);
        check_near(got, want + x->first, x->n, most, tol);
        free(got);
    }
    if (!t->shards.on) {
        pb_dtype dtype;
        void *sum = pb_gradient_sum(t, embed, &dtype);
        assert_int_equal(dtype, bf16 ? PB_BF16 : PB_F32);
        void *read = test_fetch(ctx, sum, n * pb_dtype_size(dtype));
        float *got = malloc(n * sizeof *got), *everyone = malloc((size_t)ranks * n * sizeof *got);
        assert_non_null(got);
        for (size_t i = 0; i < n; i++) got[i] = (float)pb_load(read, i, dtype);
        free(read);
        assert_non_null(everyone);
        CHECK_OK(pb_world_gather(test_world, "gradients", got, n * sizeof *got, everyone));
        for (int r = 0; r < ranks; r++) assert_memory_equal(everyone + (size_t)r * n, got, n * sizeof *got);
        check_near(got, want, n, most, tol);
        free(everyone);
        free(got);
    }
    free(want);
    pb_graphs_free(&g, ctx);
    pb_trainer_close(alone);
    pb_trainer_close(t);
}

static void the_gradient_is_that_of_one_rank(void **state)
{
    for (int shard = 0; shard < PB_NSHARDS; shard++)
        for (int k = 0; k < 2 * PB_NREDUCES * 2; k++) {
            const int parts = 1 + k % 2;
            pb_train_config c = config("tiny", PB_FULL);
            c.model.dtype = k / 4 ? PB_BF16 : PB_F32;
            c.comm = comm;
            c.shard = (pb_shard)shard;
            c.reduce = (pb_reduce)(k / 2 % 2);
            c.bucket_bytes = 30000;
            c.micro_batches = parts;
            c.clip = PB_CLIP_MULTI;
            check_step(*state, &c, parts);
        }
}

/* Rows do not travel where the sum must not depend on the ranks, or where they are more than the embedding. */
static void rows_do_not_travel_where_they_must_not(void **state)
{
    for (int k = 0; k < 3; k++) {
        pb_train_config c = config(k == 2 ? "tiny-llama" : "tiny", PB_FULL);
        c.comm = comm;
        c.ordered = k == 0;
        c.B = k == 1 ? 16 : B; /* 272 rows of f32 per rank, as many as the embedding has */
        pb_trainer *t = open_trainer(*state, &c);
        assert_false(t->rows.on);
        pb_trainer_close(t);
    }
}

static pb_dtype dtype_written(const pb_trainer *t, const pb_param *p)
{
    pb_dtype dtype;
    const void *at = pb_gradient_written(t, p, &dtype);
    assert_ptr_equal(at, dtype == PB_BF16 ? (const void *)(t->gradients.narrow + p->at) : p->grad);
    return dtype;
}

/* Only a gradient that one op computes from one micro-batch is written in bf16. */
static void bf16_gradients_are_written_where_one_op_computes_them(void **state)
{
    pb_train_config c = config("tiny", PB_FULL);
    c.comm = comm;
    c.model.dtype = PB_BF16;
    c.reduce = PB_REDUCE_BF16;
    for (int chunk = 0; chunk <= c.B * c.S; chunk += c.B * c.S / 2) {
        c.loss_chunk = c.mlp_chunk = chunk;
        c.recompute = PB_RECOMPUTE_MLP;
        pb_trainer *t = open_trainer(*state, &c);
        const pb_param *head = t->model.outer[PB_P_embed], *o = pb_layer_param(&t->model, 1, PB_P_o);
        const bool chunks = chunk && chunk < c.B * c.S;
        assert_int_equal(dtype_written(t, head), chunks ? PB_F32 : PB_BF16);
        assert_int_equal(dtype_written(t, o), PB_BF16);
        assert_int_equal(dtype_written(t, pb_layer_param(&t->model, 1, PB_P_down)), chunks ? PB_F32 : PB_BF16);
        assert_int_equal(dtype_written(t, pb_layer_param(&t->model, 1, PB_P_norm1)), PB_F32);
        pb_trainer_accumulate(t, true); /* the last of several micro-batches */
        assert_int_equal(dtype_written(t, o), PB_F32);
        pb_trainer_accumulate(t, false);
        pb_trainer_reduce(t, false); /* the first of several micro-batches */
        assert_int_equal(dtype_written(t, o), PB_F32);
        assert_int_equal(dtype_written(t, head), PB_F32);
        pb_trainer_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gradient_is_that_of_one_rank),
        cmocka_unit_test(rows_do_not_travel_where_they_must_not),
        cmocka_unit_test(bf16_gradients_are_written_where_one_op_computes_them),
    };
    return cmocka_run_group_tests(tests, open_comm, close_comm);
}
