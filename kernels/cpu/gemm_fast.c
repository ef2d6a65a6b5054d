/* gemm_fast.c - the blocked matrix product. gemm_plan.h defines the blocks, gemm_pack.h the panels, and gemm_kernel.h
 * the inner loop. Limited by multiply-adds. With few rows of A it packs nothing (gemm_few.h), and is limited by reading
 * B.
 *
 * Threads take panels dynamically from a shared counter, so that a delayed thread does not delay the others. Every
 * element of C is summed by one thread, in the order of k, within blocks that the plan fixes. So the result does not
 * depend on the number of threads. */
#include <omp.h>

#include "kernels/cpu/gemm_few.h"
#include "kernels/cpu/gemm_kernel.h"
#include "kernels/cpu/gemm_pack.h"
#include "kernels/cpu/gemm_plan.h"

/* IN_PLACE: if A has at most this many panels, B is read without packing. A_DRAW, B_DRAW: largest number of panels of A
 * and of B that a thread takes from the counter at a time. */
enum { IN_PLACE = 6, A_DRAW = PB_GEMM_ROWS / PB_MR, B_DRAW = PB_GEMM_COLS / PB_NR };

typedef struct job {
    const pb_gemm *g;
    pb_gemm_plan p;
    float *shared, *buffer,
        *mine; /* packed blocks of the shared operand; tile buffer; each thread's panels, p.mine floats */
    int threads;
    struct {
        int pack, unit;
    } next[3]; /* the next panel to pack, and to multiply; shared by all threads; step s uses next[s % 3] */
} job;

/* One step of the outer loops: m rows of A from i on, n columns of B from j on, kc terms of K from k on. */
typedef struct block {
    int step, i, j, k, m, n, kc;
    float *shared;    /* packed panels of the shared operand */
    bool first, last; /* first: the first of the steps along K that add to this block of C; last: the last of them */
} block;

/* The terms that finish() adds to a tile of the product, and where it stores the sum. */
typedef struct sink {
    const void *old; /* earlier value, added to the product; NULL: none */
    void *out;
    size_t ld_old, ld_out;
    pb_dtype t_old, t_out;
    const float *bias; /* bias of the block's first column, or NULL */
    float alpha;
} sink;

static int at_most(int a, int b) { return a < b ? a : b; }

/* Returns into how many panels m rows of A are divided. Their heights differ by at most one, so that no panel has only
 * a row or two. a_row returns the first row of a panel. */
static int a_panels(int m) { return (m + PB_MR - 1) / PB_MR; }
static int a_row(int m, int panel)
{
    const int n = a_panels(m), rest = m % n;
    return m / n * panel + at_most(panel, rest);
}
static size_t a_offset(int m, int panel, int kc) { return (size_t)a_row(m, panel) * kc + (size_t)panel * PB_VLEN; }
static int b_panels(int n) { return (n + PB_NR - 1) / PB_NR; }
static int b_vectors(int n, int panel) { return at_most(PB_NV, (n - panel * PB_NR + PB_VLEN - 1) / PB_VLEN); }

/* Packs panels first .. end-1 of the m rows of A from row i on. `to` is the address of panel 0, even if `first` is not
 * 0. */
static void pack_a(const pb_gemm *g, const block *b, int i, int m, int first, int end, float *to)
{
    lanes l[A_DRAW];
    for (int p = first; p < end; p++)
        l[p - first] = (lanes){.to = to + a_offset(m, p, b->kc),
                               .ld = (size_t)(a_row(m, p + 1) - a_row(m, p)),
                               .first = i + a_row(m, p),
                               .width = a_row(m, p + 1) - a_row(m, p)};
    pack_lanes(l, end - first, &g->a, !g->a.trans, g->M, b->k, b->kc);
}

