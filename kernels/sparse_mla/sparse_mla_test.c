/* sparse_mla_test.c - tests properties of sparse_mla that a comparison with the reference cannot show: PyTorch's
 * results, the edge cases of the definition, and which tokens influence which. Each property is tested with every CPU
 * implementation that this machine can run. */
#include <limits.h>
#include <omp.h>

#include "kernels/dense_mla/dense_mla.h"
#include "kernels/sparse_mla/convert.h"
#include "kernels/sparse_mla/sparse_mla.h"
#include "tests/kernels/mla_fixture.h"

static void both(pb_ctx *ctx, const pb_mla *p)
{
    const pb_sparse_mla_fwd_args f = pb_mla_fwd_of(p);
    const pb_sparse_mla_bwd_args b = pb_mla_bwd_of(p);
    CHECK_OK(pb_sparse_mla_fwd(ctx, &f));
    CHECK_OK(pb_sparse_mla_bwd(ctx, &b));
}

/* Allocates the key lists of p, W slots each. Slot w of query i of batch row b becomes rule(p, b, i, w). */
static void lists(pb_mla *p, int W, int32_t (*rule)(const pb_mla *p, int b, int i, int w))
{
    int32_t *idx = malloc((size_t)p->B * p->S * W * sizeof *idx + 1);
    assert_non_null(idx);
    p->W = W, p->idx = idx;
    for (int b = 0; b < p->B; b++)
        for (int i = 0; i < p->S; i++)
            for (int w = 0; w < W; w++) *idx++ = rule(p, b, i, w);
}

static void on_each(pb_ctx *ctx, void (*check)(pb_ctx *))
{
    for (const pb_impl *i = pb_sparse_mla_fwd_cpu; i->name; i++) {
        if (i->available && !i->available()) continue;
        ctx->impl = i->name;
        check(ctx);
    }
    ctx->impl = NULL;
}

static int32_t fixture_rule(const pb_mla *p, int b, int i, int w)
{
    const size_t at = ((size_t)b * p->S + i) * p->W + w;
    return i == 1 ? -1 : (int32_t)floor(pb_uniform(5, at) * (p->S_kv + 6)) - 3;
}

static void check_fixture(pb_ctx *ctx)
{
    pb_mla p = fx_make(FX_B, FX_S, FX_S_KV, FX_H, FX_D, FX_V);
    lists(&p, FX_W, fixture_rule);
    both(ctx, &p);
    fx_matches(&p, "sparse");
    fx_free(&p);
}
static void pytorch_agrees(void **state) { on_each(*state, check_fixture); }

/* ---- rel_diff, the measure of difference in DeepSeek's tests ---------------------------------------- */

static void rel_diff_is_half_the_squared_l2(void **state)
{
    enum { N = 1000 };
    float *x = fx_draw(1, N), *y = fx_draw(1, N);
    (void)state;
    assert_true(rel_diff(x, y, N, PB_F32) == 0);
    for (int i = 0; i < N; i++) y[i] *= 1.004f;
    const double d = rel_diff(x, y, N, PB_F32), l2 = pb_diff_arrays(x, y, N, PB_F32).rel;
    CHECK_NEAR(d, l2 * l2 / 2, 1e-7); /* half the square of the relative L2 */
    y[7] = NAN;
    assert_false(rel_diff(x, y, N, PB_F32) <= 1);
    assert_false(rel_diff(y, y, N, PB_F32) <= 1);
    y[7] = INFINITY;
    assert_false(rel_diff(x, y, N, PB_F32) <= 1);
    memset(y, 0, N * sizeof *y);
    assert_true(rel_diff(x, y, N, PB_F32) == 1);
    memset(x, 0, N * sizeof *x);
    assert_true(rel_diff(x, y, N, PB_F32) == 0);
    free(x), free(y);
}

/* ---- edge cases of the definition: no visible keys, extreme sinks, rows listed twice ----------------- */

static int32_t nothing(const pb_mla *p, int b, int i, int w)
{
    static const int32_t masked[] = {-1, INT_MIN, INT_MAX};
    (void)b, (void)i;
    return w % 4 == 3 ? p->S_kv : masked[w % 4];
}

