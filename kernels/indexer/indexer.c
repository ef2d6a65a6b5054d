/* indexer.c - the pb_op descriptors of the indexer's ops, and the inputs of their tests and benchmarks. */
#include "kernels/indexer/indexer.h"

#include <limits.h>
#include <stdlib.h>

#include "kernels/cpu/cpu.h"
#include "kernels/indexer/e4m3.h"
#include "kernels/indexer/indexer_ref.h"
#include "kernels/indexer/plan.h"
#include "kernels/indexer/visible.h"

/* ---- CPU implementations, best first, and the workspace that each needs --------------------------------- */

PB_FAST_DECLARE(pb_indexer_quantize)
PB_FAST_DECLARE(pb_indexer_scores)
PB_FAST_DECLARE(pb_indexer_pick)
PB_FAST_DECLARE(pb_indexer_at)
PB_FAST_DECLARE(pb_indexer_bwd)

static size_t scores_workspace(const void *args)
{
    return pb_indexer_scores_room(&((const pb_indexer_scores_args *)args)->x) * sizeof(float);
}
static size_t pick_workspace(const void *args)
{
    return pb_indexer_pick_room(&((const pb_indexer_pick_args *)args)->x) * sizeof(float);
}
static size_t at_workspace(const void *args)
{
    return pb_indexer_at_room(&((const pb_indexer_at_args *)args)->x) * sizeof(float);
}
static size_t bwd_workspace(const void *args)
{
    return pb_indexer_bwd_room(&((const pb_indexer_bwd_args *)args)->x) * sizeof(float);
}

const pb_impl pb_indexer_quantize_cpu[] = {PB_FAST_IMPLS(pb_indexer_quantize){"ref", pb_indexer_quantize_ref}, {0}};
const pb_impl pb_indexer_scores_cpu[] = {
    PB_FAST_IMPLS(pb_indexer_scores, .workspace = scores_workspace){"ref", pb_indexer_scores_ref}, {0}};
const pb_impl pb_indexer_pick_cpu[] = {PB_FAST_IMPLS(pb_indexer_pick, .workspace = pick_workspace){
                                           "ref", pb_indexer_pick_ref, .workspace = pb_indexer_pick_ref_workspace},
                                       {0}};
const pb_impl pb_indexer_at_cpu[] = {PB_FAST_IMPLS(pb_indexer_at, .workspace = at_workspace){"ref", pb_indexer_at_ref},
                                     {0}};
const pb_impl pb_indexer_bwd_cpu[] = {PB_FAST_IMPLS(pb_indexer_bwd, .workspace = bwd_workspace){
                                          "ref", pb_indexer_bwd_ref, .workspace = pb_indexer_bwd_ref_workspace},
                                      {0}};

/* ---- checks of the arguments ---------------------------------------------------------------------------- */

static pb_status check(const char *op, const pb_indexer *x)
{
    if (x->B < 1 || x->S < 1 || x->H < 1 || x->D < 1)
        return pb_fail(PB_EINVAL, "%s: B=%d S=%d H=%d D=%d, need at least 1", op, x->B, x->S, x->H, x->D);
    if (x->G < 0) return pb_fail(PB_EINVAL, "%s: G=%d, need G >= 0", op, x->G);
    if (x->offset < 0) return pb_fail(PB_EINVAL, "%s: offset=%d, need offset >= 0", op, x->offset);
    if (!x->q || !x->w || (!x->k && x->G)) return pb_fail(PB_EINVAL, "%s: q, k or w is NULL", op);
    if (!x->q_scale != !x->k_scale)
        return pb_fail(PB_EINVAL, "%s: one of q_scale and k_scale is NULL, need both or none", op);
    if (x->q_scale && x->D > 128)
        return pb_fail(PB_EINVAL, "%s: D=%d, need D <= 128 when q and k are FP8 codes", op, x->D);
    return PB_OK;
}
static pb_status check_picked(const char *op, const pb_indexer *x, int K, const int32_t *pick)
{
    PB_TRY(check(op, x));
    if (x->q_scale) return pb_fail(PB_EINVAL, "%s: q_scale is set, but this op takes no FP8 codes", op);
    if (K < 0) return pb_fail(PB_EINVAL, "%s: K=%d, need K >= 0", op, K);
    return pick || !K ? PB_OK : pb_fail(PB_EINVAL, "%s: pick is NULL", op);
}

