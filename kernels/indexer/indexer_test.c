/* indexer_test.c - tests properties of the indexer that a comparison with the reference cannot show: PyTorch's results
 * from scores to gradients, packed conversations, FP8 codes, ranges of queries, and where a NaN appears. Every test
 * runs with every CPU implementation that this machine can run. */
#include <omp.h>

#include "kernels/indexer/indexer.h"
#include "kernels/indexer/plan.h"
#include "kernels/indexer/visible.h"
#include "kernels/indexer_kl/indexer_kl.h"
#include "kernels/kv_qat/kv_qat.h"
#include "kernels/mla_index/mla_index.h"
#include "kernels/mla_mass/mla_mass.h"
#include "kernels/sparse_mla/sparse_mla.h"
#include "kernels/topk/topk.h"
#include "tests/kernels/indexer_fixture.h"

static void on_each(pb_ctx *ctx, void (*check)(pb_ctx *))
{
    for (const pb_impl *i = pb_indexer_scores_cpu; i->name; i++) {
        if (i->available && !i->available()) continue;
        ctx->impl = i->name;
        check(ctx);
    }
    ctx->impl = NULL;
}

/* ---- the small problem that most tests use -------------------------------------------------------------- */

/* The sizes that scripts/fixtures/v4_fixtures.py used for the stored results of PyTorch. */
enum { B = 2, S = 23, RATIO = 3, H = 5, D = 6, K = 4, G = S / RATIO, START = 9, HA = 3, DA = 8, WINDOW = 5 };
enum { W = WINDOW + K, T = B * S };

static pb_indexer small(int32_t *start)
{
    for (int t = 0; t < T; t++) start[t] = t >= S + START ? START : t % 2 ? 0 : -1;
    return (pb_indexer){.q = draw(1, T * H * D),
                        .k = draw(2, B * G * D),
                        .w = draw(3, T * H),
                        .B = B,
                        .S = S,
                        .G = G,
                        .H = H,
                        .D = D,
                        .dtype = PB_F32};
}
static void drop(pb_indexer *x) { free((void *)x->q), free((void *)x->k), free((void *)x->w); }
/* ---- comparison with PyTorch's results ------------------------------------------------------------------ */

static void matches_integers(const char *name, const int32_t *got, size_t n)
{
    float *want = fixture(name, n);
    for (size_t i = 0; i < n; i++)
        if (got[i] != (int32_t)want[i]) fail_msg("%s[%zu] = %d, want %g", name, i, got[i], (double)want[i]);
    free(want);
}

/* Computes the attention mass of the listed groups (mla_mass.h) with the ops that a model runs. */
static void attend(pb_ctx *ctx, const int32_t *pick, const int32_t *start, float *mass)
{
    float *q = draw(4, T * HA * DA), *kv = draw(5, B * (S + G) * DA), *sink = draw(6, HA), *o = room(T * HA * DA * 4);
    float lse[T * HA];
    int32_t idx[T * W];
    CHECK_OK(pb_mla_index_build(ctx, &(pb_mla_index_build_args){.pick = pick,
                                                                .start = start,
                                                                .idx = idx,
                                                                .B = B,
                                                                .S = S,
                                                                .T = K,
                                                                .W = W,
                                                                .window = WINDOW,
                                                                .ratio = RATIO}));
    const float scale = 1 / sqrtf(DA);
    CHECK_OK(pb_sparse_mla_fwd(ctx, &(pb_sparse_mla_fwd_args){.q = q,
                                                              .kv = kv,
                                                              .idx = idx,
                                                              .sink = sink,
                                                              .o = o,
                                                              .lse = lse,
                                                              .B = B,
                                                              .S = S,
                                                              .S_kv = S + G,
                                                              .H = HA,
                                                              .D = DA,
                                                              .V = DA,
                                                              .W = W,
                                                              .scale = scale}));
    CHECK_OK(pb_mla_mass_fwd(ctx, &(pb_mla_mass_fwd_args){.q = q,
                                                          .kv = kv,
                                                          .idx = idx,
                                                          .lse = lse,
                                                          .mass = mass,
                                                          .B = B,
                                                          .S = S,
                                                          .S_kv = S + G,
                                                          .H = HA,
                                                          .D = DA,
                                                          .W = W,
                                                          .from = WINDOW,
                                                          .n = K,
                                                          .scale = scale}));
    free(q), free(kv), free(sink), free(o);
}

