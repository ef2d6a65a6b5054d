/* weights_ranks_test.c - tests sharded weights over several ranks: rank 0 reads the same weights as a job of one rank;
 * if a read fails, all ranks return; each rank needs the memory that the plan backend computes; the slices of all ranks
 * together are the model. */
#include "tests/ranks/ranks_test.h"
#include "tests/trainer/step/trainer_fixture.h"
#include "trainer/step/trainer_impl.h"

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

static pb_train_config config_of(const char *model, pb_tuning tuning, pb_dtype dtype)
{
    pb_train_config c = config(model, tuning);
    c.model.dtype = dtype;
    c.comm = comm;
    c.shard = PB_SHARD_PARAMETERS;
    return c;
}

typedef struct reading {
    pb_trainer *sharded, *whole;
    int from; /* the first parameter that is read */
} reading;

static pb_status same_bytes(const pb_ctx *ctx, const pb_param *p, const void *x, const void *y, size_t n)
{
    unsigned char *a = test_fetch((pb_ctx *)ctx, x, n), *b = test_fetch((pb_ctx *)ctx, y, n);
    const bool same = memcmp(a, b, n) == 0;
    free(b);
    free(a);
    return same ? PB_OK : pb_fail(PB_EWRONG, "%s differs", p->name);
}

static pb_status same_scales(const pb_ctx *ctx, const pb_param *x, const pb_param *y, size_t blocks)
{
    const pb_nf4_scales *a = &x->scales, *b = &y->scales;
    if (!b->absmax_q) return same_bytes(ctx, x, a->absmax, b->absmax, blocks * sizeof(float));
    PB_TRY(same_bytes(ctx, x, a->absmax_q, b->absmax_q, blocks));
    PB_TRY(same_bytes(ctx, x, a->absmax2, b->absmax2, (blocks + 255) / 256 * sizeof(float)));
    PB_TRY(same_bytes(ctx, x, a->code, b->code, 256 * sizeof(float)));
    return same_bytes(ctx, x, a->offset, b->offset, sizeof(float));
}

/* Compares all parameters with those of a trainer that keeps them whole: from `from` on, then the others. */
static pb_status compare(void *self)
{
    const reading *r = self;
    pb_model *m = pb_trainer_model(r->sharded), *w = pb_trainer_model(r->whole);
    for (int k = 0; k < m->n; k++) {
        const pb_param *x = &m->params[(r->from + k) % m->n], *y = &w->params[(r->from + k) % m->n];
        const size_t n = pb_param_n(x), block = (size_t)m->cfg.nf4_block;
        PB_TRY(pb_model_hold(m, x));
        if (!x->q) {
            PB_TRY(same_bytes(m->ctx, x, x->w, y->w, n * pb_dtype_size(x->dtype)));
            continue;
        }
        PB_TRY(same_bytes(m->ctx, x, x->q, y->q, (n + 1) / 2));
        PB_TRY(same_scales(m->ctx, x, y, (n + block - 1) / block));
    }
    return PB_OK;
}

/* As a step does, overwrites what the buffers held. */
static void clear_buffers(pb_trainer *t)
{
    for (int i = 0; i < t->weights.units.n; i++)
        if (t->weights.units.unit[i].size) CHECK_OK(pb_zero(t->ctx, t->weights.at[i], t->weights.units.unit[i].size));
}

static void rank_0_reads_the_weights_of_one_rank(void **state)
{
    for (int tuning = 0; tuning <= PB_NTUNINGS; tuning++) /* the last: QLoRA with double quantisation */
        for (int tied = 0; tied < 2; tied++) {
            const bool twice = tuning == PB_NTUNINGS;
            pb_train_config c = config_of(tied ? "tiny" : "tiny-llama", twice ? PB_QLORA : (pb_tuning)tuning,
                                          tuning == PB_LORA ? PB_BF16 : PB_F32);
            c.model.nf4_double = twice;
            reading r = {.sharded = open_trainer(*state, &c)};
            CHECK_OK(pb_trainer_shard(r.sharded));
            c.comm = NULL;
            r.whole = open_trainer(*state, &c);
            CHECK_OK(pb_trainer_read(r.sharded, compare, &r));
            clear_buffers(r.sharded);
            r.from = pb_trainer_model(r.sharded)->n - 1; /* in the unit that was gathered last */
            CHECK_OK(pb_trainer_read(r.sharded, compare, &r));
            pb_trainer_close(r.whole);
            pb_trainer_close(r.sharded);
        }
}

