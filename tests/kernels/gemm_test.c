/* gemm_test.c - compares the CPU matrix product with plain loops in double precision, for every instruction set of this
 * machine: operands in every type and orientation, sizes around every boundary of its blocking, several threads, NaN.
 *
 * Dense operands hold small integers. Every sum is then exact in f32 and must equal the expected one bit for bit; if C
 * is bf16, it must equal the exact sum rounded once. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/engine/bind.h"
#include "kernels/cpu/gemm.h"
#include "kernels/nf4/nf4.h"
#include "tests/test.h"

enum { PAD = 3, GUARD = 64, MANY = 2000000 };
enum { SERIAL = 1, ACCUMULATE = 2, SCALED = 4, BIAS = 8, TRANS_A = 16, TRANS_B = 32, BF16_A = 64, BF16_C = 128 };
enum { B_F32, B_BF16, B_NF4, B_NF4_DOUBLE, B_KINDS };

static const struct engine {
    const char *name;
    void (*run)(const pb_gemm *g);
    bool (*has)(void);
} engines[] = {
#define X(isa, can, ...) {#isa, pb_gemm_run_##isa, can},
    PB_ISA_MAP(X, )
#undef X
};
enum { ENGINES = sizeof engines / sizeof *engines };
static bool present(const struct engine *e) { return !e->has || e->has(); }

/* An operand and its element values. */
typedef struct operand {
    pb_mat m;
    double *value; /* [rows,cols] in the order of storage */
    void *data;
    pb_nf4_scales scales;
    float *absmax, *code, *absmax2, offset;
    uint8_t *absmax_q;
} operand;

typedef struct problem {
    pb_gemm g;
    operand a, b;
    float *bias;
    unsigned char *old, *c; /* [M,ldc] of c_dtype between guards; old: before the call, c: after it */
    size_t c_bytes;
    int flags, b_kind;
} problem;

static void *room(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(p);
    return p;
}

/* Allocates exactly `bytes`, so that the address sanitizer finds a read past the end. */
static void *exactly(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    assert_non_null(p);
    return p;
}

/* Returns an integer of -3..4 if `whole`, else a real number in [-1,1). The integers' mean is not 0, so long sums need
 * more bits than bf16 has. */
static double small(uint64_t seed, size_t i, bool whole)
{
    double u = pb_uniform(seed, i);
    return whole ? floor(8 * u) - 3 : 2 * u - 1;
}

static operand dense(size_t rows, size_t cols, pb_dtype t, bool trans, uint64_t seed, bool whole)
{
    const size_t ld = cols + PAD, n = rows ? (rows - 1) * ld + cols : 0;
    operand o = {.value = room(rows * cols * 8), .data = exactly(n * pb_dtype_size(t))};
    /* The gaps between rows are NaN, so that reading one makes the result NaN. */
    for (size_t i = 0; i < n; i++) pb_store(o.data, i, t, (double)NAN);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++) {
            pb_store(o.data, r * ld + c, t, small(seed, r * cols + c, whole));
            o.value[r * cols + c] = pb_load(o.data, r * ld + c, t);
        }
    o.m = (pb_mat){.p = o.data, .ld = ld, .dtype = t, .trans = trans};
    return o;
}

static operand nf4(size_t rows, size_t cols, bool trans, bool twice, uint64_t seed)
{
    const int block = 32;
    const size_t n = rows * cols, blocks = (n + block - 1) / block;
    operand o = {.value = room(n * 8), .data = exactly((n + 1) / 2), .offset = 1.5f};
    uint8_t *q = o.data;
    o.absmax = exactly(blocks * 4), o.absmax_q = exactly(blocks), o.code = exactly(1024);
    o.absmax2 = exactly((blocks + 255) / 256 * 4);
    for (size_t i = 0; i < blocks; i++) o.absmax[i] = (float)(1 + pb_uniform(seed + 1, i));
    for (size_t i = 0; i < blocks; i++) o.absmax_q[i] = (uint8_t)(256 * pb_uniform(seed + 2, i));
    for (size_t i = 0; i < (blocks + 255) / 256; i++) o.absmax2[i] = (float)(0.1 + 0.3 * pb_uniform(seed + 3, i));
    for (int i = 0; i < 256; i++) o.code[i] = (float)(i - 128) / 128;
    for (size_t i = 0; i < (n + 1) / 2; i++) q[i] = (uint8_t)(256 * pb_uniform(seed, i));
    for (size_t i = 0; i < n; i++) {
        const size_t j = i / block;
        const double plain = (double)o.absmax[j], coded = (double)o.code[o.absmax_q[j]] * (double)o.absmax2[j / 256];
        o.value[i] =
            (double)pb_nf4_level[i % 2 ? q[i / 2] & 15 : q[i / 2] >> 4] * (twice ? coded + (double)o.offset : plain);
    }
    o.m = (pb_mat){.p = q, .ld = cols, .trans = trans};
    return o;
}

