/* kv_qat_test.c - tests of kv_qat: rounding to FP8 against a search over all codes, PyTorch's results, known values,
 * the size of the quantisation error, and bits that must not change. Most tests run with every CPU implementation that
 * this machine can run. */
#include "kernels/kv_qat/kv_qat.h"
#include "tests/kernels/v4_fixture.h"

static float *values(size_t n, uint64_t seed)
{
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i + 1 < n; i += 2) { /* normal distribution by Box-Muller */
        const double r = sqrt(-2 * log(1 - pb_uniform(seed, i))), w = 2 * M_PI * pb_uniform(seed, i + 1);
        x[i] = (float)(r * cos(w)), x[i + 1] = (float)(r * sin(w));
    }
    return x;
}

static void quantise(pb_ctx *ctx, const void *x, void *y, int T, int D, int R, int block, pb_qat_scale scale,
                     pb_dtype t)
{
    CHECK_OK(pb_kv_qat_fwd(ctx, &(pb_kv_qat_fwd_args){.x = x,
                                                      .y = y,
                                                      .T = T,
                                                      .D = D,
                                                      .R = R,
                                                      .block = block,
                                                      .ldx = (size_t)D,
                                                      .ldy = (size_t)D,
                                                      .scale = scale,
                                                      .dtype = t}));
}

/* Returns the value of an E4M3 code, from the definition of the format; NaN for 0x7f and 0xff. */
static double e4m3_value(int code)
{
    const int e = code >> 3 & 15, m = code & 7;
    if (e == 15 && m == 7) return (double)NAN;
    return (code & 128 ? -1 : 1) * (e ? ldexp(8 + m, e - 10) : ldexp(m, -9));
}

/* Returns the code with the nearest value; of two equally near codes the even one. |v| must be at most 448. */
static int nearest(double v)
{
    int best = 0;
    for (int c = 0; c < 256; c++) {
        const double d = fabs(e4m3_value(c) - v), least = fabs(e4m3_value(best) - v);
        if (d < least || (!(d > least) && c % 2 == 0 && best % 2)) best = c;
    }
    return best;
}

/* Returns the scale of a block, from the definition in kv_qat.h. */
static double scale_of(const float *x, int n, pb_qat_scale kind)
{
    float amax = 1e-4f;
    for (int i = 0; i < n; i++) amax = fmaxf(amax, fabsf(x[i]));
    const float t = amax * (1.0f / 448.0f);
    return kind == PB_QAT_F32 ? (double)t : exp2(ceil(log2((double)t)));
}

enum { T = 64, D = 512, R = 64, BLOCK = 64 };

/* Each output divided by its block's scale must be the nearest E4M3 value. The total relative error must be near 2.6 %,
 * the expected error of E4M3. */
static void check_grid(pb_ctx *ctx, pb_qat_scale kind)
{
    float *x = values(T * D, 1), *y = values(T * D, 2);
    double moved = 0, all = 0;
    for (int t = 0; t < T; t++)
        for (int d = 0; d < D; d++) x[t * D + d] *= exp2f((float)(t % 9 * 4 - 16));
    quantise(ctx, x, y, T, D, R, BLOCK, kind, PB_F32);
    for (int b = 0; b < T * D; b += BLOCK) {
        if (b % D >= D - R) continue;
        const double s = scale_of(x + b, BLOCK, kind);
        for (int i = b; i < b + BLOCK; i++) {
            const double v = (double)(x[i] / (float)s);
            const float want = (float)(e4m3_value(nearest(fmin(fmax(v, -448), 448))) * s);
            if (!(y[i] == want))
                fail_msg("%g became %g, want %g: scale %g", (double)x[i], (double)y[i], (double)want, s);
            moved += (double)((y[i] - x[i]) * (y[i] - x[i])) / (s * s), all += (double)(x[i] * x[i]) / (s * s);
        }
    }
    CHECK_NEAR(sqrt(moved / all), 0.0258, 0.0012);
    free(x), free(y);
}

static void on_each(pb_ctx *ctx, void (*check)(pb_ctx *, pb_qat_scale))
{
    for (const pb_impl *i = pb_kv_qat_fwd_cpu; i->name; i++) {
        if (i->available && !i->available()) continue;
        ctx->impl = i->name;
        check(ctx, PB_QAT_UE8M0), check(ctx, PB_QAT_F32);
    }
    ctx->impl = NULL;
}
static void outputs_are_the_nearest_e4m3_values(void **state) { on_each(*state, check_grid); }

/* Compares with torch.float8_e4m3fn bit for bit. Rows have 96 elements, of which 64 are quantised. Each row is 16 times
 * larger than the row before it. */
static void check_pytorch(pb_ctx *ctx, pb_qat_scale kind)
{
    enum { ROWS = 6, WIDE = 96 };
    float *x = v4_draw(6, ROWS * WIDE), y[ROWS * WIDE];
    float *want = v4_expected(kind == PB_QAT_F32 ? "f32" : "ue8m0", "y", ROWS * WIDE);
    for (int i = 0; i < ROWS * WIDE; i++) x[i] = ldexpf(x[i], i / WIDE * 4 - 14);
    quantise(ctx, x, y, ROWS, WIDE, WIDE - BLOCK, BLOCK, kind, PB_F32);
    assert_memory_equal(y, want, sizeof y);
    free(x), free(want);
}
static void pytorch_agrees(void **state) { on_each(*state, check_pytorch); }

/* The five rows hold: zeros; values below the minimum of amax; the largest value, ties and subnormals; 1/128 of the
 * largest value; a value that is clamped. */