static void check_no_visible_keys(pb_ctx *ctx)
{
    static const float sinks[] = {0.7f, 200, -200, -INFINITY};
    pb_mla p = fx_make(2, 3, 5, 4, 8, 6);
    lists(&p, 70, nothing);
    memcpy((void *)p.sink, sinks, sizeof sinks);
    for (int e = 0; e < 2 * 5 * 8; e++) ((float *)p.kv)[e] = e % 2 ? NAN : INFINITY;
    both(ctx, &p);
    for (size_t t = 0; t < 24; t++) assert_true(p.lse[t] == sinks[t % 4]);
    for (int k = 0; k < 5; k++) {
        const char *name;
        size_t n;
        const float *x = fx_output(&p, k, &name, &n);
        for (size_t e = 0; k != 1 && e < n; e++)
            if (!(x[e] == 0)) fail_msg("%s[%zu] = %g where nothing is seen", name, e, (double)x[e]);
    }
    fx_free(&p);
}
static void a_query_without_keys_gives_zero(void **state) { on_each(*state, check_no_visible_keys); }

static int32_t all_rows(const pb_mla *p, int b, int i, int w)
{
    (void)p, (void)b, (void)i;
    return w;
}

/* Sinks far below every score act like no sink; sinks far above take all the weight. */
static void check_sinks(pb_ctx *ctx)
{
    static const float low[] = {-200, -INFINITY, -200, -INFINITY}, high[] = {200, 200, 200, 200};
    pb_mla p = fx_make(1, 3, 40, 4, 16, 16), none = fx_make(1, 3, 40, 4, 16, 16);
    lists(&p, 40, all_rows), lists(&none, 40, all_rows);
    memcpy((void *)p.sink, low, sizeof low);
    for (int h = 0; h < 4; h++) ((float *)none.sink)[h] = -INFINITY;
    both(ctx, &none), both(ctx, &p);
    fx_near(&none, &p, 1e-6);
    memcpy((void *)p.sink, high, sizeof high);
    both(ctx, &p);
    for (int t = 0; t < 12; t++) CHECK_NEAR(p.lse[t], 200, 1e-4);
    for (int e = 0; e < 3 * 4 * 16; e++) CHECK_NEAR(((float *)p.o)[e], 0, 1e-30);
    for (int h = 0; h < 4; h++) CHECK_NEAR(p.dsink[h], 0, 1e-30);
    fx_free(&p), fx_free(&none);
}
static void extreme_sinks(void **state) { on_each(*state, check_sinks); }

/* Rows 1 and 2 of kv are equal, so a list with row 1 twice gives the same outputs as a list with both; dkv of row 1 is
 * then the sum of the two rows of dkv. */
static int32_t named_twice(const pb_mla *p, int b, int i, int w)
{
    static const int32_t row[] = {1, 4, 1, 0};
    (void)p, (void)b, (void)i;
    return row[w];
}
static int32_t named_once(const pb_mla *p, int b, int i, int w) { return w == 2 ? 2 : named_twice(p, b, i, w); }

static void check_duplicates(pb_ctx *ctx)
{
    enum { D = 16 };
    pb_mla twice = fx_make(1, 3, 6, 2, D, D), once = fx_make(1, 3, 6, 2, D, D);
    lists(&twice, 4, named_twice), lists(&once, 4, named_once);
    for (int d = 0; d < D; d++) {
        float *x = (float *)twice.kv, *y = (float *)once.kv;
        x[2 * D + d] = x[D + d], y[2 * D + d] = y[D + d];
    }
    both(ctx, &twice), both(ctx, &once);
    for (int d = 0; d < D; d++) {
        float *x = (float *)once.dkv + D + d, *y = (float *)once.dkv + 2 * D + d;
        *x += *y, *y = 0;
    }
    fx_near(&once, &twice, 1e-6);
    fx_free(&twice), fx_free(&once);
}
static void duplicates_count_twice(void **state) { on_each(*state, check_duplicates); }

