/* normuon_test.c - whole NorMuon steps against the formula of normuon.h in double precision, in which the orthogonal
 * factor is computed with the reference of newton_schulz. Also the norm of the update, zero rows, the two ways to treat
 * the momentum of a skipped step, cautious weight decay, skipped steps, and errors. */
#include "kernels/newton_schulz/newton_schulz.h"
#include "kernels/normuon/normuon.h"
#include "tests/test.h"

enum { R = 6, C = 11, N = R * C };

/* One block, its state, and the same in double precision. */
typedef struct matrix {
    float w[N], grad[N], m[N], u[N], v[R], factor[R];
    pb_normuon_piece piece; /* its pointers point into this struct */
    pb_normuon_block block;
    pb_adamw_state state;
    double W[N], M[N], V[R];
} matrix;

/* How a step is taken. */
typedef struct choice {
    bool nesterov, keep, cautious;
    pb_normuon_adjust_kind adjust;
    const float *guard;
} choice;

static void init(matrix *t)
{
    memset(t, 0, sizeof *t);
    for (uint64_t i = 0; i < N; i++) t->W[i] = (double)(t->w[i] = (float)(2 * pb_uniform(1, i) - 1));
    t->piece = (pb_normuon_piece){.w = t->w,
                                  .grad = t->grad,
                                  .m = t->m,
                                  .u = t->u,
                                  .factor = t->factor,
                                  .n = N,
                                  .rows = R,
                                  .cols = C,
                                  .clip = -1,
                                  .decay = 0.1f};
    t->block = (pb_normuon_block){.u = t->u, .v = t->v, .factor = t->factor, .rows = R, .cols = C};
    t->state.lr = 0.02f;
}

static void next_gradient(matrix *t, uint64_t seed)
{
    for (uint64_t i = 0; i < N; i++) t->grad[i] = (float)(2 * pb_uniform(seed, i) - 1);
}

static pb_newton_schulz_run_args factor_of(float *u)
{
    return (pb_newton_schulz_run_args){
        .x = u, .y = u, .n = 1, .R = R, .C = C, .variant = PB_NS_POLAR_EXPRESS, .steps = 5, .eps = 1e-8f};
}

static void step(pb_ctx *ctx, matrix *t, const choice *c)
{
    const pb_newton_schulz_run_args f = factor_of(t->u);
    CHECK_OK(pb_normuon_momentum(
        ctx, &(pb_normuon_momentum_args){
                 .list = &t->piece, .elements = N, .n = 1, .mu = 0.95f, .nesterov = c->nesterov, .keep = c->keep}));
    CHECK_OK(pb_newton_schulz_run(ctx, &f));
    CHECK_OK(pb_normuon_rows(
        ctx, &(pb_normuon_rows_args){
                 .list = &t->block, .when = {.guard = c->guard}, .elements = N, .rows = R, .n = 1, .beta2 = 0.9f}));
    CHECK_OK(pb_normuon_apply(ctx, &(pb_normuon_apply_args){.list = &t->piece,
                                                            .when = {.guard = c->guard},
                                                            .state = &t->state,
                                                            .elements = N,
                                                            .n = 1,
                                                            .rate = 0.5f,
                                                            .adjust = c->adjust,
                                                            .cautious = c->cautious,
                                                            .commit = !c->keep,
                                                            .mu = 0.95f}));
}

