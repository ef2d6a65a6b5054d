/* cuda_test.c - tests of the CUDA backend: a recording that fails does not harm later calls; events and delays measure
 * the right times; uploads keep their bytes. Every op also runs after a delay on two streams at once, which reveals an
 * op that does not use its context's stream.
 *
 * On a machine without a GPU the test prints why it cannot run, and passes. */
#include "kernels/engine/clock.h"
#include "kernels/linear/linear.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "tests/kernels/calls.h"
#include "tests/cuda_probe.h"

static pb_ctx cpu, streams[2];

/* ---- recordings that fail ----------------------------------------------------------------------- */

enum action { ONLY_OPS, WAIT, READ, WRITE, ALLOCATE, CLEAR, RECORD, FAIL, UNNOTICED_SYNC, ACTIONS };
static const char *const refused[ACTIONS] = {
    [WAIT] = "a host sync", [READ] = "a host read",   [WRITE] = "a copy from the host", [ALLOCATE] = "an allocation",
    [CLEAR] = "clearing",   [RECORD] = "a recording", [FAIL] = "asked to fail",         [UNNOTICED_SYNC] = "capture"};

typedef struct job {
    call c;
    enum action action;
} job;

static pb_status work(pb_ctx *ctx, void *self)
{
    job *j = self;
    void *p = j->c.b.t[0].p;
    char host[4] = {0};
    pb_graph *g;
    PB_TRY(call_run(ctx, &j->c));
    switch (j->action) {
    case WAIT: return pb_sync(ctx);
    case READ: return pb_download(ctx, host, p, sizeof host);
    case WRITE: return pb_upload(ctx, p, host, sizeof host);
    case ALLOCATE: return pb_alloc(ctx, 64, &p);
    case CLEAR: return pb_zero(ctx, p, 4);
    case RECORD: return pb_record(ctx, work, self, &g);
    case FAIL: return pb_fail(PB_EINVAL, "asked to fail");
    /* the recorded function ignores the error, but the end of the capture reports it */
    case UNNOTICED_SYNC: (void)probe_wait(ctx); return PB_OK;
    default: return PB_OK;
    }
}

static void runs_right(call *c, const call *inputs, const call *want)
{
    pb_diff d;
    call_fresh(c, inputs);
    CHECK_OK(call_run(c->b.ctx, c));
    CHECK_OK(pb_sync(c->b.ctx));
    CHECK_OK(pb_compare(&want->b, &c->b, &d));
    assert_true(pb_diff_ok(&d, c->op->tol[c->b.dtype]));
}

static void the_step_after_a_failed_recording_works(void **state)
{
    static const pb_op *const ops[] = {&pb_op_rmsnorm_fwd, &pb_op_linear_fwd};
    (void)state;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        call inputs = call_inputs(&cpu, ops[i], ops[i]->edge[0], PB_F32), want = inputs;
        job j = {.c = call_bind(&streams[0], ops[i], ops[i]->edge[0], PB_F32)};
        CHECK_OK(call_run(&cpu, &want));
        runs_right(&j.c, &inputs, &want);
        for (j.action = WAIT; j.action < ACTIONS; j.action++) {
            pb_graph *g = NULL;
            CHECK_FAILS(pb_record(&streams[0], work, &j, &g), j.action == FAIL ? PB_EINVAL : PB_EUNSUPPORTED,
                        refused[j.action]);
            assert_null(g);
            assert_false(streams[0].recording);
            runs_right(&j.c, &inputs, &want);
        }
        call_unbind(&j.c), call_unbind(&inputs);
    }
}

