/* attention_test.c - tests properties of attention that a comparison with the reference cannot show: which tokens
 * influence which, packed rows, extreme scores, and independence of the number of threads. Each property is tested with
 * every CPU implementation that this machine can run. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/attention/attention.h"
#include "tests/test.h"

enum { H = 3, K = 1, D = 20 };

/* Tensors of one forward and one backward call, without padding between tokens. */
typedef struct problem {
    int B, S;
    bool causal;
    float scale;
    int32_t *start;                                 /* [B,S] or NULL */
    float *q, *k, *v, *dO, *o, *lse, *dq, *dk, *dv; /* widths: see of() */
} problem;

enum { TENSORS = 9, INPUTS = 4 };
static float **of(problem *p, int i, size_t *width)
{
    float **t[TENSORS] = {&p->q, &p->k, &p->v, &p->dO, &p->o, &p->lse, &p->dq, &p->dk, &p->dv};
    const size_t w[TENSORS] = {H * D, K * D, K * D, H * D, H * D, H, H * D, K * D, K * D};
    *width = w[i];
    return t[i];
}

static problem make(int B, int S, bool causal)
{
    problem p = {.B = B, .S = S, .causal = causal, .scale = 0.3f};
    for (int i = 0; i < TENSORS; i++) {
        size_t width, n;
        float **t = of(&p, i, &width);
        n = (size_t)B * S * width;
        *t = malloc(n * sizeof(float));
        assert_non_null(*t);
        for (size_t e = 0; e < n; e++) (*t)[e] = i < INPUTS ? (float)(2 * pb_uniform(11 + i, e) - 1) : NAN;
    }
    return p;
}

static void drop(problem *p)
{
    size_t width;
    for (int i = 0; i < TENSORS; i++) free(*of(p, i, &width));
}

static void forward(pb_ctx *ctx, problem *p)
{
    CHECK_OK(pb_attention_fwd(ctx, &(pb_attention_fwd_args){.q = p->q,
                                                            .k = p->k,
                                                            .v = p->v,
                                                            .start = p->start,
                                                            .o = p->o,
                                                            .lse = p->lse,
                                                            .B = p->B,
                                                            .S = p->S,
                                                            .H = H,
                                                            .K = K,
                                                            .D = D,
                                                            .ldq = H * D,
                                                            .ldk = K * D,
                                                            .ldv = K * D,
                                                            .ldo = H * D,
                                                            .scale = p->scale,
                                                            .causal = p->causal}));
}

static void both(pb_ctx *ctx, problem *p)
{
    forward(ctx, p);
    CHECK_OK(pb_attention_bwd(ctx, &(pb_attention_bwd_args){.dO = p->dO,
                                                            .q = p->q,
                                                            .k = p->k,
                                                            .v = p->v,
                                                            .o = p->o,
                                                            .lse = p->lse,
                                                            .start = p->start,
                                                            .dq = p->dq,
                                                            .dk = p->dk,
                                                            .dv = p->dv,
                                                            .B = p->B,
                                                            .S = p->S,
                                                            .H = H,
                                                            .K = K,
                                                            .D = D,
                                                            .lddo = H * D,
                                                            .ldq = H * D,
                                                            .ldk = K * D,
                                                            .ldv = K * D,
                                                            .ldo = H * D,
                                                            .lddq = H * D,
                                                            .lddk = K * D,
                                                            .lddv = K * D,
                                                            .scale = p->scale,
                                                            .causal = p->causal}));
}

/* Fails unless tokens [from,to) of tensors x and y have the same bits. w: elements per token. */
static void same_tokens(const char *what, const float *x, const float *y, size_t w, int from, int to)
{
    for (size_t i = from * w; i < to * w; i++)
        if (memcmp(&x[i], &y[i], sizeof *x) != 0)
            fail_msg("%s of token %zu, element %zu: %.9g and %.9g", what, i / w, i % w, (double)x[i], (double)y[i]);
}

static void near_tokens(const char *what, const float *x, const float *y, size_t n, double tol)
{
    pb_diff d = pb_diff_arrays(x, y, n, PB_F32);
    if (!pb_diff_ok(&d, tol)) fail_msg("%s: differ by %g, want %g", what, d.rel, tol);
}