static void drop_operand(operand *o)
{
    free(o->value), free(o->data), free(o->absmax), free(o->code), free(o->absmax2), free(o->absmax_q);
}

static problem make(int M, int N, int K, int flags, int b_kind, bool whole)
{
    const pb_dtype tc = flags & BF16_C ? PB_BF16 : PB_F32;
    const bool ta = flags & TRANS_A, tb = flags & TRANS_B;
    problem p = {.flags = flags, .b_kind = b_kind};
    p.a = dense(ta ? K : M, ta ? M : K, flags & BF16_A ? PB_BF16 : PB_F32, ta, 11, whole);
    p.b = b_kind >= B_NF4 ? nf4(tb ? N : K, tb ? K : N, tb, b_kind == B_NF4_DOUBLE, 13)
                          : dense(tb ? N : K, tb ? K : N, b_kind == B_BF16 ? PB_BF16 : PB_F32, tb, 17, whole);
    p.bias = room((size_t)N * 4);
    for (int i = 0; i < N; i++) p.bias[i] = (float)small(19, i, whole);
    p.g = (pb_gemm){.M = M, .N = N, .K = K, .a = p.a.m, .b = p.b.m, .ldc = (size_t)N + PAD, .c_dtype = tc};
    p.g.alpha = flags & SCALED ? -0.5f : 1;
    p.g.accumulate = flags & ACCUMULATE;
    p.g.bias = flags & BIAS ? p.bias : NULL;
    p.g.serial = flags & SERIAL;
    p.c_bytes = (size_t)M * p.g.ldc * pb_dtype_size(tc) + 2 * GUARD;
    p.old = room(p.c_bytes), p.c = room(p.c_bytes);
    memset(p.old, 0x5a, p.c_bytes);
    for (int r = 0; r < M; r++)
        for (int c = 0; c < N; c++)
            pb_store(p.old + GUARD, r * p.g.ldc + c, tc,
                     flags & ACCUMULATE ? small(23, (size_t)r * N + c, whole) : (double)NAN);
    p.g.c = p.c + GUARD;
    return p;
}

static void drop(problem *p)
{
    drop_operand(&p->a), drop_operand(&p->b);
    free(p->bias), free(p->old), free(p->c);
}

/* Computes the product with the implementation `e` for one instruction set. Guard bytes after the workspace must stay
 * unchanged. */
static void run(problem *p, const struct engine *e)
{
    const size_t n = pb_gemm_workspace(&p->g);
    unsigned char *ws = room(n + GUARD);
    memset(ws, 0xff, n + GUARD); /* poison: every float is NaN */
    memcpy(p->c, p->old, p->c_bytes);
    p->g.workspace = ws;
    if (p->b_kind >= B_NF4) {
        operand *o = &p->b;
        o->scales = p->b_kind == B_NF4 ? (pb_nf4_scales){.absmax = o->absmax, .block = 32}
                                       : (pb_nf4_scales){.absmax_q = o->absmax_q,
                                                         .code = o->code,
                                                         .absmax2 = o->absmax2,
                                                         .offset = &o->offset,
                                                         .block = 32};
        p->g.b.nf4 = &o->scales;
    }
    e->run(&p->g);
    for (int i = 0; i < GUARD; i++)
        if (ws[n + i] != 0xff) fail_msg("%s: wrote past its workspace of %zu bytes", e->name, n);
    free(ws);
}

/* Returns element (r,c) of the expected C. *size receives the sum of the magnitudes of its terms, to scale the
 * tolerance. */
static double expected(const problem *p, int r, int c, double *size)
{
    const pb_gemm *g = &p->g;
    double sum = 0, abs = 0, alpha = (double)g->alpha;
    for (int k = 0; k < g->K; k++) {
        double t = p->a.value[g->a.trans ? (size_t)k * g->M + r : (size_t)r * g->K + k] *
                   p->b.value[g->b.trans ? (size_t)c * g->K + k : (size_t)k * g->N + c];
        sum += t, abs += fabs(t);
    }
    sum *= alpha, abs *= fabs(alpha);
    if (g->accumulate) sum += pb_load(p->old + GUARD, r * g->ldc + c, g->c_dtype);
    if (g->bias) sum += (double)g->bias[c];
    *size = abs + 8;
    return sum;
}

