/* rope_test.c - compares the rotary embedding with its formulas in double, and tests invariants of rotations. Each
 * check runs with every CPU implementation that this machine can run. */
#include <string.h>

#include "kernels/rope/rope.h"
#include "tests/test.h"

enum { B = 2, S = 4, H = 2, K = 1, D = 42, P = 512, T = B * S };
static const int32_t positions[T] = {0, 1, 63, 511, 511, 1, 200, 0};

typedef struct tensors {
    float q[T * H * D], k[T * K * D];
} tensors;
static float cos_[P * D / 2], sin_[P * D / 2];

static void seed(tensors *x)
{
    for (int i = 0; i < T * H * D; i++) x->q[i] = (float)(2 * pb_uniform(1, i) - 1);
    for (int i = 0; i < T * K * D; i++) x->k[i] = (float)(2 * pb_uniform(2, i) - 1);
}

static void forward(pb_ctx *ctx, const tensors *x, tensors *y, pb_rope_pairing pairing, const int32_t *pos)
{
    CHECK_OK(pb_rope_fwd(ctx, &(pb_rope_fwd_args){.q = x->q,
                                                  .k = x->k,
                                                  .cos = cos_,
                                                  .sin = sin_,
                                                  .pos = pos,
                                                  .qr = y->q,
                                                  .kr = y->k,
                                                  .B = B,
                                                  .S = S,
                                                  .H = H,
                                                  .K = K,
                                                  .D = D,
                                                  .P = P,
                                                  .ldq = H * D,
                                                  .ldk = K * D,
                                                  .ldqr = H * D,
                                                  .ldkr = K * D,
                                                  .pairing = pairing}));
}

static void backward(pb_ctx *ctx, const tensors *dy, tensors *dx, pb_rope_pairing pairing, const int32_t *pos)
{
    CHECK_OK(pb_rope_bwd(ctx, &(pb_rope_bwd_args){.dqr = dy->q,
                                                  .dkr = dy->k,
                                                  .cos = cos_,
                                                  .sin = sin_,
                                                  .pos = pos,
                                                  .dq = dx->q,
                                                  .dk = dx->k,
                                                  .B = B,
                                                  .S = S,
                                                  .H = H,
                                                  .K = K,
                                                  .D = D,
                                                  .P = P,
                                                  .lddqr = H * D,
                                                  .lddkr = K * D,
                                                  .lddq = H * D,
                                                  .lddk = K * D,
                                                  .pairing = pairing}));
}

/* Runs `check` with each implementation and both pairings. */
static void on_each(pb_ctx *ctx, void (*check)(pb_ctx *, pb_rope_pairing))
{
    pb_rope_table(cos_, sin_, P, D, 10000);
    for (const pb_impl *i = pb_rope_fwd_cpu; i->name; i++) {
        if (i->available && !i->available()) continue;
        ctx->impl = i->name;
        check(ctx, PB_ROPE_HALF);
        check(ctx, PB_ROPE_ADJACENT);
    }
    ctx->impl = NULL;
}

/* Returns element d of head x after the rotation at position p, computed from the definition. */
static double formula(const float *x, int d, int p, pb_rope_pairing pairing)
{
    if (pairing == PB_ROPE_HALF) {
        const double angle = p * pow(10000, -2.0 * (d % (D / 2)) / D);
        return d < D / 2 ? (double)x[d] * cos(angle) - (double)x[d + D / 2] * sin(angle)
                         : (double)x[d] * cos(angle) + (double)x[d - D / 2] * sin(angle);
    }
    const double angle = p * pow(10000, -(double)(d - d % 2) / D);
    return d % 2 == 0 ? (double)x[d] * cos(angle) - (double)x[d + 1] * sin(angle)
                      : (double)x[d] * cos(angle) + (double)x[d - 1] * sin(angle);
}

static void check_formula(pb_ctx *ctx, pb_rope_pairing pairing)
{
    tensors x, y;
    seed(&x);
    for (int given = 0; given < 2; given++) {
        forward(ctx, &x, &y, pairing, given ? positions : NULL);
        for (int t = 0; t < T; t++)
            for (int d = 0; d < D; d++) {
                const int p = given ? positions[t] : t % S;
                CHECK_NEAR(y.q[(t * H + 1) * D + d], formula(x.q + (t * H + 1) * D, d, p, pairing), 3e-7);
                CHECK_NEAR(y.k[t * D + d], formula(x.k + t * D, d, p, pairing), 3e-7);
            }
    }
}
static void positions_match_the_formula(void **state) { on_each(*state, check_formula); }

