/* dynmask_problem.h - tensors of one forward and one backward call of dynmask_attention, without padding between
 * tokens; for the tests of the op, which compare them with dynmask_oracle.h. Inputs are drawn, outputs hold NaN. */
#ifndef PB_DYNMASK_PROBLEM_H
#define PB_DYNMASK_PROBLEM_H
#include "kernels/dynmask_attention/dynmask_attention.h"
#include "kernels/dynmask_keys/dynmask_keys.h"
#include "tests/kernels/dynmask_oracle.h"
#include "tests/test.h"

typedef struct sizes {
    int B, S, S_kv, H, K, D, keep;
} sizes;

typedef struct problem {
    sizes z;
    int L; /* slots of each list; the lists have room for S_kv */
    float scale;
    pb_dtype dtype;
    void *q, *k, *v, *dO, *o, *dq, *dk, *dv; /* dtype */
    float *bias, *lse, *dbias;
    int32_t *list, *until; /* [B,K,S_kv] at most; all slots are unused at first */
} problem;

static inline size_t problem_queries(const problem *p) { return (size_t)p->z.B * p->z.S * p->z.H * p->z.D; }
static inline size_t problem_keys(const problem *p) { return (size_t)p->z.B * p->z.S_kv * p->z.K * p->z.D; }
static inline size_t problem_biases(const problem *p) { return (size_t)p->z.B * p->z.S_kv * p->z.K; }
static inline size_t problem_rows(const problem *p) { return (size_t)p->z.B * p->z.S * p->z.H; }

static inline void *problem_unwritten(size_t n, pb_dtype t)
{
    void *p = malloc(n * pb_dtype_size(t) + 1);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++) pb_store(p, i, t, (double)NAN);
    return p;
}

static inline void problem_poison(problem *p)
{
    void **const q[] = {&p->o, &p->dq}, **const k[] = {&p->dk, &p->dv};
    float **const f[] = {&p->lse, &p->dbias};
    for (int i = 0; i < 2; i++) {
        free(*q[i]), free(*k[i]), free(*f[i]);
        *q[i] = problem_unwritten(problem_queries(p), p->dtype);
        *k[i] = problem_unwritten(problem_keys(p), p->dtype);
        *f[i] = problem_unwritten(i ? problem_biases(p) : problem_rows(p), PB_F32);
    }
}

/* The scale is not a power of two and not 1: a gradient that has it once too often or too rarely is wrong. */
static inline problem problem_make(const sizes *z, pb_dtype dtype)
{
    problem p = {.z = *z, .L = z->S_kv, .scale = 1.3f / sqrtf((float)z->D), .dtype = dtype};
    p.q = test_values(problem_queries(&p), dtype, 21), p.dO = test_values(problem_queries(&p), dtype, 22);
    p.k = test_values(problem_keys(&p), dtype, 23), p.v = test_values(problem_keys(&p), dtype, 24);
    p.bias = test_values(problem_biases(&p), PB_F32, 25);
    p.list = malloc(problem_biases(&p) * sizeof *p.list), p.until = malloc(problem_biases(&p) * sizeof *p.until);
    assert_true(p.list && p.until);
    for (size_t i = 0; i < problem_biases(&p); i++) p.list[i] = -1, p.until[i] = 0;
    problem_poison(&p);
    return p;
}