static void check(const problem *p, const struct engine *e)
{
    const pb_gemm *g = &p->g;
    const size_t size = pb_dtype_size(g->c_dtype), all = (size_t)g->M * g->N;
    const size_t step = (double)all * g->K > MANY ? 1 + all / 997 : 1; /* large products: check a sample of elements */
    for (size_t n = 0; all && n * step < all + step; n++) {
        const size_t i = n * step < all ? n * step : all - 1;
        const int r = (int)(i / g->N), c = (int)(i % g->N);
        double abs, sum = expected(p, r, c, &abs), tol = p->b_kind >= B_NF4 ? 1e-6 * abs : 0, want = sum;
        if (g->c_dtype == PB_BF16) pb_store(&want, 0, PB_BF16, sum), want = pb_load(&want, 0, PB_BF16);
        if (g->c_dtype == PB_BF16 && tol > 0) tol += fabs(sum) / 128; /* one unit in the last place of bf16 */
        double got = pb_load(p->c + GUARD, r * g->ldc + c, g->c_dtype);
        if (!(fabs(got - want) <= tol))
            fail_msg("%s: M%d N%d K%d flags %#x b %d: C[%d][%d] = %.9g, want %.9g", e->name, g->M, g->N, g->K, p->flags,
                     p->b_kind, r, c, got, want);
    }
    for (size_t i = 0; i < p->c_bytes; i++) { /* the guards, and the gaps between rows, must be unchanged */
        const size_t at = i - GUARD;
        if (i >= GUARD && at < (size_t)g->M * g->ldc * size && at / size % g->ldc < (size_t)g->N) continue;
        if (p->c[i] != p->old[i]) fail_msg("%s: M%d N%d K%d: wrote outside C", e->name, g->M, g->N, g->K);
    }
}

static void check_all(int M, int N, int K, int flags, int b_kind)
{
    problem p = make(M, N, K, flags, b_kind, true);
    for (int e = 0; e < ENGINES; e++)
        if (present(&engines[e])) run(&p, &engines[e]), check(&p, &engines[e]);
    drop(&p);
}

/* ---- tests of whole products ------------------------------------------------------------------- */

static void every_combination_of_options(void **state)
{
    static const int dims[][3] = {{1, 1, 1}, {17, 35, 70}, {35, 17, 70}, {9, 35, 800}, {33, 3, 800}};
    (void)state;
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
        for (int flags = 0; flags < 256; flags++)
            for (int b = 0; b < B_KINDS; b++) check_all(dims[d][0], dims[d][1], dims[d][2], flags, b);
}

/* Tests every pair of M and N from a list of boundary sizes, with options that vary from case to case. several_blocks
 * tests larger products, which start threads. */
static void sizes_around_every_boundary(void **state)
{
    static const int m[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 14, 15, 16, 27, 28, 29, 57},
                     n[] = {1, 2, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 49, 63, 64, 65},
                     k[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 767, 768, 769, 1537};
    unsigned i = 0;
    (void)state;
    for (size_t a = 0; a < sizeof m / sizeof *m; a++)
        for (size_t b = 0; b < sizeof n / sizeof *n; b++)
            for (size_t c = 0; c < sizeof k / sizeof *k && m[a] * n[b] * k[c] < 1 << 19; c++, i++)
                check_all(m[a], n[b], k[c], (int)(i * 0x9e3779b1u >> 24), (int)(i % B_KINDS));
}

static void empty_products_touch_nothing(void **state)
{
    (void)state;
    check_all(0, 5, 3, 0, B_F32);
    check_all(5, 0, 3, 0, B_F32);
    check_all(0, 0, 0, SERIAL, B_F32);
}

/* Tests products that are larger than the largest cache blocks, serially and with one to three threads. */
static void several_blocks(void **state)
{
    (void)state;
    check_all(300, 310, 800, SERIAL | TRANS_B, B_F32);
    check_all(310, 300, 800, SERIAL | BF16_C | ACCUMULATE | BIAS, B_F32);
    check_all(1400, 1430, 1530, TRANS_B | BIAS, B_F32);
    check_all(1430, 1400, 780, TRANS_A | ACCUMULATE | SCALED, B_BF16);
    check_all(1100, 1200, 780, BF16_C | BF16_A | ACCUMULATE, B_BF16);
    check_all(1200, 1030, 780, BF16_C | TRANS_A | TRANS_B, B_NF4);
    check_all(5000, 17, 800, BF16_C, B_F32);
    check_all(9, 70000, 20, TRANS_B, B_NF4_DOUBLE);
    check_all(3, 3000, 1700, TRANS_B | BF16_C | ACCUMULATE | BIAS, B_BF16); /* packs nothing */
    check_all(1, 5000, 800, TRANS_B | SCALED, B_NF4);
}

