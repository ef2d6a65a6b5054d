/* compressor_test.c - tests of the compressor: PyTorch's results, which inputs may influence which rows, and errors.
 * Every test runs with every CPU implementation that this machine can run. */
#include "kernels/compressor/compressor.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/rope/rope.h"
#include "tests/kernels/v4_fixture.h"

/* the sizes that scripts/fixtures/v4_fixtures.py used for the stored results */
enum { B = 2, S = 22, D = 8, R = 4, RATIO = 4, G = S / RATIO };

/* The tensors of one problem in f32, for both passes. */
typedef struct problem {
    int B, S, D, ratio;
    bool overlap;
    size_t C, rows;
    float *a, *z, *ape, *dc, *c, *da, *dz, *dape;
    int32_t *start;
} problem;

static problem make(int b, int s, int d, int ratio, bool overlap)
{
    problem p = {.B = b, .S = s, .D = d, .ratio = ratio, .overlap = overlap, .C = (size_t)(overlap ? 2 * d : d)};
    const size_t n = (size_t)(b * s) * p.C;
    p.rows = (size_t)b * (size_t)(s / ratio);
    p.a = v4_draw(1, n), p.z = v4_draw(2, n), p.ape = v4_draw(3, (size_t)ratio * p.C);
    p.dc = v4_draw(4, p.rows * (size_t)d), p.c = v4_draw(0, p.rows * (size_t)d);
    p.da = v4_draw(0, n), p.dz = v4_draw(0, n), p.dape = v4_draw(0, (size_t)ratio * p.C);
    return p;
}

static void drop(problem *p)
{
    free(p->a), free(p->z), free(p->ape), free(p->dc), free(p->c), free(p->da), free(p->dz), free(p->dape);
    free(p->start);
}

/* Sets `start` for conversations of these lengths, in the same way in every sequence. */
static void pack(problem *p, const int *lengths)
{
    p->start = malloc((size_t)(p->B * p->S) * sizeof *p->start);
    assert_non_null(p->start);
    for (int b = 0; b < p->B; b++)
        for (int s = 0, i = 0, first = 0; s < p->S; s++) {
            if (s == first + lengths[i]) first = s, i++;
            p->start[b * p->S + s] = first;
        }
}

static void both(pb_ctx *ctx, problem *p)
{
    CHECK_OK(pb_compressor_fwd(ctx, &(pb_compressor_fwd_args){.a = p->a,
                                                              .z = p->z,
                                                              .ape = p->ape,
                                                              .start = p->start,
                                                              .c = p->c,
                                                              .B = p->B,
                                                              .S = p->S,
                                                              .D = p->D,
                                                              .ratio = p->ratio,
                                                              .overlap = p->overlap,
                                                              .lda = p->C,
                                                              .ldz = p->C}));
    CHECK_OK(pb_compressor_bwd(ctx, &(pb_compressor_bwd_args){.dc = p->dc,
                                                              .a = p->a,
                                                              .z = p->z,
                                                              .ape = p->ape,
                                                              .start = p->start,
                                                              .da = p->da,
                                                              .dz = p->dz,
                                                              .dape = p->dape,
                                                              .B = p->B,
                                                              .S = p->S,
                                                              .D = p->D,
                                                              .ratio = p->ratio,
                                                              .overlap = p->overlap,
                                                              .lda = p->C,
                                                              .ldz = p->C,
                                                              .ldda = p->C,
                                                              .lddz = p->C}));
}

static void on_each(pb_ctx *ctx, void (*check)(pb_ctx *))
{
    for (const pb_impl *i = pb_compressor_fwd_cpu; i->name; i++) {
        if (i->available && !i->available()) continue;
        ctx->impl = i->name;
        check(ctx);
    }
    ctx->impl = NULL;
}

/* ---- comparison with PyTorch's results ------------------------------------------------------------- */

static void matches(const problem *p, const char *which)
{
    const size_t n = (size_t)(p->B * p->S) * p->C;
    v4_matches(which, "c", p->c, p->rows * (size_t)p->D, 1e-6);
    v4_matches(which, "da", p->da, n, 1e-6);
    v4_matches(which, "dz", p->dz, n, 1e-6);
    v4_matches(which, "dape", p->dape, (size_t)p->ratio * p->C, 1e-6);
}

static void check_pytorch(pb_ctx *ctx)
{
    static const int lengths[] = {12, 4, 6};
    problem overlap = make(B, S, D, RATIO, true), packed = make(B, S, D, RATIO, true), plain = make(B, S, D, 5, false);
    pack(&packed, lengths);
    both(ctx, &overlap), both(ctx, &packed), both(ctx, &plain);
    matches(&overlap, "overlap");
    matches(&packed, "packed"); /* each packed conversation must equal the conversation alone */
    matches(&plain, "plain");
    drop(&overlap), drop(&packed), drop(&plain);
}
static void pytorch_agrees(void **state) { on_each(*state, check_pytorch); }

