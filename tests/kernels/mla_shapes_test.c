/* mla_shapes_test.c - every implementation of sparse_mla and dense_mla against an oracle in double precision. Shapes
 * of sparse_mla: those of the public kernels' tests, the training shape with 0, 75 and 100 % masked slots, and
 * irregular ones. Shapes of dense_mla: causal, with a window, and neither. On a GPU each implementation runs twice:
 * both results must have equal bits, or differ by at most a bound if the implementation declares that it varies.
 *
 * usage: mla_shapes_test [--backend cpu|cuda]     or PB_TEST_BACKEND=cuda
 *
 * A GPU runs all shapes (in f32 those of at most 5 GFLOP forward). A CPU runs shapes of at most 0.6 GFLOP, so that
 * CI takes seconds: 10 of the 17 public problems. `ref` runs up to 0.14 GFLOP. */
#include "kernels/dense_mla/dense_mla.h"
#include "kernels/sparse_mla/convert.h"
#include "kernels/sparse_mla/lists.h"
#include "kernels/sparse_mla/sparse_mla.h"
#include "tests/kernels/calls.h"
#include "tests/kernels/mla_oracle.h"

typedef enum sinks { RANDOM, ZERO, POSITIVE, NEGATIVE, TEN } sinks;

typedef struct shape {
    pb_dims dim; /* B, S, S_kv, H, D, V; then W and kind of list (sparse), or causal and window (dense) */
    sinks sink;
} shape;

#define FLASH(B, S, H, S_kv, W, lists)                                                                                 \
    {                                                                                                                  \
        B, S, S_kv, H, 512, 512, W, lists                                                                              \
    }

/* The 17 different problems among the 23 cases in the tests of the public kernels (FlashMLA): 11 forward shapes, 4
 * kinds of sink (one of them also among the 11), and 2 problems whose last quarter of slots is masked. Their backward
 * shapes are among the 11. Here each problem runs forward and backward. */
static const shape public_tests[] = {
    {FLASH(1, 128, 8, 160, 64, FULL), RANDOM},     {FLASH(1, 256, 8, 320, 128, FULL), RANDOM},
    {FLASH(1, 256, 16, 320, 128, FULL), RANDOM},   {FLASH(2, 128, 8, 160, 64, FULL), RANDOM},
    {FLASH(1, 512, 8, 640, 256, FULL), RANDOM},    {FLASH(1, 512, 16, 640, 128, FULL), RANDOM},
    {FLASH(1, 256, 64, 320, 128, FULL), RANDOM},   {FLASH(1, 512, 64, 640, 256, FULL), RANDOM},
    {FLASH(1, 1024, 64, 1280, 512, FULL), RANDOM}, {FLASH(1, 256, 8, 320, 256, FULL), RANDOM},
    {FLASH(1, 256, 8, 320, 64, FULL), RANDOM},     {FLASH(1, 256, 8, 320, 128, FULL), ZERO},
    {FLASH(1, 256, 8, 320, 128, FULL), POSITIVE},  {FLASH(1, 256, 8, 320, 128, FULL), NEGATIVE},
    {FLASH(1, 128, 8, 160, 64, FULL), ZERO},       {FLASH(1, 128, 8, 160, 64, FULL), TEN},
    {FLASH(1, 256, 8, 320, 128, CUT), RANDOM},     {{0}, RANDOM},
};
static const shape trained[] = {
    {FLASH(1, 1280, 64, 1280, 640, FULL), RANDOM},
    {FLASH(1, 1280, 64, 1280, 640, QUARTER), RANDOM},
    {FLASH(1, 1280, 64, 1280, 640, EMPTY), RANDOM},
    {FLASH(1, 6, 64, 1280, 640, QUARTER), RANDOM}, /* small enough for a CPU */
    {FLASH(2, 3, 64, 1280, 640, EMPTY), RANDOM},
    {{0}, RANDOM},
};
static const shape ragged[] = {
    {FLASH(1, 4095, 2, 4128, 67, HOLES), RANDOM},
    {FLASH(1, 4128, 2, 4095, 33, TWICE), RANDOM},
    {FLASH(1, 4095, 8, 4128, 321, HOLES), RANDOM},
    {FLASH(2, 31, 128, 1023, 193, EMPTY_ROW), RANDOM},
    {{1, 65, 257, 64, 576, 512, 131, HOLES}, RANDOM},
    {{2, 67, 130, 8, 576, 512, 129, TWICE}, RANDOM},
    {FLASH(2, 3, 128, 515, 161, EMPTY_ROW), RANDOM},
    {{1, 640, 800, 16, 512, 512, 288, V4}, RANDOM},
    {{0}, RANDOM},
};