static void a_recording_enqueues_nothing_and_a_replay_one_launch(void **state)
{
    pb_ctx *ctx = &streams[0];
    const pb_op *op = &pb_op_rmsnorm_fwd;
    call inputs = call_inputs(&cpu, op, op->edge[0], PB_F32), want = call_bind(ctx, op, op->edge[0], PB_F32);
    job j = {.c = call_bind(ctx, op, op->edge[0], PB_F32)};
    pb_graph *g = NULL;
    pb_diff d;
    (void)state;
    call_fresh(&want, &inputs), call_fresh(&j.c, &inputs);
    CHECK_OK(call_run(ctx, &want));
    const pb_counts before = ctx->counts;
    CHECK_OK(pb_record(ctx, work, &j, &g));
    assert_int_equal(ctx->counts.kernel_launches, before.kernel_launches);
    CHECK_OK(pb_sync(ctx));
    CHECK_OK(pb_compare(&want.b, &j.c.b, &d));
    assert_false(pb_diff_ok(&d, 1e9)); /* the recorded ops have not run: the output is still poisoned */
    CHECK_OK(pb_replay(ctx, g));
    assert_int_equal(ctx->counts.kernel_launches, before.kernel_launches + 1);
    CHECK_OK(pb_sync(ctx));
    CHECK_OK(pb_compare(&want.b, &j.c.b, &d));
    assert_true(pb_diff_ok(&d, 0));
    assert_int_equal(pb_graph_nodes(ctx, g), 1);
    pb_kernel_resources r;
    CHECK_OK(pb_graph_resources(ctx, g, &r));
    assert_int_equal(r.kernels, 1);
    assert_in_range(r.registers, 8, 255);
    pb_graph_free(ctx, g);
    call_unbind(&inputs), call_unbind(&want), call_unbind(&j.c);
}

/* ---- failed allocations, events and delays ------------------------------------------------------ */

static void an_allocation_that_fails_leaves_no_error(void **state)
{
    pb_ctx *ctx = &streams[0];
    void *p = NULL;
    (void)state;
    CHECK_FAILS(pb_alloc(ctx, (size_t)1 << 50, &p), PB_ENOMEM, "bytes");
    assert_null(p);
    CHECK_OK(probe_spin(ctx, 1e-6));
    CHECK_OK(pb_alloc(ctx, 0, &p));
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 256, 0);
    pb_release(ctx, p);
}

static void events_measure_seconds(void **state)
{
    pb_ctx *ctx = &streams[0];
    double s = 0;
    (void)state;
    CHECK_OK(ctx->be->mark(ctx, 0));
    CHECK_OK(probe_spin(ctx, 5e-3));
    CHECK_OK(ctx->be->mark(ctx, PB_MARK_SLOTS - 1));
    CHECK_OK(pb_sync(ctx));
    CHECK_OK(ctx->be->between(ctx, 0, PB_MARK_SLOTS - 1, &s));
    assert_true(s >= 4.9e-3 && s < 1);
    CHECK_OK(ctx->be->flush_cache(ctx));
    CHECK_OK(pb_sync(ctx));
}

static pb_status spin_between_events(pb_ctx *ctx, void *self)
{
    (void)self;
    PB_TRY(ctx->be->mark(ctx, 0));
    PB_TRY(probe_spin(ctx, 5e-3));
    return ctx->be->mark(ctx, 1);
}

static void a_replay_records_its_events_anew(void **state)
{
    pb_ctx *ctx = &streams[0];
    pb_graph *g = NULL;
    double s = 0;
    (void)state;
    CHECK_OK(ctx->be->mark(ctx, 0)); /* times of this moment, which are no 5 ms apart */
    CHECK_OK(ctx->be->mark(ctx, 1));
    CHECK_OK(pb_record(ctx, spin_between_events, NULL, &g));
    CHECK_OK(pb_replay(ctx, g));
    CHECK_OK(pb_sync(ctx));
    CHECK_OK(ctx->be->between(ctx, 0, 1, &s));
    assert_true(s >= 4.9e-3 && s < 1);
    pb_graph_free(ctx, g);
}

/* Work before the delay keeps the device busy until the delay is enqueued, as in a measurement. */
static void a_delay_takes_what_was_asked_for(void **state)
{
    pb_ctx *ctx = &streams[0];
    double s = 0;
    (void)state;
    CHECK_OK(ctx->be->delay(ctx, 0)); /* in its first call, delay() also measures the overhead of a delay */
    const pb_counts before = ctx->counts;
    CHECK_OK(probe_spin(ctx, 5e-3));
    CHECK_OK(ctx->be->mark(ctx, 0));
    CHECK_OK(ctx->be->delay(ctx, 1e-3));
    CHECK_OK(ctx->be->mark(ctx, 1));
    CHECK_OK(pb_sync(ctx));
    CHECK_OK(ctx->be->between(ctx, 0, 1, &s));
    CHECK_NEAR(s, 1e-3, 2e-5);
    assert_int_equal(ctx->counts.kernel_launches - before.kernel_launches,
                     1); /* only the probe's kernel; a delay is not counted */
}

/* ---- uploads with and without a host sync ------------------------------------------------------- */

