/* core_test.c - tests of kernels/engine and kernels/cpu: comparisons of arrays fail on NaN, guard words detect writes
 * outside a tensor, recordings refuse unsupported calls, a graph's scratch memory stays valid, bf16 rounding is
 * exact. */
#include <stdlib.h>
#include <string.h>

#include "kernels/engine/arena.h"
#include "kernels/cpu/cpu.h"
#include "kernels/engine/op.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "tests/test.h"

static void comparison_fails_on_non_finite_values(void **state)
{
    float want[4] = {1, 2, 3, 4}, got[4] = {1, 2, 3, 4};
    (void)state;
    pb_diff d = pb_diff_arrays(want, got, 4, PB_F32);
    assert_true(pb_diff_ok(&d, 0));
    got[2] = NAN;
    d = pb_diff_arrays(want, got, 4, PB_F32);
    assert_false(pb_diff_ok(&d, 1e9));
    got[2] = INFINITY;
    d = pb_diff_arrays(want, got, 4, PB_F32);
    assert_false(pb_diff_ok(&d, 1e9));
    want[2] = INFINITY; /* equal infinities do not count as agreement */
    d = pb_diff_arrays(want, got, 4, PB_F32);
    assert_false(pb_diff_ok(&d, 1e9));
    want[2] = got[2] = NAN;
    d = pb_diff_arrays(want, got, 4, PB_F32);
    assert_false(pb_diff_ok(&d, 1e9));
}

static void one_wrong_element_of_many_is_found(void **state)
{
    enum { N = 1000000 };
    float *want = malloc(N * sizeof *want), *got = malloc(N * sizeof *got);
    (void)state;
    for (size_t i = 0; i < N; i++) want[i] = got[i] = 1;
    got[12345] = 3;
    pb_diff d = pb_diff_arrays(want, got, N, PB_F32);
    /* The relative L2 error is within the tolerance of bf16, so pb_diff_ok must also look at single elements. */
    assert_true(d.rel <= 4e-3);
    assert_false(pb_diff_ok(&d, 4e-3));
    free(want);
    free(got);
}

static void zero_reference_compares_absolutely(void **state)
{
    float want[2] = {0, 0}, got[2] = {0, 1e-3f};
    (void)state;
    pb_diff d = pb_diff_arrays(want, got, 2, PB_F32);
    CHECK_NEAR(d.rel, 1e-3, 1e-9);
}

static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    assert_int_equal(pb_f32_to_bf16(1.0f), 0x3f80);
    assert_int_equal(pb_f32_to_bf16(1.00390625f), 0x3f80);   /* tie: rounds down to even */
    assert_int_equal(pb_f32_to_bf16(1.01171875f), 0x3f82);   /* tie: rounds up to even */
    assert_int_equal(pb_f32_to_bf16(3.4028235e38f), 0x7f80); /* rounds to Inf */
    assert_true(isnan(pb_bf16_to_f32(pb_f32_to_bf16(NAN))));
    for (uint32_t h = 0; h < 0x7f80; h++) assert_int_equal(pb_f32_to_bf16(pb_bf16_to_f32((uint16_t)h)), h);
}

static void guards_detect_stray_writes(void **state)
{
    pb_binder b = {.ctx = *state, .dtype = PB_F32, .seed = 1};
    float *x = (float *)pb_in(&b, "x", PB_F32, 5), *y = pb_out_ld(&b, "y", PB_F32, 2, 3, 4);
    CHECK_OK(b.status);
    CHECK_OK(pb_check_guards(&b));
    x[1] += 1;
    CHECK_FAILS(pb_check_guards(&b), PB_EWRONG, "x: the op changed an input");
    CHECK_OK(pb_rebind(&b));
    y[3] = 0;
    CHECK_FAILS(pb_check_guards(&b), PB_EWRONG, "y: the op wrote between its rows");
    CHECK_OK(pb_rebind(&b));
    if (!TEST_SANITIZED) { /* AddressSanitizer reports these writes itself */
        y[7] = 0;          /* one past the last element of the last row */
        CHECK_FAILS(pb_check_guards(&b), PB_EWRONG, "y: the op wrote past");
        CHECK_OK(pb_rebind(&b));
        y[-1] = 0;
        CHECK_FAILS(pb_check_guards(&b), PB_EWRONG, "y: the op wrote before");
    }
    pb_unbind(&b);
}

