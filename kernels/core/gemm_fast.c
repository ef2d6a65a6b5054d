/* gemm_fast.c - the blocked matrix product (see gemm_plan.h for the blocks, gemm_pack.h for the panels and
 * gemm_kernel.h for the loop that does the arithmetic). Bound: multiply-adds.
 *
 * Threads draw panels from a counter, so that one that is held up holds up nobody else. Every element of
 * C is summed by one thread, in the order of k, within blocks that the plan fixes: the result is the same for
 * any number of threads. */
#include <omp.h>

#include "kernels/core/gemm_kernel.h"
#include "kernels/core/gemm_pack.h"
#include "kernels/core/gemm_plan.h"

typedef struct job {
    const pb_gemm *g;
    pb_gemm_plan p;
    float *shared, *buffer, *mine; /* mine: p.mine floats a thread */
    int threads;
    int next_pack, next_unit; /* drawn by all threads */
} job;

/* One step of the outer loops: rows i.. of A, columns j.. of B, and k.. of K. */
typedef struct block {
    int i, j, k, m, n, kc;
    bool first, last; /* of the steps over K */
} block;

/* Where a tile of C comes from and goes to. */
typedef struct sink {
    const void *old; /* added to the product; NULL: nothing */
    void *out;
    size_t ld_old, ld_out;
    pb_dtype t_old, t_out;
    const float *bias; /* of the block's first column, or NULL */
    float alpha;
} sink;

static int at_most(int a, int b) { return a < b ? a : b; }

/* m rows are cut into panels of equal height, give or take one: no panel is left with a row or two. */
static int a_panels(int m) { return (m + PB_MR - 1) / PB_MR; }
static int a_row(int m, int panel)
{
    const int n = a_panels(m), rest = m % n;
    return m / n * panel + at_most(panel, rest);
}
static size_t a_offset(int m, int panel, int kc) { return (size_t)a_row(m, panel) * kc + (size_t)panel * PB_VLEN; }
static int b_panels(int n) { return (n + PB_NR - 1) / PB_NR; }
static int b_vectors(int n, int panel) { return at_most(PB_NV, (n - panel * PB_NR + PB_VLEN - 1) / PB_VLEN); }

/* Panel `panel` of the m rows of A from row i on. */
static void pack_a(const pb_gemm *g, const block *b, int i, int m, int panel, float *to)
{
    const int row = a_row(m, panel), rows = a_row(m, panel + 1) - row;
    pack_panel(to, (size_t)rows, &g->a, !g->a.trans, i + row, rows, g->M, b->k, b->kc);
}

static void pack_b(const pb_gemm *g, const block *b, int panel, float *to)
{
    const int col = panel * PB_NR;
    pack_panel(to, (size_t)b_vectors(b->n, panel) * PB_VLEN, &g->b, g->b.trans, b->j + col, at_most(PB_NR, b->n - col),
               g->N, b->k, b->kc);
}

static sink sink_of(const job *w, const block *b)
{
    const pb_gemm *g = w->g;
    const size_t c = (size_t)b->i * g->ldc + b->j;
    void *const in_c = (unsigned char *)g->c + c * pb_dtype_size(g->c_dtype);
    sink s = {.alpha = g->alpha, .out = in_c, .ld_out = g->ldc, .t_out = g->c_dtype};
    if (w->p.buffered && !b->last) s.out = w->buffer, s.ld_out = w->p.nc, s.t_out = PB_F32;
    if (!b->first && w->p.buffered) s.old = w->buffer, s.ld_old = w->p.nc, s.t_old = PB_F32;
    else if (!b->first || g->accumulate) s.old = in_c, s.ld_old = g->ldc, s.t_old = g->c_dtype;
    if (b->first && g->bias) s.bias = g->bias + b->j;
    return s;
}

/* n <= PB_VLEN elements of one row of a finished tile. */
PB_INLINE void put(const sink *s, vf v, size_t row, size_t col, int n)
{
    const bool all = n == PB_VLEN;
    const size_t old = row * s->ld_old + col, out = row * s->ld_out + col;
    v *= s->alpha;
    if (s->old) v += all ? vf_load(s->old, old, s->t_old) : vf_load_n(s->old, old, s->t_old, (size_t)n);
    if (s->bias) v += all ? vf_load(s->bias, col, PB_F32) : vf_load_n(s->bias, col, PB_F32, (size_t)n);
    if (all) vf_store(s->out, out, s->t_out, v);
    else vf_store_n(s->out, out, s->t_out, v, (size_t)n);
}

/* The tile of `rows` rows and n columns that belongs at (row, col) of the block. */
static void finish(const sink *s, const float *tile, int rows, int row, int col, int n)
{
    const int ld = (n + PB_VLEN - 1) / PB_VLEN * PB_VLEN;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < n; c += PB_VLEN)
            put(s, vf_load(tile, (size_t)(r * ld + c), PB_F32), (size_t)(row + r), (size_t)(col + c),
                at_most(PB_VLEN, n - c));
}

