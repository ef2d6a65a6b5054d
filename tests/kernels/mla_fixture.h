/* mla_fixture.h - one small multi-head latent attention (MLA) problem for tests: its tensors, PyTorch's results, and
 * the measure of similarity that the tests of the public kernels (FlashMLA) use. */
#ifndef PB_MLA_FIXTURE_H
#define PB_MLA_FIXTURE_H
#include "kernels/sparse_mla/mla.h"
#include "tests/test.h"

/* The sizes of the problem; they must equal those in scripts/fixtures/sparse_mla_fixtures.py. */
enum { FX_B = 2, FX_S = 5, FX_S_KV = 11, FX_H = 4, FX_D = 8, FX_V = 6, FX_W = 9, FX_WINDOW = 3 };

/* Returns 1 - 2 sum xy / (sum x^2 + sum y^2), computed in double; NaN if an element is not finite, 0 if both tensors
 * are all zero. */
static inline double rel_diff(const void *x, const void *y, size_t n, pb_dtype t)
{
    double xy = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        const double a = pb_load(x, i, t), b = pb_load(y, i, t);
        if (!isfinite(a) || !isfinite(b)) return (double)NAN;
        xy += a * b, squares += a * a + b * b;
    }
    return squares > 0 ? 1 - 2 * xy / squares : 0;
}

static inline float *fx_draw(uint64_t seed, size_t n)
{
    float *x = malloc(n * sizeof *x + 1);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = (float)(4 * pb_uniform(seed, i) - 2);
    return x;
}

static inline float *fx_poison(size_t n)
{
    float *x = fx_draw(1, n);
    for (size_t i = 0; i < n; i++) x[i] = NAN;
    return x;
}

/* Makes a backward problem of these sizes in f32, with seeded inputs, poisoned outputs and no key lists. */
static inline pb_mla fx_make(int B, int S, int S_kv, int H, int D, int V)
{
    const size_t heads = (size_t)B * S * H, kv = (size_t)B * S_kv * D;
    pb_mla p = {.B = B, .S = S, .S_kv = S_kv, .H = H, .D = D, .V = V, .scale = 1 / sqrtf((float)D), .backward = true};
    p.q = fx_draw(1, heads * D), p.kv = fx_draw(2, kv), p.sink = fx_draw(3, H), p.dO = fx_draw(4, heads * V);
    p.o = fx_poison(heads * V), p.lse = fx_poison(heads);
    p.dq = fx_poison(heads * D), p.dkv = fx_poison(kv), p.dsink = fx_poison(H);
    return p;
}

static inline void fx_free(pb_mla *p)
{
    void *all[] = {(void *)p->q, (void *)p->kv, (void *)p->sink, (void *)p->dO, p->o, p->lse, p->dq, p->dkv, p->dsink};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    free((void *)p->idx);
}

/* Returns output k = 0..4 of the forward and backward pass (o, lse, dq, dkv, dsink), and sets its name and size. */
static inline const float *fx_output(const pb_mla *p, int k, const char **name, size_t *n)
{
    static const char *const names[] = {"o", "lse", "dq", "dkv", "dsink"};
    const size_t heads = (size_t)p->B * p->S * p->H;
    const size_t sizes[] = {heads * p->V, heads, heads * p->D, (size_t)p->B * p->S_kv * p->D, (size_t)p->H};
    const float *const all[] = {p->o, p->lse, p->dq, p->dkv, p->dsink};
    *name = names[k], *n = sizes[k];
    return all[k];
}

/* Fails unless each output of p is within a relative L2 error of `tol` of the corresponding output of `want`. */
static inline void fx_near(const pb_mla *want, const pb_mla *p, double tol)
{
    for (int k = 0; k < 5; k++) {
        const char *name;
        size_t n;
        const float *x = fx_output(want, k, &name, &n), *y = fx_output(p, k, &name, &n);
        const pb_diff d = pb_diff_arrays(x, y, n, PB_F32);
        if (!pb_diff_ok(&d, tol)) fail_msg("%s differs by %g, want %g", name, d.rel, tol);
    }
}

/* Fails unless each output of p matches PyTorch's result for the case `which`: relative L2 error at most 1e-6, rel_diff
 * at most 1e-12. */
static inline void fx_matches(const pb_mla *p, const char *which)
{
    char *line = NULL;
    size_t room = 0, n;
    int found = 0;
    FILE *f = fopen("tests/fixtures/sparse_mla.csv", "r");
    if (!f) fail_msg("tests/fixtures/sparse_mla.csv does not open: run from the root of the sources");
    while (getline(&line, &room, f) > 0)
        for (int k = 0; k < 5; k++) {
            char head[32], *at = line;
            const char *name;
            const float *got = fx_output(p, k, &name, &n);
            snprintf(head, sizeof head, "%s,%s,", which, name);
            if (strncmp(line, head, strlen(head)) != 0) continue;
            float *want = fx_poison(n);
            at += strlen(head) - 1;
            for (size_t i = 0; i < n && *at == ','; i++) want[i] = strtof(at + 1, &at);
            const pb_diff d = pb_diff_arrays(want, got, n, PB_F32);
            if (!pb_diff_ok(&d, 1e-6)) fail_msg("%s %s: %g from PyTorch", which, name, d.rel);
            if (!(rel_diff(want, got, n, PB_F32) <= 1e-12)) fail_msg("%s %s: rel_diff", which, name);
            free(want);
            found++;
        }
    free(line);
    (void)fclose(f);
    assert_int_equal(found, 5);
}
#endif
