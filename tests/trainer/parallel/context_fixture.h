/* context_fixture.h - for tests of context parallelism: batches of conversations, and the comparison of a trainer whose
 * ranks share rows with a trainer of one rank that has the same rows. */
#ifndef PB_CONTEXT_FIXTURE_H
#define PB_CONTEXT_FIXTURE_H
#include "tests/ranks/ranks_test.h"
#include "tests/trainer/step/trainer_fixture.h"
#include "trainer/step/graphs.h"
#include "trainer/step/trainer_impl.h"

enum { ROWS = 2, MOST = 512 * ROWS };

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

/* Rows of `row` tokens, which hold three conversations that begin at tokens 0, second and third. */
typedef struct layout {
    int row, second, third;
} layout;

typedef struct rows {
    int32_t ids[MOST], targets[MOST], start[MOST], pos[MOST];
    float mask[MOST];
} rows;

/* Fills micro-batch `number`. V: size of the vocabulary. */
static void fill(rows *r, const layout *l, int number, int V)
{
    for (int i = 0; i < ROWS * l->row; i++) {
        const uint64_t at = (uint64_t)(number * ROWS * l->row + i);
        const int token = i % l->row, begin = token < l->second ? 0 : token < l->third ? l->second : l->third;
        r->ids[i] = (int32_t)(pb_uniform(1, at) * V);
        r->targets[i] = (int32_t)(pb_uniform(2, at) * V);
        r->mask[i] = pb_uniform(3, at) < 0.7 - 0.3 * (i / l->row);
        r->start[i] = begin;
        r->pos[i] = token - begin;
    }
}

static pb_train_config context_config(const char *model, pb_tuning tuning, pb_dtype dtype, int row)
{
    pb_train_config c = config(model, tuning);
    c.model.dtype = dtype;
    c.B = ROWS;
    c.S = row;
    c.bucket_bytes = 30000;
    return c;
}

/* Sets micro-batch `number` of a step of `n`. */
static void set(pb_trainer *t, const layout *l, int number, int n)
{
    rows r[4], *own = &r[number];
    double count = 0;
    for (int i = 0; i < n; i++) {
        fill(&r[i], l, i, pb_trainer_model(t)->g.V);
        for (int k = 0; k < ROWS * l->row; k++) count += (double)r[i].mask[k];
    }
    const bool packed = pb_trainer_config(t)->packed;
    CHECK_OK(pb_trainer_set_batch(t, &(pb_batch){.ids = own->ids,
                                                 .targets = own->targets,
                                                 .mask = own->mask,
                                                 .count = count,
                                                 .start = packed ? own->start : NULL,
                                                 .pos = packed ? own->pos : NULL,
                                                 .S = l->row}));
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
        assert_int_equal(!p->sum, !q->sum);
        if (!p->sum) continue; /* not trained */
        float *x = test_fetch(ctx, p->sum, n * sizeof *x), *y = test_fetch(ctx, q->sum, n * sizeof *y);
        const double d = norm_of(x, y, n), of = norm_of(y, NULL, n);
        if (!(d <= tol * of)) fail_msg("%s: gradient differs by %.3g of its norm %.3g", p->name, d / of, of);
        free(x);
        free(y);
    }
}

/* Makes three backward passes of one micro-batch, the first with rows of `first`, the others with those of `then` (eager,
 * or recorded and replayed), and compares the last with one rank. */
static void check(pb_ctx *ctx, const pb_train_config *c, bool graph, const layout *first, const layout *then,
                  double tol)
{
    pb_train_config one = *c;
    pb_graphs g = {0};
    one.comm = one.context = NULL;
    one.recompute = PB_RECOMPUTE_NONE;
    pb_trainer *t = open_trainer(ctx, c), *alone = open_trainer(ctx, &one);
    const int groups = pb_comm_size(all) / pb_comm_size(c->context),
              number = pb_comm_rank(all) / pb_comm_size(c->context);
    for (int i = 0; i < 3; i++) {
        set(t, i ? then : first, number, groups);
        CHECK_OK(graph ? pb_graphs_run(&g, ctx, t, pb_train_micro) : pb_train_micro(ctx, t));
    }
    assert_true(!graph || g.replayed > 0);
    double loss = 0;
    for (int i = 0; i < groups; i++) {
        set(alone, then, i, groups);
        pb_trainer_accumulate(alone, i > 0);
        CHECK_OK(pb_train_micro(ctx, alone));
        loss += loss_of(alone);
    }
    compare(ctx, t, alone, loss, tol);
    pb_graphs_free(&g, ctx);
    pb_trainer_close(alone);
    pb_trainer_close(t);
}
#endif