static void threads_do_not_change_a_bit(void **state)
{
    static const int dims[][3] = {{256, 320, 1100}, {320, 256, 1100}, {1100, 16, 577},
                                  {33, 2000, 65},   {16, 1000, 600},  {2, 1000, 800}};
    static const int flags[] = {TRANS_B | BF16_C, TRANS_A, ACCUMULATE | BIAS | SCALED, BF16_C | BF16_A | ACCUMULATE};
    const int threads = omp_get_max_threads();
    (void)state;
    for (int e = 0; e < ENGINES; e++)
        for (int d = 0; d < 24 && present(&engines[e]); d++) {
            problem p =
                make(dims[d % 6][0], dims[d % 6][1], dims[d % 6][2], flags[d / 6], d % 2 ? B_BF16 : B_F32, false);
            unsigned char *first = room(p.c_bytes);
            for (int n = 0; n <= 3; n++) { /* 0: serial */
                p.g.serial = n == 0;
                omp_set_num_threads(n ? n : 1);
                run(&p, &engines[e]);
                if (n == 0) memcpy(first, p.c, p.c_bytes);
                else if (memcmp(first, p.c, p.c_bytes) != 0)
                    fail_msg("%s: case %d differs between serial and %d threads", engines[e].name, d, n);
            }
            omp_set_num_threads(threads);
            free(first);
            drop(&p);
        }
}

/* Several threads run serial products at the same time, as attention does. */
static void serial_products_in_parallel_threads(void **state)
{
    enum { TASKS = 8 };
    problem p[TASKS];
    (void)state;
    for (int e = 0; e < ENGINES; e++) {
        if (!present(&engines[e])) continue;
        for (int i = 0; i < TASKS; i++) p[i] = make(64 + i, 64, 64, SERIAL | (i % 2 ? TRANS_B : 0), B_F32, true);
#pragma omp parallel for num_threads(3) schedule(dynamic)
        for (int i = 0; i < TASKS; i++) run(&p[i], &engines[e]);
        for (int i = 0; i < TASKS; i++) check(&p[i], &engines[e]), drop(&p[i]);
    }
}

static bool is_nan_at(const problem *p, int r, int c)
{
    return isnan(pb_load(p->c + GUARD, r * p->g.ldc + c, p->g.c_dtype));
}

/* A NaN in row r of A makes every element of row r of C NaN, and no other element. A NaN in column c of B does the same
 * to column c of C. */
static void nan_reaches_its_row_or_column_only(void **state)
{
    static const int dims[][3] = {{15, 33, 17}, {33, 15, 600}, {31, 47, 1}, {57, 65, 33}};
    (void)state;
    for (int i = 0; i < 4 * 4 * 2 * ENGINES; i++) {
        const int *d = dims[i % 4], flags = i / 4 % 4 * TRANS_A | (i % 3 ? 0 : BF16_C), in_b = i / 16 % 2;
        const struct engine *e = &engines[i / 32];
        if (!present(e)) continue;
        problem p = make(d[0], d[1], d[2], flags, B_F32, true);
        const int line = in_b ? d[1] / 2 : d[0] / 2, k = d[2] / 2;
        const pb_mat *m = in_b ? &p.g.b : &p.g.a;
        ((float *)m->p)[m->trans == in_b ? line * m->ld + k : k * m->ld + line] = NAN;
        run(&p, e);
        for (int r = 0; r < d[0]; r++)
            for (int c = 0; c < d[1]; c++)
                if (is_nan_at(&p, r, c) != ((in_b ? c : r) == line))
                    fail_msg("%s: NaN in %c of M%d N%d K%d: C[%d][%d] is wrong", e->name, in_b ? 'B' : 'A', d[0], d[1],
                             d[2], r, c);
        drop(&p);
    }
}

static void best_engine_is_one_of_them(void **state)
{
    problem p = make(40, 50, 60, 0, B_F32, true);
    (void)state;
    run(&p, &(struct engine){"best", pb_gemm_best, NULL});
    check(&p, &(struct engine){"best", pb_gemm_best, NULL});
    drop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_of_options),       cmocka_unit_test(sizes_around_every_boundary),
        cmocka_unit_test(empty_products_touch_nothing),       cmocka_unit_test(several_blocks),
        cmocka_unit_test(threads_do_not_change_a_bit),        cmocka_unit_test(serial_products_in_parallel_threads),
        cmocka_unit_test(nan_reaches_its_row_or_column_only), cmocka_unit_test(best_engine_is_one_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