enum { SPUN = 20 /* ms of work that the stream does before an upload */ };

/* Enqueues work of SPUN ms, then the upload. Returns the seconds that the upload took on the host. */
static double upload_after_work(pb_ctx *ctx, pb_status (*upload)(pb_ctx *, void *, const void *, size_t), void *to,
                                const void *from, size_t bytes)
{
    CHECK_OK(pb_sync(ctx));
    CHECK_OK(probe_spin(ctx, 1e-3 * SPUN));
    const double start = pb_clock_seconds();
    CHECK_OK(upload(ctx, to, from, bytes));
    return pb_clock_seconds() - start;
}

static void an_upload_waits_and_a_staged_one_does_not(void **state)
{
    pb_ctx *ctx = &streams[0];
    uint32_t host[4] = {1, 2, 3, 4};
    void *p;
    (void)state;
    CHECK_OK(pb_alloc(ctx, sizeof host, &p));
    pb_counts before = ctx->counts;
    assert_true(upload_after_work(ctx, pb_upload, p, host, sizeof host) > 0.5e-3 * SPUN);
    assert_int_equal(ctx->counts.host_syncs - before.host_syncs, 2); /* one is pb_sync before the work */
    host[0] = 5;
    before = ctx->counts;
    assert_true(upload_after_work(ctx, pb_upload_staged, p, host, sizeof host) < 0.5e-3 * SPUN);
    assert_int_equal(ctx->counts.host_syncs - before.host_syncs, 1);
    host[0] = 6; /* after the call: the device gets 5 */
    CHECK_OK(pb_download(ctx, host, p, sizeof host));
    assert_int_equal(host[0], 5);
    assert_int_equal(host[3], 4);
    pb_release(ctx, p);
}

/* After work, more staged uploads than the staging memory has room for: some must wait, and none may be overwritten
 * before the device has read it. */
static void staged_uploads_keep_their_bytes(void **state)
{
    enum { UPLOADS = 1000, WORDS = PB_STAGED_MOST / sizeof(uint32_t) };
    pb_ctx *ctx = &streams[0];
    uint32_t host[WORDS], *back = malloc(UPLOADS * sizeof host);
    void *p;
    (void)state;
    assert_non_null(back);
    CHECK_OK(pb_alloc(ctx, UPLOADS * sizeof host, &p));
    CHECK_OK(probe_spin(ctx, 1e-3 * SPUN));
    const pb_counts before = ctx->counts;
    for (uint32_t i = 0; i < UPLOADS; i++) {
        for (size_t k = 0; k < WORDS; k++) host[k] = i;
        CHECK_OK(pb_upload_staged(ctx, (uint32_t *)p + i * WORDS, host, sizeof host));
    }
    const uint64_t waited = ctx->counts.host_syncs - before.host_syncs;
    assert_true(waited >= 1 && waited <= UPLOADS / 100);
    CHECK_OK(pb_download(ctx, back, p, UPLOADS * sizeof host));
    for (size_t i = 0; i < (size_t)UPLOADS * WORDS; i++) assert_int_equal(back[i], i / WORDS);
    free(back);
    pb_release(ctx, p);
}

static void device_1000_does_not_exist(void **state)
{
    pb_ctx ctx;
    (void)state;
    CHECK_FAILS(pb_ctx_open(&ctx, PB_CUDA, 1000), PB_EDEVICE, "device 1000 does not exist");
}

/* ---- every op runs on the stream of its context ------------------------------------------------- */

static size_t bytes_of(const pb_bound *t)
{
    return t->rows ? ((t->rows - 1) * t->ld + t->cols) * pb_dtype_size(t->dtype) : 0;
}

/* True if the input is filled on the stream after the delay, so that an op that reads it too early reads poison. This
 * is done for floating-point inputs only: a poisoned index or pointer would make the op crash instead of giving a wrong
 * result. */
static bool is_delayed(const pb_bound *t) { return t->role != PB_ROLE_OUT && t->dtype <= PB_BF16 && bytes_of(t) > 0; }

/* Enqueues on ctx's stream: a delay, the copies that fill the inputs, and the op. */
static void enqueue_after_delay(pb_ctx *ctx, call *c, void *const *kept)
{
    CHECK_OK(probe_spin(ctx, 1e-3));
    for (int k = 0; k < c->b.n; k++)
        if (kept[k]) CHECK_OK(probe_copy(ctx, c->b.t[k].p, kept[k], bytes_of(&c->b.t[k])));
    CHECK_OK(call_run(ctx, c));
}