static const shape dense[] = {
    {{1, 150, 1280, 8, 512, 512, 1, 128}, RANDOM},
    {{2, 33, 130, 64, 512, 512, 1, 0}, RANDOM},
    {{1, 65, 257, 16, 576, 512, 0, 0}, RANDOM},
    {{2, 40, 37, 100, 512, 512, 1, 9}, RANDOM}, /* the first queries attend to no key */
    {{1, 257, 257, 3, 128, 128, 1, 0}, RANDOM},
    {{1, 1280, 1280, 64, 512, 512, 1, 0}, RANDOM},
    {{0}, RANDOM},
};

/* Limits against double: relative L2 error, and rel_diff = 1 - 2 sum xy / (sum x^2 + sum y^2), the measure of the
 * public kernels' tests. The largest error, in units of the root mean square, may be 100 times the L2 limit. */
typedef struct bound {
    const char *name;
    double l2[PB_NFLOAT], rel_diff[PB_NFLOAT];
} bound;

static const bound bounds[] = {
    {"o", {[PB_F32] = 1e-6, [PB_BF16] = 4e-3}, {[PB_F32] = 1e-12, [PB_BF16] = 1e-5}},
    {"lse", {[PB_F32] = 1e-6, [PB_BF16] = 1e-3}, {[PB_F32] = 1e-12, [PB_BF16] = 1e-6}},
    {"dq", {[PB_F32] = 1e-6, [PB_BF16] = 4e-3}, {[PB_F32] = 1e-12, [PB_BF16] = 1e-5}},
    {"dkv", {[PB_F32] = 1e-6, [PB_BF16] = 6e-3}, {[PB_F32] = 1e-12, [PB_BF16] = 2e-5}},
    {"dsink", {[PB_F32] = 1e-6, [PB_BF16] = 6e-3}, {[PB_F32] = 1e-12, [PB_BF16] = 2e-5}},
};
enum { OUTPUTS = sizeof bounds / sizeof *bounds };

typedef struct run {
    pb_ctx cpu, *ctx;
    const pb_op *fwd, *bwd;
    int wrong;
} run;

/* ---- comparing with the oracle ------------------------------------------------------------------------ */

typedef struct error {
    double l2, rel_diff, max;
    size_t bad; /* elements that are not finite */
} error;

/* Computes the errors of `got`. Non-finite elements on either side make all three errors NaN, except -inf on both sides
 * of an lse (`log`). If `want` is all zero, `got` must be all zero. */
static error error_of(const double *want, const void *got, size_t n, pb_dtype t, bool log)
{
    double diff = 0, squares = 0, others = 0, both = 0, max = 0;
    size_t bad = 0;
#pragma omp parallel for reduction(+ : diff, squares, others, both, bad) reduction(max : max)
    for (size_t e = 0; e < n; e++) {
        const double x = want[e], y = pb_load(got, e, t), d = fabs(x - y);
        if (log && x == (double)-INFINITY && y == x) continue;
        bad += !isfinite(x) || !isfinite(y);
        diff += d * d, squares += x * x, others += y * y, both += x * y;
        max = d > max ? d : max;
    }
    if (bad) return (error){(double)NAN, (double)NAN, (double)NAN, bad};
    if (!(squares > 0)) return (error){others > 0 ? (double)INFINITY : 0, others > 0 ? 1 : 0, max, 0};
    return (error){sqrt(diff / squares), 1 - 2 * both / (squares + others), max / sqrt(squares / (double)n), 0};
}

static bool within(const error *e, const bound *b, pb_dtype t)
{
    return e->l2 <= b->l2[t] && e->rel_diff <= b->rel_diff[t] && e->max <= 100 * b->l2[t];
}

static double *of_want(const mla_want *w, int k)
{
    double *const all[OUTPUTS] = {w->o, w->lse, w->dq, w->dkv, w->dsink};
    return all[k];
}

/* Prints one line with the errors of every output, and counts those outside their limits. */
static void judge(run *r, const char *where, call *c, const mla_want *want)
{
    printf("    %s:", where);
    for (int k = 0; k < OUTPUTS; k++) {
        const pb_bound *x = pb_find_bound(&c->b, bounds[k].name);
        if (!x || x->role != PB_ROLE_OUT) continue;
        void *got = test_fetch(r->ctx, x->p, x->cols * pb_dtype_size(x->dtype));
        const error e = error_of(of_want(want, k), got, x->cols, x->dtype, x->log);
        const bool fine = within(&e, &bounds[k], c->b.dtype);
        printf("  %s %.1e %.1e %.1e%s", x->name, e.l2, e.rel_diff, e.max, fine ? "" : " WRONG");
        if (e.bad) printf(" (%zu of %zu not finite)", e.bad, x->cols);
        r->wrong += !fine;
        free(got);
    }
    printf("\n");
}

