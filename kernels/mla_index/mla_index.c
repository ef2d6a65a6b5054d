/* mla_index.c - key lists: the reference, which computes one slot at a time, and the pb_op descriptor. */
#include "kernels/mla_index/mla_index.h"

#include <stdlib.h>

#include "kernels/cpu/cpu.h"

/* ---- reference in double precision ---------------------------------------------------------- */

static pb_status build_ref(pb_ctx *ctx, const void *args)
{
    const pb_mla_index_build_args *a = args;
    (void)ctx;
    for (size_t t = 0; t < (size_t)a->B * a->S; t++) {
        const int i = a->offset + (int)(t % a->S), keys = a->keys ? a->keys : a->S;
        const int wide = keys < a->window ? keys : a->window;
        const int first = a->start && a->start[t] > 0 ? a->start[t] : 0, from = i < wide + first ? first : i - wide + 1;
        int32_t *to = a->idx + t * a->W;
        for (int w = 0; w < a->W; w++) to[w] = -1;
        for (int r = from; r <= i && r < from + wide; r++) to[r - from] = r;
        for (int k = 0; k < a->T; k++) {
            const int32_t g = a->pick ? a->pick[t * a->T + k] : k;
            if (g >= (first + a->ratio - 1) / a->ratio && g < (i + 1) / a->ratio) to[wide + k] = keys + g;
        }
    }
    return PB_OK;
}

/* ---- CPU implementations, best first --------------------------------------------------------- */

PB_FAST_DECLARE(pb_mla_index_build)

const pb_impl pb_mla_index_build_cpu[] = {PB_FAST_IMPLS(pb_mla_index_build){"ref", build_ref}, {0}};

/* ---- op descriptor (pb_op): shapes, argument checks, inputs, costs ---------------------------- */

static const char axes[] = "BSTWwrnp";
/* One shape in the tables below: a pb_dims whose numbers have names, in the order of `axes`. */
typedef struct shape {
    int B, S, T, W, window, ratio;
    int conversations; /* conversations packed into a row; 0: start is NULL */
    /* 1: the list names the top-k groups of an indexer; 0: all groups, and pick is NULL; plus 2 x offset */
    int pick;
    int unused[2];
} shape;
_Static_assert(sizeof(shape) == sizeof(pb_dims), "a shape is a pb_dims with names");
static const shape edge[] = {
    {.B = 2, .S = 37, .T = 9, .W = 32, .window = 12, .ratio = 4, .conversations = 3, .pick = 1},
    {.B = 1, .S = 300, .T = 75, .W = 256, .window = 128, .ratio = 4, .pick = 1},
    {.B = 1, .S = 260, .T = 2, .W = 130, .window = 128, .ratio = 128},
    {.B = 1, .S = 100, .W = 128, .window = 128, .ratio = 1},
    {.B = 2, .S = 200, .T = 50, .W = 178, .window = 128, .ratio = 4, .conversations = 5, .pick = 1},
    {.B = 1, .S = 1, .T = 3, .W = 4, .window = 128, .ratio = 4, .pick = 1},
    {.B = 2, .S = 130, .T = 16, .W = 63, .window = 40, .ratio = 8, .conversations = 2},
    {.B = 2, .S = 40, .T = 16, .W = 70, .window = 50, .ratio = 8, .conversations = 3, .pick = 2 * 80},
    {.B = 1, .S = 32, .T = 9, .W = 40, .window = 12, .ratio = 4, .pick = 2 * 64 + 1},
    {0},
};
static const shape grid[] = {
    {.B = 1, .S = 4096, .T = 512, .W = 640, .window = 128, .ratio = 4, .pick = 1},
    {.B = 1, .S = 4096, .T = 32, .W = 192, .window = 128, .ratio = 128},
    {0},
};

static pb_status build_check(const void *args)
{
    const pb_mla_index_build_args *a = args;
    if (a->B < 1 || a->S < 1 || a->window < 1 || a->ratio < 1)
        return pb_fail(PB_EINVAL, "mla_index_build: B=%d S=%d window=%d ratio=%d, need at least 1", a->B, a->S,
                       a->window, a->ratio);
    const int keys = pb_mla_index_keys(a), wide = pb_mla_index_wide(a);
    if (a->offset < 0 || keys < a->S || a->offset > keys - a->S)
        return pb_fail(PB_EINVAL, "mla_index_build: offset=%d keys=%d, need 0 <= offset <= keys - %d", a->offset, keys,
                       a->S);
    if (a->T < 0 || a->W - wide < a->T)
        return pb_fail(PB_EINVAL, "mla_index_build: W=%d T=%d, need T >= 0 and W >= %d + T", a->W, a->T, wide);
    return a->idx ? PB_OK : pb_fail(PB_EINVAL, "mla_index_build: idx is NULL");
}

/* Makes `start` for rows of `keys` tokens that hold n conversations of about equal length: conversation m begins at
 * token m keys/n. Tokens of the first conversation get -1 instead of 0, to test negative values. */
static const int32_t *bind_start(pb_binder *b, const pb_mla_index_build_args *a, int n)
{
    const size_t T = (size_t)a->B * a->S, keys = (size_t)pb_mla_index_keys(a);
    int32_t *start = malloc(T * sizeof *start);
    const int32_t *bound = NULL;
    if (start) {
        for (size_t t = 0, m = 0; t < T; t++) {
            const size_t i = a->offset + t % a->S;
            if (t % a->S == 0) m = 0;
            while (m + 1 < (size_t)n && i >= (m + 1) * keys / n) m++;
            start[t] = m ? (int32_t)(m * keys / n) : -1;
        }
        bound = pb_in_raw(b, "start", start, T * sizeof *start);
    } else if (b->status == PB_OK) {
        b->status = pb_fail(PB_ENOMEM, "mla_index: no host memory for %zu start positions", T);
    }
    free(start);
    return bound;
}

static pb_status build_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t T = (size_t)dim[0] * dim[1];
    pb_mla_index_build_args a = {.B = dim[0], .S = dim[1], .T = dim[2], .W = dim[3], .window = dim[4], .ratio = dim[5]};
    a.offset = dim[7] / 2;
    if (a.offset) a.keys = a.offset + a.S + 7; /* the queries are neither the first nor the last tokens of the row */
    if (dim[7] % 2) a.pick = pb_in_range(b, "pick", PB_I32, T * a.T, -2, pb_mla_index_keys(&a) / a.ratio + 3);
    if (dim[6]) a.start = bind_start(b, &a, dim[6]);
    a.idx = pb_out(b, "idx", PB_I32, T * a.W);
    *(pb_mla_index_build_args *)args = a;
    return b->status;
}

static pb_cost build_cost(const void *args)
{
    const pb_mla_index_build_args *a = args;
    const double T = (double)a->B * a->S;
    return (pb_cost){.bytes = 4 * T * (a->W + (a->pick ? a->T : 0) + (a->start ? 1 : 0))};
}

const pb_op pb_op_mla_index_build = {
    .name = "mla_index_build",
    .axes = axes,
    .edge = (const pb_dims *)edge,
    .grid = (const pb_dims *)grid,
    .args_size = sizeof(pb_mla_index_build_args),
    .impls = PB_BOTH_BACKENDS(mla_index, build),
    .check = build_check,
    .bind = build_bind,
    .cost = build_cost,
    .tol = {0}, /* outputs are integers and must be equal */
    .f32_only = true,
};