/* A kernel that mishandles a masked slot may read row -1 or the row past the last, or add 0 times a value to it. The
 * guards must make both visible: the sum that reads them is NaN, and adding +0.0 changes them. */
static void guards_detect_added_zeros_and_reads(void **state)
{
    pb_binder b = {.ctx = *state, .dtype = PB_BF16, .seed = 1};
    if (TEST_SANITIZED) return; /* AddressSanitizer reports these reads itself */
    float *y = pb_out(&b, "y", PB_F32, 6);
    CHECK_OK(b.status);
    for (int side = -512; side <= 6; side += 512 + 6) { /* row -1 and the row after the last, each of 512 elements */
        float sum = 0;
        for (int d = 0; d < 512; d++) sum += 0 * y[side + d];
        assert_true(isnan(sum));
        for (int d = 0; d < 512; d++) y[side + d] += 0.0f;
        CHECK_FAILS(pb_check_guards(&b), PB_EWRONG, side < 0 ? "y: the op wrote before" : "y: the op wrote past");
        CHECK_OK(pb_rebind(&b));
    }
    double sum = 0;
    for (int d = -512; d < 0; d++) sum += pb_load(y, d, PB_BF16);
    assert_true(isnan(sum));
    pb_unbind(&b);
}

static void only_logarithms_may_be_infinite(void **state)
{
    pb_binder want = {.ctx = *state}, got = {.ctx = *state};
    float *const x = pb_out_log(&want, "x", 3), *const y = pb_out_log(&got, "x", 3);
    pb_diff d;
    for (int i = 0; i < 3; i++) x[i] = y[i] = i ? (float)i : -INFINITY;
    CHECK_OK(pb_compare(&want, &got, &d));
    assert_true(pb_diff_ok(&d, 0));
    y[0] = -1e30f; /* not equal to -inf */
    CHECK_OK(pb_compare(&want, &got, &d));
    assert_false(pb_diff_ok(&d, 1e9));
    y[0] = INFINITY;
    CHECK_OK(pb_compare(&want, &got, &d));
    assert_false(pb_diff_ok(&d, 1e9));
    y[0] = x[0], y[2] = -INFINITY;
    CHECK_OK(pb_compare(&want, &got, &d));
    assert_false(pb_diff_ok(&d, 1e9));
    want.t[0].log = false, y[2] = x[2];
    CHECK_OK(pb_compare(&want, &got, &d));
    assert_false(pb_diff_ok(&d, 1e9));
    pb_unbind(&want), pb_unbind(&got);
}

static void seeds_do_not_depend_on_order_or_backend(void **state)
{
    pb_binder a = {.ctx = *state, .seed = 9}, b = {.ctx = *state, .seed = 9}, c = {.ctx = *state, .seed = 10};
    const float *x = pb_in(&a, "x", PB_F32, 1000), *y = pb_in(&b, "x", PB_F32, 1000), *z = pb_in(&c, "x", PB_F32, 1000);
    double mean = 0;
    assert_memory_equal(x, y, 4000);
    assert_memory_not_equal(x, z, 4000);
    for (int i = 0; i < 1000; i++) mean += (double)x[i] / 1000;
    CHECK_NEAR(mean, 0, 0.1);
    pb_unbind(&a), pb_unbind(&b), pb_unbind(&c);
}

/* ---- recorded call lists of the CPU backend -------------------------------------------------- */

