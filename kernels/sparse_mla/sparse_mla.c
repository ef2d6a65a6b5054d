/* sparse_mla.c - the two descriptors of sparse_mla, and the lists that its tests and benchmarks run on. */
#include "kernels/sparse_mla/sparse_mla.h"

#include <limits.h>
#include <stdlib.h>

#include "kernels/core/cpu.h"
#include "kernels/sparse_mla/convert.h"

/* ---- implementations ------------------------------------------------------------------------------------ */

PB_FAST_DECLARE(pb_sparse_mla_fwd)
PB_FAST_DECLARE(pb_sparse_mla_bwd)

static pb_status fwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_mla p = pb_sparse_mla_fwd_problem(args);
    return pb_mla_fwd_ref(ctx, &p);
}
static pb_status bwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_mla p = pb_sparse_mla_bwd_problem(args);
    return pb_mla_bwd_ref(ctx, &p);
}
static size_t fwd_ref_workspace(const void *args)
{
    const pb_mla p = pb_sparse_mla_fwd_problem(args);
    return pb_mla_fwd_ref_workspace(&p);
}
static size_t bwd_ref_workspace(const void *args)
{
    const pb_mla p = pb_sparse_mla_bwd_problem(args);
    return pb_mla_bwd_ref_workspace(&p);
}
static size_t fwd_workspace(const void *args)
{
    const pb_mla p = pb_sparse_mla_fwd_problem(args);
    return pb_mla_fwd_fast_workspace(&p);
}
static size_t bwd_workspace(const void *args)
{
    const pb_mla p = pb_sparse_mla_bwd_problem(args);
    return pb_mla_bwd_fast_workspace(&p);
}

const pb_impl pb_sparse_mla_fwd_cpu[] = {
    PB_FAST_IMPLS(pb_sparse_mla_fwd, .workspace = fwd_workspace){"ref", fwd_ref, .workspace = fwd_ref_workspace}, {0}};
const pb_impl pb_sparse_mla_bwd_cpu[] = {
    PB_FAST_IMPLS(pb_sparse_mla_bwd, .workspace = bwd_workspace){"ref", bwd_ref, .workspace = bwd_ref_workspace}, {0}};

/* ---- lists ---------------------------------------------------------------------------------------------- */

/* Kinds of list, axis l. All but FULL, CAUSAL and V4 leave out the first, the last and every fifth row of kv, which
 * hold NaN and infinities then. */
enum list_kind {
    FULL,      /* distinct random rows; -1 in slots beyond S_kv */
    HOLES,     /* a quarter of the slots -1, within the list and at its end */
    EMPTY_ROW, /* so are all slots of the first, the last and every third query, and of batch row 1 */
    TWICE,     /* few rows, many times, among indices of every kind out of range */
    EMPTY,     /* nothing but -1 */
    V4,        /* a window of W/2 rows, then groups of 4 of the rows before: S_kv = S + S/4 */
    CAUSAL,    /* random rows; those after the query -1 */
};

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
    {0},
};
static const pb_dims grid[] = {{1, 256, 320, 8, 512, 512, 128, FULL}, {1, 128, 256, 64, 512, 512, 128, FULL}, {0}};
static const pb_dims device_grid[] = {
    {1, 1280, 1280, 64, 512, 512, 640, FULL}, {1, 4096, 4096, 64, 512, 512, 1024, FULL}, {0}};

static pb_status sparse_check(const char *op, const pb_mla *p)
{
    PB_TRY(pb_mla_check(op, p));
    if (p->W < 0) return pb_fail(PB_EINVAL, "%s: W=%d", op, p->W);
    return p->idx ? PB_OK : pb_fail(PB_EINVAL, "%s: idx is NULL", op);
}
static pb_status fwd_check(const void *args)
{
    const pb_mla p = pb_sparse_mla_fwd_problem(args);
    return sparse_check("sparse_mla_fwd", &p);
}
static pb_status bwd_check(const void *args)
{
    const pb_mla p = pb_sparse_mla_bwd_problem(args);
    return sparse_check("sparse_mla_bwd", &p);
}

static pb_mla bind(pb_binder *b, const int *dim, bool backward)
{
    pb_mla p = {.B = dim[0], .S = dim[1], .S_kv = dim[2], .H = dim[3], .D = dim[4], .V = dim[5], .W = dim[6]};
    p.backward = backward;
    p = pb_mla_bind(b, &p);
    p.idx = bind_lists(b, &p, (enum list_kind)dim[7]);
    return p;
}

static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    const pb_mla p = bind(b, dim, false);
    *(pb_sparse_mla_fwd_args *)args = pb_sparse_mla_fwd_of(&p);
    return b->status;
}
static pb_status bwd_bind(pb_binder *b, const int *dim, void *args)
{
    const pb_mla p = bind(b, dim, true);
    *(pb_sparse_mla_bwd_args *)args = pb_sparse_mla_bwd_of(&p);
    return b->status;
}

static pb_status forward(pb_ctx *cpu, const pb_mla *p)
{
    const pb_sparse_mla_fwd_args args = pb_sparse_mla_fwd_of(p);
    return pb_sparse_mla_fwd(cpu, &args);
}
static pb_status fwd_prepare(pb_ctx *cpu, const void *args)
{
    const pb_mla p = pb_sparse_mla_fwd_problem(args);
    return pb_mla_prepare(cpu, &p, NULL);
}
static pb_status bwd_prepare(pb_ctx *cpu, const void *args)
{
    const pb_mla p = pb_sparse_mla_bwd_problem(args);
    return pb_mla_prepare(cpu, &p, forward);
}

static pb_cost fwd_cost(const void *args)
{
    const pb_mla p = pb_sparse_mla_fwd_problem(args);
    return pb_mla_cost(&p);
}
static pb_cost bwd_cost(const void *args)
{
    const pb_mla p = pb_sparse_mla_bwd_problem(args);
    return pb_mla_cost(&p);
}

const pb_op pb_op_sparse_mla_fwd = {
    .name = "sparse_mla_fwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_sparse_mla_fwd_args),
    .impls = PB_BOTH_BACKENDS(sparse_mla, fwd),
    .check = fwd_check,
    .bind = fwd_bind,
    .prepare = fwd_prepare,
    .cost = fwd_cost,
    .tol = PB_MLA_TOL,
};
const pb_op pb_op_sparse_mla_bwd = {
    .name = "sparse_mla_bwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_sparse_mla_bwd_args),
    .impls = PB_BOTH_BACKENDS(sparse_mla, bwd),
    .check = bwd_check,
    .bind = bwd_bind,
    .prepare = bwd_prepare,
    .cost = bwd_cost,
    .tol = PB_MLA_TOL,
    .grad_of = &pb_op_sparse_mla_fwd,
    .grad_tol = 1e-2, /* of a sink among many keys: its difference drowns in the rounding of o */
};
