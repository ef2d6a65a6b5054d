/* dynmask_attention_test.c - compares dynamic-mask attention with its definition under a mask, in double precision: o,
 * lse, dq, dk, dv and dbias each by itself, for lengths around tile boundaries, head widths and group sizes, kinds of
 * list, and biases of 1e4. Tests with every implementation. What NaN, empty lists, packed rows, batch rows and threads
 * must not change is in tests/kernels/dynmask_traps_test.c. */
#include "kernels/dynmask_attention/dynmask_attention.h"

#include "kernels/attention/attention.h"
#include "kernels/dynmask_attention/lists.h"
#include "tests/kernels/dynmask_problem.h"

/* ---- comparison with the definition ------------------------------------------------------------------------- */

/* Fails unless both norms of the error of each output are within the tolerance; a NaN fails. */
static void check_case(pb_ctx *ctx, const sizes *z, enum pb_dynmask_lists kind, float offset, pb_dtype dtype)
{
    problem p = problem_make(z, dtype);
    for (size_t e = 0; e < problem_biases(&p); e++) p.bias[e] += e % 3 ? offset : -offset;
    CHECK_OK(pb_dynmask_lists_fill(kind, z->B, z->S_kv, z->K, z->keep, p.list, p.until));
    p.L = pb_dynmask_lists_size(kind, z->S_kv, z->keep);
    problem_run(ctx, &p);
    problem_check(&p, dtype == PB_BF16 ? 6e-3 : offset > 0 ? 2e-3 : 4e-6);
    problem_drop(&p);
}

/* Queries and keys around the tiles of 64 and 128, fewer and more queries than keys, head widths from 32 to 256, groups
 * of 1, 2, 4, 7, 8 and all heads. */