static pb_status quantize_check(const void *args)
{
    const pb_indexer_quantize_args *a = args;
    if (a->N < 0 || a->D < 1 || a->D > 128)
        return pb_fail(PB_EINVAL, "indexer_quantize: N=%d D=%d, need N >= 0 and 1 <= D <= 128", a->N, a->D);
    return !a->N || (a->x && a->code && a->scale) ? PB_OK
                                                  : pb_fail(PB_EINVAL, "indexer_quantize: x, code or scale is NULL");
}
static pb_status scores_check(const void *args)
{
    const pb_indexer_scores_args *a = args;
    PB_TRY(check("indexer_scores", &a->x));
    if (a->ratio < 1) return pb_fail(PB_EINVAL, "indexer_scores: ratio=%d, need ratio >= 1", a->ratio);
    if (a->first < 0 || a->n < 0 || a->n > a->x.S - a->first)
        return pb_fail(PB_EINVAL, "indexer_scores: first=%d n=%d, need a range of queries within S=%d", a->first, a->n,
                       a->x.S);
    return a->score || !a->x.G || !a->n ? PB_OK : pb_fail(PB_EINVAL, "indexer_scores: score is NULL");
}
static pb_status pick_check(const void *args)
{
    const pb_indexer_pick_args *a = args;
    PB_TRY(check("indexer_pick", &a->x));
    if (a->ratio < 1 || a->K < 0)
        return pb_fail(PB_EINVAL, "indexer_pick: ratio=%d K=%d, need ratio >= 1 and K >= 0", a->ratio, a->K);
    return a->pick || !a->K ? PB_OK : pb_fail(PB_EINVAL, "indexer_pick: pick is NULL");
}
static pb_status at_check(const void *args)
{
    const pb_indexer_at_args *a = args;
    PB_TRY(check_picked("indexer_at", &a->x, a->K, a->pick));
    return a->score || !a->K ? PB_OK : pb_fail(PB_EINVAL, "indexer_at: score is NULL");
}
static pb_status bwd_check(const void *args)
{
    const pb_indexer_bwd_args *a = args;
    PB_TRY(check_picked("indexer_bwd", &a->x, a->K, a->pick));
    if (!a->dscore && a->K) return pb_fail(PB_EINVAL, "indexer_bwd: dscore is NULL");
    return a->dq && (a->dk || !a->x.G) && a->dw ? PB_OK : pb_fail(PB_EINVAL, "indexer_bwd: dq, dk or dw is NULL");
}

/* ---- inputs of the ops scores and pick, with exact scores ----------------------------------------------- */

/* q, k and w are small multiples of powers of two. Sums are then exact in any order, so that all implementations must
 * give the same bits; many scores are equal, so that ties are tested too. Groups that no query sees hold NaN. */
typedef struct drawn {
    void *x;
    size_t bytes;
} drawn;