typedef struct job {
    pb_rmsnorm_fwd_args a;
    int what; /* what to do after the op: 0 nothing, 1 pb_sync, 2 pb_download, 3 pb_alloc, 4 fail */
    float out;
} job;

static pb_status work(pb_ctx *ctx, void *self)
{
    job *j = self;
    void *p;
    PB_TRY(pb_rmsnorm_fwd(ctx, &j->a));
    if (j->what == 1) return pb_sync(ctx);
    if (j->what == 2) return pb_download(ctx, &j->out, j->a.rstd, sizeof j->out);
    if (j->what == 3) return pb_alloc(ctx, 64, &p);
    if (j->what == 4) return pb_fail(PB_EINVAL, "asked to fail");
    return PB_OK;
}

static void recording_does_not_run_the_ops(void **state)
{
    pb_ctx *ctx = *state;
    float x[2] = {3, 4}, w[2] = {1, 1}, y[2] = {-1, -1}, rstd[1];
    job j = {.a = {.x = x, .w = w, .y = y, .rstd = rstd, .T = 1, .G = 1, .D = 2, .ldx = 2, .ldy = 2, .eps = 1e-6f}};
    pb_graph *g = NULL;
    CHECK_OK(pb_record(ctx, work, &j, &g));
    assert_int_equal(pb_graph_nodes(ctx, g), 1);
    pb_kernel_resources r;
    CHECK_FAILS(pb_graph_resources(ctx, g, &r), PB_EUNSUPPORTED, "cpu launches no kernels of a GPU");
    CHECK_NEAR(y[0], -1, 0);
    j.a.T = 0; /* arguments were copied when recording */
    const pb_counts before = ctx->counts;
    CHECK_OK(pb_replay(ctx, g));
    assert_int_equal(ctx->counts.kernel_launches - before.kernel_launches, 1);
    CHECK_NEAR(y[0], 3 / sqrt(12.5), 1e-6);
    x[0] = 4; /* tensor contents are read at replay */
    CHECK_OK(pb_replay(ctx, g));
    CHECK_NEAR(y[0], 1, 1e-6);
    pb_graph_free(ctx, g);
}

static void recording_refuses_calls_that_a_graph_cannot_contain(void **state)
{
    pb_ctx *ctx = *state;
    static const char *const why[] = {"", "a host sync", "a host read", "an allocation", "asked to fail"};
    float x[2] = {3, 4}, w[2] = {1, 1}, y[2], rstd[1];
    job j = {.a = {.x = x, .w = w, .y = y, .rstd = rstd, .T = 1, .G = 1, .D = 2, .ldx = 2, .ldy = 2, .eps = 1e-6f}};
    for (j.what = 1; j.what <= 4; j.what++) {
        pb_graph *g = NULL;
        CHECK_FAILS(pb_record(ctx, work, &j, &g), j.what == 4 ? PB_EINVAL : PB_EUNSUPPORTED, why[j.what]);
        assert_null(g);
        y[0] = -1; /* the next eager call must work */
        CHECK_OK(pb_rmsnorm_fwd(ctx, &j.a));
        CHECK_NEAR(y[0], 3 / sqrt(12.5), 1e-6);
    }
}

static void scratch_is_kept_for_graphs_that_use_it(void **state)
{
    pb_ctx *ctx = *state;
    CHECK_OK(pb_ctx_reserve(ctx, 1000));
    unsigned char *first = ctx->scratch;
    memset(first, 1, 1000);
    CHECK_OK(pb_ctx_reserve(ctx, ctx->scratch_bytes + 1));
    assert_ptr_not_equal(first, ctx->scratch);
    assert_int_equal(first[999], 1);
}

