/* sparse_mla.c - the pb_op descriptors of sparse_mla, and the key lists that its tests and benchmarks use. */
#include "kernels/sparse_mla/sparse_mla.h"

#include <limits.h>
#include <stdlib.h>

#include "kernels/sparse_mla/lists.h"
#include "kernels/sparse_mla/mla_ops.h"

/* ---- key lists for tests and benchmarks ----------------------------------------------------------------- */

/* The rows from which key lists are drawn without replacement: a permutation, which every list shuffles further. */
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
        b->status = pb_fail(PB_ENOMEM, "sparse_mla: no host memory for %zu indices", n);
    }
    free(d.rows);
    free(lists);
    return bound;
}

/* ---- op descriptors (pb_op) and shapes ------------------------------------------------------------------ */

static const char axes[] = "BSKHDVWl";
/* One shape in the tables below: a pb_dims whose numbers have names, in the order of `axes`. */
typedef struct shape {
    int B, S, S_kv, H, D, V, W;
    int lists; /* an enum list_kind, plus WIDE */
    int unused[2];
} shape;
_Static_assert(sizeof(shape) == sizeof(pb_dims), "a shape is a pb_dims with names");
static const shape edge[] = {
    {.B = 2, .S = 3, .S_kv = 37, .H = 3, .D = 16, .V = 16, .W = 13, .lists = HOLES},
    {.B = 1, .S = 5, .S_kv = 160, .H = 8, .D = 512, .V = 512, .W = 64, .lists = FULL},
    {.B = 2, .S = 4, .S_kv = 67, .H = 8, .D = 512, .V = 512, .W = 50, .lists = HOLES},
    {.B = 1, .S = 3, .S_kv = 200, .H = 16, .D = 512, .V = 512, .W = 130, .lists = HOLES},
    {.B = 1, .S = 2, .S_kv = 131, .H = 64, .D = 512, .V = 512, .W = 97, .lists = TWICE},
    {.B = 1, .S = 2, .S_kv = 70, .H = 128, .D = 512, .V = 512, .W = 40, .lists = HOLES},
    {.B = 1, .S = 5, .S_kv = 90, .H = 64, .D = 576, .V = 512, .W = 70, .lists = EMPTY_ROW},
    {.B = 2, .S = 5, .S_kv = 40, .H = 16, .D = 576, .V = 512, .W = 33, .lists = EMPTY_ROW},
    {.B = 2, .S = 6, .S_kv = 33, .H = 16, .D = 64, .V = 64, .W = 35, .lists = EMPTY},
    {.B = 2, .S = 9, .S_kv = 20, .H = 5, .D = 24, .V = 8, .W = 7, .lists = TWICE},
    {.B = 1, .S = 3, .S_kv = 1, .H = 2, .D = 8, .V = 8, .W = 4, .lists = FULL},
    {.B = 2, .S = 2, .S_kv = 50, .H = 4, .D = 7, .V = 5, .W = 9, .lists = HOLES},
    {.B = 1, .S = 4, .S_kv = 30, .H = 2, .D = 16, .V = 16, .lists = FULL},
    {.B = 1, .S = 80, .S_kv = 100, .H = 8, .D = 32, .V = 32, .W = 40, .lists = V4},
    {.B = 1, .S = 300, .S_kv = 300, .H = 20, .D = 64, .V = 64, .W = 40, .lists = CAUSAL},
    {.B = 3, .S = 20, .S_kv = 95, .H = 65, .D = 40, .V = 32, .W = 40, .lists = EMPTY_ROW},
    {.B = 1, .S = 2, .S_kv = 400, .H = 8, .D = 64, .V = 64, .W = 330, .lists = FULL},
    {.B = 1, .S = 1, .S_kv = 500, .H = 16, .D = 512, .V = 512, .W = 400, .lists = HOLES},
    {.B = 1, .S = 2, .S_kv = 70, .H = 100, .D = 512, .V = 512, .W = 40, .lists = TWICE},
    {.B = 2, .S = 3, .S_kv = 60, .H = 8, .D = 512, .V = 512, .W = 130, .lists = EMPTY_ROW},
    {.B = 1, .S = 2, .S_kv = 33, .H = 64, .D = 512, .V = 512, .W = 35, .lists = EMPTY},
    {.B = 2, .S = 4, .S_kv = 67, .H = 8, .D = 512, .V = 512, .W = 50, .lists = WIDE + HOLES},
    {.B = 1, .S = 3, .S_kv = 90, .H = 64, .D = 512, .V = 512, .W = 70, .lists = WIDE + TWICE},
    {.B = 2, .S = 9, .S_kv = 20, .H = 5, .D = 24, .V = 8, .W = 7, .lists = WIDE + TWICE},
    {0},
};
static const shape grid[] = {
    {.B = 1, .S = 256, .S_kv = 320, .H = 8, .D = 512, .V = 512, .W = 128, .lists = FULL},
    {.B = 1, .S = 128, .S_kv = 256, .H = 64, .D = 512, .V = 512, .W = 128, .lists = FULL},
    {0},
};
static const shape device_grid[] = {
    {.B = 1, .S = 1280, .S_kv = 1280, .H = 64, .D = 512, .V = 512, .W = 640, .lists = FULL},
    {.B = 1, .S = 4096, .S_kv = 4096, .H = 64, .D = 512, .V = 512, .W = 1024, .lists = FULL},
    {0},
};

static void bind_keys(pb_binder *b, const int *dim, pb_mla *p)
{
    p->W = dim[6];
    p->idx = bind_lists(b, p, (enum list_kind)(dim[7] % WIDE));
}

static bool wide_of(const int *dim) { return dim[7] >= WIDE; }

PB_MLA_OP(sparse_mla, fwd, true, .grad_of = NULL)
/* grad_tol is large because the gradient of a sink is small when it competes with many keys, and then the rounding of o
 * dominates the finite difference. */
PB_MLA_OP(sparse_mla, bwd, true, .grad_of = &pb_op_sparse_mla_fwd, .grad_tol = 1e-2)