static inline void problem_drop(problem *p)
{
    void *const all[] = {p->q,  p->k,    p->v,   p->dO,    p->o,    p->dq,   p->dk,
                         p->dv, p->bias, p->lse, p->dbias, p->list, p->until};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* ---- lists ------------------------------------------------------------------------------------------------- */

/* Every query attends to every key up to it. */
static inline void problem_list_all(problem *p)
{
    p->L = p->z.S_kv;
    for (size_t i = 0; i < problem_biases(p); i++) p->list[i] = (int)(i % p->L), p->until[i] = p->L;
}

/* The lists that dynmask_keys makes of the biases in exact mode. */
static inline void problem_list_exact(problem *p)
{
    pb_ctx ctx;
    p->L = p->z.S_kv;
    CHECK_OK(pb_ctx_open(&ctx, PB_CPU, 0));
    CHECK_OK(pb_dynmask_keys_build(&ctx, &(pb_dynmask_keys_build_args){.bias = p->bias,
                                                                       .list = p->list,
                                                                       .until = p->until,
                                                                       .B = p->z.B,
                                                                       .S = p->z.S_kv,
                                                                       .K = p->z.K,
                                                                       .L = p->L,
                                                                       .keep = p->z.keep,
                                                                       .exact = true}));
    pb_ctx_close(&ctx);
}

/* ---- running the op ------------------------------------------------------------------------------------------ */

#define PROBLEM_SHARED(p)                                                                                              \
    .q = (p)->q, .k = (p)->k, .v = (p)->v, .bias = (p)->bias, .list = (p)->list, .until = (p)->until, .B = (p)->z.B,   \
    .S = (p)->z.S, .S_kv = (p)->z.S_kv, .H = (p)->z.H, .K = (p)->z.K, .D = (p)->z.D, .L = (p)->L, .keep = (p)->z.keep, \
    .ldq = (size_t)(p)->z.H * (p)->z.D, .ldo = (size_t)(p)->z.H * (p)->z.D, .ldk = (size_t)(p)->z.K * (p)->z.D,        \
    .ldv = (size_t)(p)->z.K * (p)->z.D, .scale = (p)->scale, .dtype = (p)->dtype, .o = (p)->o, .lse = (p)->lse

static inline pb_dynmask_attention_fwd_args problem_fwd(const problem *p)
{
    return (pb_dynmask_attention_fwd_args){PROBLEM_SHARED(p)};
}

static inline pb_dynmask_attention_bwd_args problem_bwd(const problem *p)
{
    const size_t n = (size_t)p->z.H * p->z.D, m = (size_t)p->z.K * p->z.D;
    return (pb_dynmask_attention_bwd_args){PROBLEM_SHARED(p), .dO = p->dO, .dq = p->dq, .dk = p->dk, .dv = p->dv,
                                           .dbias = p->dbias, .lddo = n,   .lddq = n,   .lddk = m,   .lddv = m};
}

static inline void *problem_copy(pb_ctx *ctx, const void *host, size_t bytes)
{
    void *device;
    CHECK_OK(pb_alloc(ctx, bytes, &device));
    CHECK_OK(pb_upload(ctx, device, host, bytes));
    return device;
}

/* Returns a problem whose tensors are copies in device memory. */
static inline problem problem_to_device(pb_ctx *ctx, const problem *p)
{
    const size_t e = pb_dtype_size(p->dtype), n = problem_queries(p) * e, m = problem_keys(p) * e;
    const size_t biases = problem_biases(p) * 4, rows = problem_rows(p) * 4;
    problem d = *p;
    d.q = problem_copy(ctx, p->q, n), d.dO = problem_copy(ctx, p->dO, n), d.o = problem_copy(ctx, p->o, n);
    d.dq = problem_copy(ctx, p->dq, n), d.k = problem_copy(ctx, p->k, m), d.v = problem_copy(ctx, p->v, m);
    d.dk = problem_copy(ctx, p->dk, m), d.dv = problem_copy(ctx, p->dv, m);
    d.bias = problem_copy(ctx, p->bias, biases), d.dbias = problem_copy(ctx, p->dbias, biases);
    d.lse = problem_copy(ctx, p->lse, rows);
    d.list = problem_copy(ctx, p->list, biases), d.until = problem_copy(ctx, p->until, biases);
    return d;
}

/* Copies the outputs from device memory and frees it. */
static inline void problem_from_device(pb_ctx *ctx, problem *p, const problem *d)
{
    const size_t e = pb_dtype_size(p->dtype), n = problem_queries(p) * e, m = problem_keys(p) * e;
    void *const all[] = {d->q,  d->k,    d->v,   d->dO,    d->o,    d->dq,   d->dk,
                         d->dv, d->bias, d->lse, d->dbias, d->list, d->until};
    CHECK_OK(pb_download(ctx, p->o, d->o, n));
    CHECK_OK(pb_download(ctx, p->lse, d->lse, problem_rows(p) * sizeof(float)));
    CHECK_OK(pb_download(ctx, p->dq, d->dq, n));
    CHECK_OK(pb_download(ctx, p->dk, d->dk, m));
    CHECK_OK(pb_download(ctx, p->dv, d->dv, m));
    CHECK_OK(pb_download(ctx, p->dbias, d->dbias, problem_biases(p) * sizeof(float)));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) pb_release(ctx, all[i]);
}

/* Poisons the outputs, then runs both passes on the tensors, or on copies of them in the memory of a GPU. */
static inline void problem_run(pb_ctx *ctx, problem *p)
{
    problem_poison(p);
    const problem on = ctx->id == PB_CPU ? *p : problem_to_device(ctx, p);
    const pb_dynmask_attention_fwd_args f = problem_fwd(&on);
    const pb_dynmask_attention_bwd_args b = problem_bwd(&on);
    CHECK_OK(pb_dynmask_attention_fwd(ctx, &f));
    CHECK_OK(pb_dynmask_attention_bwd(ctx, &b));
    if (ctx->id != PB_CPU) problem_from_device(ctx, p, &on);
}

/* ---- comparisons --------------------------------------------------------------------------------------------- */