/* The step in double precision, but for the orthogonal factor. */
static void step_in_double(pb_ctx *ctx, matrix *t, const choice *c)
{
    const double mu = (double)0.95f, lr = (double)0.02f * 0.5, wd = (double)0.1f, b2 = (double)0.9f;
    const double rate = c->adjust == PB_NORMUON_SPECTRAL ? sqrt(6.0 / 11)
                        : c->adjust == PB_NORMUON_RMS    ? 0.2 * sqrt(11.0)
                                                         : 1;
    float u[N];
    double before = 0, after = 0, scaled[N];
    for (int i = 0; i < N; i++) {
        t->M[i] = mu * t->M[i] + (double)t->grad[i];
        u[i] = (float)(c->nesterov ? mu * t->M[i] + (double)t->grad[i] : t->M[i]);
    }
    const pb_newton_schulz_run_args f = factor_of(u);
    CHECK_OK(pb_newton_schulz_run(ctx, &f));
    for (int i = 0; i < R; i++) {
        double mean = 0;
        for (int j = 0; j < C; j++) mean += (double)u[i * C + j] * (double)u[i * C + j] / C;
        t->V[i] += (1 - b2) * (mean - t->V[i]);
        for (int j = 0; j < C; j++) {
            scaled[i * C + j] = (double)u[i * C + j] / (sqrt(t->V[i]) + 1e-8);
            before += (double)u[i * C + j] * (double)u[i * C + j];
            after += scaled[i * C + j] * scaled[i * C + j];
        }
    }
    for (int i = 0; i < N; i++) {
        const double x = scaled[i] * sqrt(before) / fmax(sqrt(after), 1e-8);
        const double decay = c->cautious && t->W[i] * x < 0 ? 0 : lr * wd;
        t->W[i] = t->W[i] * (1 - decay) - lr * rate * x;
    }
}

static void five_steps_match_the_formula(void **state)
{
    static const choice all[] = {{.keep = true},
                                 {.nesterov = true, .adjust = PB_NORMUON_RMS},
                                 {.nesterov = true, .keep = true, .cautious = true, .adjust = PB_NORMUON_NONE},
                                 {.cautious = true}};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        matrix t;
        init(&t);
        for (uint64_t s = 0; s < 5; s++) {
            next_gradient(&t, 20 + s);
            step(*state, &t, &all[k]);
            step_in_double(*state, &t, &all[k]);
            for (int i = 0; i < N; i++) {
                CHECK_NEAR(t.w[i], t.W[i], 2e-6 * (double)(s + 1));
                CHECK_NEAR(t.m[i], t.M[i], 2e-6);
            }
            for (int i = 0; i < R; i++) CHECK_NEAR(t.v[i], t.V[i], 1e-6);
        }
    }
}

static void keep_and_commit_give_the_same_bits(void **state)
{
    matrix a, b;
    init(&a), init(&b);
    for (uint64_t s = 0; s < 3; s++) {
        next_gradient(&a, s), next_gradient(&b, s);
        step(*state, &a, &(choice){.nesterov = true, .keep = true});
        step(*state, &b, &(choice){.nesterov = true});
    }
    assert_memory_equal(a.w, b.w, sizeof a.w);
    assert_memory_equal(a.m, b.m, sizeof a.m);
    assert_memory_equal(a.v, b.v, sizeof a.v);
}

/* The guard's step leaves w and v; m keeps the gradient, or is as before the step. */
static void the_guard_changes_only_a_kept_momentum(void **state)
{
    for (int keep = 0; keep < 2; keep++) {
        const float guard = 1;
        matrix t, before;
        init(&t);
        next_gradient(&t, 1);
        step(*state, &t, &(choice){.keep = true});
        before = t;
        next_gradient(&t, 2);
        step(*state, &t, &(choice){.keep = keep, .guard = &guard});
        assert_memory_equal(t.w, before.w, sizeof t.w);
        assert_memory_equal(t.v, before.v, sizeof t.v);
        for (int i = 0; i < N; i++)
            CHECK_NEAR(t.m[i], keep ? 0.95 * (double)before.m[i] + (double)t.grad[i] : (double)before.m[i],
                       keep ? 1e-6 : 0);
    }
}