/* Runs `check` once with each implementation. */
static void on_each(pb_ctx *ctx, void (*check)(pb_ctx *))
{
    for (const pb_impl *i = pb_attention_fwd_cpu; i->name; i++) {
        if (i->available && !i->available()) continue;
        ctx->impl = i->name;
        check(ctx);
    }
    ctx->impl = NULL;
}

static void check_perturbed(pb_ctx *ctx)
{
    static const int tokens[] = {1, 63, 64, 100, 149};
    problem x = make(1, 150, true), y = make(1, 150, true);
    forward(ctx, &x);
    for (size_t n = 0; n < sizeof tokens / sizeof *tokens; n++) {
        const int t = tokens[n];
        for (int i = 0; i < H * D; i++) y.q[t * H * D + i] += 1;
        for (int i = 0; i < K * D; i++) y.k[t * K * D + i] += 3, y.v[t * K * D + i] -= 5;
        forward(ctx, &y);
        same_tokens("o", x.o, y.o, H * D, 0, t);
        assert_memory_not_equal(x.o + t * H * D, y.o + t * H * D, H * D * sizeof(float));
        for (int i = 0; i < TENSORS; i++) {
            size_t w;
            float **from = of(&x, i, &w), **to = of(&y, i, &w);
            memcpy(*to, *from, 150 * w * sizeof(float));
        }
    }
    drop(&x), drop(&y);
}
static void a_token_changes_no_earlier_output(void **state) { on_each(*state, check_perturbed); }

static void check_first(pb_ctx *ctx)
{
    problem p = make(1, 70, true);
    forward(ctx, &p);
    for (int h = 0; h < H; h++) same_tokens("o", p.v, p.o + h * D, D, 0, 1);
    drop(&p);
}
static void the_first_token_returns_its_value(void **state) { on_each(*state, check_first); }

/* With q = 0, every visible key has the same weight, and lse is the logarithm of the number of visible keys. */
static void check_uniform(pb_ctx *ctx)
{
    for (int causal = 0; causal < 2; causal++) {
        problem p = make(1, 70, causal);
        memset(p.q, 0, 70 * H * D * sizeof *p.q);
        for (int i = 0; i < 70 * K * D; i++) p.v[i] = (float)(i / (K * D)); /* index of the token */
        forward(ctx, &p);
        for (int s = 0; s < 70; s++) {
            const int n = causal ? s + 1 : 70;
            CHECK_NEAR(p.o[s * H * D + D], (n - 1) / 2.0, 2e-5);
            CHECK_NEAR(p.lse[70 + s], log(n), 1e-6);
        }
        drop(&p);
    }
}
static void zero_queries_average_the_values(void **state) { on_each(*state, check_uniform); }

static void starts(problem *p, const int *begin, int n)
{
    for (int m = 0; m < n; m++)
        for (int s = begin[m]; s < (m + 1 < n ? begin[m + 1] : p->S); s++) p->start[s] = begin[m];
}

/* Compares a conversation in a packed row with the same conversation in a row of its own. The forward pass must
 * agree bit for bit when the conversation starts at a tile boundary; gradients of keys may add their terms in
 * another order. */
static void check_unpacked(pb_ctx *ctx, problem *p, int begin, int end)
{
    problem one = make(1, end - begin, p->causal);
    for (int i = 0; i < INPUTS; i++) {
        size_t w;
        float *from = *of(p, i, &w), *to = *of(&one, i, &w);
        memcpy(to, from + begin * w, (end - begin) * w * sizeof(float));
    }
    both(ctx, &one);
    if (begin % 64 == 0) same_tokens("o", one.o, p->o + begin * H * D, H * D, 0, end - begin);
    near_tokens("o", one.o, p->o + begin * H * D, (end - begin) * H * D, 1e-6);
    near_tokens("dq", one.dq, p->dq + begin * H * D, (end - begin) * H * D, 1e-6);
    near_tokens("dk", one.dk, p->dk + begin * K * D, (end - begin) * K * D, 1e-6);
    near_tokens("dv", one.dv, p->dv + begin * K * D, (end - begin) * K * D, 1e-6);
    drop(&one);
}

static void check_packed(pb_ctx *ctx)
{
    static const int begin[] = {0, 64, 100, 103, 192, 201};
    int32_t start[201];
    problem p = make(1, 201, true);
    p.start = start;
    starts(&p, begin, 5);
    both(ctx, &p);
    for (int m = 0; m < 5; m++) check_unpacked(ctx, &p, begin[m], begin[m + 1]);
    drop(&p);
}
static void packed_conversations_equal_unpacked_ones(void **state) { on_each(*state, check_packed); }

