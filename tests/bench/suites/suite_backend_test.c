/* suite_backend_test.c - runs suites on a CPU backend that is as strict as a GPU: it reports an error if the time of an
 * event is read that was not recorded, or if device memory is copied to which nothing was written. */
#include "bench/suites/plan.h"
#include "bench/suites/suite.h"
#include "tests/bench/emitter.h"

enum { BLOCKS = 1024 };

/* `real` is the backend that the strict backend forwards to; the other variables are the state of the strict
 * backend. */
static const pb_backend *real;
static struct {
    const unsigned char *p;
    size_t bytes;
    bool filled;
} block[BLOCKS];
static int blocks;
static bool recorded[PB_MARK_SLOTS];

static pb_status strict_alloc(pb_ctx *ctx, size_t bytes, void **out)
{
    PB_TRY(real->alloc(ctx, bytes, out));
    assert_true(blocks < BLOCKS);
    block[blocks].p = *out, block[blocks].bytes = bytes, block[blocks].filled = false;
    blocks++;
    return PB_OK;
}

static void strict_release(pb_ctx *ctx, void *p)
{
    for (int i = 0; i < blocks; i++)
        if (block[i].p == p) block[i] = block[--blocks];
    real->release(ctx, p);
}

/* Returns the index of the allocated block that contains p; -1: none. */
static int block_of(const void *p)
{
    int i = blocks;
    while (i-- > 0 &&
           ((const unsigned char *)p < block[i].p || (const unsigned char *)p >= block[i].p + block[i].bytes)) {
    }
    return i;
}

static pb_status strict_upload(pb_ctx *ctx, void *dev, const void *host, size_t bytes)
{
    const int i = block_of(dev);
    if (i >= 0) block[i].filled = true;
    return real->upload(ctx, dev, host, bytes);
}

static pb_status strict_copy(pb_ctx *ctx, void *to, const void *from, size_t bytes)
{
    const int source = block_of(from), i = block_of(to);
    if (source >= 0 && !block[source].filled) return pb_fail(PB_EDEVICE, "a copy from memory that was never written");
    if (i >= 0) block[i].filled = true;
    return real->copy(ctx, to, from, bytes);
}

static pb_status strict_mark(pb_ctx *ctx, int slot)
{
    recorded[slot % PB_MARK_SLOTS] = true;
    return real->mark(ctx, slot);
}

static pb_status strict_between(pb_ctx *ctx, int from, int to, double *seconds)
{
    if (!recorded[from % PB_MARK_SLOTS] || !recorded[to % PB_MARK_SLOTS])
        return pb_fail(PB_EDEVICE, "no time from event %d to %d: one was not recorded", from, to);
    return real->between(ctx, from, to, seconds);
}

/* Runs a case with three samples. */
static void run(pb_ctx *ctx, const pb_case *c)
{
    pb_backend strict = *ctx->be;
    pb_emitter s;
    real = ctx->be;
    blocks = 0;
    memset(recorded, 0, sizeof recorded);
    strict.alloc = strict_alloc, strict.release = strict_release, strict.upload = strict_upload;
    strict.copy = strict_copy, strict.mark = strict_mark, strict.between = strict_between;
    pb_ctx_release_scratch(ctx);
    open_emitter(&s);
    const pb_suite_env env = {.emitter = &s, .asked = {.samples = 3}};
    ctx->be = &strict;
    const pb_status status = pb_suite_find(c->suite)->run(ctx, c, &env);
    pb_ctx_release_scratch(ctx);
    ctx->be = real;
    close_emitter(&s);
    CHECK_OK(status);
}

static pb_status keep(void *user, const pb_case *c)
{
    *(pb_case *)user = *c;
    return PB_OK;
}

static void times_are_of_recorded_events(void **state)
{
    const pb_suite *s = pb_suite_find("throughput");
    pb_case c;
    CHECK_OK(pb_grid_expand(s->name, s->axes, "model=tiny layers=1 seq=8", keep, &c));
    run(*state, &c);
}

/* scatter_add adds to its output. The suite must save the output before the first call and restore it before each
 * call. */
static void what_is_restored_was_saved(void **state)
{
    pb_case c = {.suite = "kernels", .name = "scatter_add"};
    CHECK_OK(pb_case_set(&c, "shape", "S5.R3.D7"));
    CHECK_OK(pb_case_set(&c, "dtype", "f32"));
    CHECK_OK(pb_case_set(&c, "impl", "ref"));
    pb_case_finish(&c);
    run(*state, &c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_of_recorded_events),
        cmocka_unit_test(what_is_restored_was_saved),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