/* Two lists with the same rows: in_order() lists them densely; spread() lists them in another order, with masked slots
 * before, between and after them. */
static int32_t in_order(const pb_mla *p, int b, int i, int w)
{
    (void)p;
    return (w * 3 + i + 2 * b) % 200;
}
static int32_t spread(const pb_mla *p, int b, int i, int w)
{
    return w % 3 == 1 && w / 3 < 150 ? in_order(p, b, i, 149 - w / 3) : w % 2 ? -1 : p->S_kv + w;
}

static void check_order(pb_ctx *ctx)
{
    pb_mla x = fx_make(2, 3, 200, 5, 24, 20), y = fx_make(2, 3, 200, 5, 24, 20);
    lists(&x, 150, in_order), lists(&y, 500, spread);
    both(ctx, &x), both(ctx, &y);
    fx_near(&x, &y, 1e-6);
    fx_free(&x), fx_free(&y);
}
static void order_and_masked_slots_do_not_matter(void **state) { on_each(*state, check_order); }

/* A list repeated four times gives the same result as the list once with a sink that is ln 4 lower. The repeated list
 * takes several tiles of rows, the unrepeated one a single tile. So this tests what a kernel must carry from tile to
 * tile: queries, running sums, cleared tiles. */
enum { ONCE = 50, TIMES = 4 };
static int32_t again(const pb_mla *p, int b, int i, int w) { return ((w % ONCE) * 3 + i + b) % (p->S_kv - 1); }

static void check_repeated_list(pb_ctx *ctx)
{
    pb_mla once = fx_make(2, 3, 80, 5, 24, 20), many = fx_make(2, 3, 80, 5, 24, 20);
    lists(&once, ONCE, again), lists(&many, TIMES * ONCE, again);
    for (int h = 0; h < 5; h++) ((float *)once.sink)[h] -= logf(TIMES);
    both(ctx, &once), both(ctx, &many);
    for (int e = 0; e < 2 * 3 * 5; e++) many.lse[e] -= logf(TIMES);
    fx_near(&once, &many, 1e-6);
    fx_free(&once), fx_free(&many);
}
static void a_repeated_list_equals_one_with_a_lower_sink(void **state) { on_each(*state, check_repeated_list); }

/* ---- which tokens influence which ---------------------------------------------------------------------- */

static int32_t window(const pb_mla *p, int b, int i, int w)
{
    const int row = p->S_kv - p->S + i - p->window + 1 + w;
    (void)b;
    return row < 0 ? -1 : row;
}

static void check_dense(pb_ctx *ctx)
{
    for (int wide = 1; wide <= 90; wide += 89) {
        pb_mla x = fx_make(2, 30, 80, 5, 24, 20), y = fx_make(2, 30, 80, 5, 24, 20);
        x.window = y.window = wide, x.causal = true;
        lists(&y, wide, window);
        y.window = 0;
        const pb_dense_mla_fwd_args f = pb_mla_fwd_of(&x);
        const pb_dense_mla_bwd_args b = pb_mla_bwd_of(&x);
        CHECK_OK(pb_dense_mla_fwd(ctx, &f));
        CHECK_OK(pb_dense_mla_bwd(ctx, &b));
        both(ctx, &y);
        fx_near(&x, &y, 1e-6);
        fx_free(&x), fx_free(&y);
    }
}
static void lists_of_all_visible_keys_equal_dense(void **state) { on_each(*state, check_dense); }