/* Queries 3, 64..127 and the last attend to no key, the last because its start is beyond the row. Only query 0 attends
 * to key 0. */
static void check_no_visible_keys(pb_ctx *ctx)
{
    int32_t start[140];
    problem p = make(1, 140, true);
    p.start = start;
    for (int s = 0; s < 140; s++) start[s] = s >= 64 && s < 128 ? s + 1 : s > 0;
    start[3] = 4, start[139] = 1000, start[0] = -500;
    both(ctx, &p);
    for (int s = 0; s < 140; s++) {
        const bool blind = s == 3 || (s >= 64 && s < 128) || s == 139;
        for (int h = 0; h < H; h++) assert_true(blind ? p.lse[h * 140 + s] == -INFINITY : isfinite(p.lse[h * 140 + s]));
        for (int i = s * H * D; i < (s + 1) * H * D; i++) {
            assert_true(blind ? p.o[i] == 0 && p.dq[i] == 0 : isfinite(p.o[i]) && isfinite(p.dq[i]));
        }
        for (int i = s * K * D; i < (s + 1) * K * D; i++) assert_true(isfinite(p.dk[i]) && isfinite(p.dv[i]));
    }
    for (int d = 0; d < D; d++) CHECK_NEAR(p.dv[d], p.dO[d] + p.dO[D + d] + p.dO[2 * D + d], 1e-6);
    drop(&p);
}
static void queries_without_keys_give_zero(void **state) { on_each(*state, check_no_visible_keys); }

/* Tests scores up to 80, then up to 800, of either sign. e^800 overflows, so the maximum must be subtracted. */
static void check_large(pb_ctx *ctx)
{
    const char *impl = ctx->impl;
    for (int scale = 1; scale <= 10; scale += 9) {
        problem p = make(1, 140, false), want = make(1, 140, false);
        for (int i = 0; i < 140 * H * D; i++) p.q[i] = want.q[i] = i / (H * D) % 2 ? 1 : -1;
        for (int i = 0; i < 140 * K * D; i++) p.k[i] = want.k[i] = (float)((i / D * 37) % 140 - 70) / 70 * 4;
        p.scale = want.scale = (float)scale; /* D * 4 = 80 */
        both(ctx, &p);
        ctx->impl = "ref";
        both(ctx, &want);
        ctx->impl = impl;
        near_tokens("o", want.o, p.o, 140 * H * D, 2e-5 * scale);
        near_tokens("lse", want.lse, p.lse, 140 * H, 1e-6);
        near_tokens("dv", want.dv, p.dv, 140 * K * D, 2e-5 * scale);
        for (int i = 0; i < 140 * H * D; i++) assert_true(isfinite(p.dq[i]));
        for (int i = 0; i < 140 * K * D; i++) assert_true(isfinite(p.dk[i]));
        drop(&p), drop(&want);
    }
}
static void large_scores_stay_finite(void **state) { on_each(*state, check_large); }

/* A row holds two conversations. All inputs of one of them, tokens [from,to), become NaN. The outputs of the other
 * conversation must keep every bit. */
static void check_nan_conversation(pb_ctx *ctx, int boundary, int from, int to)
{
    int32_t start[150];
    const int begin[] = {0, boundary};
    problem clean = make(1, 150, true), p = make(1, 150, true);
    clean.start = p.start = start;
    starts(&p, begin, 2);
    both(ctx, &clean);
    for (int i = 0; i < INPUTS; i++) {
        size_t w;
        float *t = *of(&p, i, &w);
        for (size_t e = from * w; e < to * w; e++) t[e] = NAN;
    }
    both(ctx, &p);
    for (int i = INPUTS; i < TENSORS; i++) {
        size_t w;
        const float *x = *of(&clean, i, &w), *y = *of(&p, i, &w);
        if (x == clean.lse) continue; /* [H,S] */
        same_tokens("before", x, y, w, 0, from);
        same_tokens("after", x, y, w, to, 150);
        assert_true(isnan(y[from * w]));
    }
    drop(&clean), drop(&p);
}