static pb_status give_up(void *self)
{
    pb_model *m = self;
    PB_TRY(pb_model_hold(m, &m->params[0]));
    return pb_fail(PB_EIO, "the disk is full");
}

static void a_failed_reading_ends_on_all_ranks(void **state)
{
    const pb_train_config c = config_of("tiny", PB_FULL, PB_F32);
    pb_trainer *t = open_trainer(*state, &c);
    pb_model *m = pb_trainer_model(t);
    CHECK_FAILS(pb_model_hold(m, &m->params[0]), PB_EINVAL, "pb_trainer_read");
    if (pb_comm_rank(comm) == 0) CHECK_FAILS(pb_trainer_read(t, give_up, m), PB_EIO, "the disk is full");
    else CHECK_OK(pb_trainer_read(t, give_up, m));
    CHECK_FAILS(pb_model_hold(m, &m->params[0]), PB_EINVAL, "pb_trainer_read");
    CHECK_OK(pb_world_agree(test_world, "reading", PB_OK));
    pb_trainer_close(t);
}

/* The memory of this rank, opened on the plan backend or on the device. */
static pb_memory memory_of(pb_ctx *ctx, pb_train_config c, pb_comm *ranks)
{
    c.comm = ranks;
    pb_trainer *t = open_trainer(ctx, &c);
    CHECK_OK(pb_trainer_shard(t));
    const pb_memory m = pb_trainer_memory(t);
    pb_trainer_close(t);
    return m;
}

static void memory_is_what_the_plan_says(void **state)
{
    const int ranks = pb_comm_size(comm);
    for (int tuning = 0; tuning <= PB_NTUNINGS; tuning++) {
        pb_train_config c = config_of("tiny-llama", tuning == PB_NTUNINGS ? PB_QLORA : (pb_tuning)tuning, PB_BF16);
        c.model.nf4_double = tuning == PB_NTUNINGS;
        pb_ctx plan;
        pb_comm *planned;
        CHECK_OK(pb_ctx_open_plan(&plan, PB_CPU));
        CHECK_OK(pb_comm_open_plan(&plan, "dp", pb_comm_rank(comm), ranks, &planned));
        const pb_memory a = memory_of(*state, c, comm), b = memory_of(&plan, c, planned);
        assert_memory_equal(&a, &b, sizeof a);
        pb_comm_close(planned);
        pb_ctx_close(&plan);
    }
}

/* With many ranks, what is left of the weights on each is the buffers: two layers and the largest outer tensor. */
static void slices_shrink_with_the_ranks(void **state)
{
    (void)state;
    pb_ctx plan;
    size_t before = SIZE_MAX, buffers = 0;
    CHECK_OK(pb_ctx_open_plan(&plan, PB_CPU));
    for (int ranks = 2; ranks <= 512; ranks *= 4) {
        pb_comm *planned;
        pb_train_config c = config_of("smollm2-135m", PB_FULL, PB_BF16);
        CHECK_OK(pb_comm_open_plan(&plan, "dp", ranks - 1, ranks, &planned));
        c.comm = planned;
        pb_trainer *t = open_trainer(&plan, &c);
        CHECK_OK(pb_trainer_shard(t));
        const pb_units *u = &t->weights.units;
        const size_t now = pb_trainer_memory(t).weights;
        assert_true(now < before);
        buffers = u->unit[1].size + u->unit[2].size + u->unit[u->n - 1].size + u->unit[0].size;
        assert_true(now - buffers < 2 * t->model.trained / (size_t)ranks * 11 / 10 + (1 << 20));
        before = now;
        pb_trainer_close(t);
        pb_comm_close(planned);
    }
    pb_ctx_close(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_0_reads_the_weights_of_one_rank),
        cmocka_unit_test(a_failed_reading_ends_on_all_ranks),
        cmocka_unit_test(memory_is_what_the_plan_says),
        cmocka_unit_test(slices_shrink_with_the_ranks),
    };
    return cmocka_run_group_tests(tests, open_comm, close_comm);
}