static void check_chain(pb_ctx *ctx)
{
    int32_t start[T], pick[T * K];
    float score[T * G], at[T * K], mass[T * K], dscore[T * K], loss, dq[T * H * D], dk[B * G * D], dw[T * H];
    pb_indexer x = small(start);
    CHECK_OK(pb_indexer_scores(ctx, &(pb_indexer_scores_args){x, start, score, .n = S, .ratio = RATIO}));
    matches("score", score, T * G, 1e-6);
    CHECK_OK(pb_indexer_pick(ctx, &(pb_indexer_pick_args){x, start, pick, K, RATIO}));
    matches_integers("pick", pick, T * K);
    attend(ctx, pick, start, mass);
    matches("mass", mass, T * K, 1e-6);
    CHECK_OK(pb_indexer_at(ctx, &(pb_indexer_at_args){x, pick, at, K}));
    matches("at", at, T * K, 1e-6);
    CHECK_OK(pb_indexer_kl_fwd(ctx, &(pb_indexer_kl_fwd_args){at, mass, pick, &loss, T, K}));
    matches("loss", &loss, 1, 1e-6);
    CHECK_OK(pb_indexer_kl_bwd(ctx, &(pb_indexer_kl_bwd_args){at, mass, pick, NULL, dscore, T, K}));
    matches("dscore", dscore, T * K, 3e-6);
    CHECK_OK(pb_indexer_bwd(ctx, &(pb_indexer_bwd_args){x, pick, dscore, dq, dk, dw, K}));
    matches("dq", dq, T * H * D, 3e-6);
    matches("dk", dk, B * G * D, 3e-6);
    matches("dw", dw, T * H, 3e-6);
    drop(&x);
}
static void pytorch_agrees(void **state) { on_each(*state, check_chain); }

/* ---- FP8 codes: the op quantize, and scores of codes ---------------------------------------------------- */

/* Returns the value of an E4M3 code, computed from the definition of the format. */
static float decoded(uint8_t code)
{
    const int e = code >> 3 & 15, m = code & 7;
    return (float)(ldexp(e ? 8 + m : m, (e ? e : 1) - 10) * (code & 0x80 ? -1 : 1));
}

/* Compares with PyTorch's codes, and with kv_qat: code times scale must have the same bits as the output of kv_qat. */
static void check_quantized(pb_ctx *ctx)
{
    enum { N = 9, D8 = 40 };
    float *x = fixture("x", N * D8), scale[N], trip[N * D8];
    uint8_t code[N * D8];
    for (int f32 = 0; f32 < 2; f32++) {
        CHECK_OK(pb_indexer_quantize(ctx, &(pb_indexer_quantize_args){x, code, scale, N, D8, f32, PB_F32}));
        float *codes = fixture(f32 ? "f32.code" : "ue8m0.code", N * D8);
        for (int i = 0; i < N * D8; i++)
            if (code[i] != (uint8_t)codes[i])
                fail_msg("code %d of %g is %d, want %g", i, (double)x[i], code[i], (double)codes[i]);
        matches(f32 ? "f32.scale" : "ue8m0.scale", scale, N, 1e-7);
        CHECK_OK(pb_kv_qat_fwd(ctx, &(pb_kv_qat_fwd_args){.x = x,
                                                          .y = trip,
                                                          .T = N,
                                                          .D = D8,
                                                          .block = D8,
                                                          .ldx = D8,
                                                          .ldy = D8,
                                                          .scale = f32 ? PB_QAT_F32 : PB_QAT_UE8M0}));
        for (int i = 0; i < N * D8; i++) trip[i] -= decoded(code[i]) * scale[i / D8];
        for (int i = 0; i < N * D8; i++) assert_true(trip[i] == 0);
        free(codes);
    }
    x[5 * D8 + 3] = NAN, x[6 * D8 + 39] = INFINITY;
    CHECK_OK(pb_indexer_quantize(ctx, &(pb_indexer_quantize_args){x, code, scale, N, D8, false, PB_F32}));
    assert_true(isnan(scale[5]) && isnan(scale[6]) && isfinite(scale[4]) && isfinite(scale[7]));
    for (int i = 5 * D8; i < 7 * D8; i++) assert_int_equal(code[i], 0x7f);
    free(x);
}
static void quantize_agrees_with_pytorch(void **state) { on_each(*state, check_quantized); }