static void check_nan_conversations(pb_ctx *ctx)
{
    check_nan_conversation(ctx, 70, 0, 70);
    check_nan_conversation(ctx, 70, 70, 150);
    check_nan_conversation(ctx, 64, 64, 150);
}
static void nan_stays_in_its_conversation(void **state) { on_each(*state, check_nan_conversations); }

/* Within one conversation, NaN or infinity in the keys and values of token t must not reach any output before t. */
static void check_future(pb_ctx *ctx)
{
    static const int tokens[] = {1, 5, 64, 99, 129};
    for (size_t n = 0; n < sizeof tokens / sizeof *tokens; n++) {
        problem clean = make(1, 130, true), p = make(1, 130, true);
        const int t = tokens[n];
        both(ctx, &clean);
        for (int i = 0; i < K * D; i++) p.k[t * K * D + i] = NAN, p.v[t * K * D + i] = INFINITY;
        both(ctx, &p);
        same_tokens("o", clean.o, p.o, H * D, 0, t);
        same_tokens("dq", clean.dq, p.dq, H * D, 0, t);
        assert_true(isnan(p.o[t * H * D]) && isnan(p.dq[t * H * D]));
        drop(&clean), drop(&p);
    }
}
static void nan_in_later_keys_reaches_no_output(void **state) { on_each(*state, check_future); }

static void check_threads(pb_ctx *ctx)
{
    const int most = omp_get_max_threads();
    problem x = make(2, 200, true), y = make(2, 200, true);
    omp_set_num_threads(1);
    both(ctx, &x);
    omp_set_num_threads(3);
    both(ctx, &y);
    omp_set_num_threads(most);
    for (int i = INPUTS; i < TENSORS; i++) {
        size_t w;
        const float *a = *of(&x, i, &w), *b = *of(&y, i, &w);
        assert_memory_equal(a, b, 400 * w * sizeof(float));
    }
    drop(&x), drop(&y);
}
static void threads_change_no_bit(void **state) { on_each(*state, check_threads); }

static void bad_arguments_are_named(void **state)
{
    float x[12] = {0};
    pb_attention_fwd_args a = {.q = x,
                               .k = x,
                               .v = x,
                               .o = x,
                               .lse = x,
                               .B = 1,
                               .S = 1,
                               .H = 3,
                               .K = 2,
                               .D = 2,
                               .ldq = 6,
                               .ldk = 4,
                               .ldv = 4,
                               .ldo = 6,
                               .scale = 1};
    pb_attention_bwd_args g = {.dO = x,
                               .q = x,
                               .k = x,
                               .v = x,
                               .o = x,
                               .lse = x,
                               .dq = x,
                               .dk = x,
                               .dv = x,
                               .B = 1,
                               .S = 1,
                               .H = 2,
                               .K = 2,
                               .D = 2,
                               .lddo = 4,
                               .ldq = 4,
                               .ldk = 4,
                               .ldv = 4,
                               .ldo = 4,
                               .lddq = 4,
                               .lddk = 3,
                               .lddv = 4,
                               .scale = 1};
    CHECK_FAILS(pb_attention_fwd(*state, &a), PB_EINVAL, "H=3 K=2");
    a.K = 3;
    CHECK_FAILS(pb_attention_fwd(*state, &a), PB_EINVAL, "tokens of k are 4 elements apart, need at least 6");
    a.ldk = a.ldv = 6, a.v = NULL;
    CHECK_FAILS(pb_attention_fwd(*state, &a), PB_EINVAL, "v is NULL");
    a.v = x, a.scale = NAN;
    CHECK_FAILS(pb_attention_fwd(*state, &a), PB_EINVAL, "scale");
    CHECK_FAILS(pb_attention_bwd(*state, &g), PB_EINVAL, "tokens of dk are 3 elements apart, need at least 4");
    g.lddk = 4, g.lse = NULL;
    CHECK_FAILS(pb_attention_bwd(*state, &g), PB_EINVAL, "lse is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_changes_no_earlier_output),
        cmocka_unit_test(the_first_token_returns_its_value),
        cmocka_unit_test(zero_queries_average_the_values),
        cmocka_unit_test(packed_conversations_equal_unpacked_ones),
        cmocka_unit_test(queries_without_keys_give_zero),
        cmocka_unit_test(large_scores_stay_finite),
        cmocka_unit_test(nan_stays_in_its_conversation),
        cmocka_unit_test(nan_in_later_keys_reaches_no_output),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