static void check_known(pb_ctx *ctx, pb_qat_scale kind)
{
    enum { N = 8 };
    const float x[5][N] = {{0, -0.0f, 0, 0, 0, 0, 0, 0},
                           {1e-7f, -1e-7f, 0, 0, 0, 0, 0, 1e-9f},
                           {448, -448, 17, 18, 19, 0x1p-9f, 0x1p-10f, 0x3p-10f},
                           {3.5f, 0.1f, -0.1f, 1.0625f, 0, 0, 0, 0},
                           {449, 1, 2, 3, 4, 5, 6, 7}};
    float y[5][N];
    quantise(ctx, x, y, 5, N, 0, N, kind, PB_F32);
    assert_memory_equal(y[0], x[0], sizeof y[0]); /* the sign of -0 is kept */
    for (int i = 0; i < N; i++) CHECK_NEAR(y[1][i], x[1][i], fabs((double)x[1][i]) / 16 + 2.4e-10);
    const float third[N] = {448, -448, 16, 18, 20, 0x1p-9f, 0, 0x1p-8f}; /* amax is 448, so both kinds of scale are 1 */
    for (int i = 0; i < N; i++) CHECK_NEAR(y[2][i], third[i], kind == PB_QAT_F32 ? 448 * 6e-8 : 0);
    CHECK_NEAR(y[3][0], 3.5, kind == PB_QAT_F32 ? 3e-7 : 0); /* 448 * 2^-7 */
    CHECK_NEAR(y[4][0], kind == PB_QAT_F32 ? 449 : 448, kind == PB_QAT_F32 ? 6e-5 : 0);
}
static void known_values(void **state) { on_each(*state, check_known); }

/* The copied elements, the input and the gaps between output rows must keep their bits. A NaN or infinity
 * makes only its own block NaN. */
static void check_kept(pb_ctx *ctx, pb_qat_scale kind)
{
    uint16_t x[3][40], y[3][48], was[3][40];
    for (int i = 0; i < 3 * 40; i++) x[i / 40][i % 40] = (uint16_t)(0x3f00 + 37 * i);
    x[0][34] = 0x7fa1, x[1][33] = 0xff80, x[2][32] = 0x0001; /* signalling NaN, -inf, subnormal */
    x[1][3] = 0x7fc0, x[1][17] = 0xff80;
    memcpy(was, x, sizeof x), memset(y, 0x55, sizeof y);
    CHECK_OK(pb_kv_qat_fwd(ctx, &(pb_kv_qat_fwd_args){.x = x,
                                                      .y = y,
                                                      .T = 3,
                                                      .D = 40,
                                                      .R = 8,
                                                      .block = 8,
                                                      .ldx = 40,
                                                      .ldy = 48,
                                                      .scale = kind,
                                                      .dtype = PB_BF16}));
    assert_memory_equal(x, was, sizeof x);
    for (int t = 0; t < 3; t++) {
        assert_memory_equal(y[t] + 32, x[t] + 32, 8 * sizeof **x);
        for (int i = 40; i < 48; i++) assert_int_equal(y[t][i], 0x5555);
        for (int i = 0; i < 32; i++)
            assert_int_equal(isnan(pb_bf16_to_f32(y[t][i])) != 0, t == 1 && (i / 8 == 0 || i / 8 == 2));
    }
}
static void copied_elements_keep_their_bits(void **state) { on_each(*state, check_kept); }

/* A second quantisation must change nothing: with a power-of-two scale the values are already representable. */
static void quantising_twice_changes_nothing(void **state)
{
    float *x = values(T * D, 3), *y = values(T * D, 4), *z = values(T * D, 5);
    quantise(*state, x, y, T, D, R, BLOCK, PB_QAT_UE8M0, PB_F32);
    quantise(*state, y, z, T, D, R, BLOCK, PB_QAT_UE8M0, PB_F32);
    assert_memory_equal(y, z, T * D * sizeof *y);
    assert_memory_not_equal(x, y, T * D * sizeof *y);
    free(x), free(y), free(z);
}

static void bad_arguments_are_named(void **state)
{
    float x[32] = {0};
    pb_kv_qat_fwd_args a = {.x = x, .y = x, .T = 1, .D = 16, .R = 8, .block = 8, .ldx = 16, .ldy = 16};
    CHECK_FAILS(pb_kv_qat_fwd(*state, &a), PB_EINVAL, "y overlaps x");
    a.y = x + 15;
    CHECK_FAILS(pb_kv_qat_fwd(*state, &a), PB_EINVAL, "y overlaps x");
    a.y = x + 16;
    CHECK_OK(pb_kv_qat_fwd(*state, &a));
    a.block = 3;
    CHECK_FAILS(pb_kv_qat_fwd(*state, &a), PB_EINVAL, "D=16 R=8 block=3");
    a.block = 8, a.R = 17;
    CHECK_FAILS(pb_kv_qat_fwd(*state, &a), PB_EINVAL, "R=17");
    a.R = 8, a.ldy = 15;
    CHECK_FAILS(pb_kv_qat_fwd(*state, &a), PB_EINVAL, "need at least D = 16");
    a.ldy = 16, a.y = NULL;
    CHECK_FAILS(pb_kv_qat_fwd(*state, &a), PB_EINVAL, "a tensor is NULL");
    a.y = x + 16, a.scale = (pb_qat_scale)7;
    CHECK_FAILS(pb_kv_qat_fwd(*state, &a), PB_EINVAL, "scale=7");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_are_the_nearest_e4m3_values),
        cmocka_unit_test(pytorch_agrees),
        cmocka_unit_test(known_values),
        cmocka_unit_test(copied_elements_keep_their_bits),
        cmocka_unit_test(quantising_twice_changes_nothing),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