/* ---- running each implementation of a pass ---------------------------------------------------------- */

/* Fills all outputs with NaN. */
static void poison(call *c)
{
    for (int k = 0; k < c->b.n; k++) {
        const pb_bound *x = &c->b.t[k];
        const size_t bytes = x->cols * pb_dtype_size(x->dtype);
        if (x->role != PB_ROLE_OUT) continue;
        void *nan = malloc(bytes + 1);
        assert_non_null(nan);
        CHECK_OK(pb_upload(c->b.ctx, x->p, memset(nan, 0xff, bytes), bytes));
        free(nan);
    }
}

static void run_once(run *r, call *c)
{
    poison(c);
    CHECK_OK(call_run(r->ctx, c));
    CHECK_OK(pb_sync(r->ctx));
}

/* Repeats the call: the outputs must be equal bit for bit, or within a limit if the implementation varies. */
static void run_again(run *r, const char *where, call *c, bool varies)
{
    void *first[OUTPUTS] = {NULL};
    const pb_bound *x[OUTPUTS];
    for (int k = 0; k < OUTPUTS; k++) {
        x[k] = pb_find_bound(&c->b, bounds[k].name);
        if (!x[k] || x[k]->role != PB_ROLE_OUT) continue;
        first[k] = test_fetch(r->ctx, x[k]->p, x[k]->cols * pb_dtype_size(x[k]->dtype));
    }
    run_once(r, c);
    for (int k = 0; k < OUTPUTS; k++) {
        if (!first[k]) continue;
        const size_t bytes = x[k]->cols * pb_dtype_size(x[k]->dtype);
        void *second = test_fetch(r->ctx, x[k]->p, bytes);
        const bool same = memcmp(first[k], second, bytes) == 0;
        const pb_diff d = pb_diff_arrays(first[k], second, x[k]->cols, x[k]->dtype);
        const bool fine = same || (varies && d.rel <= bounds[k].l2[c->b.dtype] / 4);
        if (!same) printf("    %s: two runs' %s differ by %.1e%s\n", where, x[k]->name, d.rel, fine ? "" : " WRONG");
        r->wrong += !fine;
        free(first[k]), free(second);
    }
}

/* Returns the cost of the forward pass in GFLOP. Every dense query is counted as if it had the largest number of keys
 * that any query has. */
static double gflop(const run *r, const int *d)
{
    const int slots = r->fwd == &pb_op_dense_mla_fwd ? pb_mla_dense_slots(d[2], d[7]) : d[6];
    return 2e-9 * d[0] * d[1] * d[3] * (d[4] + d[5]) * slots;
}

/* Runs every implementation of one pass on copies of the inputs. */
static void check_pass(run *r, const int *dim, const call *inputs, const mla_want *want)
{
    call c = call_bind(r->ctx, inputs->op, dim, inputs->b.dtype);
    call_fresh(&c, inputs);
    for (const pb_impl *i = c.op->impls[r->ctx->id]; i->name; i++) {
        char where[160];
        if (!call_takes(i, &c) || (strcmp(i->name, "ref") == 0 && gflop(r, dim) > 0.14)) continue;
        int n = snprintf(where, sizeof where, "%s.%s %s ", c.op->name, i->name, pb_dtype_name(c.b.dtype));
        pb_dims_text(c.op, dim, where + n, sizeof where - (size_t)n);
        r->ctx->impl = i->name;
        run_once(r, &c);
        judge(r, where, &c, want);
        if (r->ctx->id != PB_CPU) run_again(r, where, &c, i->varies);
    }
    r->ctx->impl = NULL;
    CHECK_OK(pb_check_guards(&c.b));
    call_unbind(&c);
}

/* Makes the inputs of one pass on the CPU. */
static call inputs_of(run *r, const pb_op *op, const shape *s, pb_dtype t)
{
    static const double lo[] = {-1, 0, 0, -2, 10}, hi[] = {1, 0, 2, 0, 10};
    call c = call_bind(&r->cpu, op, s->dim, t);
    const pb_bound *x = pb_find_bound(&c.b, "sink");
    for (size_t h = 0; h < x->cols; h++)
        ((float *)x->p)[h] = (float)(lo[s->sink] + (hi[s->sink] - lo[s->sink]) * pb_uniform(11, h));
    CHECK_OK(op->prepare(&r->cpu, c.args));
    return c;
}