static void check_batches(pb_ctx *ctx)
{
    pb_mla x = fx_make(2, 4, 30, 3, 16, 12), y = x;
    const size_t heads = 4 * 3, kv = 30 * 16;
    lists(&x, 21, fixture_rule);
    both(ctx, &x);
    y = fx_make(1, 4, 30, 3, 16, 12);
    y.W = 21;
    int32_t *idx = malloc(4 * 21 * sizeof *idx);
    assert_non_null(idx);
    y.idx = memcpy(idx, x.idx + 4 * 21, 4 * 21 * sizeof *idx);
    memcpy((void *)y.q, (const float *)x.q + heads * 16, heads * 16 * sizeof(float));
    memcpy((void *)y.kv, (const float *)x.kv + kv, kv * sizeof(float));
    memcpy((void *)y.dO, (const float *)x.dO + heads * 12, heads * 12 * sizeof(float));
    both(ctx, &y);
    assert_memory_equal(y.o, (float *)x.o + heads * 12, heads * 12 * sizeof(float));
    assert_memory_equal(y.lse, x.lse + heads, heads * sizeof(float));
    assert_memory_equal(y.dq, (float *)x.dq + heads * 16, heads * 16 * sizeof(float));
    const pb_diff d = pb_diff_arrays(y.dkv, (float *)x.dkv + kv, kv, PB_F32);
    assert_true(pb_diff_ok(&d, 1e-6));
    fx_free(&x), fx_free(&y);
}
static void batch_rows_are_independent(void **state) { on_each(*state, check_batches); }

static void check_threads(pb_ctx *ctx)
{
    const int before = omp_get_max_threads();
    pb_mla one = fx_make(2, 37, 90, 5, 24, 20), many = fx_make(2, 37, 90, 5, 24, 20);
    lists(&one, 33, fixture_rule), lists(&many, 33, fixture_rule);
    omp_set_num_threads(1);
    both(ctx, &one);
    for (int n = 2; n < 6; n += 3) {
        omp_set_num_threads(n);
        both(ctx, &many);
        for (int k = 0; k < 5; k++) {
            const char *name;
            size_t size;
            const float *x = fx_output(&one, k, &name, &size), *y = fx_output(&many, k, &name, &size);
            if (memcmp(x, y, size * sizeof *x) != 0) fail_msg("%s depends on the number of threads, %d", name, n);
        }
    }
    omp_set_num_threads(before);
    fx_free(&one), fx_free(&many);
}
static void the_number_of_threads_changes_no_bit(void **state) { on_each(*state, check_threads); }

static void bad_arguments_are_named(void **state)
{
    pb_mla p = fx_make(1, 1, 1, 1, 4, 4);
    pb_sparse_mla_fwd_args f = pb_mla_fwd_of(&p);
    CHECK_FAILS(pb_sparse_mla_fwd(*state, &f), PB_EINVAL, "idx is NULL");
    lists(&p, 1, all_rows);
    f = pb_mla_fwd_of(&p);
    f.V = 5;
    CHECK_FAILS(pb_sparse_mla_fwd(*state, &f), PB_EINVAL, "V=5 D=4");
    f = pb_mla_fwd_of(&p), f.window = 3;
    CHECK_FAILS(pb_sparse_mla_fwd(*state, &f), PB_EINVAL, "window and causal must be 0");
    f = pb_mla_fwd_of(&p), f.W = -1;
    CHECK_FAILS(pb_sparse_mla_fwd(*state, &f), PB_EINVAL, "W=-1");
    f = pb_mla_fwd_of(&p), f.scale = NAN;
    CHECK_FAILS(pb_sparse_mla_fwd(*state, &f), PB_EINVAL, "scale");
    f = pb_mla_fwd_of(&p), f.S_kv = 0;
    CHECK_FAILS(pb_sparse_mla_fwd(*state, &f), PB_EINVAL, "S_kv=0");
    pb_sparse_mla_bwd_args b = pb_mla_bwd_of(&p);
    b.dkv = NULL;
    CHECK_FAILS(pb_sparse_mla_bwd(*state, &b), PB_EINVAL, "dkv is NULL");
    fx_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pytorch_agrees),
        cmocka_unit_test(rel_diff_is_half_the_squared_l2),
        cmocka_unit_test(a_query_without_keys_gives_zero),
        cmocka_unit_test(extreme_sinks),
        cmocka_unit_test(duplicates_count_twice),
        cmocka_unit_test(order_and_masked_slots_do_not_matter),
        cmocka_unit_test(a_repeated_list_equals_one_with_a_lower_sink),
        cmocka_unit_test(lists_of_all_visible_keys_equal_dense),
        cmocka_unit_test(batch_rows_are_independent),
        cmocka_unit_test(the_number_of_threads_changes_no_bit),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
