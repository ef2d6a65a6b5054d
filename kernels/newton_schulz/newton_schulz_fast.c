/* newton_schulz_fast.c - the Newton-Schulz iteration through the products of cpu/gemm.h, one matrix after the other.
 * Symmetric products take half the multiplications (syrk_blocks.h). */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/newton_schulz/ns_room.h"
#include "kernels/syrk/syrk_blocks.h"

/* The matrix that is computed, and its scratch memory. */
typedef struct work {
    const pb_newton_schulz_run_args *a;
    unsigned char *base;
    pb_ns_room room;
} work;

static void *at(const work *w, size_t offset) { return w->base + offset; }
static void *small(const work *w, int i) { return at(w, w->room.small[i]); }

static void multiply(const work *w, pb_gemm g)
{
    g.workspace = at(w, w->room.products);
    pb_gemm_run(&g);
}

static void symmetric(const work *w, pb_syrk_product_args a) { pb_syrk_blocks(&a, at(w, w->room.products)); }

/* to = factor * from, n elements. */
static void scale(const void *from, pb_dtype type, void *to, pb_dtype to_type, size_t n, float factor)
{
#pragma omp parallel for schedule(static) if (n > 16384)
    for (size_t i = 0; i < n; i += PB_VLEN) {
        const int some = n - i < PB_VLEN ? (int)(n - i) : PB_VLEN;
        vf_put(to, i, to_type, vf_get(from, i, type, some) * factor, some);
    }
}

/* to = factor * from + B * from (tall matrix: + from * B). Summed in f32, and rounded once. */
static void add_product(const work *w, const void *from, void *to, float factor)
{
    const pb_newton_schulz_run_args *a = w->a;
    const size_t n = (size_t)a->R * (size_t)a->C;
    void *const sum = a->dtype == PB_F32 ? to : at(w, w->room.wide);
    pb_gemm g = pb_ns_apply(a, small(w, PB_NS_B), a->dtype, from, sum, true);
    g.c_dtype = PB_F32;
    scale(from, a->dtype, sum, PB_F32, n, factor);
    multiply(w, g);
    if (sum != to) scale(sum, PB_F32, to, a->dtype, n, 1);
}

/* Writes X_0 of matrix x to `to`. Sums and factor are double, because the squares of finite values may exceed f32. The
 * sums of the rows are added in order, so the number of threads does not change a bit. */
static void normalise(const work *w, const void *x, void *to)
{
    const pb_newton_schulz_run_args *a = w->a;
    const size_t R = (size_t)a->R, C = (size_t)a->C;
    double *sum = at(w, w->room.sum), all = 0;
#pragma omp parallel for schedule(static) if (R * C > 16384)
    for (size_t r = 0; r < R; r++) {
        double s = 0;
        for (size_t c = 0; c < C; c++) s += pb_load(x, r * C + c, a->dtype) * pb_load(x, r * C + c, a->dtype);
        sum[r] = s;
    }
    for (size_t r = 0; r < R; r++) all += sum[r];
    const double divisor = pb_ns_norm_factor(a->variant) * sqrt(all) + (double)a->eps;
    const double factor = divisor > 0 || isnan(divisor) ? 1 / divisor : 0;
#pragma omp parallel for schedule(static) if (R * C > 16384)
    for (size_t i = 0; i < R * C; i++) pb_store(to, i, a->dtype, factor * pb_load(x, i, a->dtype));
}

/* The iteration on X itself. The last step writes to y. */
static void iterate(const work *w, void *y)
{
    const pb_newton_schulz_run_args *a = w->a;
    void *from = at(w, w->room.x[0]), *other = at(w, w->room.x[1]);
    for (int k = 0; k < a->steps; k++) {
        const pb_ns_factors f = pb_ns_factors_of(a->variant, k);
        void *to = k == a->steps - 1 ? y : other;
        symmetric(w, pb_ns_gram(a, from, small(w, PB_NS_A), a->dtype));
        symmetric(w, pb_ns_square(a, f, small(w, PB_NS_A), small(w, PB_NS_B), a->dtype));
        add_product(w, from, to, (float)f.a);
        other = from, from = to;
    }
}

/* Z += a I */
static void add_diagonal(float *z, size_t m, float a)
{
    for (size_t i = 0; i < m; i++) z[i * (m + 1)] += a;
}

/* to = P x, or x P of a tall matrix, with P rounded to the type of x. `room` [m,m] is overwritten. */
static void apply_gram(const work *w, const float *p, float *room, const void *x, void *to)
{
    const pb_newton_schulz_run_args *a = w->a;
    const size_t n = (size_t)pb_ns_small(a) * (size_t)pb_ns_small(a);
    if (a->dtype == PB_F32) {
        multiply(w, pb_ns_apply(a, p, PB_F32, x, to, false));
        return;
    }
    for (size_t i = 0; i < n; i += PB_VLEN) {
        const int some = n - i < PB_VLEN ? (int)(n - i) : PB_VLEN;
        vf_put(room, i, PB_BF16, vf_get(p, i, PB_F32, some), some);
    }
    multiply(w, pb_ns_apply(a, room, PB_BF16, x, to, false));
}

/* The iteration on the Gram matrix. P is in small[PB_NS_P] or small[PB_NS_Q], in turn. */
static void iterate_gram(const work *w, void *y)
{
    const pb_newton_schulz_run_args *a = w->a;
    const size_t m = (size_t)pb_ns_small(a);
    void *x = at(w, w->room.x[0]), *other = at(w, w->room.x[1]);
    float *g = small(w, PB_NS_G), *p = NULL, *z = small(w, PB_NS_Z), *t = small(w, PB_NS_T);
    for (int k = 0; k < a->steps; k++) {
        const pb_ns_factors f = pb_ns_factors_of(a->variant, k);
        if (k == PB_NS_RESTART && p) {
            apply_gram(w, p, t, x, other);
            void *const before = x;
            x = other, other = before, p = NULL;
        }
        if (!p) symmetric(w, pb_ns_gram(a, x, g, PB_F32));
        symmetric(w, pb_ns_square(a, f, g, z, PB_F32));
        add_diagonal(z, m, (float)f.a);
        float *const next = p == small(w, PB_NS_P) ? small(w, PB_NS_Q) : small(w, PB_NS_P);
        if (p) multiply(w, pb_ns_times(a, p, z, next, false));
        else memcpy(next, z, m * m * sizeof *z);
        p = next;
        if (k == a->steps - 1 || k + 1 == PB_NS_RESTART) continue; /* G is not used again */
        multiply(w, pb_ns_times(a, z, g, t, false));
        multiply(w, pb_ns_times(a, t, z, g, false));
    }
    if (p) apply_gram(w, p, t, x, y); /* there is at least one step, and a restart is before a step */
}

pb_status PB_FAST(pb_newton_schulz_run)(pb_ctx *ctx, const void *args)
{
    const pb_newton_schulz_run_args *a = args;
    const size_t one = (size_t)a->R * (size_t)a->C * pb_dtype_size(a->dtype);
    const work w = {a, ctx->scratch, pb_ns_room_of(a)};
    for (int i = 0; i < a->n; i++) {
        normalise(&w, (const unsigned char *)a->x + (size_t)i * one, at(&w, w.room.x[0]));
        (pb_ns_on_gram(a) ? iterate_gram : iterate)(&w, (unsigned char *)a->y + (size_t)i * one);
    }
    return PB_OK;
}
