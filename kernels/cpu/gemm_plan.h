/* gemm_plan.h - how a CPU matrix product is divided into blocks. The product and the size of its
 * workspace both use this plan. It does not depend on the instruction set. The order of summation does
 * not depend on the number of threads.
 *
 * One operand is shared: for every block of K, all threads together pack a block of it, which all of them then
 * use. The other operand is private: a thread packs a few panels of it, multiplies them with the whole shared
 * block while they are in its caches, and goes on to the next ones. The smaller operand is the shared one, so that
 * each is packed only once. */
#ifndef PB_GEMM_PLAN_H
#define PB_GEMM_PLAN_H
#include "kernels/cpu/gemm.h"

enum {
    PB_GEMM_KC = 768,                /* most terms of a sum (indices of K) between two updates of C */
    PB_GEMM_SHARED = 1 << 20,        /* floats of the shared block: fits the last-level cache */
    PB_GEMM_SHARED_SERIAL = 1 << 17, /* the same limit for a serial product: fits the L2 of one core */
    PB_GEMM_TILE_BUFFER = 1 << 20,   /* floats of the f32 tile buffer for a bf16 C summed over several blocks of K */
    PB_GEMM_ROWS = 128,              /* most rows of A that a thread packs at a time */
    PB_GEMM_COLS = 64,               /* most columns of B that a thread packs at a time; read once per panel of A */
    PB_GEMM_ALIGN = 16,              /* floats in a cache line */
    PB_GEMM_FEW = 4                  /* most rows of A of a product that packs nothing (gemm_few.h) */
};

typedef struct pb_gemm_plan {
    int mc, nc, kc;              /* block sizes; kc >= 1 */
    bool share_a;                /* true: A is the shared operand; false: B is */
    bool twice;                  /* true: two shared blocks; one is packed while the other is still in use */
    bool buffered;               /* C is summed in a tile buffer [mc,nc] in f32 */
    size_t shared, mine, buffer; /* floats: the shared block, the panels of one thread, the tile buffer */
} pb_gemm_plan;

static inline size_t pb_gemm_round(size_t n) { return (n + PB_GEMM_ALIGN - 1) / PB_GEMM_ALIGN * PB_GEMM_ALIGN; }
/* Divides n into the fewest equal parts of at most `most` each. Returns the size of a part, rounded up
 * to a multiple of `unit`. */
static inline int pb_gemm_cut(int n, size_t most, int unit)
{
    if ((size_t)n <= most) return n > 0 ? n : 1;
    size_t parts = ((size_t)n + most - 1) / most, each = ((size_t)n + parts - 1) / parts;
    return (int)((each + unit - 1) / unit * unit);
}
/* Returns the floats of a packed block. Panels may be padded by a vector in width and by a vector in length. */
static inline size_t pb_gemm_packed(int width, int kc)
{
    return pb_gemm_round(pb_gemm_round((size_t)width) * (size_t)kc + 2 * (size_t)width + 2 * PB_GEMM_ALIGN);
}

/* True if the product packs nothing: it has few rows of A, and B is stored [N,K]. */
static inline bool pb_gemm_is_few(const pb_gemm *g) { return g->M <= PB_GEMM_FEW && !g->a.trans && g->b.trans; }
/* Floats from one row of A to the next in the workspace of such a product: two vectors of AVX-512 divide them. */
static inline size_t pb_gemm_few_ld(const pb_gemm *g) { return ((size_t)g->K + 31) / 32 * 32; }

static inline pb_gemm_plan pb_gemm_plan_of(const pb_gemm *g)
{
    pb_gemm_plan p = {.share_a = g->M <= g->N, .kc = pb_gemm_cut(g->K, PB_GEMM_KC, PB_GEMM_ALIGN)};
    p.buffered = g->c_dtype != PB_F32 && g->K > p.kc;
    const size_t room = g->serial ? PB_GEMM_SHARED_SERIAL : PB_GEMM_SHARED;
    int shared = pb_gemm_cut(p.share_a ? g->M : g->N, room / (size_t)p.kc, 32);
    int other = p.share_a ? g->N : g->M;
    if (p.buffered) {
        shared = pb_gemm_cut(shared, 1024, 32);
        other = pb_gemm_cut(other, PB_GEMM_TILE_BUFFER / (size_t)shared, 32);
    }
    p.mc = p.share_a ? shared : other;
    p.nc = p.share_a ? other : shared;
    p.twice = !g->serial && (p.mc < g->M || p.nc < g->N || p.kc < g->K);
    p.shared = pb_gemm_packed(shared, p.kc);
    const int draw = p.share_a ? PB_GEMM_COLS : PB_GEMM_ROWS;
    p.mine = pb_gemm_packed(other < draw ? other : draw, p.kc);
    p.buffer = p.buffered ? pb_gemm_round((size_t)p.mc * (size_t)p.nc) : 0;
    return p;
}
#endif