/* The m rows of A from row i of the block on, packed at a, times one panel of B packed at b. */
static void multiply(const sink *s, const block *blk, const float *a, int i, int m, const float *b, int panel)
{
    const int nv = b_vectors(blk->n, panel), n = at_most(PB_NR, blk->n - panel * PB_NR);
    float tile[PB_MR * PB_NR] __attribute__((aligned(64)));
    for (int p = 0, panels = a_panels(m); p < panels; p++) {
        const int row = a_row(m, p), rows = a_row(m, p + 1) - row;
        gemm_kernels[rows - 1][nv - 1](blk->kc, a + a_offset(m, p, blk->kc), (size_t)rows, b, (size_t)nv * PB_VLEN,
                                       tile);
        finish(s, tile, rows, i + row, panel * PB_NR, n);
    }
}

static int draw(int *counter) { return __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }
static void wait_for_all(const job *w)
{
    if (w->threads > 1) {
#pragma omp barrier
    }
}

static void pack_shared(job *w, const block *b)
{
    if (w->p.share_a) {
        for (int p; (p = draw(&w->next_pack)) < a_panels(b->m);)
            pack_a(w->g, b, b->i, b->m, p, w->shared + a_offset(b->m, p, b->kc));
    } else {
        for (int p; (p = draw(&w->next_pack)) < b_panels(b->n);)
            pack_b(w->g, b, p, w->shared + (size_t)p * PB_NR * b->kc);
    }
}

/* Rows of A that a thread draws at a time when B is shared: several panels, so that a panel of B is fetched once
 * for all of them, but enough draws for every thread to be busy to the end. */
static int rows_of_unit(const job *w, int m)
{
    const int most = PB_GEMM_PRIVATE / PB_MR, fair = a_panels(m) / (8 * w->threads);
    return PB_MR * (fair < 1 ? 1 : at_most(most, fair));
}

static void multiply_shared(job *w, const block *b, float *mine)
{
    const sink s = sink_of(w, b);
    if (w->p.share_a) {
        for (int p; (p = draw(&w->next_unit)) < b_panels(b->n);) {
            pack_b(w->g, b, p, mine);
            multiply(&s, b, w->shared, 0, b->m, mine, p);
        }
        return;
    }
    const int unit = rows_of_unit(w, b->m);
    for (int i; (i = draw(&w->next_unit) * unit) < b->m;) {
        const int m = at_most(unit, b->m - i);
        for (int p = 0; p < a_panels(m); p++) pack_a(w->g, b, b->i + i, m, p, mine + a_offset(m, p, b->kc));
        for (int p = 0; p < b_panels(b->n); p++) multiply(&s, b, mine, i, m, w->shared + (size_t)p * PB_NR * b->kc, p);
    }
}

static void step(job *w, const block *b, int thread)
{
    pack_shared(w, b);
    if (thread == 0) w->next_unit = 0;
    wait_for_all(w);
    if (thread == 0) w->next_pack = 0;
    multiply_shared(w, b, w->mine + (size_t)thread * w->p.mine);
    wait_for_all(w);
}

static void work(job *w, int thread)
{
    const pb_gemm *g = w->g;
    for (int j = 0; j < g->N; j += w->p.nc)
        for (int i = 0; i < g->M; i += w->p.mc)
            for (int k = 0; k == 0 || k < g->K; k += w->p.kc)
                step(w,
                     &(block){.i = i,
                              .j = j,
                              .k = k,
                              .m = at_most(w->p.mc, g->M - i),
                              .n = at_most(w->p.nc, g->N - j),
                              .kc = at_most(w->p.kc, g->K - k),
                              .first = k == 0,
                              .last = k + w->p.kc >= g->K},
                     thread);
}

/* Below this many multiply-adds a second thread costs more than it brings. */
static const double worth_a_thread = 1 << 19;

void pb_gemm_run(const pb_gemm *g)
{
    job w = {.g = g, .p = pb_gemm_plan_of(g), .shared = g->workspace, .threads = 1};
    if (g->M <= 0 || g->N <= 0) return;
    w.buffer = w.shared + w.p.shared;
    w.mine = w.buffer + w.p.buffer;
    if (!g->serial && (double)g->M * g->N * g->K > worth_a_thread) w.threads = omp_get_max_threads();
    if (w.threads == 1) {
        work(&w, 0);
        return;
    }
#pragma omp parallel num_threads(w.threads)
    {
#pragma omp single
        w.threads = omp_get_num_threads();
        work(&w, omp_get_thread_num());
    }
}