/* Scores of codes must equal the scores of the values that the codes represent. */
static void check_codes(pb_ctx *ctx)
{
    int32_t start[T];
    float want[T * G], got[T * G], qs[T * H], ks[B * G];
    uint8_t q8[T * H * D], k8[B * G * D];
    pb_indexer x = small(start), coded = x;
    CHECK_OK(pb_indexer_quantize(ctx, &(pb_indexer_quantize_args){x.q, q8, qs, T * H, D, true, PB_F32}));
    CHECK_OK(pb_indexer_quantize(ctx, &(pb_indexer_quantize_args){x.k, k8, ks, B * G, D, false, PB_F32}));
    coded.q = q8, coded.k = k8, coded.q_scale = qs, coded.k_scale = ks;
    CHECK_OK(pb_indexer_scores(ctx, &(pb_indexer_scores_args){coded, NULL, got, .n = S, .ratio = RATIO}));
    for (int i = 0; i < T * H * D; i++) ((float *)x.q)[i] = decoded(q8[i]) * qs[i / D];
    for (int i = 0; i < B * G * D; i++) ((float *)x.k)[i] = decoded(k8[i]) * ks[i / D];
    CHECK_OK(pb_indexer_scores(ctx, &(pb_indexer_scores_args){x, NULL, want, .n = S, .ratio = RATIO}));
    for (int i = 0; i < T * G; i++)
        if (want[i] == -INFINITY) assert_true(got[i] == want[i]), want[i] = got[i] = 0;
    const pb_diff d = pb_diff_arrays(want, got, T * G, PB_F32);
    if (!pb_diff_ok(&d, 1e-6)) fail_msg("scores of codes are %g off", d.rel);
    drop(&x);
}
static void scores_of_codes_equal_scores_of_their_values(void **state) { on_each(*state, check_codes); }

/* ---- the ops scores and pick: ranges of queries, top-k lists, NaN --------------------------------------- */

static void check_runs(pb_ctx *ctx)
{
    int32_t start[T], pick[T * K], want[T * K];
    float whole[T * G], part[B * 7 * G];
    pb_indexer x = small(start);
    CHECK_OK(pb_indexer_scores(ctx, &(pb_indexer_scores_args){x, start, whole, .n = S, .ratio = RATIO}));
    CHECK_OK(pb_indexer_scores(ctx, &(pb_indexer_scores_args){x, start, part, .first = 13, .n = 7, .ratio = RATIO}));
    for (int b = 0; b < B; b++) assert_memory_equal(part + b * 7 * G, whole + (b * S + 13) * G, 7 * G * sizeof *part);
    CHECK_OK(pb_indexer_pick(ctx, &(pb_indexer_pick_args){x, start, pick, K, RATIO}));
    CHECK_OK(pb_topk_fwd(ctx, &(pb_topk_fwd_args){whole, want, T, G, K}));
    assert_memory_equal(pick, want, sizeof want);
    drop(&x);
}
static void scores_of_query_ranges_equal_the_whole(void **state) { on_each(*state, check_runs); }

/* With a slot for every group, the list must be all visible groups in order, then -1. Queries early in a
 * sequence always have such lists. */
static void check_all(pb_ctx *ctx)
{
    enum { MORE = G + 2 };
    int32_t start[T], pick[T * MORE];
    pb_indexer x = small(start);
    CHECK_OK(pb_indexer_pick(ctx, &(pb_indexer_pick_args){x, start, pick, MORE, RATIO}));
    for (int i = 0; i < T * MORE; i++) {
        const int t = i / MORE, lo = start[t] > 0 ? start[t] / RATIO : 0, n = (t % S + 1) / RATIO - lo, j = i % MORE;
        assert_int_equal(pick[i], j < n ? lo + j : -1);
    }
    drop(&x);
}
static void a_slot_for_every_group_lists_all_visible_groups(void **state) { on_each(*state, check_all); }