static void waits_and_allocations_are_counted(void **state)
{
    pb_ctx *ctx = *state;
    const pb_counts a = ctx->counts;
    char host[16] = {0};
    void *p;
    CHECK_OK(pb_alloc(ctx, sizeof host, &p));
    CHECK_OK(pb_sync(ctx));
    assert_int_equal(ctx->counts.allocs - a.allocs, 1);
    assert_int_equal(ctx->counts.host_syncs - a.host_syncs, 1);
    CHECK_OK(pb_upload(ctx, p, host, sizeof host));
    CHECK_OK(pb_download(ctx, host, p, sizeof host));
    assert_int_equal(ctx->counts.host_syncs - a.host_syncs, 3);
    CHECK_OK(pb_upload(ctx, p, host, 0)); /* copies nothing and waits for nothing */
    CHECK_OK(pb_upload_staged(ctx, p, host, sizeof host));
    assert_int_equal(ctx->counts.host_syncs - a.host_syncs, 3);
    pb_release(ctx, p);
}

static void a_staged_upload_copies_a_few_bytes(void **state)
{
    pb_ctx *ctx = *state;
    unsigned char host[PB_STAGED_MOST + 1] = {7};
    void *p;
    CHECK_OK(pb_alloc(ctx, sizeof host, &p));
    CHECK_OK(pb_upload_staged(ctx, p, host, PB_STAGED_MOST));
    host[0] = 8;
    CHECK_OK(pb_download(ctx, host, p, 1));
    assert_int_equal(host[0], 7);
    CHECK_FAILS(pb_upload_staged(ctx, p, host, sizeof host), PB_EINVAL, "at most 256");
    pb_release(ctx, p);
}

/* Blocks are released in another order than allocated. held_peak is the maximum of the sum of their sizes, and
 * pb_held_reset sets it to the current sum. */
static void memory_held_is_counted_with_its_peak(void **state)
{
    pb_ctx ctx;
    void *p[3];
    size_t used;
    (void)state;
    CHECK_OK(pb_ctx_open(&ctx, PB_CPU, 0));
    for (int i = 0; i < 3; i++) CHECK_OK(pb_alloc(&ctx, (size_t)100 << i, &p[i]));
    assert_int_equal(ctx.held, 700);
    pb_release(&ctx, p[1]);
    assert_int_equal(ctx.held, 500);
    assert_int_equal(ctx.held_peak, 700);
    pb_held_reset(&ctx);
    pb_release(&ctx, p[0]);
    CHECK_OK(pb_alloc(&ctx, 50, &p[0]));
    assert_int_equal(ctx.held_peak, 500);
    pb_release(&ctx, p[0]), pb_release(&ctx, p[2]);
    assert_int_equal(ctx.held, 0);
    CHECK_OK(pb_ctx_reserve(&ctx, 1000));
    assert_int_equal(ctx.held_peak, 1000);
    CHECK_FAILS(pb_device_used(&ctx, &used), PB_EUNSUPPORTED, "does not report");
    pb_ctx_close(&ctx);
}

/* A source of memory for the test below: a buffer, and how often it was given and taken back. */
typedef struct fake_source {
    char buffer[256];
    int given, taken;
    bool empty;
} fake_source;

static pb_status fake_alloc(void *self, size_t bytes, void **out)
{
    fake_source *f = self;
    if (f->empty || bytes > sizeof f->buffer) return pb_fail(PB_ENOMEM, "the source is empty");
    f->given++, *out = f->buffer;
    return PB_OK;
}

static void fake_release(void *self, void *p)
{
    fake_source *f = self;
    assert_ptr_equal(p, f->buffer);
    f->taken++;
}

