/* nf4_test.c - compares NF4 with bitsandbytes byte for byte, and tests identities that follow from its definition.
 *
 * tests/fixtures/nf4.bin holds results of bitsandbytes; scripts/fixtures/nf4_fixtures.py makes the file and describes
 * its format. Run from the root of the sources, as ctest does. */
#include <stdlib.h>
#include <string.h>

#include "kernels/nf4/nf4.h"
#include "tests/test.h"

/* ---- reading the stored results of bitsandbytes -------------------------------------------------- */

static const char *const impls[] = {"avx512", "avx2", "omp", "ref"};

typedef struct reader {
    unsigned char *bytes;
    size_t at, size;
} reader;

static reader open_fixtures(void)
{
    reader r = {.size = 1u << 20, .bytes = malloc(1u << 20)};
    FILE *f = fopen("tests/fixtures/nf4.bin", "rb");
    if (!f || !r.bytes) fail_msg("tests/fixtures/nf4.bin does not open: run from the root of the sources");
    r.size = fread(r.bytes, 1, r.size, f);
    fclose(f);
    return r;
}

/* Returns the next n bytes of the fixture as an aligned copy; the caller frees it. */
static void *take(reader *r, size_t n)
{
    void *p = malloc(n + 1);
    assert_non_null(p);
    assert_true(n <= r->size - r->at);
    memcpy(p, r->bytes + r->at, n);
    r->at += n;
    return p;
}

/* Header of a record of the fixture file. If seed is 0, the file stores the weights; otherwise bell()
 * draws them. If sums is 0, some values are not finite, and double quantisation and dequantisation are not compared. */
typedef struct head {
    char name[24];
    uint32_t n, block, dtype, seed, source, sums;
    float gain;
} head;

typedef struct record {
    head h;
    size_t blocks, groups;
    void *w; /* [n], f32 or bf16 as h.dtype says */
    uint8_t *q, *absmax_q;
    float *absmax, *absmax2, *offset;
    uint64_t *sums; /* [2] FNV hashes of the dequantised f32 values: plain, double-quantised */
} record;

/* Returns element i of weights with a bell-shaped distribution, equal to values() of the fixture script. */
static float bell(const head *h, uint64_t i)
{
    double sum = 0;
    for (uint64_t k = 0; k < 4; k++) sum += pb_uniform(h->seed, 4 * i + k);
    return (float)((sum - 2) * (double)h->gain);
}

static void *weights(reader *r, const head *h)
{
    float *given = h->seed ? NULL : take(r, h->n * sizeof *given);
    void *w = malloc(h->n * sizeof(float));
    assert_non_null(w);
    for (size_t i = 0; i < h->n; i++) {
        if (h->dtype == PB_F32) ((float *)w)[i] = given ? given[i] : bell(h, i);
        else ((uint16_t *)w)[i] = pb_f32_to_bf16(given ? given[i] : bell(h, i));
    }
    free(given);
    return w;
}

static record next_record(reader *r)
{
    record f;
    head *h = take(r, sizeof *h);
    f.h = *h;
    free(h);
    f.blocks = (f.h.n + f.h.block - 1) / f.h.block;
    f.groups = (f.blocks + 255) / 256;
    f.w = weights(r, &f.h);
    f.q = take(r, (f.h.n + 1) / 2);
    f.absmax = take(r, f.blocks * sizeof(float));
    f.absmax_q = take(r, f.blocks);
    f.absmax2 = take(r, f.groups * sizeof(float));
    f.offset = take(r, sizeof(float));
    f.sums = take(r, 2 * sizeof(uint64_t));
    return f;
}

static void drop(record *f)
{
    free(f->w), free(f->q), free(f->absmax), free(f->absmax_q), free(f->absmax2), free(f->offset), free(f->sums);
}

static uint64_t fnv(const void *p, size_t n)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)p)[i]) * 1099511628211u;
    return h;
}

#define SAME(got, want, n)                                                                                             \
    do {                                                                                                               \
        for (size_t same_ = 0; same_ < (n); same_++)                                                                   \
            if (memcmp(&(got)[same_], &(want)[same_], sizeof *(got)) != 0)                                             \
                fail_msg("%s, %s: %s[%zu] = %.9g, bitsandbytes has %.9g", f->h.name, ctx->impl, #want, same_,          \
                         (double)(got)[same_], (double)(want)[same_]);                                                 \
    } while (0)