/* The second conversation of a packed row must get the same lists and scores, bit for bit, as in a row of its own. */
static void check_packed(pb_ctx *ctx)
{
    enum { M = S - START, GM = M / RATIO };
    int32_t start[T], pick[T * K], alone[M * K];
    float score[T * G], own[M * GM];
    pb_indexer x = small(start), y = x;
    y.B = 1, y.S = M, y.G = GM;
    y.q = (const float *)x.q + (S + START) * H * D, y.w = x.w + (S + START) * H;
    y.k = (const float *)x.k + (G + START / RATIO) * D;
    CHECK_OK(pb_indexer_scores(ctx, &(pb_indexer_scores_args){x, start, score, .n = S, .ratio = RATIO}));
    CHECK_OK(pb_indexer_scores(ctx, &(pb_indexer_scores_args){y, NULL, own, .n = M, .ratio = RATIO}));
    CHECK_OK(pb_indexer_pick(ctx, &(pb_indexer_pick_args){x, start, pick, K, RATIO}));
    CHECK_OK(pb_indexer_pick(ctx, &(pb_indexer_pick_args){y, NULL, alone, K, RATIO}));
    for (int t = 0; t < M; t++) {
        const float *row = score + (S + START + t) * G;
        for (int g = 0; g < START / RATIO; g++) assert_true(row[g] == -INFINITY);
        assert_memory_equal(row + START / RATIO, own + t * GM, GM * sizeof *own);
        for (int j = 0; j < K; j++) {
            const int32_t g = alone[t * K + j];
            assert_int_equal(pick[(S + START + t) * K + j], g < 0 ? -1 : g + START / RATIO);
        }
    }
    drop(&x);
}
static void packed_conversations_are_independent(void **state) { on_each(*state, check_packed); }

/* relu must not turn a NaN into 0, and the NaN must not spread to other groups. */
static void check_nan(pb_ctx *ctx)
{
    int32_t start[T], pick[T * K];
    float score[T * G], at[T * K];
    pb_indexer x = small(start);
    ((float *)x.k)[2 * D + 1] = NAN; /* group 2 of batch row 0 is visible from token 8 on */
    CHECK_OK(pb_indexer_scores(ctx, &(pb_indexer_scores_args){x, start, score, .n = S, .ratio = RATIO}));
    for (int i = 0; i < T * G; i++) assert_int_equal(isnan(score[i]) != 0, i / G < S && i / G >= 8 && i % G == 2);
    CHECK_OK(pb_indexer_pick(ctx, &(pb_indexer_pick_args){x, start, pick, K, RATIO}));
    CHECK_OK(pb_indexer_at(ctx, &(pb_indexer_at_args){x, pick, at, K}));
    for (int t = 0; t < T; t++) {
        bool named = false, shown = false;
        for (int j = 0; j < K; j++) named |= pick[t * K + j] == 2, shown |= isnan(at[t * K + j]) != 0;
        assert_int_equal(shown, t >= 8 && t < S);
        assert_true(!shown || named);
    }
    drop(&x);
}
static void a_nan_reaches_only_queries_that_see_it(void **state) { on_each(*state, check_nan); }