static inline void problem_near(const char *what, const void *want, const void *got, size_t n, double tol)
{
    const pb_diff d = pb_diff_arrays(want, got, n, PB_F32);
    if (!pb_diff_ok(&d, tol)) fail_msg("%s: rel %g, largest %g, want %g", what, d.rel, d.max, tol);
}

/* Compares an output with what the oracle says. Fails on NaN; -inf must meet -inf, in lse. */
static inline void problem_compare(const problem *p, const char *what, const double *want, const void *got, pb_dtype t,
                                   size_t n, double tol)
{
    double diff = 0, norm = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        const double g = pb_load(got, i, t), w = want[i];
        if (w == g) { /* also -inf */
            norm += isfinite(w) ? w * w : 0;
            continue;
        }
        if (!isfinite(g) || !isfinite(w)) fail_msg("%s[%zu] is %g, want %g", what, i, g, w);
        diff += (g - w) * (g - w), norm += w * w, most = fmax(most, fabs(g - w));
    }
    const double rms = sqrt(norm / (double)n), rel = sqrt(diff / (norm > 0 ? norm : 1));
    if (!(rel <= tol) || !(most <= 100 * tol * (rms > 0 ? rms : 1)))
        fail_msg("B%d S%d S_kv%d H%d K%d D%d keep %d: %s: rel %g, largest %g of rms %g, want %g", p->z.B, p->z.S,
                 p->z.S_kv, p->z.H, p->z.K, p->z.D, p->z.keep, what, rel, most, rms, tol);
}

static inline double *problem_wide(const void *x, size_t n, pb_dtype t)
{
    double *to = malloc(n * sizeof *to + 1);
    assert_non_null(to);
    for (size_t i = 0; i < n; i++) to[i] = x ? pb_load(x, i, t) : (double)NAN;
    return to;
}

/* The mask that the lists describe, written directly from the definition in dynmask_attention.h. */
static inline bool *problem_mask(const problem *p)
{
    const sizes *z = &p->z;
    bool *mask = calloc((size_t)z->B * z->K * z->S * z->S_kv, sizeof *mask);
    assert_non_null(mask);
    for (size_t head = 0; head < (size_t)z->B * z->K; head++)
        for (int l = 0; l < p->L; l++) {
            const int32_t j = p->list[head * p->L + l], until = p->until[head * p->L + l];
            if (j < 0 || j >= z->S_kv || p->bias[head * z->S_kv + j] == -INFINITY) continue;
            for (int i = 0; i < z->S; i++) {
                const int position = i + z->S_kv - z->S;
                mask[(head * z->S + i) * z->S_kv + j] = j <= position && position < until;
            }
        }
    return mask;
}

/* Compares all six outputs with the definition under the mask of the lists. */
static inline void problem_check(const problem *p, double tol)
{
    const sizes *z = &p->z;
    const size_t n = problem_queries(p), m = problem_keys(p), biases = problem_biases(p), rows = problem_rows(p);
    double *in[] = {problem_wide(p->q, n, p->dtype), problem_wide(p->k, m, p->dtype), problem_wide(p->v, m, p->dtype),
                    problem_wide(p->bias, biases, PB_F32), problem_wide(p->dO, n, p->dtype)};
    double *out[] = {problem_wide(NULL, n, 0), problem_wide(NULL, rows, 0), problem_wide(NULL, n, 0),
                     problem_wide(NULL, m, 0), problem_wide(NULL, m, 0),    problem_wide(NULL, biases, 0)};
    bool *mask = problem_mask(p);
    const oracle a = {.B = z->B,
                      .S = z->S,
                      .S_kv = z->S_kv,
                      .H = z->H,
                      .K = z->K,
                      .D = z->D,
                      .scale = (double)p->scale,
                      .q = in[0],
                      .k = in[1],
                      .v = in[2],
                      .bias = in[3],
                      .dO = in[4],
                      .mask = mask,
                      .o = out[0],
                      .lse = out[1],
                      .dq = out[2],
                      .dk = out[3],
                      .dv = out[4],
                      .dbias = out[5]};
    oracle_run(&a);
    problem_compare(p, "o", a.o, p->o, p->dtype, n, tol);
    problem_compare(p, "lse", a.lse, p->lse, PB_F32, rows, tol);
    problem_compare(p, "dq", a.dq, p->dq, p->dtype, n, tol);
    problem_compare(p, "dk", a.dk, p->dk, p->dtype, m, tol);
    problem_compare(p, "dv", a.dv, p->dv, p->dtype, m, tol);
    problem_compare(p, "dbias", a.dbias, p->dbias, PB_F32, biases, tol);
    for (int i = 0; i < 5; i++) free(in[i]);
    for (int i = 0; i < 6; i++) free(out[i]);
    free(mask);
}
#endif