static drawn draw(pb_binder *b, uint64_t seed, size_t n, double step, int most, bool codes, pb_dtype t)
{
    const size_t size = codes ? 1 : pb_dtype_size(t);
    const drawn d = {calloc(n + 1, size), n * size};
    if (!d.x && b->status == PB_OK) b->status = pb_fail(PB_ENOMEM, "indexer: no host memory for %zu values", n);
    const size_t given = d.x ? pb_to_compute(b, n) : 0;
#pragma omp parallel for
    for (size_t i = 0; i < given; i++) {
        const double v = step * (floor(pb_uniform(seed, i) * (2 * most + 1)) - most);
        if (codes) ((uint8_t *)d.x)[i] = pb_e4m3_encode((float)v);
        else pb_store(d.x, i, t, v);
    }
    return d;
}
static const void *give(pb_binder *b, const char *name, drawn d)
{
    const void *bound = d.x ? pb_in_raw(b, name, d.x, d.bytes) : NULL;
    free(d.x);
    return bound;
}
static const float *bind_scales(pb_binder *b, const char *name, uint64_t seed, size_t n)
{
    float *x = calloc(n + 1, sizeof *x);
    if (!x && b->status == PB_OK) b->status = pb_fail(PB_ENOMEM, "indexer: no host memory for %zu scales", n);
    for (size_t i = 0; x && i < pb_to_compute(b, n); i++) x[i] = (float)(0.5 * (1 << (int)(3 * pb_uniform(seed, i))));
    return give(b, name, (drawn){x, n * sizeof *x});
}

/* Returns the first token of the conversation that token t belongs to, when p conversations divide S tokens evenly. For
 * the first conversation it returns -1, which means 0. */
static int32_t start_of(int t, int S, int p)
{
    int m = 0;
    while (m + 1 < p && t >= (int)((int64_t)(m + 1) * S / p)) m++;
    return m ? (int32_t)((int64_t)m * S / p) : -1;
}
/* The starts of the queries of `x`, in rows of offset + S tokens. */
static const int32_t *bind_starts(pb_binder *b, const pb_indexer *x, int p)
{
    const size_t n = (size_t)x->B * x->S;
    int32_t *start = malloc(n * sizeof *start);
    if (!start && b->status == PB_OK)
        b->status = pb_fail(PB_ENOMEM, "indexer: no host memory for %zu start positions", n);
    for (size_t i = 0; start && i < n; i++) start[i] = start_of(x->offset + (int)(i % x->S), x->offset + x->S, p);
    return give(b, "start", (drawn){start, n * sizeof *start});
}

static void spoil_unseen(const pb_binder *b, drawn k, const pb_indexer *x, int ratio, int p, bool codes)
{
    for (size_t r = 0; k.x && r < pb_to_compute(b, (size_t)x->B * x->G); r++) {
        const int64_t last = ((int64_t)(r % x->G) + 1) * ratio - 1, row = x->offset + x->S;
        const int64_t t = last > x->offset ? last : x->offset; /* the first query that could see the group */
        if (t < row && last - ratio + 1 >= start_of((int)t, (int)row, p)) continue;
        for (size_t e = r * x->D; e < (r + 1) * x->D; e++)
            if (codes) ((uint8_t *)k.x)[e] = 0x7f;
            else pb_store(k.x, e, x->dtype, (double)(r % 2 ? INFINITY : NAN));
    }
}

static pb_indexer bind_exact(pb_binder *b, const int *dim, int ratio, int p, int q)
{
    const bool codes = q % 2;
    pb_indexer x = {
        .B = dim[0], .S = dim[1], .G = dim[2], .H = dim[3], .D = dim[4], .offset = q / 2, .dtype = b->dtype};
    const size_t heads = (size_t)x.B * x.S * x.H, groups = (size_t)x.B * x.G;
    const drawn k = draw(b, 2, groups * x.D, 0.5, 2, codes, x.dtype);
    spoil_unseen(b, k, &x, ratio, p, codes);
    x.q = give(b, "q", draw(b, 1, heads * x.D, 0.5, 2, codes, x.dtype));
    x.k = give(b, "k", k);
    x.w = give(b, "w", draw(b, 3, heads, 0.125, 8, false, PB_F32));
    if (codes) x.q_scale = bind_scales(b, "q_scale", 4, heads), x.k_scale = bind_scales(b, "k_scale", 5, groups);
    return x;
}

/* Axes of the shapes below: r: ratio; p: conversations packed into a row, 0: start is NULL; f, n: first query and
 * number of queries; q: twice the offset, plus 1 if q and k are codes; K: list length. */