static void the_pairings_differ(void **state)
{
    tensors x, half, adjacent;
    pb_rope_table(cos_, sin_, P, D, 10000);
    seed(&x);
    forward(*state, &x, &half, PB_ROPE_HALF, positions);
    forward(*state, &x, &adjacent, PB_ROPE_ADJACENT, positions);
    assert_memory_equal(half.q, adjacent.q, H * D * sizeof(float)); /* position 0 rotates by angle 0 */
    for (int t = 1; t < T - 1; t++)
        assert_memory_not_equal(half.q + t * H * D, adjacent.q + t * H * D, H * D * sizeof(float));
}

static void check_inverse(pb_ctx *ctx, pb_rope_pairing pairing)
{
    tensors x, y, z;
    seed(&x);
    forward(ctx, &x, &y, pairing, positions);
    backward(ctx, &y, &z, pairing, positions);
    for (int i = 0; i < T * H * D; i++) CHECK_NEAR(z.q[i], x.q[i], 3e-7);
    for (int i = 0; i < T * K * D; i++) CHECK_NEAR(z.k[i], x.k[i], 3e-7);
}
static void backward_undoes_forward(void **state) { on_each(*state, check_inverse); }

static double norm(const float *x)
{
    double sum = 0;
    for (int d = 0; d < D; d++) sum += (double)x[d] * (double)x[d];
    return sqrt(sum);
}

static void check_norm(pb_ctx *ctx, pb_rope_pairing pairing)
{
    tensors x, y;
    seed(&x);
    forward(ctx, &x, &y, pairing, positions);
    for (int i = 0; i < T * H; i++) CHECK_NEAR(norm(y.q + i * D) / norm(x.q + i * D), 1, 2e-7);
    for (int i = 0; i < T * K; i++) CHECK_NEAR(norm(y.k + i * D) / norm(x.k + i * D), 1, 2e-7);
}
static void rotations_keep_the_norm(void **state) { on_each(*state, check_norm); }

static void check_in_place(pb_ctx *ctx, pb_rope_pairing pairing)
{
    tensors x, y, z;
    seed(&x), seed(&z);
    forward(ctx, &x, &y, pairing, positions);
    forward(ctx, &z, &z, pairing, positions);
    assert_memory_equal(&y, &z, sizeof y);
    backward(ctx, &x, &y, pairing, positions);
    backward(ctx, &x, &x, pairing, positions);
    assert_memory_equal(&y, &x, sizeof y);
}
static void in_place_equals_out_of_place(void **state) { on_each(*state, check_in_place); }

static void check_outside(pb_ctx *ctx, pb_rope_pairing pairing)
{
    tensors x, y, z;
    int32_t pos[T];
    memcpy(pos, positions, sizeof pos);
    pos[2] = -1, pos[5] = P;
    seed(&x);
    forward(ctx, &x, &y, pairing, pos);
    forward(ctx, &x, &z, pairing, positions);
    for (int i = 0; i < T * H * D; i++) {
        const bool out = i / (H * D) == 2 || i / (H * D) == 5;
        assert_true(out ? isnan(y.q[i]) : y.q[i] == z.q[i]);
    }
    for (int i = 0; i < T * K * D; i++) assert_int_equal(isnan(y.k[i]) != 0, i / (K * D) == 2 || i / (K * D) == 5);
    backward(ctx, &x, &y, pairing, pos);
    assert_true(isnan(y.q[2 * H * D]) && isnan(y.k[5 * K * D]) && !isnan(y.q[0]));
}
static void a_position_outside_the_table_gives_nan(void **state) { on_each(*state, check_outside); }

/* ---- rotating only part of a head, steps between positions, and DeepSeek-V4's tables --------------------------- */

enum { V_H = 3, V_D = 40, V_R = 16, V_STEP = 4, V_T = B * S };

/* Only the last V_R elements of a head must be rotated, in the same way as a head of size V_R; the elements before them
 * must be copied bit for bit. Tokens are V_STEP positions apart. K is 0. */
