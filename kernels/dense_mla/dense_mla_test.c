/* dense_mla_test.c - tests of dense_mla: PyTorch's results for a causal window, queries that are positioned before the
 * first row of kv, and errors. */
#include "kernels/dense_mla/dense_mla.h"
#include "kernels/sparse_mla/convert.h"
#include "tests/kernels/mla_fixture.h"

static void both(pb_ctx *ctx, const pb_mla *p)
{
    const pb_dense_mla_fwd_args f = pb_mla_fwd_of(p);
    const pb_dense_mla_bwd_args b = pb_mla_bwd_of(p);
    CHECK_OK(pb_dense_mla_fwd(ctx, &f));
    CHECK_OK(pb_dense_mla_bwd(ctx, &b));
}

static void pytorch_agrees(void **state)
{
    pb_ctx *ctx = *state;
    for (const pb_impl *i = pb_dense_mla_fwd_cpu; i->name; i++) {
        if (i->available && !i->available()) continue;
        pb_mla p = fx_make(FX_B, FX_S, FX_S_KV, FX_H, FX_D, FX_V);
        p.causal = true, p.window = FX_WINDOW;
        ctx->impl = i->name;
        both(ctx, &p);
        fx_matches(&p, "dense");
        fx_free(&p);
    }
    ctx->impl = NULL;
}

/* With S > S_kv the first queries are positioned before row 0 and have no visible key. */
static void queries_before_the_first_row_see_nothing(void **state)
{
    pb_mla p = fx_make(1, 6, 2, 1, 8, 8);
    p.causal = true;
    both(*state, &p);
    for (int i = 0; i < 6; i++) {
        assert_true((p.lse[i] == p.sink[0]) == (i < 4));
        for (int d = 0; d < 8; d++) assert_true((((float *)p.o)[i * 8 + d] == 0) == (i < 4));
    }
    fx_free(&p);
}

static void bad_arguments_are_named(void **state)
{
    pb_mla p = fx_make(1, 1, 1, 1, 4, 4);
    pb_dense_mla_fwd_args f = pb_mla_fwd_of(&p);
    f.window = -1;
    CHECK_FAILS(pb_dense_mla_fwd(*state, &f), PB_EINVAL, "window=-1");
    f = pb_mla_fwd_of(&p), f.idx = (const int32_t[]){0};
    CHECK_FAILS(pb_dense_mla_fwd(*state, &f), PB_EINVAL, "idx is not NULL");
    f = pb_mla_fwd_of(&p), f.lse = NULL;
    CHECK_FAILS(pb_dense_mla_fwd(*state, &f), PB_EINVAL, "lse is NULL");
    fx_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pytorch_agrees),
        cmocka_unit_test(queries_before_the_first_row_see_nothing),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