/* Tests the complete chain to the rows that attention reads: pooling, RMSNorm, and RoPE of the last R elements at the
 * position of each row's first token, here beyond 65536. RMSNorm and RoPE use their default implementations. */
static void check_finished(pb_ctx *ctx)
{
    enum { FIRST = 65536, P = FIRST + S };
    const pb_rope_scaling yarn = {.kind = PB_ROPE_YARN,
                                  .factor = 16,
                                  .original_len = 65536,
                                  .beta_fast = 32,
                                  .beta_slow = 1,
                                  .attention = 1,
                                  .truncate = true};
    problem p = make(B, S, D, RATIO, true);
    float *w = v4_draw(5, D), y[B * G * D], rstd[B * G];
    float *cos_ = malloc(P * R / 2 * sizeof(float)), *sin_ = malloc(P * R / 2 * sizeof(float));
    const char *impl = ctx->impl;
    assert_true(cos_ && sin_);
    both(ctx, &p);
    ctx->impl = NULL;
    pb_rope_table_scaled(cos_, sin_, P, R, 160000, &yarn);
    CHECK_OK(pb_rmsnorm_fwd(
        ctx,
        &(pb_rmsnorm_fwd_args){
            .x = p.c, .w = w, .y = y, .rstd = rstd, .T = B * G, .G = 1, .D = D, .ldx = D, .ldy = D, .eps = 1e-6f}));
    pb_rope_fwd_args r = {.q = y, .cos = cos_, .sin = sin_, .qr = y, .B = B, .S = G, .H = 1, .D = D, .P = P, .R = R};
    r.ldq = r.ldqr = D, r.first = FIRST, r.step = RATIO, r.pairing = PB_ROPE_ADJACENT;
    CHECK_OK(pb_rope_fwd(ctx, &r));
    v4_matches("finished", "y", y, B * G * D, 1e-6);
    ctx->impl = impl;
    free(w), free(cos_), free(sin_), drop(&p);
}
static void rows_after_norm_and_rope_agree(void **state) { on_each(*state, check_finished); }

/* ---- which inputs influence which rows -------------------------------------------------------------- */

/* Row g must depend on its own and the previous group's tokens only. A NaN is put into each token in turn, in
 * either half of its columns. */
static void check_reach(pb_ctx *ctx)
{
    for (int t = 0; t < S; t++)
        for (int second = 0; second < 2; second++) {
            problem p = make(1, S, D, RATIO, true);
            p.z[(size_t)t * p.C + (size_t)(second * D)] = NAN;
            both(ctx, &p);
            for (int g = 0; g < G; g++)
                for (int d = 0; d < D; d++)
                    assert_int_equal(isnan(p.c[g * D + d]) != 0, d == 0 && g == t / RATIO + !second);
            drop(&p);
        }
}
static void a_row_depends_on_its_tokens_only(void **state) { on_each(*state, check_reach); }

/* Tokens of another conversation must not be read, even if they are NaN or infinite. Tokens that no row pools must get
 * zero gradients. */
static void check_conversations(pb_ctx *ctx)
{
    static const int lengths[] = {8, 8, 6};
    problem p = make(1, S, D, RATIO, true);
    pack(&p, lengths);
    for (int s = 0; s < 8; s++)
        for (size_t k = 0; k < p.C; k++) p.a[(size_t)s * p.C + k] = NAN, p.z[(size_t)s * p.C + k] = INFINITY;
    both(ctx, &p);
    for (int g = 0; g < G; g++)
        for (int d = 0; d < D; d++) assert_int_equal(isnan(p.c[g * D + d]) != 0, g < 2);
    for (int s = 4; s < S; s++)
        for (size_t k = 0; k < p.C; k++) {
            const float da = p.da[(size_t)s * p.C + k], dz = p.dz[(size_t)s * p.C + k];
            /* the first D columns of a conversation's last group are pooled by no row; the last two tokens have no
             * group */
            const bool none = s >= G * RATIO || (k < D && (s / RATIO == 1 || s / RATIO == 3 || s / RATIO == 4));
            if (none) assert_true(da == 0 && dz == 0);
            else if (s >= 8) assert_true(isfinite(da) && da != 0 && isfinite(dz) && dz != 0);
        }
    drop(&p);
}
static void conversations_are_independent(void **state) { on_each(*state, check_conversations); }