static const char scores_axes[] = "BSGHDrpfnq";
static const pb_dims scores_edge[] = {
    {2, 37, 9, 3, 16, 4, 3, 0, 200, 0},
    {1, 300, 75, 8, 128, 4, 0, 0, 300, 0},
    {2, 70, 17, 64, 128, 4, 2, 11, 40, 0},
    {1, 45, 300, 16, 128, 1, 0, 3, 42, 0},
    {2, 66, 40, 5, 72, 2, 4, 0, 66, 1},
    {1, 130, 33, 64, 128, 4, 2, 0, 130, 1},
    {1, 3, 1, 8, 128, 4, 0, 0, 3, 0},
    {1, 6, 5, 2, 7, 1, 0, 5, 1, 0},
    {1, 40, 20, 128, 64, 2, 0, 0, 40, 0},
    {3, 20, 30, 17, 200, 1, 2, 1, 19, 0},
    {1, 33, 9, 9, 40, 3, 0, 0, 33, 1},
    {2, 40, 25, 5, 64, 4, 3, 3, 30, 2 * 60},
    {0},
};
static const pb_dims scores_grid[] = {{1, 512, 128, 16, 128, 4, 0, 0, 512, 0}, {0}};
static const pb_dims scores_device_grid[] = {
    {1, 8192, 2048, 64, 128, 4, 0, 0, 8192, 0}, {1, 8192, 2048, 64, 128, 4, 0, 0, 8192, 1}, {0}};
static const char pick_axes[] = "BSGHDrpKq";
static const pb_dims pick_edge[] = {
    {2, 37, 9, 3, 16, 4, 3, 5, 0},
    {1, 300, 75, 8, 128, 4, 0, 33, 0},
    {2, 131, 32, 64, 128, 4, 2, 12, 0},
    {1, 200, 200, 16, 128, 1, 0, 50, 0},
    {2, 66, 40, 5, 72, 2, 4, 7, 1},
    {1, 130, 33, 64, 128, 4, 2, 100, 1},
    {1, 3, 0, 8, 128, 4, 0, 4, 0},
    {1, 6, 5, 2, 7, 1, 0, 2, 0},
    {1, 300, 300, 2, 8, 1, 3, 257, 0},
    {3, 20, 30, 17, 200, 1, 2, 3, 0},
    {2, 64, 64, 8, 128, 4, 3, 9, 2 * 192},
    {1, 33, 50, 3, 16, 2, 0, 60, 2 * 67 + 1},
    {0},
};
static const pb_dims pick_grid[] = {{1, 512, 128, 16, 128, 4, 0, 64, 0}, {0}};
static const pb_dims pick_device_grid[] = {{1, 8192, 2048, 64, 128, 4, 0, 512, 0},
                                           {1, 16384, 4096, 64, 128, 4, 0, 512, 0},
                                           {1, 8192, 2048, 64, 128, 4, 0, 512, 1},
                                           {0}};

static pb_status scores_bind(pb_binder *b, const int *dim, void *args)
{
    pb_indexer_scores_args a = {.x = bind_exact(b, dim, dim[5], dim[6], dim[9]), .ratio = dim[5]};
    a.first = dim[7] < a.x.S ? dim[7] : a.x.S - 1; /* the benchmark may set S below the first query of the shape */
    a.n = dim[8] < a.x.S - a.first ? dim[8] : a.x.S - a.first;
    if (dim[6]) a.start = bind_starts(b, &a.x, dim[6]);
    /* The scores are compared as integers, because their bits must be equal, and -inf must match -inf. */
    a.score = pb_out(b, "score", PB_I32, (size_t)a.x.B * a.n * a.x.G);
    *(pb_indexer_scores_args *)args = a;
    return b->status;
}
static pb_status pick_bind(pb_binder *b, const int *dim, void *args)
{
    pb_indexer_pick_args a = {.x = bind_exact(b, dim, dim[5], dim[6], dim[8]), .ratio = dim[5], .K = dim[7]};
    if (dim[6]) a.start = bind_starts(b, &a.x, dim[6]);
    a.pick = pb_out(b, "pick", PB_I32, (size_t)a.x.B * a.x.S * a.K);
    *(pb_indexer_pick_args *)args = a;
    return b->status;
}