static void check_partial_rotation(pb_ctx *ctx, pb_rope_pairing pairing)
{
    float x[V_T][V_H][V_D], y[V_T][V_H][V_D], small[V_T][V_H][V_R], want[V_T][V_H][V_R];
    int32_t all[B][S * V_STEP], picked[V_T];
    for (int i = 0; i < V_T * V_H * V_D; i++) (&x[0][0][0])[i] = (float)(2 * pb_uniform(3, i) - 1);
    for (int i = 0; i < V_T * V_H; i++) memcpy((&small[0][0])[i], (&x[0][0])[i] + V_D - V_R, sizeof **small);
    for (int i = 0; i < B * S * V_STEP; i++) (&all[0][0])[i] = (i * 37 + 5) % P;
    pb_rope_table(cos_, sin_, P, V_R, 10000);
    for (int given = 0; given < 2; given++) {
        for (int t = 0; t < V_T; t++) picked[t] = given ? all[t / S][t % S * V_STEP] : 7 + t % S * V_STEP;
        pb_rope_fwd_args a = {.q = x, .cos = cos_, .sin = sin_, .qr = y, .B = B, .S = S, .H = V_H, .P = P};
        a.pos = given ? all[0] : NULL, a.D = V_D, a.R = V_R, a.first = 7, a.step = V_STEP, a.pairing = pairing;
        a.ldq = a.ldqr = V_H * V_D;
        pb_rope_fwd_args w = {.q = small, .cos = cos_, .sin = sin_, .qr = want, .B = B, .S = S, .H = V_H, .P = P};
        w.pos = picked, w.D = V_R, w.pairing = pairing, w.ldq = w.ldqr = V_H * V_R;
        CHECK_OK(pb_rope_fwd(ctx, &a));
        CHECK_OK(pb_rope_fwd(ctx, &w));
        for (int i = 0; i < V_T * V_H; i++) {
            assert_memory_equal((&y[0][0])[i], (&x[0][0])[i], (V_D - V_R) * sizeof(float));
            assert_memory_equal((&y[0][0])[i] + V_D - V_R, (&want[0][0])[i], sizeof **want);
        }
        pb_rope_bwd_args g = {.dqr = y, .cos = cos_, .sin = sin_, .dq = y, .B = B, .S = S, .H = V_H, .P = P};
        g.pos = a.pos, g.D = V_D, g.R = V_R, g.first = 7, g.step = V_STEP, g.pairing = pairing;
        g.lddqr = g.lddq = V_H * V_D;
        CHECK_OK(pb_rope_bwd(ctx, &g)); /* the inverse rotation at the same position restores x */
        for (int i = 0; i < V_T * V_H * V_D; i++) CHECK_NEAR((&y[0][0][0])[i], (&x[0][0][0])[i], 3e-7);
    }
}
static void only_the_last_elements_are_rotated(void **state) { on_each(*state, check_partial_rotation); }

/* A NaN in the copied part must not spread to other elements. A position outside the table must make the rotated part
 * NaN and leave the copied part unchanged. */
static void check_copied_part(pb_ctx *ctx, pb_rope_pairing pairing)
{
    float x[2][V_D], y[2][V_D];
    const int32_t pos[2] = {1, P};
    for (int i = 0; i < 2 * V_D; i++) (&x[0][0])[i] = (float)i;
    x[0][0] = NAN;
    pb_rope_fwd_args a = {.q = x, .cos = cos_, .sin = sin_, .pos = pos, .qr = y, .B = 1, .S = 2, .H = 1, .P = P};
    a.D = V_D, a.R = V_R, a.pairing = pairing, a.ldq = a.ldqr = V_D;
    CHECK_OK(pb_rope_fwd(ctx, &a));
    for (int t = 0; t < 2; t++)
        for (int d = 0; d < V_D; d++)
            assert_int_equal(isnan(y[t][d]) != 0, (t == 0 && d == 0) || (t == 1 && d >= V_D - V_R));
}
static void copied_elements_stay_unchanged(void **state) { on_each(*state, check_copied_part); }

/* DeepSeek-V4 rotates 64 of 512 elements. YaRN extends 65536 positions by 16, with beta_fast 32, beta_slow 1 and
 * attention 1. Pairs up to `low` keep their frequency, pairs from `high` on have 1/16 of it. */
static void check_yarn(double theta, int low, int high)
{
    enum { D_ = 64, HALF = D_ / 2, ROWS = 2 };
    float c[ROWS * HALF], s[ROWS * HALF];
    const pb_rope_scaling yarn = {.kind = PB_ROPE_YARN,
                                  .factor = 16,
                                  .original_len = 65536,
                                  .beta_fast = 32,
                                  .beta_slow = 1,
                                  .attention = 1,
                                  .truncate = true};
    pb_rope_table_scaled(c, s, ROWS, D_, theta, &yarn);
    for (int i = 0; i < HALF; i++) {
        const double plain = pow(theta, -2.0 * i / D_), f = (double)atan2f(s[HALF + i], c[HALF + i]) / plain;
        const double ramp = i <= low ? 0 : i >= high ? 1 : (double)(i - low) / (high - low);
        CHECK_NEAR(f, 1 - ramp + ramp / 16, 3e-7);
        CHECK_NEAR(hypot((double)c[HALF + i], (double)s[HALF + i]), 1, 1e-7);
    }
}
static void yarn_of_deepseek_v4(void **state)
{
    (void)state;
    check_yarn(160000, 15, 25);
    check_yarn(10000, 20, 33);
}