static void check_quantize(pb_ctx *ctx, const record *f, const float *code)
{
    uint8_t *q = malloc(f->h.n), *absmax_q = malloc(f->blocks);
    float *absmax = malloc(f->blocks * 4), *absmax2 = malloc(f->groups * 4), offset;
    assert_true(q && absmax_q && absmax && absmax2);
    for (int nested = 0; nested < 2; nested++) {
        pb_nf4_quantize_args a = {
            .w = f->w, .q = q, .absmax = absmax, .n = f->h.n, .block = (int)f->h.block, .dtype = (pb_dtype)f->h.dtype};
        if (nested) a.code = code, a.absmax_q = absmax_q, a.absmax2 = absmax2, a.offset = &offset;
        CHECK_OK(pb_nf4_quantize(ctx, &a));
        SAME(q, f->q, (f->h.n + 1) / 2);
        SAME(absmax, f->absmax, f->blocks);
        if (!nested || !f->h.sums) continue;
        SAME(&offset, f->offset, 1);
        SAME(absmax2, f->absmax2, f->groups);
        SAME(absmax_q, f->absmax_q, f->blocks);
    }
    free(q), free(absmax_q), free(absmax), free(absmax2);
}

/* Compares f32 results by hash. bf16 results must be the f32 results rounded once; the fixture script has checked
 * that bitsandbytes does so. */
static void check_dequantize(pb_ctx *ctx, const record *f, const float *code)
{
    float *w = malloc(f->h.n * sizeof *w);
    uint16_t *half = malloc(f->h.n * sizeof *half);
    assert_true(w && half);
    for (int nested = 0; nested < 2 && f->h.sums; nested++) {
        pb_nf4_dequantize_args a = {.q = f->q, .w = w, .n = f->h.n, .scales.block = (int)f->h.block};
        if (!nested) a.scales.absmax = f->absmax;
        else
            a.scales = (pb_nf4_scales){.absmax_q = f->absmax_q,
                                       .code = code,
                                       .absmax2 = f->absmax2,
                                       .offset = f->offset,
                                       .block = (int)f->h.block};
        CHECK_OK(pb_nf4_dequantize(ctx, &a));
        if (fnv(w, f->h.n * sizeof *w) != f->sums[nested])
            fail_msg("%s, %s: dequantised values differ from bitsandbytes'%s", f->h.name, ctx->impl,
                     nested ? " (nested)" : "");
        a.w = half, a.dtype = PB_BF16;
        CHECK_OK(pb_nf4_dequantize(ctx, &a));
        for (size_t i = 0; i < f->h.n; i++) assert_int_equal(half[i], pb_f32_to_bf16(w[i]));
    }
    free(w), free(half);
}

static bool here(const char *impl)
{
    for (const pb_impl *i = pb_op_nf4_quantize.impls[PB_CPU]; i->name; i++)
        if (strcmp(i->name, impl) == 0) return !i->available || i->available();
    return false;
}

static void same_bytes_as_bitsandbytes(void **state)
{
    pb_ctx *ctx = *state;
    reader r = open_fixtures();
    float *code = take(&r, 256 * sizeof *code), own[256];
    int records = 0;
    pb_dynamic_map(true, own);
    assert_memory_equal(own, code, sizeof own);
    for (; r.at < r.size; records++) {
        record f = next_record(&r);
        for (size_t k = 0; k < sizeof impls / sizeof *impls; k++) {
            if (!here(impls[k])) continue;
            ctx->impl = impls[k];
            check_quantize(ctx, &f, code);
            check_dequantize(ctx, &f, code);
        }
        drop(&f);
    }
    ctx->impl = NULL;
    assert_int_equal(records, 24);
    free(code), free(r.bytes);
}

/* ---- identities that follow from the definition of NF4 ------------------------------------------- */

enum { N = 1 << 20 };