/* ---- inputs of the ops at, bwd and quantize ------------------------------------------------------------- */

/* Added to axis l in the backward pass: dk is f32. */
enum { WIDE = 16 };

/* The kinds of lists of groups, selected by axis l of a shape. Groups that are in no list hold NaN and infinities. */
enum pick_kind {
    FULL,  /* distinct groups, at most all of them */
    HOLES, /* a third of the slots, and all slots of every third query, are -1 or out of range; else random groups */
    TWICE, /* three groups, each many times */
};
static const char picked_axes[] = "BSGHDKl";
static const pb_dims picked_edge[] = {
    {2, 3, 20, 3, 16, 9, HOLES},
    {1, 5, 70, 8, 128, 33, FULL},
    {2, 4, 40, 64, 128, 70, HOLES},
    {1, 6, 30, 16, 128, 100, TWICE},
    {2, 5, 12, 5, 72, 7, TWICE},
    {1, 3, 150, 128, 64, 130, HOLES},
    {1, 2, 9, 2, 7, 4, FULL},
    {1, 3, 1, 8, 128, 4, HOLES},
    {1, 70, 40, 8, 32, 20, HOLES},
    {2, 140, 33, 4, 16, 11, TWICE},
    {1, 3, 40, 17, 200, 35, HOLES},
    {1, 2, 5, 4, 8, 1, FULL},
    {2, 4, 40, 64, 128, 70, WIDE + HOLES},
    {1, 6, 30, 3, 20, 10, WIDE + TWICE},
    {0},
};
static const pb_dims picked_grid[] = {{1, 256, 128, 16, 128, 64, FULL}, {0}};
static const pb_dims picked_device_grid[] = {{1, 8192, 2048, 64, 128, 512, FULL}, {0}};

static const int32_t *bind_picks(pb_binder *b, const pb_indexer *x, int K, enum pick_kind kind)
{
    static const int32_t outside[] = {-1, INT_MAX, INT_MIN};
    const size_t n = (size_t)x->B * x->S * K;
    int32_t *pick = malloc(n * sizeof *pick + 1);
    if (!pick && b->status == PB_OK) b->status = pb_fail(PB_ENOMEM, "indexer: no host memory for %zu top-k indices", n);
    for (size_t i = 0; pick && i < n; i++) {
        const int t = (int)(i / K), j = (int)(i % K);
        const int32_t any = (int32_t)(pb_uniform(6, i) * x->G), G = x->G;
        if (kind == FULL) pick[i] = j < G ? (int32_t)(((int64_t)j * 7 + t) % G) : -1; /* G is not a multiple of 7 */
        else if (kind == TWICE) pick[i] = G > 4 ? 1 + any % 3 : -1;
        else pick[i] = t % 3 == 1 || any % 5 == 0 ? outside[j % 3] : pb_uniform(8, i) < 0.2 ? G : any;
    }
    return give(b, "pick", (drawn){pick, n * sizeof *pick});
}