static const sizes shapes[] = {
    {.B = 2, .S = 1, .S_kv = 1, .H = 2, .K = 1, .D = 32, .keep = 4},
    {.B = 1, .S = 63, .S_kv = 64, .H = 2, .K = 2, .D = 40, .keep = 9},
    {.B = 2, .S = 64, .S_kv = 63, .H = 4, .K = 1, .D = 64, .keep = 20},
    {.B = 1, .S = 65, .S_kv = 127, .H = 7, .K = 1, .D = 80, .keep = 33},
    {.B = 1, .S = 128, .S_kv = 128, .H = 8, .K = 1, .D = 32, .keep = 64},
    {.B = 1, .S = 127, .S_kv = 129, .H = 6, .K = 3, .D = 96, .keep = 16},
    {.B = 1, .S = 129, .S_kv = 191, .H = 4, .K = 2, .D = 128, .keep = 70},
    {.B = 1, .S = 191, .S_kv = 65, .H = 3, .K = 3, .D = 32, .keep = 500},
    {.B = 1, .S = 1, .S_kv = 257, .H = 2, .K = 1, .D = 192, .keep = 130},
    {.B = 1, .S = 70, .S_kv = 257, .H = 2, .K = 1, .D = 256, .keep = 140},
    {.B = 3, .S = 257, .S_kv = 257, .H = 2, .K = 1, .D = 32, .keep = 31},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void every_output_equals_the_definition(void **state)
{
    for (int s = 0; s < SHAPES; s++) check_case(*state, &shapes[s], PB_LISTS_EXACT, 0, PB_F32);
}

static void every_kind_of_list_is_attended_to(void **state)
{
    static const int which[] = {1, 4, 6, 10};
    for (int kind = PB_LISTS_UNION; kind <= PB_LISTS_BLOCKS; kind++)
        for (size_t s = 0; s < sizeof which / sizeof *which; s++)
            check_case(*state, &shapes[which[s]], (enum pb_dynmask_lists)kind, 0, PB_F32);
}

static void bf16_tensors_are_near_the_definition(void **state)
{
    for (int s = 0; s < SHAPES; s += 3) check_case(*state, &shapes[s], PB_LISTS_EXACT, 0, PB_BF16);
}

/* Biases around 1e4 and -1e4: e^1e4 overflows, so the maximum of score and bias must be subtracted. At 1e4 a score has
 * only 10 fractional bits in f32. */
static void large_biases_stay_finite(void **state)
{
    check_case(*state, &shapes[4], PB_LISTS_EXACT, 1e4, PB_F32);
    check_case(*state, &shapes[5], PB_LISTS_UNION, 1e4, PB_F32);
}

/* A key whose bias is -inf is not attended to, though its list names it; queries 0 to 4 then have no key. */
static void a_bias_of_minus_infinity_hides_a_key(void **state)
{
    const sizes z = {.B = 1, .S = 90, .S_kv = 90, .H = 4, .K = 2, .D = 32, .keep = 90};
    problem p = problem_make(&z, PB_F32);
    problem_list_all(&p);
    for (int j = 0; j < 180; j++)
        if (j % 90 < 5 || j % 7 == 0) p.bias[j] = -INFINITY;
    problem_run(*state, &p);
    problem_check(&p, 4e-6);
    for (int h = 0; h < 4; h++) assert_true(p.lse[h * 90 + 4] == -INFINITY && isfinite(p.lse[h * 90 + 5]));
    problem_drop(&p);
}

/* Ten queries after all listed keys, whose biases are 1e4: no key is masked, but vectors and tiles have room for more
 * than ten queries, and e^1e4 times 0 would be NaN there. */
static void vectors_without_queries_add_nothing(void **state)
{
    const sizes z = {.B = 1, .S = 10, .S_kv = 200, .H = 2, .K = 1, .D = 32, .keep = 100};
    problem p = problem_make(&z, PB_F32);
    problem_list_all(&p);
    for (int j = 0; j < 200; j++) {
        p.bias[j] += 1e4f;
        if (j >= 100) p.list[j] = -1;
    }
    problem_run(*state, &p);
    problem_check(&p, 2e-3);
    problem_drop(&p);
}

/* ---- properties --------------------------------------------------------------------------------------------- */

/* A softmax does not change when a constant is added to all scores of a query: lse grows by it, and the biases of a
 * head have gradients whose sum is 0. */
static void a_constant_bias_only_shifts_lse(void **state)
{
    const sizes z = {.B = 2, .S = 100, .S_kv = 100, .H = 6, .K = 2, .D = 48, .keep = 25};
    problem p = problem_make(&z, PB_F32), shifted = problem_make(&z, PB_F32);
    for (int e = 0; e < 400; e++) shifted.bias[e] = p.bias[e] + 3;
    problem_list_exact(&p), problem_list_exact(&shifted);
    problem_run(*state, &p), problem_run(*state, &shifted);
    problem_near("o", p.o, shifted.o, 2 * 100 * 6 * 48, 1e-6);
    problem_near("dv", p.dv, shifted.dv, 2 * 100 * 2 * 48, 1e-6);
    for (int e = 0; e < 1200; e++) CHECK_NEAR(shifted.lse[e], p.lse[e] + 3, 1e-5);
    for (int head = 0; head < 4; head++) {
        double sum = 0, size = 0;
        for (int j = 0; j < 100; j++)
            sum += (double)p.dbias[head * 100 + j], size += fabs((double)p.dbias[head * 100 + j]);
        assert_true(size > 1);
        CHECK_NEAR(sum, 0, 1e-5 * size);
    }
    problem_drop(&p), problem_drop(&shifted);
}

/* Dense attention over D + 1 elements, for problems in f32 with S = S_kv. */
typedef struct dense {
    float *q, *k, *v, *dO, *o, *lse, *dq, *dk, *dv;
} dense;

/* Copies rows of D elements to rows of D + 1, of which the last is `last`. */
static float *widen(const float *x, size_t rows, int D, float last)
{
    float *y = malloc(rows * (D + 1) * sizeof *y);
    assert_non_null(y);
    for (size_t e = 0; e < rows * (D + 1); e++)
        y[e] = e % (D + 1) < (size_t)D ? x[e / (D + 1) * D + e % (D + 1)] : last;
    return y;
}

static dense dense_run(pb_ctx *ctx, const problem *p)
{
    const sizes *z = &p->z;
    const int D = z->D + 1;
    const size_t T = (size_t)z->B * z->S, n = (size_t)z->H * D, m = (size_t)z->K * D;
    dense x = {widen(p->q, T * z->H, z->D, 1 / p->scale), widen(p->k, T * z->K, z->D, 0),
               widen(p->v, T * z->K, z->D, 0), widen(p->dO, T * z->H, z->D, 0)};
    x.o = malloc(T * n * 4), x.lse = malloc(T * z->H * 4), x.dq = malloc(T * n * 4);
    x.dk = malloc(T * m * 4), x.dv = malloc(T * m * 4);
    assert_true(x.o && x.lse && x.dq && x.dk && x.dv);
    for (size_t r = 0; r < T * z->K; r++) /* row (b,j) of kv head k */
        x.k[r * D + z->D] = p->bias[(r / z->K / z->S * z->K + r % z->K) * z->S + r / z->K % z->S];
    pb_attention_fwd_args f = {.q = x.q, .k = x.k, .v = x.v, .o = x.o, .lse = x.lse, .B = z->B, .S = z->S, .H = z->H};
    f.K = z->K, f.D = D, f.ldq = f.ldo = n, f.ldk = f.ldv = m, f.scale = p->scale, f.causal = true;
    pb_attention_bwd_args g = {.dO = x.dO, .q = x.q, .k = x.k, .v = x.v, .o = x.o, .lse = x.lse, .B = z->B, .S = z->S};
    g.dq = x.dq, g.dk = x.dk, g.dv = x.dv, g.H = z->H, g.K = z->K, g.D = D, g.scale = p->scale, g.causal = true;
    g.lddo = g.ldq = g.ldo = g.lddq = n, g.ldk = g.ldv = g.lddk = g.lddv = m;
    CHECK_OK(pb_attention_fwd(ctx, &f));
    CHECK_OK(pb_attention_bwd(ctx, &g));
    return x;
}

static void check_dense(pb_ctx *ctx, const problem *p)
{
    const sizes *z = &p->z;
    const size_t T = (size_t)z->B * z->S;
    dense x = dense_run(ctx, p);
    const struct {
        const char *name;
        const float *wide, *narrow;
        int heads;
    } t[] = {{"o", x.o, p->o, z->H}, {"dq", x.dq, p->dq, z->H}, {"dk", x.dk, p->dk, z->K}, {"dv", x.dv, p->dv, z->K}};
    for (int i = 0; i < 4; i++) {
        if (!t[i].wide) abort(); /* for clang-tidy, which does not know that assertions do not return */
        float *same = widen(t[i].narrow, T * t[i].heads, z->D, 0);
        for (size_t r = 0; r < T * t[i].heads; r++) /* the last element is compared below, or has no counterpart */
            same[r * (z->D + 1) + z->D] = t[i].wide[r * (z->D + 1) + z->D];
        problem_near(t[i].name, t[i].wide, same, T * t[i].heads * (z->D + 1), 4e-6);
        free(same);
    }
    problem_near("lse", x.lse, p->lse, T * z->H, 1e-6);
    for (size_t r = 0; r < T * z->K; r++) {
        const size_t bias = (r / z->K / z->S * z->K + r % z->K) * z->S + r / z->K % z->S;
        CHECK_NEAR(p->dbias[bias], x.dk[r * (z->D + 1) + z->D], 2e-5);
    }
    float *all[] = {x.q, x.k, x.v, x.dO, x.o, x.lse, x.dq, x.dk, x.dv};
    for (int i = 0; i < 9; i++) free(all[i]);
}

/* With every key listed, dense attention over D + 1 elements computes the same: the last element of q is 1 / scale,
 * that of k the bias and that of v 0; then the last element of dk is dbias. */
static void with_every_key_it_equals_dense_attention(void **state)
{
    const sizes z = {.B = 2, .S = 150, .S_kv = 150, .H = 6, .K = 2, .D = 40, .keep = 150};
    problem p = problem_make(&z, PB_F32);
    problem_list_all(&p);
    problem_run(*state, &p);
    check_dense(*state, &p);
    problem_list_exact(&p); /* keep = S: the same set */
    problem_run(*state, &p);
    check_dense(*state, &p);
    problem_drop(&p);
}

/* ---- errors ------------------------------------------------------------------------------------------------- */

static void test_errors(void **state)
{
    const sizes z = {.B = 1, .S = 4, .S_kv = 6, .H = 4, .K = 2, .D = 8, .keep = 3};
    problem p = problem_make(&z, PB_F32);
    problem_list_exact(&p);
    problem_run(*state, &p);
#define REFUSED(pass, change, text)                                                                                    \
    do {                                                                                                               \
        pb_dynmask_attention_##pass##_args a = problem_##pass(&p);                                                     \
        a.change;                                                                                                      \
        CHECK_FAILS(pb_dynmask_attention_##pass(*state, &a), PB_EINVAL, text);                                         \
    } while (0)
#define REFUSED_BY_BOTH(change, text)                                                                                  \
    do {                                                                                                               \
        REFUSED(fwd, change, text);                                                                                    \
        REFUSED(bwd, change, text);                                                                                    \
    } while (0)
    REFUSED_BY_BOTH(B = 0, "B=0");
    REFUSED_BY_BOTH(S = 0, "S=0");
    REFUSED_BY_BOTH(S_kv = -1, "S_kv=-1");
    REFUSED_BY_BOTH(L = 0, "L=0");
    REFUSED_BY_BOTH(keep = 0, "keep=0");
    REFUSED_BY_BOTH(D = 0, "D=0");
    REFUSED_BY_BOTH(H = 3, "H=3 K=2");
    REFUSED_BY_BOTH(K = 0, "K=0");
    REFUSED_BY_BOTH(scale = NAN, "scale");
    REFUSED_BY_BOTH(ldq = 31, "tokens of q are 31");
    REFUSED_BY_BOTH(ldk = 15, "tokens of k are 15");
    REFUSED_BY_BOTH(ldv = 15, "tokens of v are 15");
    REFUSED_BY_BOTH(ldo = 31, "tokens of o are 31");
    REFUSED_BY_BOTH(bias = NULL, "bias is NULL");
    REFUSED_BY_BOTH(list = NULL, "list is NULL");
    REFUSED_BY_BOTH(until = NULL, "until is NULL");
    REFUSED_BY_BOTH(lse = NULL, "lse is NULL");
    REFUSED(bwd, dO = NULL, "do is NULL");
    REFUSED(bwd, dbias = NULL, "dbias is NULL");
    REFUSED(bwd, lddq = 31, "tokens of dq are 31");
    REFUSED(bwd, lddk = 15, "tokens of dk are 15");
    REFUSED(bwd, lddv = 15, "tokens of dv are 15");
    problem_drop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_output_equals_the_definition),
        cmocka_unit_test(every_kind_of_list_is_attended_to),
        cmocka_unit_test(bf16_tensors_are_near_the_definition),
        cmocka_unit_test(large_biases_stay_finite),
        cmocka_unit_test(vectors_without_queries_add_nothing),
        cmocka_unit_test(a_bias_of_minus_infinity_hides_a_key),
        cmocka_unit_test(a_constant_bias_only_shifts_lse),
        cmocka_unit_test(with_every_key_it_equals_dense_attention),
        cmocka_unit_test(test_errors),
    };
    return test_every_impl(&pb_op_dynmask_attention_fwd, tests, sizeof tests / sizeof *tests);
}