/* Memory of another source is counted like the backend's, and goes back to its source. */
static void memory_of_a_source_goes_back_to_it(void **state)
{
    pb_ctx ctx;
    fake_source f = {.empty = false};
    const pb_memory_source source = {fake_alloc, fake_release, &f};
    pb_arena arena;
    void *p;
    (void)state;
    CHECK_OK(pb_ctx_open(&ctx, PB_CPU, 0));
    CHECK_OK(pb_alloc_from(&ctx, &source, 200, &p));
    assert_true(p == f.buffer && ctx.held == 200 && ctx.counts.allocs == 1);
    pb_release(&ctx, p);
    assert_true(f.given == 1 && f.taken == 1 && ctx.held == 0);
    pb_arena_begin_in(&arena, &ctx, &source);
    (void)pb_carve(&arena, 100);
    CHECK_OK(pb_arena_commit(&arena));
    assert_ptr_equal(pb_carve(&arena, 100), f.buffer);
    pb_arena_free(&arena);
    assert_true(f.given == 2 && f.taken == 2 && ctx.held == 0);
    f.empty = true;
    CHECK_FAILS(pb_alloc_from(&ctx, &source, 1, &p), PB_ENOMEM, "the source is empty");
    assert_int_equal(ctx.held, 0);
    pb_ctx_close(&ctx);
}

/* Copies more bytes than one chunk of the backend's copy holds, so that several chunks are needed and the last one is
 * shorter. */
static void a_copy_moves_every_byte(void **state)
{
    const size_t n = ((size_t)9 << 20) + 5;
    unsigned char *from = malloc(n), *to = calloc(1, n);
    assert_true(from && to);
    for (size_t i = 0; i < n; i++) from[i] = (unsigned char)(i * 2654435761u >> 13);
    CHECK_OK(pb_copy(*state, to, from, n));
    assert_memory_equal(to, from, n);
    free(from), free(to);
}

static void unknown_implementation_is_an_error(void **state)
{
    pb_ctx *ctx = *state;
    float x[2] = {3, 4}, rstd[1];
    pb_rmsnorm_fwd_args a = {
        .x = x, .w = x, .y = x, .rstd = rstd, .T = 1, .G = 1, .D = 2, .ldx = 2, .ldy = 2, .eps = 1e-6f};
    ctx->impl = "warp9";
    CHECK_FAILS(pb_rmsnorm_fwd(ctx, &a), PB_EUNSUPPORTED, "warp9");
    ctx->impl = NULL;
    ctx->prefer = "ref";
    assert_string_equal(pb_op_pick(ctx, &pb_op_rmsnorm_fwd, &a)->name, "ref");
    ctx->prefer = "warp9";
    assert_non_null(pb_op_pick(ctx, &pb_op_rmsnorm_fwd, &a));
    ctx->prefer = NULL;
}

static void arena_measures_then_carves(void **state)
{
    pb_arena a;
    void *p[2], *q[2];
    pb_arena_begin(&a, *state);
    for (int pass = 0; pass < 2; pass++) {
        p[pass] = pb_carve(&a, 100);
        q[pass] = pb_carve_packed(&a, 28);
        assert_null(pb_carve(&a, 0));
        if (pass == 0) CHECK_OK(pb_arena_commit(&a));
    }
    assert_null(p[0]);
    assert_ptr_equal((char *)p[1] + 100, q[1]);
    assert_int_equal(((char *)q[1])[27], 0);
    pb_arena_free(&a);
}

/* A CPU counts as x86-64-v3 or v4 only if it has each instruction set that the psABI lists for that level. Instruction
 * sets outside that list do not matter. */