static void hide_inputs(pb_ctx *ctx, call *c, void **kept)
{
    for (int k = 0; k < c->b.n; k++) {
        const pb_bound *t = &c->b.t[k];
        kept[k] = NULL;
        if (!is_delayed(t)) continue;
        CHECK_OK(pb_alloc(ctx, bytes_of(t), &kept[k]));
        CHECK_OK(probe_copy(ctx, kept[k], t->p, bytes_of(t)));
        CHECK_OK(probe_fill(ctx, t->p, 0xff, bytes_of(t)));
    }
    CHECK_OK(pb_sync(ctx));
}

static void check_streams(const pb_op *op, const pb_impl *impl, pb_dtype t)
{
    void *kept[2][PB_MAX_BOUND];
    call inputs = call_inputs(&cpu, op, op->edge[0], t), want = call_bind(&streams[0], op, op->edge[0], t), c[2];
    const double tol = impl->varies ? op->tol[t] : 0;
    streams[0].impl = streams[1].impl = impl->name;
    call_fresh(&want, &inputs);
    CHECK_OK(call_run(&streams[0], &want));
    CHECK_OK(pb_sync(&streams[0]));
    for (int s = 0; s < 2; s++) {
        c[s] = call_bind(&streams[s], op, op->edge[0], t);
        CHECK_OK(call_run(&streams[s], &c[s])); /* allocates the scratch memory before the test */
        CHECK_OK(pb_sync(&streams[s]));
        call_fresh(&c[s], &inputs);
        hide_inputs(&streams[s], &c[s], kept[s]);
    }
    for (int s = 0; s < 2; s++) enqueue_after_delay(&streams[s], &c[s], kept[s]);
    for (int s = 0; s < 2; s++) {
        pb_diff d;
        CHECK_OK(pb_sync(&streams[s]));
        CHECK_OK(pb_compare(&want.b, &c[s].b, &d));
        if (!pb_diff_ok(&d, tol))
            fail_msg("%s.%s %s: after a delay %s differs by %g", op->name, impl->name, pb_dtype_name(t), d.tensor,
                     d.rel);
        for (int k = 0; k < c[s].b.n; k++) pb_release(&streams[s], kept[s][k]);
        call_unbind(&c[s]);
    }
    call_unbind(&want), call_unbind(&inputs);
    streams[0].impl = streams[1].impl = NULL;
}

static void every_op_keeps_to_its_stream(void **state)
{
    (void)state;
    for (const pb_op *const *op = pb_ops; *op; op++)
        for (int t = 0; t < ((*op)->f32_only ? 1 : PB_NFLOAT); t++) {
            call c = call_bind(&streams[0], *op, (*op)->edge[0], (pb_dtype)t);
            for (const pb_impl *i = (*op)->impls[PB_CUDA]; i->name; i++)
                if (call_takes(i, &c)) check_streams(*op, i, (pb_dtype)t);
            call_unbind(&c);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_step_after_a_failed_recording_works),
        cmocka_unit_test(a_recording_enqueues_nothing_and_a_replay_one_launch),
        cmocka_unit_test(an_allocation_that_fails_leaves_no_error),
        cmocka_unit_test(events_measure_seconds),
        cmocka_unit_test(a_replay_records_its_events_anew),
        cmocka_unit_test(a_delay_takes_what_was_asked_for),
        cmocka_unit_test(an_upload_waits_and_a_staged_one_does_not),
        cmocka_unit_test(staged_uploads_keep_their_bytes),
        cmocka_unit_test(device_1000_does_not_exist),
        cmocka_unit_test(every_op_keeps_to_its_stream),
    };
    for (int i = 0; i < 2; i++)
        if (pb_ctx_open(&streams[i], PB_CUDA, 0) != PB_OK) {
            printf("not on this machine: %s\n", pb_error());
            return i; /* 1: the first stream opened, so the second one must open as well */
        }
    if (pb_ctx_open(&cpu, PB_CPU, 0) != PB_OK) return 1;
    cpu.impl = "ref";
    const int failed = cmocka_run_group_tests_name("cuda", tests, NULL, NULL);
    for (int i = 0; i < 2; i++) pb_ctx_close(&streams[i]);
    pb_ctx_close(&cpu);
    return failed;
}
