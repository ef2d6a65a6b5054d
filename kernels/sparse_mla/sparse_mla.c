/* sparse_mla.c - the two descriptors of sparse_mla, and the lists that its tests and benchmarks run on. */
#include "kernels/sparse_mla/sparse_mla.h"

#include <limits.h>
#include <stdlib.h>

#include "kernels/sparse_mla/lists.h"
#include "kernels/sparse_mla/mla_ops.h"

/* ---- lists ---------------------------------------------------------------------------------------------- */

/* Draws without replacement: a permutation that is shuffled further with every draw. */
typedef struct deck {
    int32_t *rows;
    int n;
    uint64_t drawn;
} deck;

static double chance(deck *d) { return pb_uniform(77, d->drawn++); }

static void deal(deck *d, int32_t *list, int W)
{
    for (int w = 0; w < W; w++) {
        if (w >= d->n) {
            list[w] = -1;
            continue;
        }
        const int other = w + (int)(chance(d) * (d->n - w));
        const int32_t row = d->rows[other];
        d->rows[other] = d->rows[w];
        list[w] = d->rows[w] = row;
    }
}

static void v4_list(int32_t *list, int S, int W, int i)
{
    const int wide = S < W / 2 ? S : W / 2, first = i < wide ? 0 : i - wide + 1;
    for (int w = 0; w < W; w++)
        if (w < wide) list[w] = first + w <= i ? first + w : -1;
        else list[w] = w - wide < (i + 1) / 4 ? S + w - wide : -1;
}

static void make_list(deck *d, enum list_kind kind, int32_t *list, const pb_mla *p, int b, int i)
{
    static const int32_t outside[] = {-1, -2, INT_MIN, INT_MAX};
    if (kind == V4) {
        v4_list(list, p->S, p->W, i);
        return;
    }
    deal(d, list, p->W);
    for (int w = 0; w < p->W; w++) {
        const double x = chance(d);
        const bool hole = x < 0.25 || w >= p->W - p->W / 8;
        if (kind == TWICE && d->n > 0) list[w] = d->rows[(int)(4 * x * d->n) % (d->n < 3 ? d->n : 3)];
        if (kind == TWICE && hole) list[w] = w % 5 == 4 ? p->S_kv : outside[w % 5];
        if ((kind == HOLES || kind == EMPTY_ROW) && hole) list[w] = -1;
        if ((kind == CUT && w >= p->W - p->W / 4) || (kind == QUARTER && x < 0.75)) list[w] = -1;
        if (kind == CAUSAL && list[w] > i) list[w] = -1;
        if (kind == EMPTY || (kind == EMPTY_ROW && (b == 1 || i == 0 || i == p->S - 1 || i % 3 == 1))) list[w] = -1;
    }
}

static const int32_t *bind_lists(pb_binder *b, const pb_mla *p, enum list_kind kind)
{
    const size_t n = (size_t)p->B * p->S * p->W;
    int32_t *lists = malloc(n * sizeof *lists + 1);
    deck d = {malloc((size_t)p->S_kv * sizeof *d.rows), 0, 0};
    const int32_t *bound = NULL;
    if (lists && d.rows) {
        for (int r = 0; r < p->S_kv; r++)
            if (kind == FULL || kind == CAUSAL || (r % 5 && r != p->S_kv - 1)) d.rows[d.n++] = r;
        for (size_t t = 0; t < (size_t)p->B * p->S; t++)
            make_list(&d, kind, lists + t * p->W, p, (int)(t / p->S), (int)(t % p->S));
        bound = pb_in_raw(b, "idx", lists, n * sizeof *lists);
    } else if (b->status == PB_OK) {
        b->status = pb_fail(PB_ENOMEM, "sparse_mla: no memory for %zu indices", n);
    }
    free(d.rows);
    free(lists);
    return bound;
}

/* ---- descriptors ---------------------------------------------------------------------------------------- */

/* K: rows of kv; l: kind of list. */
static const char axes[] = "BSKHDVWl";
static const pb_dims edge[] = {
    {2, 3, 37, 3, 16, 16, 13, HOLES},
    {1, 5, 160, 8, 512, 512, 64, FULL},
    {2, 4, 67, 8, 512, 512, 50, HOLES},
    {1, 3, 200, 16, 512, 512, 130, HOLES},
    {1, 2, 131, 64, 512, 512, 97, TWICE},
    {1, 2, 70, 128, 512, 512, 40, HOLES},
    {1, 5, 90, 64, 576, 512, 70, EMPTY_ROW},
    {2, 5, 40, 16, 576, 512, 33, EMPTY_ROW},
    {2, 6, 33, 16, 64, 64, 35, EMPTY},
    {2, 9, 20, 5, 24, 8, 7, TWICE},
    {1, 3, 1, 2, 8, 8, 4, FULL},
    {2, 2, 50, 4, 7, 5, 9, HOLES},
    {1, 4, 30, 2, 16, 16, 0, FULL},
    {1, 80, 100, 8, 32, 32, 40, V4},
    {1, 300, 300, 20, 64, 64, 40, CAUSAL},
    {3, 20, 95, 65, 40, 32, 40, EMPTY_ROW},
    {1, 2, 400, 8, 64, 64, 330, FULL},
    {1, 1, 500, 16, 512, 512, 400, HOLES},
    {1, 2, 70, 100, 512, 512, 40, TWICE},
    {2, 3, 60, 8, 512, 512, 130, EMPTY_ROW},
    {1, 2, 33, 64, 512, 512, 35, EMPTY},
    {0},
};
static const pb_dims grid[] = {{1, 256, 320, 8, 512, 512, 128, FULL}, {1, 128, 256, 64, 512, 512, 128, FULL}, {0}};
static const pb_dims device_grid[] = {
    {1, 1280, 1280, 64, 512, 512, 640, FULL}, {1, 4096, 4096, 64, 512, 512, 1024, FULL}, {0}};

static void bind_keys(pb_binder *b, const int *dim, pb_mla *p)
{
    p->W = dim[6];
    p->idx = bind_lists(b, p, (enum list_kind)dim[7]);
}

PB_MLA_OP(sparse_mla, fwd, true, .grad_of = NULL)
/* Of a sink among many keys the difference drowns in the rounding of o. */
PB_MLA_OP(sparse_mla, bwd, true, .grad_of = &pb_op_sparse_mla_fwd, .grad_tol = 1e-2)