/* S < ratio: there are no groups. */
static void check_no_groups(pb_ctx *ctx)
{
    int32_t start[T], pick[T * K];
    float ds[T * K], dq[T * H * D], dw[T * H], dk = 7, at[T * K];
    pb_indexer x = small(start), none = x;
    none.G = 0, none.k = NULL;
    CHECK_OK(pb_indexer_scores(ctx, &(pb_indexer_scores_args){none, NULL, NULL, .n = S, .ratio = 100}));
    CHECK_OK(pb_indexer_pick(ctx, &(pb_indexer_pick_args){none, NULL, pick, K, 100}));
    for (int i = 0; i < T * K; i++) assert_int_equal(pick[i], -1), ds[i] = 1;
    CHECK_OK(pb_indexer_at(ctx, &(pb_indexer_at_args){none, pick, at, K}));
    CHECK_OK(pb_indexer_bwd(ctx, &(pb_indexer_bwd_args){none, pick, ds, dq, &dk, dw, K}));
    for (int i = 0; i < T * K; i++) assert_true(at[i] == 0);
    for (int i = 0; i < T * H * D; i++) assert_true(dq[i] == 0);
    for (int i = 0; i < T * H; i++) assert_true(dw[i] == 0);
    assert_true(dk == 7);
    drop(&x);
}
static void without_groups_the_lists_are_empty(void **state) { on_each(*state, check_no_groups); }

static void the_workspace_is_bounded(void **state)
{
    static const int sizes[][3] = {{1, 131072, 32768},  {4, 8192, 2048}, {1, 1 << 20, 1 << 18},
                                   {64, 4096, 1 << 20}, {1, 5, 1},       {2, 9, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int *s = sizes[i], n = pb_indexer_run(s[0], s[1], s[2]);
        const double bytes = 4.0 * s[0] * s[2] * n;
        assert_true(n >= 1 && n <= s[1]);
        assert_true(n == 1 || bytes <= 32 << 20);
        assert_true(n == s[1] || bytes + 4.0 * s[0] * s[2] > 32 << 20);
    }
}

/* On a CPU, `pick` works with fewer threads when their scratch would exceed 256 MiB, and always with at least one. */
static void the_scratch_of_pick_is_bounded(void **state)
{
    static const int groups[] = {0, 1, 2048, 1 << 16, 1 << 18, 1 << 20, 1 << 24};
    const int before = omp_get_max_threads();
    (void)state;
    omp_set_num_threads(64);
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        const pb_indexer_pick_args a = {
            .x = {.B = 1, .S = 64, .G = groups[i], .H = 64, .D = 128}, .K = 512, .ratio = 4};
        const size_t each = pb_indexer_pick_tiles(&a.x) * sizeof(float), most = (size_t)256 << 20;
        const size_t bytes = pb_op_indexer_pick.impls[PB_CPU][0].workspace(&a), n = bytes / each;
        assert_true(bytes % each == 0 && n >= 1 && n <= 64);
        assert_true(n == 1 || bytes <= most);
        assert_true(n == 64 || bytes + each > most);
    }
    omp_set_num_threads(before);
}

/* ---- the backward pass ----------------------------------------------------------------------------------- */

typedef struct grads {
    float dq[T * H * D], dk[B * G * D], dw[T * H];
} grads;

static void backward(pb_ctx *ctx, const pb_indexer *x, const int32_t *pick, const float *ds, int n, grads *to)
{
    CHECK_OK(pb_indexer_bwd(ctx, &(pb_indexer_bwd_args){*x, pick, ds, to->dq, to->dk, to->dw, n}));
}

/* A group that is listed twice must get the sum of both gradients. Masked slots must contribute nothing. */
static void check_duplicates(pb_ctx *ctx)
{
    int32_t start[T], twice[T * 4], once[T];
    float ds[T * 4], sum[T];
    static grads x, y;
    pb_indexer p = small(start);
    for (int t = 0; t < T; t++) {
        const int32_t g = t % G;
        const float v = (float)(t % 5) - 1.5f;
        twice[4 * t] = twice[4 * t + 2] = once[t] = g, twice[4 * t + 1] = -1, twice[4 * t + 3] = G;
        ds[4 * t] = v, ds[4 * t + 2] = 2, ds[4 * t + 1] = ds[4 * t + 3] = NAN, sum[t] = v + 2;
    }
    backward(ctx, &p, twice, ds, 4, &x), backward(ctx, &p, once, sum, 1, &y);
    pb_diff d = pb_diff_arrays(y.dq, x.dq, T * H * D, PB_F32);
    assert_true(pb_diff_ok(&d, 1e-6));
    d = pb_diff_arrays(y.dk, x.dk, B * G * D, PB_F32);
    assert_true(pb_diff_ok(&d, 1e-6));
    d = pb_diff_arrays(y.dw, x.dw, T * H, PB_F32);
    assert_true(pb_diff_ok(&d, 1e-6));
    drop(&p);
}
static void duplicates_count_twice(void **state) { on_each(*state, check_duplicates); }