static void representable_values_are_restored(void **state)
{
    static uint8_t q[N / 2], again[N / 2];
    static float w[N], absmax[N / 32], absmax_again[N / 32];
    for (int block = 32; block <= 4096; block *= 2) {
        for (int i = 0; i < N / 2; i++) q[i] = (uint8_t)(pb_uniform(1, (uint64_t)i) * 256);
        for (int j = 0; j < N / block; j++) {
            q[j * block / 2] |= 0xf0; /* code 15 is level 1, so the block's largest value equals absmax */
            absmax[j] = (float)(0.01 + pb_uniform(2, (uint64_t)j));
        }
        CHECK_OK(pb_nf4_dequantize(
            *state, &(pb_nf4_dequantize_args){.q = q, .scales = {.absmax = absmax, .block = block}, .w = w, .n = N}));
        CHECK_OK(pb_nf4_quantize(
            *state, &(pb_nf4_quantize_args){.w = w, .q = again, .absmax = absmax_again, .n = N, .block = block}));
        assert_memory_equal(again, q, sizeof q);
        assert_memory_equal(absmax_again, absmax, (size_t)(N / block) * sizeof *absmax);
    }
}

/* Compares the mean |error| on N(0,1) with the figures in bitsandbytes' tests (tests/test_functional.py), within
 * three standard errors. A block's error is proportional to its maximum, whose relative standard deviation is
 * about 0.16 at block size 64. */
static void error_equals_the_published_error(void **state)
{
    static const double published[] = {.067746, .072798, .076831, .080337, .083547, .08661, .089592, .092547};
    static float w[N], back[N], absmax[N / 32];
    static uint8_t q[N / 2];
    for (int i = 0; i < N; i += 2) { /* Box-Muller */
        double r = sqrt(-2 * log(1 - pb_uniform(3, (uint64_t)i))), u = 6.283185307179586 * pb_uniform(4, (uint64_t)i);
        w[i] = (float)(r * cos(u)), w[i + 1] = (float)(r * sin(u));
    }
    for (int k = 0; k < 8; k++) {
        double sum = 0;
        const int block = 32 << k;
        CHECK_OK(
            pb_nf4_quantize(*state, &(pb_nf4_quantize_args){.w = w, .q = q, .absmax = absmax, .n = N, .block = block}));
        CHECK_OK(pb_nf4_dequantize(
            *state,
            &(pb_nf4_dequantize_args){.q = q, .scales = {.absmax = absmax, .block = block}, .w = back, .n = N}));
        for (int i = 0; i < N; i++) sum += fabs((double)w[i] - (double)back[i]);
        CHECK_NEAR(sum / N, published[k], 3 * 0.16 * published[k] / sqrt((double)(N / block)));
    }
}

static void zeros_stay_zero(void **state)
{
    float w[96] = {0}, back[96], absmax[3] = {9, 9, 9};
    uint8_t q[48];
    memset(q, 0x55, sizeof q);
    w[0] = 1; /* only the first block has a nonzero value */
    CHECK_OK(pb_nf4_quantize(*state, &(pb_nf4_quantize_args){.w = w, .q = q, .absmax = absmax, .n = 96, .block = 32}));
    assert_int_equal(q[0], 0xf7);
    for (int i = 1; i < 48; i++) assert_int_equal(q[i], i < 16 ? 0x77 : 0);
    CHECK_OK(pb_nf4_dequantize(
        *state, &(pb_nf4_dequantize_args){.q = q, .scales = {.absmax = absmax, .block = 32}, .w = back, .n = 96}));
    for (int i = 0; i < 96; i++) CHECK_NEAR(back[i], w[i], 0);
}

/* The map is code[i] = (i-127)/128, with steps of 1/128, and absmax is 2 plus or minus an odd number of half steps.
 * Then offset is 2, absmax2 is 1, and each of these scales is a tie between two entries. */