/* Eight context-parallel ranks of 8448 tokens reach position 67583. A table of 67584 rows is sufficient; with 65536
 * rows the call must fail with a message. */
static void the_table_reaches_the_longest_position(void **state)
{
    enum { ROWS = 67584, LAST = ROWS - 1, LOCAL = 8448, D_ = 4 };
    const size_t table = (size_t)ROWS * D_ / 2, n = (size_t)LOCAL * D_;
    float *c = test_values(table, PB_F32, 1), *s = test_values(table, PB_F32, 2);
    float *x = test_values(n, PB_F32, 3), *y = test_values(n, PB_F32, 4);
    pb_rope_table(c, s, ROWS, D_, 160000);
    for (size_t i = 0; i < n; i++) x[i] = i % D_ == 0;
    pb_rope_fwd_args a = {.q = x, .cos = c, .sin = s, .qr = y, .B = 1, .S = LOCAL, .H = 1, .D = D_, .P = ROWS};
    a.first = ROWS - LOCAL, a.pairing = PB_ROPE_ADJACENT, a.ldq = a.ldqr = D_;
    CHECK_OK(pb_rope_fwd(*state, &a));
    CHECK_NEAR(y[(LOCAL - 1) * D_], cos(LAST), 1e-6);
    CHECK_NEAR(y[(LOCAL - 1) * D_ + 1], sin(LAST), 1e-6);
    a.P = 65536;
    CHECK_FAILS(pb_rope_fwd(*state, &a), PB_EINVAL, "position 67583, but the table ends at P=65536");
    a.first = 0, a.S = 65537 / 4 + 1, a.step = 4; /* the last token has position 65536 */
    CHECK_FAILS(pb_rope_fwd(*state, &a), PB_EINVAL, "position 65536, but the table ends at P=65536");
    free(c), free(s), free(x), free(y);
}

static void bad_arguments_are_named(void **state)
{
    float x[4] = {0};
    pb_rope_fwd_args a = {.q = x,
                          .k = x,
                          .cos = x,
                          .sin = x,
                          .qr = x,
                          .kr = x,
                          .B = 1,
                          .S = 2,
                          .H = 1,
                          .K = 1,
                          .D = 2,
                          .P = 1,
                          .ldq = 2,
                          .ldk = 2,
                          .ldqr = 2,
                          .ldkr = 2};
    pb_rope_bwd_args g = {.dqr = x,
                          .dkr = x,
                          .cos = x,
                          .sin = x,
                          .dq = x,
                          .dk = x,
                          .B = 1,
                          .S = 1,
                          .H = 1,
                          .K = 1,
                          .D = 3,
                          .P = 1,
                          .lddqr = 3,
                          .lddkr = 3,
                          .lddq = 3,
                          .lddk = 3};
    CHECK_FAILS(pb_rope_fwd(*state, &a), PB_EINVAL, "position 1, but the table ends at P=1");
    a.S = 1, a.ldkr = 1;
    CHECK_FAILS(pb_rope_fwd(*state, &a), PB_EINVAL, "tokens of kr are 1 elements apart, need at least 2");
    a.ldkr = 2, a.sin = NULL;
    CHECK_FAILS(pb_rope_fwd(*state, &a), PB_EINVAL, "cos or sin is NULL");
    CHECK_FAILS(pb_rope_bwd(*state, &g), PB_EINVAL, "D=3");
    g.D = 2, g.dk = NULL;
    CHECK_FAILS(pb_rope_bwd(*state, &g), PB_EINVAL, "dk is NULL");
    g.K = 0, g.R = 4;
    CHECK_FAILS(pb_rope_bwd(*state, &g), PB_EINVAL, "D=2 R=4");
    g.R = 0, g.S = 2, g.P = 2, g.seqdq = 4;
    CHECK_FAILS(pb_rope_bwd(*state, &g), PB_EINVAL, "sequences of dq are 4 elements apart, need at least 5");
    g.seqdq = 0, g.first = -1;
    CHECK_FAILS(pb_rope_bwd(*state, &g), PB_EINVAL, "first=-1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(positions_match_the_formula),
        cmocka_unit_test(the_pairings_differ),
        cmocka_unit_test(backward_undoes_forward),
        cmocka_unit_test(rotations_keep_the_norm),
        cmocka_unit_test(in_place_equals_out_of_place),
        cmocka_unit_test(a_position_outside_the_table_gives_nan),
        cmocka_unit_test(only_the_last_elements_are_rotated),
        cmocka_unit_test(copied_elements_stay_unchanged),
        cmocka_unit_test(yarn_of_deepseek_v4),
        cmocka_unit_test(the_table_reaches_the_longest_position),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