static void check_threads(pb_ctx *ctx)
{
    const int before = omp_get_max_threads();
    static grads one, many;
    int32_t start[T], pick[T * K];
    float *ds = draw(9, T * K);
    pb_indexer x = small(start);
    omp_set_num_threads(1);
    CHECK_OK(pb_indexer_pick(ctx, &(pb_indexer_pick_args){x, start, pick, K, RATIO}));
    backward(ctx, &x, pick, ds, K, &one);
    for (int n = 2; n < 6; n += 3) {
        omp_set_num_threads(n);
        backward(ctx, &x, pick, ds, K, &many);
        assert_memory_equal(&one, &many, sizeof one);
    }
    omp_set_num_threads(before);
    free(ds);
    drop(&x);
}
static void the_number_of_threads_changes_no_bit(void **state) { on_each(*state, check_threads); }

static void bad_arguments_are_named(void **state)
{
    int32_t start[T], pick[T * K];
    float score[T * G];
    uint8_t code[4];
    pb_indexer x = small(start);
    pb_indexer_scores_args s = {x, start, score, .first = 20, .n = 4, .ratio = RATIO};
    CHECK_FAILS(pb_indexer_scores(*state, &s), PB_EINVAL, "first=20 n=4, need a range of queries within S=23");
    s.n = 3, s.ratio = 0;
    CHECK_FAILS(pb_indexer_scores(*state, &s), PB_EINVAL, "ratio=0");
    s.ratio = 1, s.x.q_scale = score;
    CHECK_FAILS(pb_indexer_scores(*state, &s), PB_EINVAL, "one of q_scale and k_scale");
    s.x.k_scale = score, s.x.D = 129;
    CHECK_FAILS(pb_indexer_scores(*state, &s), PB_EINVAL, "D=129");
    pb_indexer_pick_args p = {x, start, NULL, K, RATIO};
    CHECK_FAILS(pb_indexer_pick(*state, &p), PB_EINVAL, "pick is NULL");
    p.pick = pick, p.x.G = -1;
    CHECK_FAILS(pb_indexer_pick(*state, &p), PB_EINVAL, "G=-1");
    p.x.G = 0, p.x.offset = -1;
    CHECK_FAILS(pb_indexer_pick(*state, &p), PB_EINVAL, "offset=-1, need offset >= 0");
    p.x.G = -1, p.x.offset = 0;
    pb_indexer_at_args a = {x, pick, score, K};
    a.x.q_scale = a.x.k_scale = score;
    CHECK_FAILS(pb_indexer_at(*state, &a), PB_EINVAL, "takes no FP8 codes");
    pb_indexer_bwd_args b = {x, pick, score, score, score, NULL, K};
    CHECK_FAILS(pb_indexer_bwd(*state, &b), PB_EINVAL, "dw is NULL");
    pb_indexer_quantize_args q = {score, code, score, 1, 129, false, PB_F32};
    CHECK_FAILS(pb_indexer_quantize(*state, &q), PB_EINVAL, "D=129");
    drop(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pytorch_agrees),
        cmocka_unit_test(quantize_agrees_with_pytorch),
        cmocka_unit_test(scores_of_codes_equal_scores_of_their_values),
        cmocka_unit_test(scores_of_query_ranges_equal_the_whole),
        cmocka_unit_test(a_slot_for_every_group_lists_all_visible_groups),
        cmocka_unit_test(packed_conversations_are_independent),
        cmocka_unit_test(a_nan_reaches_only_queries_that_see_it),
        cmocka_unit_test(without_groups_the_lists_are_empty),
        cmocka_unit_test(the_workspace_is_bounded),
        cmocka_unit_test(the_scratch_of_pick_is_bounded),
        cmocka_unit_test(duplicates_count_twice),
        cmocka_unit_test(the_number_of_threads_changes_no_bit),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