static void ties_of_the_second_level_take_the_even_entry(void **state)
{
    enum { BLOCK = 32, BLOCKS = 256 };
    pb_ctx *ctx = *state;
    static float w[BLOCKS * BLOCK];
    float code[256], absmax[BLOCKS], absmax2, offset;
    uint8_t q[BLOCKS * BLOCK / 2], absmax_q[BLOCKS];
    for (int i = 0; i < 256; i++) {
        const float half_step = ((float)(i / 2) + 0.5f) / 128;
        code[i] = (float)(i - 127) / 128;
        w[(size_t)i * BLOCK] = i < 2 ? (i ? 3 : 1) : 2 + (i % 2 ? half_step : -half_step);
    }
    for (size_t k = 0; k < sizeof impls / sizeof *impls; k++) {
        if (!here(impls[k])) continue;
        ctx->impl = impls[k];
        CHECK_OK(pb_nf4_quantize(ctx, &(pb_nf4_quantize_args){.w = w,
                                                              .q = q,
                                                              .absmax = absmax,
                                                              .code = code,
                                                              .absmax_q = absmax_q,
                                                              .absmax2 = &absmax2,
                                                              .offset = &offset,
                                                              .n = BLOCKS * BLOCK,
                                                              .block = BLOCK}));
        CHECK_NEAR(offset, 2, 0);
        CHECK_NEAR(absmax2, 1, 0);
        for (int i = 2; i < BLOCKS; i++) {
            const int below = (int)floorf((absmax[i] - 2) * 128) + 127; /* a tie of entries below and below+1 */
            assert_int_equal(absmax_q[i], below < 0 ? 0 : below + below % 2);
        }
    }
    ctx->impl = NULL;
}

/* Scaling the weights by a power of two is exact in every step. So the codes do not change, and the scales are
 * multiplied exactly. */
static void scaling_the_weights_changes_only_the_scales(void **state)
{
    enum { M = 1000 };
    float w[M], absmax[2][16], absmax2[2], offset[2], code[256];
    uint8_t q[2][M / 2], absmax_q[2][16];
    pb_dynamic_map(true, code);
    for (int k = 0; k < 2; k++) {
        for (uint64_t i = 0; i < M; i++) w[i] = (float)ldexp(pb_uniform(5, i) - 0.5, k ? -7 : 0);
        CHECK_OK(pb_nf4_quantize(*state, &(pb_nf4_quantize_args){.w = w,
                                                                 .q = q[k],
                                                                 .absmax = absmax[k],
                                                                 .code = code,
                                                                 .absmax_q = absmax_q[k],
                                                                 .absmax2 = &absmax2[k],
                                                                 .offset = &offset[k],
                                                                 .n = M,
                                                                 .block = 64}));
    }
    assert_memory_equal(q[0], q[1], sizeof q[0]);
    assert_memory_equal(absmax_q[0], absmax_q[1], 16);
    for (int j = 0; j < 16; j++) CHECK_NEAR(absmax[1][j], ldexp((double)absmax[0][j], -7), 0);
    CHECK_NEAR(offset[1], ldexp((double)offset[0], -7), 0);
    CHECK_NEAR(absmax2[1], ldexp((double)absmax2[0], -7), 0);
}

static void bad_arguments_are_named(void **state)
{
    float w[64] = {0}, absmax[2];
    uint8_t q[32] = {0};
    pb_nf4_quantize_args a = {.w = w, .q = q, .absmax = absmax, .n = 64, .block = 48};
    CHECK_FAILS(pb_nf4_quantize(*state, &a), PB_EINVAL, "block=48");
    a.block = 16;
    CHECK_FAILS(pb_nf4_quantize(*state, &a), PB_EINVAL, "block=16");
    a.block = 8192;
    CHECK_FAILS(pb_nf4_quantize(*state, &a), PB_EINVAL, "block=8192");
    a.block = 64, a.code = w;
    CHECK_FAILS(pb_nf4_quantize(*state, &a), PB_EINVAL, "all of code");
    a.code = NULL, a.w = NULL;
    CHECK_FAILS(pb_nf4_quantize(*state, &a), PB_EINVAL, "NULL");
    pb_nf4_dequantize_args d = {.q = q, .w = w, .n = 64, .scales = {.block = 64}};
    CHECK_FAILS(pb_nf4_dequantize(*state, &d), PB_EINVAL, "need absmax");
    d.scales = (pb_nf4_scales){.absmax = absmax, .block = 0};
    CHECK_FAILS(pb_nf4_dequantize(*state, &d), PB_EINVAL, "block=0");
    d.scales.block = 64, d.q = NULL;
    CHECK_FAILS(pb_nf4_dequantize(*state, &d), PB_EINVAL, "NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes_as_bitsandbytes),
        cmocka_unit_test(representable_values_are_restored),
        cmocka_unit_test(error_equals_the_published_error),
        cmocka_unit_test(zeros_stay_zero),
        cmocka_unit_test(scaling_the_weights_changes_only_the_scales),
        cmocka_unit_test(bad_arguments_are_named),
        cmocka_unit_test(ties_of_the_second_level_take_the_even_entry),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
