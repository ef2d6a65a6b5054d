/* rope_test.c - rotary embedding against literal formulas, and what a rotation keeps. Every one of them
 * holds for every implementation this machine runs. */
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

/* Element d of a head x at position p, straight from the definition. */
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
    assert_memory_equal(half.q, adjacent.q, H * D * sizeof(float)); /* position 0 turns nothing */
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
static void norms_are_kept(void **state) { on_each(*state, check_norm); }

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
    CHECK_FAILS(pb_rope_fwd(*state, &a), PB_EINVAL, "S=2 tokens, but the table ends at P=1");
    a.S = 1, a.ldkr = 1;
    CHECK_FAILS(pb_rope_fwd(*state, &a), PB_EINVAL, "tokens of kr are 1 apart, need 2");
    a.ldkr = 2, a.sin = NULL;
    CHECK_FAILS(pb_rope_fwd(*state, &a), PB_EINVAL, "cos or sin is NULL");
    CHECK_FAILS(pb_rope_bwd(*state, &g), PB_EINVAL, "D=3");
    g.D = 2, g.dk = NULL;
    CHECK_FAILS(pb_rope_bwd(*state, &g), PB_EINVAL, "dk is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(positions_match_the_formula),  cmocka_unit_test(the_pairings_differ),
        cmocka_unit_test(backward_undoes_forward),      cmocka_unit_test(norms_are_kept),
        cmocka_unit_test(in_place_equals_out_of_place), cmocka_unit_test(a_position_outside_the_table_gives_nan),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