static pb_indexer bind_seeded(pb_binder *b, const int *dim)
{
    pb_indexer x = {.B = dim[0], .S = dim[1], .G = dim[2], .H = dim[3], .D = dim[4], .dtype = b->dtype};
    const size_t heads = (size_t)x.B * x.S * x.H;
    x.q = pb_in(b, "q", x.dtype, heads * x.D);
    x.k = pb_in(b, "k", x.dtype, (size_t)x.B * x.G * x.D);
    x.w = pb_in(b, "w", PB_F32, heads);
    return x;
}
static pb_status at_bind(pb_binder *b, const int *dim, void *args)
{
    pb_indexer_at_args a = {.x = bind_seeded(b, dim), .K = dim[5]};
    a.pick = bind_picks(b, &a.x, a.K, (enum pick_kind)(dim[6] % WIDE));
    a.score = pb_out(b, "score", PB_F32, (size_t)a.x.B * a.x.S * a.K);
    *(pb_indexer_at_args *)args = a;
    return b->status;
}
static pb_status bwd_bind(pb_binder *b, const int *dim, void *args)
{
    pb_indexer_bwd_args a = {.x = bind_seeded(b, dim), .K = dim[5], .wide = dim[6] >= WIDE};
    const size_t tokens = (size_t)a.x.B * a.x.S;
    a.pick = bind_picks(b, &a.x, a.K, (enum pick_kind)(dim[6] % WIDE));
    a.dscore = pb_in(b, "dscore", PB_F32, tokens * a.K);
    a.dq = pb_out(b, "dq", a.x.dtype, tokens * a.x.H * a.x.D);
    a.dk = pb_out(b, "dk", a.wide ? PB_F32 : a.x.dtype, (size_t)a.x.B * a.x.G * a.x.D);
    a.dw = pb_out(b, "dw", PB_F32, tokens * a.x.H);
    *(pb_indexer_bwd_args *)args = a;
    return b->status;
}

/* Fills groups that are in no list with NaN and infinity, so that an implementation that reads them gives a wrong
 * result. */
static pb_status poison_unlisted(const pb_indexer *x, const int32_t *pick, int K)
{
    bool *named = calloc((size_t)x->B * x->G + 1, sizeof *named);
    if (!named) return pb_fail(PB_ENOMEM, "indexer: no host memory for flags of %d groups", x->G);
    for (size_t i = 0; i < (size_t)x->B * x->S * K; i++)
        if (pick[i] >= 0 && pick[i] < x->G) named[i / K / x->S * x->G + pick[i]] = true;
    for (size_t r = 0; r < (size_t)x->B * x->G; r++)
        for (int d = 0; !named[r] && d < x->D; d++)
            pb_store((void *)x->k, r * x->D + d, x->dtype, (double)(r % 2 ? INFINITY : NAN));
    free(named);
    return PB_OK;
}
static pb_status at_prepare(pb_ctx *cpu, const void *args)
{
    const pb_indexer_at_args *a = args;
    (void)cpu;
    return poison_unlisted(&a->x, a->pick, a->K);
}
static pb_status bwd_prepare(pb_ctx *cpu, const void *args)
{
    const pb_indexer_bwd_args *a = args;
    (void)cpu;
    return poison_unlisted(&a->x, a->pick, a->K);
}

/* Axes of the shapes below: f: the argument f32_scale; s: values are near 10^s. */
static const char quantize_axes[] = "NDfs";
static const pb_dims quantize_edge[] = {{37, 128, 0, 0}, {9, 128, 1, 0},  {5, 7, 0, 3},     {33, 100, 1, -2},
                                        {3, 1, 0, 0},    {64, 64, 0, -6}, {17, 128, 0, 30}, {0}};
static const pb_dims quantize_grid[] = {{4096, 128, 0, 0}, {0}};
static const pb_dims quantize_device_grid[] = {{524288, 128, 0, 0}, {0}};

static pb_status quantize_bind(pb_binder *b, const int *dim, void *args)
{
    pb_indexer_quantize_args a = {.N = dim[0], .D = dim[1], .f32_scale = dim[2], .dtype = b->dtype};
    const double most = pow(10, dim[3]);
    a.x = pb_in_range(b, "x", a.dtype, (size_t)a.N * a.D, -most, most);
    a.code = pb_out(b, "code", PB_U8, (size_t)a.N * a.D);
    a.scale = pb_out(b, "scale", PB_F32, a.N);
    *(pb_indexer_quantize_args *)args = a;
    return b->status;
}