/* With fewer tokens than a group there are no rows, and all gradients are zero. */
static void check_short(pb_ctx *ctx)
{
    problem p = make(B, RATIO - 1, D, RATIO, true);
    assert_int_equal(p.rows, 0);
    both(ctx, &p);
    for (size_t i = 0; i < (size_t)(B * (RATIO - 1)) * p.C; i++) assert_true(p.da[i] == 0 && p.dz[i] == 0);
    for (size_t i = 0; i < RATIO * p.C; i++) assert_true(p.dape[i] == 0);
    drop(&p);
}
static void too_few_tokens_give_no_row(void **state) { on_each(*state, check_short); }

/* Adding one number to the gates of all candidates must change nothing. A gate far above the others must select its
 * candidate. A gate of -inf must exclude it. */
static void check_gates(pb_ctx *ctx)
{
    problem p = make(1, 128, D, 128, false), q = make(1, 128, D, 128, false);
    for (size_t i = 0; i < 128 * q.C; i++) q.z[i] += 64;
    both(ctx, &p), both(ctx, &q);
    /* The results differ in the last bits, because z + 64 is rounded. */
    for (int d = 0; d < D; d++) CHECK_NEAR(q.c[d], p.c[d], 2e-5);
    for (int d = 0; d < D; d++) p.z[(size_t)(3 * d + 5) * p.C + (size_t)d] = 300; /* another token for each channel */
    both(ctx, &p);
    for (int d = 0; d < D; d++) {
        assert_true(p.c[d] == p.a[(size_t)(3 * d + 5) * p.C + (size_t)d]);
        assert_true(p.da[(size_t)(3 * d + 5) * p.C + (size_t)d] == p.dc[d]);
        p.z[(size_t)(3 * d + 5) * p.C + (size_t)d] = -INFINITY; /* exclude this token */
    }
    both(ctx, &p);
    for (size_t i = 0; i < 128 * p.C; i++) assert_true(isfinite(p.da[i]) && isfinite(p.dz[i]));
    for (int d = 0; d < D; d++) assert_true(isfinite(p.c[d]) && p.da[(size_t)(3 * d + 5) * p.C + (size_t)d] == 0);
    drop(&p), drop(&q);
}
static void gates_are_a_softmax_of_each_channel(void **state) { on_each(*state, check_gates); }

/* da and dz may be written in place of a and z. */
static void check_in_place(pb_ctx *ctx)
{
    static const int lengths[] = {12, 4, 6};
    problem p = make(B, S, D, RATIO, true);
    const size_t n = B * S * p.C;
    pack(&p, lengths);
    both(ctx, &p);
    float *da = p.da, *dz = p.dz;
    p.da = p.a, p.dz = p.z;
    both(ctx, &p);
    assert_memory_equal(p.a, da, n * sizeof *da);
    assert_memory_equal(p.z, dz, n * sizeof *dz);
    p.da = da, p.dz = dz;
    drop(&p);
}
static void in_place_equals_out_of_place(void **state) { on_each(*state, check_in_place); }

static void bad_arguments_are_named(void **state)
{
    float x[64] = {0};
    pb_compressor_fwd_args a = {.a = x, .z = x, .ape = x, .c = x, .B = 1, .S = 4, .D = 2, .ratio = 4};
    a.overlap = true, a.lda = 4, a.ldz = 3;
    CHECK_FAILS(pb_compressor_fwd(*state, &a), PB_EINVAL, "are 3 elements apart, need at least 4");
    a.ldz = 4, a.ratio = 0;
    CHECK_FAILS(pb_compressor_fwd(*state, &a), PB_EINVAL, "ratio=0");
    a.ratio = 4, a.c = NULL;
    CHECK_FAILS(pb_compressor_fwd(*state, &a), PB_EINVAL, "a tensor is NULL");
    a.S = 3; /* no rows, so c is not needed */
    CHECK_OK(pb_compressor_fwd(*state, &a));
    pb_compressor_bwd_args g = {.a = x, .z = x, .ape = x, .da = x, .dz = x, .B = 1, .S = 4, .D = 2, .ratio = 4};
    g.lda = g.ldz = g.ldda = g.lddz = 2;
    CHECK_FAILS(pb_compressor_bwd(*state, &g), PB_EINVAL, "ape or dc is NULL");
    g.dc = x, g.lddz = 1;
    CHECK_FAILS(pb_compressor_bwd(*state, &g), PB_EINVAL, "are 1 elements apart, need at least 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pytorch_agrees),
        cmocka_unit_test(rows_after_norm_and_rope_agree),
        cmocka_unit_test(a_row_depends_on_its_tokens_only),
        cmocka_unit_test(conversations_are_independent),
        cmocka_unit_test(too_few_tokens_give_no_row),
        cmocka_unit_test(gates_are_a_softmax_of_each_channel),
        cmocka_unit_test(in_place_equals_out_of_place),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