static void check_shape(run *r, const shape *s, pb_dtype t)
{
    call fwd = inputs_of(r, r->fwd, s, t), bwd = inputs_of(r, r->bwd, s, t);
    const pb_mla x = pb_mla_fwd_problem(fwd.args), p = pb_mla_bwd_problem(bwd.args);
    const size_t e = pb_dtype_size(t), lists = (size_t)p.B * p.S * p.W * sizeof *p.idx;
    /* both passes have equal inputs, so one oracle run serves both */
    assert_memory_equal(x.q, p.q, (size_t)p.B * p.S * p.H * p.D * e);
    assert_memory_equal(x.kv, p.kv, (size_t)p.B * p.S_kv * p.D * e);
    if (p.idx) assert_memory_equal(x.idx, p.idx, lists);
    assert_memory_equal(x.sink, p.sink, p.H * sizeof *p.sink);
    mla_want want = mla_oracle(&p);
    check_pass(r, s->dim, &fwd, &want);
    check_pass(r, s->dim, &bwd, &want);
    mla_want_free(&want);
    call_unbind(&fwd), call_unbind(&bwd);
}

static void check_shapes(run *r, const pb_op *fwd, const pb_op *bwd, const shape *s)
{
    r->fwd = fwd, r->bwd = bwd, r->wrong = 0;
    for (; s->dim[0]; s++)
        for (int t = 0; t < PB_NFLOAT; t++)
            if (gflop(r, s->dim) <= (r->ctx->id == PB_CPU ? 0.6 : t == PB_F32 ? 5 : 1e9))
                check_shape(r, s, (pb_dtype)t);
    if (r->wrong) fail_msg("%d outputs are wrong", r->wrong);
}

static void check_lists(run *r, const shape *s) { check_shapes(r, &pb_op_sparse_mla_fwd, &pb_op_sparse_mla_bwd, s); }
static void shapes_of_the_public_tests(void **state) { check_lists(*state, public_tests); }
static void the_trained_shape_at_any_share_of_masked_slots(void **state) { check_lists(*state, trained); }
static void ragged_shapes(void **state) { check_lists(*state, ragged); }
static void dense_shapes(void **state) { check_shapes(*state, &pb_op_dense_mla_fwd, &pb_op_dense_mla_bwd, dense); }

/* ---- tests of the comparison itself ----------------------------------------------------------------- */

static void the_comparison_detects_errors(void **state)
{
    double want[4] = {1, 2, 3, 4};
    float got[4] = {1, 2, 3, 4};
    (void)state;
    error e = error_of(want, got, 4, PB_F32, false);
    assert_true(e.l2 == 0 && e.rel_diff == 0 && e.max == 0);
    got[3] = 4.4f;
    e = error_of(want, got, 4, PB_F32, false);
    CHECK_NEAR(e.l2, 0.4 / sqrt(30), 1e-6);
    CHECK_NEAR(e.rel_diff, 0.16 / (30 + 33.36), 1e-6); /* = sum (x-y)^2 / (sum x^2 + sum y^2) */
    got[3] = NAN;
    e = error_of(want, got, 4, PB_F32, false);
    assert_false(within(&e, &bounds[0], PB_BF16));
    got[3] = -INFINITY, want[3] = (double)-INFINITY;
    e = error_of(want, got, 4, PB_F32, false);
    assert_false(within(&e, &bounds[0], PB_BF16));
    e = error_of(want, got, 4, PB_F32, true);
    assert_true(within(&e, &bounds[0], PB_F32));
    memset(want, 0, sizeof want), memset(got, 0, sizeof got);
    e = error_of(want, got, 4, PB_F32, false);
    assert_true(within(&e, &bounds[0], PB_F32));
    got[1] = 1e-30f; /* if all expected values are 0, so must be the output */
    e = error_of(want, got, 4, PB_F32, false);
    assert_false(within(&e, &bounds[0], PB_BF16));
}

static int open_all(void **state)
{
    static run r;
    void *device = NULL;
    if (test_open_device(&device) != 0) return -1;
    if (pb_ctx_open(&r.cpu, PB_CPU, 0) != PB_OK) return -1;
    r.ctx = device;
    *state = &r;
    return 0;
}

static int close_all(void **state)
{
    run *r = *state;
    pb_ctx_close(&r->cpu);
    pb_ctx_close(r->ctx);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_comparison_detects_errors),
        cmocka_unit_test(shapes_of_the_public_tests),
        cmocka_unit_test(the_trained_shape_at_any_share_of_masked_slots),
        cmocka_unit_test(ragged_shapes),
        cmocka_unit_test(dense_shapes),
    };
    if (argc == 3 && strcmp(argv[1], "--backend") == 0) setenv("PB_TEST_BACKEND", argv[2], 1);
    return cmocka_run_group_tests(tests, open_all, close_all);
}