static void the_update_has_the_norm_of_the_factor(void **state)
{
    matrix t;
    double update = 0, factor = 0;
    init(&t);
    t.piece.decay = 0;
    next_gradient(&t, 7);
    for (int j = 0; j < C; j++) t.grad[2 * C + j] = 0; /* a row without gradient */
    const matrix before = t;
    step(*state, &t, &(choice){.keep = true, .adjust = PB_NORMUON_NONE});
    for (int i = 0; i < N; i++) {
        const double d = ((double)before.w[i] - (double)t.w[i]) / ((double)0.02f * 0.5);
        update += d * d;
        factor += (double)t.u[i] * (double)t.u[i];
        if (i / C == 2) assert_true(t.w[i] == before.w[i]);
    }
    CHECK_NEAR(sqrt(update / factor), 1, 1e-4);
}

static void bad_steps_are_skipped_whole(void **state)
{
    for (int kind = 0; kind < 2; kind++) {
        const float loss = kind ? 1 : NAN;
        const pb_clip_state clip = {.scale = 1, .skip = 1};
        const pb_normuon_when when = {.clip = kind ? &clip : NULL, .nclip = kind, .loss = &loss};
        matrix t, before;
        init(&t);
        next_gradient(&t, 3);
        for (int i = 0; i < N; i++) t.u[i] = NAN;
        before = t;
        CHECK_OK(pb_normuon_momentum(
            *state, &(pb_normuon_momentum_args){
                        .list = &t.piece, .when = when, .elements = N, .n = 1, .mu = 0.95f, .keep = true}));
        for (int i = 0; i < N; i++) assert_true(t.u[i] == 0);
        CHECK_OK(pb_normuon_rows(
            *state,
            &(pb_normuon_rows_args){.list = &t.block, .when = when, .elements = N, .rows = R, .n = 1, .beta2 = 0.9f}));
        CHECK_OK(pb_normuon_apply(*state, &(pb_normuon_apply_args){.list = &t.piece,
                                                                   .when = when,
                                                                   .state = &t.state,
                                                                   .elements = N,
                                                                   .n = 1,
                                                                   .rate = 1,
                                                                   .commit = true,
                                                                   .mu = 0.95f}));
        assert_memory_equal(t.w, before.w, sizeof t.w);
        assert_memory_equal(t.m, before.m, sizeof t.m);
        assert_memory_equal(t.v, before.v, sizeof t.v);
    }
}

static void bad_arguments_are_named(void **state)
{
    matrix t;
    init(&t);
    pb_normuon_momentum_args m = {.list = &t.piece, .n = 1, .mu = 1};
    CHECK_FAILS(pb_normuon_momentum(*state, &m), PB_EINVAL, "mu=1, need 0 <= mu < 1");
    pb_normuon_rows_args r = {.list = &t.block, .n = 1, .beta2 = -1};
    CHECK_FAILS(pb_normuon_rows(*state, &r), PB_EINVAL, "beta2=-1");
    r.beta2 = 0.9f, r.list = NULL;
    CHECK_FAILS(pb_normuon_rows(*state, &r), PB_EINVAL, "a list");
    pb_normuon_apply_args a = {.list = &t.piece, .n = 1, .rate = 1};
    CHECK_FAILS(pb_normuon_apply(*state, &a), PB_EINVAL, "state is NULL");
    a.state = &t.state, a.rate = NAN;
    CHECK_FAILS(pb_normuon_apply(*state, &a), PB_EINVAL, "rate=nan");
    a.rate = 1, a.when.nclip = 1;
    CHECK_FAILS(pb_normuon_apply(*state, &a), PB_EINVAL, "nclip=1");
    CHECK_FAILS(pb_normuon_check(*state, &(pb_normuon_check_args){.x = t.w, .n = 1}), PB_EINVAL, "flag is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(five_steps_match_the_formula),
        cmocka_unit_test(keep_and_commit_give_the_same_bits),
        cmocka_unit_test(the_guard_changes_only_a_kept_momentum),
        cmocka_unit_test(the_update_has_the_norm_of_the_factor),
        cmocka_unit_test(bad_steps_are_skipped_whole),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return test_every_impl(&pb_op_normuon_apply, tests, sizeof tests / sizeof *tests);
}
