/* recorded_timing_test.c - timestamps and delays in a recorded graph take place at each replay, and not while recording.
 * cuda_test has the same for the events of a GPU. */
#include "kernels/engine/ctx.h"
#include "tests/test.h"

static pb_status delay_between_timestamps(pb_ctx *ctx, void *self)
{
    (void)self;
    PB_TRY(ctx->be->mark(ctx, 0));
    PB_TRY(ctx->be->delay(ctx, 2e-3));
    return ctx->be->mark(ctx, 1);
}

static void each_replay_delays_and_writes_timestamps(void **state)
{
    pb_ctx ctx;
    pb_graph *g = NULL;
    double before, recorded, replayed;
    (void)state;
    CHECK_OK(pb_ctx_open(&ctx, PB_CPU, 0));
    CHECK_OK(ctx.be->mark(&ctx, 0));
    CHECK_OK(ctx.be->mark(&ctx, 1));
    CHECK_OK(ctx.be->between(&ctx, 0, 1, &before));
    CHECK_OK(pb_record(&ctx, delay_between_timestamps, NULL, &g));
    CHECK_OK(ctx.be->between(&ctx, 0, 1, &recorded));
    assert_true(recorded == before); /* the recording wrote none */
    CHECK_OK(pb_replay(&ctx, g));
    CHECK_OK(ctx.be->between(&ctx, 0, 1, &replayed));
    assert_true(replayed >= 2e-3 && replayed < 60);
    pb_graph_free(&ctx, g);
    pb_ctx_close(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_replay_delays_and_writes_timestamps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