/* ---- the least work of each op, for its roofline time --------------------------------------------------- */

static double inputs(const pb_indexer *x)
{
    const double e = x->q_scale ? 1 : (double)pb_dtype_size(x->dtype), heads = (double)x->B * x->S * x->H;
    return e * x->D * (heads + (double)x->B * x->G) + 4 * heads;
}
/* Returns the number of (query, visible group) pairs as if each row were one conversation: `start` is in device memory,
 * and the host does not read it. */
static double pairs(const pb_indexer *x, int first, int n, int ratio)
{
    double sum = 0;
    for (int t = first; t < first + n; t++) sum += pb_visible_to(x->offset + t, 0, ratio, x->G).hi;
    return x->B * sum;
}

static pb_cost quantize_cost(const void *args)
{
    const pb_indexer_quantize_args *a = args;
    return (pb_cost){.bytes = a->N * (a->D * (1.0 + (double)pb_dtype_size(a->dtype)) + 4)};
}
static pb_cost scores_cost(const void *args)
{
    const pb_indexer_scores_args *a = args;
    return (pb_cost){.flops = 2.0 * a->x.H * a->x.D * pairs(&a->x, a->first, a->n, a->ratio),
                     .bytes = inputs(&a->x) + 4.0 * a->x.B * a->n * a->x.G};
}
static pb_cost pick_cost(const void *args)
{
    const pb_indexer_pick_args *a = args;
    return (pb_cost){.flops = 2.0 * a->x.H * a->x.D * pairs(&a->x, 0, a->x.S, a->ratio),
                     .bytes = inputs(&a->x) + 4.0 * a->x.B * a->x.S * a->K};
}
static pb_cost at_cost(const void *args)
{
    const pb_indexer_at_args *a = args;
    const double slots = (double)a->x.B * a->x.S * a->K;
    return (pb_cost){.flops = 2.0 * a->x.H * a->x.D * slots, .bytes = inputs(&a->x) + 8 * slots};
}
static pb_cost bwd_cost(const void *args)
{
    const pb_indexer_bwd_args *a = args;
    const double slots = (double)a->x.B * a->x.S * a->K;
    return (pb_cost){.flops = 6.0 * a->x.H * a->x.D * slots, .bytes = 2 * inputs(&a->x) + 8 * slots};
}

/* ---- op descriptors (pb_op) ----------------------------------------------------------------------------- */

#define INDEXER_OP(pass, shapes, ...)                                                                                  \
    const pb_op pb_op_indexer_##pass = {.name = "indexer_" #pass,                                                      \
                                        .axes = shapes##_axes,                                                         \
                                        .edge = shapes##_edge,                                                         \
                                        .grid = shapes##_grid,                                                         \
                                        .device_grid = shapes##_device_grid,                                           \
                                        .args_size = sizeof(pb_indexer_##pass##_args),                                 \
                                        .impls = PB_BOTH_BACKENDS(indexer, pass),                                      \
                                        .check = pass##_check,                                                         \
                                        .bind = pass##_bind,                                                           \
                                        .cost = pass##_cost,                                                           \
                                        __VA_ARGS__};
INDEXER_OP(quantize, quantize, .tol = {0}) /* bit-identical to the reference */
INDEXER_OP(scores, scores, .tol = {0})     /* the inputs make all sums exact */
INDEXER_OP(pick, pick, .tol = {0})
INDEXER_OP(at, picked, .prepare = at_prepare, .tol = {[PB_F32] = 1e-6, [PB_BF16] = 1e-6})
INDEXER_OP(bwd, picked, .prepare = bwd_prepare, .tol = {[PB_F32] = 1e-6, [PB_BF16] = 6e-3}, /* `ref` rounds too */
           .grad_of = &pb_op_indexer_at, .grad_tol = 1e-2) /* the finite difference may cross a kink of the relu */