static void pack_b(const pb_gemm *g, const block *b, int first, int end, float *to)
{
    lanes l[B_DRAW * PB_NV];
    int n = 0;
    for (int p = first; p < end; p++, to += (size_t)PB_NR * b->kc)
        for (int v = 0, nv = b_vectors(b->n, p); v < nv; v++) {
            const int col = p * PB_NR + v * PB_VLEN;
            l[n++] = (lanes){.to = to + v * PB_VLEN,
                             .ld = (size_t)nv * PB_VLEN,
                             .first = b->j + col,
                             .width = at_most(PB_VLEN, b->n - col)};
        }
    pack_lanes(l, n, &g->b, g->b.trans, g->N, b->k, b->kc);
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

/* Stores n <= PB_VLEN elements of one row of a finished tile. */
PB_INLINE void put(const sink *s, pb_dtype t_old, pb_dtype t_out, vf v, size_t row, size_t col, int n)
{
    const bool all = n == PB_VLEN;
    const size_t old = row * s->ld_old + col, out = row * s->ld_out + col;
    v *= s->alpha;
    if (s->old) v += all ? vf_load(s->old, old, t_old) : vf_load_n(s->old, old, t_old, (size_t)n);
    if (s->bias) v += all ? vf_load(s->bias, col, PB_F32) : vf_load_n(s->bias, col, PB_F32, (size_t)n);
    if (all) vf_store(s->out, out, t_out, v);
    else vf_store_n(s->out, out, t_out, v, (size_t)n);
}

PB_INLINE void put_tile(const sink *s, pb_dtype t_old, pb_dtype t_out, const float *tile, int rows, int row, int col,
                        int n)
{
    const int whole = n / PB_VLEN * PB_VLEN, ld = (n + PB_VLEN - 1) / PB_VLEN * PB_VLEN;
    for (int r = 0; r < rows; r++, tile += ld) {
        for (int c = 0; c < whole; c += PB_VLEN)
            put(s, t_old, t_out, vf_load(tile, (size_t)c, PB_F32), (size_t)(row + r), (size_t)(col + c), PB_VLEN);
        if (whole < n)
            put(s, t_old, t_out, vf_load(tile, (size_t)whole, PB_F32), (size_t)(row + r), (size_t)(col + whole),
                n - whole);
    }
}

/* Stores the finished tile of rows x n at (row, col) of the block. */
static void finish(const sink *s, const float *tile, int rows, int row, int col, int n)
{
    if (s->t_old == PB_F32 && s->t_out == PB_F32) put_tile(s, PB_F32, PB_F32, tile, rows, row, col, n);
    else put_tile(s, s->t_old, s->t_out, tile, rows, row, col, n);
}

/* Prefetches a tile of C while the kernel runs, for the stores that follow. */
static inline void prefetch_tile(const sink *s, int rows, int nv, int row, int col)
{
    const size_t size = pb_dtype_size(s->t_out);
    const unsigned char *c = (const unsigned char *)s->out + ((size_t)row * s->ld_out + col) * size;
    for (int r = 0; r < rows; r++, c += s->ld_out * size)
        for (int v = 0; v < nv; v++) __builtin_prefetch(c + (size_t)v * PB_VLEN * size, 1);
}

/* Multiplies m packed rows of A, from row i of the block on, with one panel of B, whose rows are ldb apart. */
static void multiply(const sink *s, const block *blk, const float *a, int i, int m, const float *b, size_t ldb,
                     int panel)
{
    const int nv = b_vectors(blk->n, panel), n = at_most(PB_NR, blk->n - panel * PB_NR);
    float tile[PB_MR * PB_NR] __attribute__((aligned(64)));
    for (int p = 0, panels = a_panels(m); p < panels; p++) {
        const int row = a_row(m, p), rows = a_row(m, p + 1) - row;
        prefetch_tile(s, rows, nv, i + row, panel * PB_NR);
        gemm_kernels[rows - 1][nv - 1](blk->kc, a + a_offset(m, p, blk->kc), (size_t)rows, b, ldb, tile);
        finish(s, tile, rows, i + row, panel * PB_NR, n);
    }
}

static int take(int *counter) { return __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }
/* Returns the number of panels that a thread takes at a time. Several panels make the reads of stored rows long, and a
 * panel of the shared operand is fetched once for all of them. But each thread must take panels about 8 times, to
 * balance the load. */
static int panels_to_take(const job *w, int panels, int most)
{
    const int fair = panels / (8 * w->threads);
    return fair < 1 ? 1 : at_most(most, fair);
}

static void pack_shared(job *w, const block *b)
{
    const int panels = w->p.share_a ? a_panels(b->m) : b_panels(b->n);
    const int n = panels_to_take(w, panels, w->p.share_a ? A_DRAW : B_DRAW);
    for (int p; (p = take(&w->next[b->step % 3].pack) * n) < panels;) {
        const int end = at_most(p + n, panels);
        if (w->p.share_a) pack_a(w->g, b, b->i, b->m, p, end, b->shared);
        else pack_b(w->g, b, p, end, b->shared + (size_t)p * PB_NR * b->kc);
    }
}

/* True if panels of B up to `end` can be read without packing: B has the layout that a kernel reads, the panels are
 * whole, and they are used so few times that packing would cost more. */
static bool in_place(const job *w, const block *b, int end)
{
    const pb_mat *m = &w->g->b;
    return source_of(m) == FROM_F32 && !m->trans && a_panels(b->m) <= IN_PLACE && end * PB_NR <= b->n;
}

static void multiply_by_shared_a(job *w, const block *b, const sink *s, float *mine)
{
    const int panels = b_panels(b->n), n = panels_to_take(w, panels, B_DRAW);
    for (int first; (first = take(&w->next[b->step % 3].unit) * n) < panels;) {
        const int end = at_most(first + n, panels);
        const bool raw = in_place(w, b, end);
        const float *from = raw ? (const float *)w->g->b.p + (size_t)b->k * w->g->b.ld + b->j + first * PB_NR : mine;
        if (!raw) pack_b(w->g, b, first, end, mine);
        for (int p = first; p < end; p++) {
            const size_t ld = raw ? w->g->b.ld : (size_t)b_vectors(b->n, p) * PB_VLEN;
            multiply(s, b, b->shared, 0, b->m, from, ld, p);
            from += raw ? PB_NR : (size_t)PB_NR * b->kc;
        }
    }
}

static void multiply_by_shared_b(job *w, const block *b, const sink *s, float *mine)
{
    const int panels = a_panels(b->m), n = panels_to_take(w, panels, A_DRAW);
    for (int first; (first = take(&w->next[b->step % 3].unit) * n) < panels;) {
        const int end = at_most(first + n, panels), i = a_row(b->m, first), m = a_row(b->m, end) - i;
        pack_a(w->g, b, b->i + i, m, 0, end - first, mine);
        for (int p = 0; p < b_panels(b->n); p++)
            multiply(s, b, mine, i, m, b->shared + (size_t)p * PB_NR * b->kc, (size_t)b_vectors(b->n, p) * PB_VLEN, p);
    }
}

/* Runs one step: packs, waits at a barrier, multiplies. A thread that passes the barrier knows that all threads have
 * finished the previous step. So the shared block of that step may be overwritten (two blocks alternate), and its
 * counters are reset for step + 2. */
static void step(job *w, const block *b, int thread)
{
    const sink s = sink_of(w, b);
    float *mine = w->mine + (size_t)thread * w->p.mine;
    pack_shared(w, b);
    if (w->threads > 1) {
#pragma omp barrier
    }
    if (thread == 0) w->next[(b->step + 2) % 3].pack = w->next[(b->step + 2) % 3].unit = 0;
    if (w->p.share_a) multiply_by_shared_a(w, b, &s, mine);
    else multiply_by_shared_b(w, b, &s, mine);
}

static void work(job *w, int thread)
{
    const pb_gemm *g = w->g;
    block b = {.step = 0};
    for (b.j = 0; b.j < g->N; b.j += w->p.nc)
        for (b.i = 0; b.i < g->M; b.i += w->p.mc)
            for (b.k = 0; b.k == 0 || b.k < g->K; b.k += w->p.kc) {
                b.m = at_most(w->p.mc, g->M - b.i);
                b.n = at_most(w->p.nc, g->N - b.j);
                b.kc = at_most(w->p.kc, g->K - b.k);
                b.first = b.k == 0;
                b.last = b.k + w->p.kc >= g->K;
                b.shared = w->shared + (w->threads > 1 && b.step % 2 ? w->p.shared : 0);
                step(w, &b, thread);
                b.step++;
            }
}

/* Multiplies all rows of A, in f32, with panels of rows of B that this thread takes from the counter. */
static void work_few(job *w, const float *a, size_t lda)
{
    const pb_gemm *g = w->g;
    const block whole = {.m = g->M, .n = g->N, .kc = g->K, .first = true, .last = true};
    const sink s = sink_of(w, &whole);
    const int panels = b_panels(g->N), n = panels_to_take(w, panels, B_DRAW);
    for (int first; (first = take(&w->next[0].unit) * n) < panels;)
        for (int p = first; p < at_most(first + n, panels); p++) {
            const int cols = at_most(PB_NR, g->N - p * PB_NR);
            float tile[PB_GEMM_FEW * PB_NR] __attribute__((aligned(64))) = {0};
            few_tile(&g->b, a, lda, g->M, (size_t)p * PB_NR, cols, g->K, tile, (size_t)b_vectors(g->N, p) * PB_VLEN);
            finish(&s, tile, g->M, 0, p * PB_NR, cols);
        }
}

/* With fewer multiply-adds than this, starting threads costs more than it gains. With few rows of A
 * a multiply-add takes longer, because it waits for B to be read from memory; the second limit is an estimate. */
static const double worth_a_thread = 1 << 19;
static const double worth_a_thread_few = 1 << 16;

static void run_few(job *w)
{
    const pb_gemm *g = w->g;
    const size_t lda = pb_gemm_few_ld(g);
    float *a = w->shared;
    few_rows_of_a(g, a, lda);
    if (!g->serial && (double)g->N * g->K > worth_a_thread_few) w->threads = omp_get_max_threads();
    if (w->threads == 1) {
        work_few(w, a, lda);
        return;
    }
#pragma omp parallel num_threads(w->threads)
    work_few(w, a, lda);
}

void pb_gemm_run(const pb_gemm *g)
{
    job w = {.g = g, .p = pb_gemm_plan_of(g), .shared = g->workspace, .threads = 1};
    if (g->M <= 0 || g->N <= 0) return;
    if (pb_gemm_is_few(g)) {
        run_few(&w);
        return;
    }
    w.buffer = w.shared + (w.p.twice ? 2 : 1) * w.p.shared;
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