static void an_instruction_set_needs_its_whole_level(void **state)
{
    static const int v3[][2] = {{0, 0},  {0, 9},  {0, 12}, {0, 13}, {0, 19}, {0, 20}, {0, 22}, {0, 23}, {0, 27},
                                {0, 28}, {0, 29}, {1, 3},  {1, 5},  {1, 8},  {2, 0},  {2, 5},  {3, 1},  {3, 2}};
    static const int v4[][2] = {{1, 16}, {1, 17}, {1, 28}, {1, 30}, {1, 31}, {3, 5}, {3, 6}, {3, 7}};
    enum { N3 = sizeof v3 / sizeof *v3, N4 = sizeof v4 / sizeof *v4 };
    uint32_t need3[4] = {0}, need4[4] = {0};
    (void)state;
    for (int i = 0; i < N3; i++) need3[v3[i][0]] |= 1u << v3[i][1], need4[v3[i][0]] |= 1u << v3[i][1];
    for (int i = 0; i < N4; i++) need4[v4[i][0]] |= 1u << v4[i][1];
    assert_true(pb_cpu_is_v3(&(pb_cpuid){need3[0], need3[1], need3[2], need3[3]}));
    assert_true(pb_cpu_is_v4(&(pb_cpuid){need4[0], need4[1], need4[2], need4[3]}));
    for (int i = 0; i < N3 + N4; i++) {
        const int *bit = i < N3 ? v3[i] : v4[i - N3];
        uint32_t all[4] = {~0u, ~0u, ~0u, ~0u};
        all[bit[0]] &= ~(1u << bit[1]);
        const pb_cpuid c = {all[0], all[1], all[2], all[3]};
        assert_true(pb_cpu_is_v3(&c) == (i >= N3) && !pb_cpu_is_v4(&c));
    }
    assert_true(pb_cpu_has_avx2() || !pb_cpu_has_avx512());
#if defined(__x86_64__)
    if (pb_cpu_has_avx2()) assert_true(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
    if (__builtin_cpu_supports("avx512vl")) assert_true(pb_cpu_has_avx2());
    if (pb_cpu_has_avx512()) assert_true(__builtin_cpu_supports("avx512vl"));
#endif
}

static void a_device_is_a_backend_and_a_number(void **state)
{
    (void)state;
    static const char *const bad[] = {"gpu",         "cuda:",   "cuda:x", "cuda:1x",
                                      "cuda:-1",     "cuda: 1", "cpu:0",  "cuda:+1",
                                      "cuda:100000", "",        ":1",     "cuda:99999999999999999999"};
    pb_backend_id id = PB_NBACKENDS;
    int number = -1;
    CHECK_OK(pb_device_find("cpu", &id, &number));
    assert_true(id == PB_CPU && number == 0);
    CHECK_OK(pb_device_find("cuda", &id, &number));
    assert_true(id == PB_CUDA && number == 0);
    CHECK_OK(pb_device_find("cuda:0", &id, &number));
    assert_int_equal(number, 0);
    CHECK_OK(pb_device_find("cuda:13", &id, &number));
    assert_int_equal(number, 13);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_FAILS(pb_device_find(bad[i], &id, &number), PB_EINVAL, "is not one of cpu, cuda");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comparison_fails_on_non_finite_values),
        cmocka_unit_test(one_wrong_element_of_many_is_found),
        cmocka_unit_test(zero_reference_compares_absolutely),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(guards_detect_stray_writes),
        cmocka_unit_test(guards_detect_added_zeros_and_reads),
        cmocka_unit_test(only_logarithms_may_be_infinite),
        cmocka_unit_test(seeds_do_not_depend_on_order_or_backend),
        cmocka_unit_test(an_instruction_set_needs_its_whole_level),
        cmocka_unit_test(recording_does_not_run_the_ops),
        cmocka_unit_test(recording_refuses_calls_that_a_graph_cannot_contain),
        cmocka_unit_test(scratch_is_kept_for_graphs_that_use_it),
        cmocka_unit_test(waits_and_allocations_are_counted),
        cmocka_unit_test(a_staged_upload_copies_a_few_bytes),
        cmocka_unit_test(memory_held_is_counted_with_its_peak),
        cmocka_unit_test(memory_of_a_source_goes_back_to_it),
        cmocka_unit_test(a_copy_moves_every_byte),
        cmocka_unit_test(unknown_implementation_is_an_error),
        cmocka_unit_test(arena_measures_then_carves),
        cmocka_unit_test(a_device_is_a_backend_and_a_number),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
