/* dynmask_attention.c - dynmask_attention: the reference in double precision, and the op descriptors. */
#include "kernels/dynmask_attention/dynmask_attention.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "kernels/cpu/cpu.h"
#include "kernels/dynmask_attention/lists.h"
#include "kernels/dynmask_attention/plan.h"

/* ---- reference in double precision -------------------------------------------------------------------- */

static double dot(const void *x, size_t at, const void *y, size_t to, int D, pb_dtype t)
{
    double sum = 0;
    for (int d = 0; d < D; d++) sum += pb_load(x, at + d, t) * pb_load(y, to + d, t);
    return sum;
}

/* Computes o and lse of one query of one head. s: scratch array [L], o: scratch array [D]. */
static void fwd_query(const pb_dynmask_attention_fwd_args *a, int b, int h, int i, double *s, double *o)
{
    const int kv = h / (a->H / a->K);
    const size_t head = (size_t)b * a->K + kv, q = ((size_t)b * a->S + i) * a->ldq + (size_t)h * a->D;
    const int32_t *list = a->list + head * a->L, *until = a->until + head * a->L;
    const float *bias = a->bias + head * a->S_kv;
    const int64_t position = (int64_t)i + a->S_kv - a->S;
    double top = (double)-INFINITY, sum = 0;
    for (int l = 0; l < a->L; l++) {
        const int j = pb_dynmask_key(list, until, bias, a->S_kv, l, position);
        if (j < 0) continue;
        const size_t k = ((size_t)b * a->S_kv + j) * a->ldk + (size_t)kv * a->D;
        s[l] = (double)a->scale * dot(a->q, q, a->k, k, a->D, a->dtype) + (double)bias[j];
        if (!(s[l] <= top)) top = s[l];
    }
    for (int d = 0; d < a->D; d++) o[d] = 0;
    for (int l = 0; l < a->L; l++) {
        const int j = pb_dynmask_key(list, until, bias, a->S_kv, l, position);
        if (j < 0) continue;
        const double p = exp(s[l] - top);
        const size_t v = ((size_t)b * a->S_kv + j) * a->ldv + (size_t)kv * a->D;
        sum += p;
        for (int d = 0; d < a->D; d++) o[d] += p * pb_load(a->v, v + d, a->dtype);
    }
    a->lse[((size_t)b * a->H + h) * a->S + i] = (float)(sum == 0 ? (double)-INFINITY : top + log(sum));
    for (int d = 0; d < a->D; d++)
        pb_store(a->o, ((size_t)b * a->S + i) * a->ldo + (size_t)h * a->D + d, a->dtype, sum == 0 ? 0 : o[d] / sum);
}

static pb_status fwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_dynmask_attention_fwd_args *a = args;
    double *s = ctx->scratch, *o = s + a->L;
    for (int b = 0; b < a->B; b++)
        for (int h = 0; h < a->H; h++)
            for (int i = 0; i < a->S; i++) fwd_query(a, b, h, i, s, o);
    return PB_OK;
}

/* Returns p_ij and sets *ds to ds_ij, as dynmask_attention.h defines them, and *key to the key of slot l. If query i
 * does not attend to it, *key is -1 and both are 0. */
static double weight(const pb_dynmask_attention_bwd_args *a, int b, int h, int i, int l, int *key, double *ds)
{
    const int kv = h / (a->H / a->K), D = a->D;
    const size_t list = ((size_t)b * a->K + kv) * a->L, at = (size_t)h * D, row = (size_t)b * a->S + i;
    const float *bias = a->bias + ((size_t)b * a->K + kv) * a->S_kv;
    const int j = pb_dynmask_key(a->list + list, a->until + list, bias, a->S_kv, l, (int64_t)i + a->S_kv - a->S);
    *ds = 0, *key = j;
    if (j < 0) return 0;
    const size_t kj = (size_t)b * a->S_kv + j, head = (size_t)kv * D;
    const double s = (double)a->scale * dot(a->q, row * a->ldq + at, a->k, kj * a->ldk + head, D, a->dtype);
    const double p = exp(s + (double)bias[j] - (double)a->lse[((size_t)b * a->H + h) * a->S + i]);
    const double dp = dot(a->dO, row * a->lddo + at, a->v, kj * a->ldv + head, D, a->dtype);
    *ds = p * (dp - dot(a->dO, row * a->lddo + at, a->o, row * a->ldo + at, D, a->dtype));
    return p;
}

/* Computes dq of one query of one head. sum: scratch array [D]. */
static void dq_ref(const pb_dynmask_attention_bwd_args *a, int b, int h, int i, double *sum)
{
    const size_t head = (size_t)(h / (a->H / a->K)) * a->D;
    for (int d = 0; d < a->D; d++) sum[d] = 0;
    for (int l = 0; l < a->L; l++) {
        double ds;
        int j;
        weight(a, b, h, i, l, &j, &ds);
        for (int d = 0; j >= 0 && d < a->D; d++)
            sum[d] += ds * pb_load(a->k, ((size_t)b * a->S_kv + j) * a->ldk + head + d, a->dtype);
    }
    for (int d = 0; d < a->D; d++)
        pb_store(a->dq, ((size_t)b * a->S + i) * a->lddq + (size_t)h * a->D + d, a->dtype, (double)a->scale * sum[d]);
}

static void store_key(const pb_dynmask_attention_bwd_args *a, int b, int kv, int j, const double *sum, double dbias)
{
    const size_t token = (size_t)b * a->S_kv + j, head = (size_t)kv * a->D;
    for (int d = 0; d < a->D; d++) {
        pb_store(a->dk, token * a->lddk + head + d, pb_dynmask_dkv_dtype(a), sum[d]);
        pb_store(a->dv, token * a->lddv + head + d, pb_dynmask_dkv_dtype(a), sum[a->D + d]);
    }
    a->dbias[((size_t)b * a->K + kv) * a->S_kv + j] = (float)dbias;
}

/* Computes dk, dv and dbias of the key of slot l. sum: scratch array [2,D]. */
static void slot_ref(const pb_dynmask_attention_bwd_args *a, int b, int kv, int l, double *sum)
{
    const int D = a->D, group = a->H / a->K;
    const int32_t key = a->list[((size_t)b * a->K + kv) * a->L + l];
    double dbias = 0;
    if (key < 0 || key >= a->S_kv) return;
    for (int d = 0; d < 2 * D; d++) sum[d] = 0;
    for (int h = kv * group; h < (kv + 1) * group; h++)
        for (int i = 0; i < a->S; i++) {
            const size_t row = (size_t)b * a->S + i, head = (size_t)h * D;
            double ds;
            int j;
            const double p = weight(a, b, h, i, l, &j, &ds);
            if (j < 0) continue;
            dbias += ds;
            for (int d = 0; d < D; d++) {
                sum[d] += (double)a->scale * ds * pb_load(a->q, row * a->ldq + head + d, a->dtype);
                sum[D + d] += p * pb_load(a->dO, row * a->lddo + head + d, a->dtype);
            }
        }
    store_key(a, b, kv, key, sum, dbias);
}

static pb_status bwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_dynmask_attention_bwd_args *a = args;
    double *sum = ctx->scratch;
    for (int b = 0; b < a->B; b++) {
        for (int h = 0; h < a->H; h++)
            for (int i = 0; i < a->S; i++) dq_ref(a, b, h, i, sum);
        for (int kv = 0; kv < a->K; kv++) {
            for (int d = 0; d < 2 * a->D; d++) sum[d] = 0;
            for (int j = 0; j < a->S_kv; j++) store_key(a, b, kv, j, sum, 0);
            for (int l = 0; l < a->L; l++) slot_ref(a, b, kv, l, sum);
        }
    }
    return PB_OK;
}

/* ---- CPU implementations, best first, and the workspace that each needs -------------------------------- */

PB_FAST_DECLARE(pb_dynmask_attention_fwd)
PB_FAST_DECLARE(pb_dynmask_attention_bwd)

static size_t fwd_ref_workspace(const void *args)
{
    const pb_dynmask_attention_fwd_args *a = args;
    return ((size_t)a->L + a->D) * sizeof(double);
}
static size_t bwd_ref_workspace(const void *args)
{
    return 2 * (size_t)((const pb_dynmask_attention_bwd_args *)args)->D * sizeof(double);
}

static size_t fwd_workspace(const void *args)
{
    const pb_dynmask_attention_fwd_args *a = args;
    return (size_t)omp_get_max_threads() * pb_dynmask_fwd_tiles(a->D, a->L) * sizeof(float);
}
static size_t bwd_workspace(const void *args)
{
    const pb_dynmask_attention_bwd_args *a = args;
    return ((size_t)omp_get_max_threads() * pb_dynmask_bwd_tiles(a->D, a->L) +
            pb_dynmask_shared(a->B, a->S, a->S_kv, a->H, a->K, a->D, a->L)) *
           sizeof(float);
}

const pb_impl pb_dynmask_attention_fwd_cpu[] = {
    PB_FAST_IMPLS(pb_dynmask_attention_fwd, .workspace = fwd_workspace){"ref", fwd_ref, .workspace = fwd_ref_workspace},
    {0}};
const pb_impl pb_dynmask_attention_bwd_cpu[] = {
    PB_FAST_IMPLS(pb_dynmask_attention_bwd, .workspace = bwd_workspace){"ref", bwd_ref, .workspace = bwd_ref_workspace},
    {0}};

/* ---- op descriptors (pb_op): shapes, argument checks, inputs, costs ------------------------------------ */

static const char axes[] = "BSTHKDwpl";
/* One shape in the tables below: a pb_dims whose numbers have names, in the order of `axes`. */
typedef struct shape {
    int B, S, T, H, K, D; /* T: S_kv */
    int keep;
    int pad;  /* unit of the gaps between tokens, in elements: each tensor has another multiple of it */
    int list; /* enum pb_dynmask_lists, plus WIDE */
    int unused;
} shape;
_Static_assert(sizeof(shape) == sizeof(pb_dims), "a shape is a pb_dims with names");
enum { WIDE = 16 }; /* backward pass: dk and dv are f32 */
static const shape edge[] = {
    {.B = 1, .S = 9, .T = 40, .H = 3, .K = 1, .D = 7, .keep = 6},
    {.B = 2, .S = 33, .T = 90, .H = 4, .K = 2, .D = 16, .keep = 20, .pad = 3, .list = WIDE + PB_LISTS_PACKED},
    {.B = 1, .S = 70, .T = 70, .H = 2, .K = 1, .D = 64, .keep = 24, .pad = 8, .list = WIDE + PB_LISTS_HOLES},
    {.B = 2, .S = 70, .T = 70, .H = 6, .K = 2, .D = 16, .keep = 20, .pad = 5, .list = PB_LISTS_PACKED},
    {.B = 1, .S = 130, .T = 130, .H = 2, .K = 2, .D = 64, .keep = 32, .pad = 1},
    {.B = 1, .S = 150, .T = 100, .H = 4, .K = 1, .D = 40, .keep = 16}, /* queries before every key */
    {.B = 3, .S = 65, .T = 129, .H = 7, .K = 1, .D = 32, .keep = 24, .list = PB_LISTS_HOLES},
    {.B = 1, .S = 257, .T = 257, .H = 2, .K = 1, .D = 24, .keep = 48, .pad = 3, .list = PB_LISTS_BLOCKS},
    {.B = 2,
     .S = 90,
     .T = 90,
     .H = 8,
     .K = 1,
     .D = 5,
     .keep = 12,
     .list = PB_LISTS_UNION}, /* the first queries have no key */
    {.B = 1, .S = 60, .T = 60, .H = 12, .K = 3, .D = 80, .keep = 60, .list = PB_LISTS_UNION}, /* every key */
    {.B = 1, .S = 33, .T = 191, .H = 2, .K = 2, .D = 256, .keep = 500},
    {.B = 1, .S = 128, .T = 128, .H = 1, .K = 1, .D = 128, .keep = 2, .pad = 8},
    {.B = 2, .S = 1, .T = 63, .H = 4, .K = 4, .D = 96, .keep = 10, .pad = 8, .list = PB_LISTS_PACKED},
    {.B = 1, .S = 1, .T = 1, .H = 1, .K = 1, .D = 1, .keep = 1},
    {.B = 1, .S = 300, .T = 300, .H = 4, .K = 2, .D = 64, .keep = 200, .pad = 8},
    {.B = 2, .S = 140, .T = 140, .H = 4, .K = 2, .D = 192, .keep = 30, .list = PB_LISTS_HOLES},
    /* head widths and strides that tensor-core implementations take */
    {.B = 1, .S = 150, .T = 100, .H = 4, .K = 1, .D = 64, .keep = 16},
    {.B = 1, .S = 65, .T = 129, .H = 7, .K = 1, .D = 128, .keep = 24, .pad = 8, .list = PB_LISTS_HOLES},
    {.B = 1, .S = 257, .T = 257, .H = 2, .K = 1, .D = 64, .keep = 48, .pad = 8, .list = PB_LISTS_BLOCKS},
    {.B = 2, .S = 90, .T = 90, .H = 8, .K = 1, .D = 128, .keep = 12, .list = PB_LISTS_UNION},
    {.B = 2, .S = 140, .T = 140, .H = 2, .K = 1, .D = 128, .keep = 30, .list = PB_LISTS_PACKED},
    {.B = 1, .S = 1, .T = 200, .H = 8, .K = 2, .D = 64, .keep = 150},
    {.B = 1, .S = 300, .T = 300, .H = 2, .K = 1, .D = 128, .keep = 180, .list = PB_LISTS_UNION},
    {.B = 1, .S = 200, .T = 210, .H = 3, .K = 1, .D = 64, .keep = 150, .list = PB_LISTS_UNION},
    {0},
};
static const shape grid[] = {
    {.B = 1, .S = 1024, .T = 1024, .H = 8, .K = 2, .D = 64, .keep = 128},
    {.B = 1, .S = 1024, .T = 1024, .H = 8, .K = 2, .D = 64, .keep = 128, .list = PB_LISTS_UNION},
    {.B = 1, .S = 1024, .T = 1024, .H = 8, .K = 2, .D = 64, .keep = 1024, .list = PB_LISTS_UNION},
    {.B = 1, .S = 512, .T = 512, .H = 6, .K = 3, .D = 128, .keep = 128},
    {0},
};
static const shape device_grid[] = {
    {.B = 1, .S = 8192, .T = 8192, .H = 32, .K = 8, .D = 128, .keep = 1024},
    {.B = 1, .S = 8192, .T = 8192, .H = 32, .K = 8, .D = 128, .keep = 1024, .list = PB_LISTS_UNION},
    {0},
};

static pb_status sizes_check(const char *op, int B, int S, int S_kv, int H, int K, int D, int L, int keep, float scale)
{
    if (B < 1 || S < 1 || S_kv < 1 || D < 1 || L < 1 || keep < 1)
        return pb_fail(PB_EINVAL, "%s: B=%d S=%d S_kv=%d D=%d L=%d keep=%d, need at least 1", op, B, S, S_kv, D, L,
                       keep);
    if (K < 1 || H < 1 || H % K)
        return pb_fail(PB_EINVAL, "%s: H=%d K=%d, need K >= 1 and H a positive multiple of K", op, H, K);
    return isfinite(scale) ? PB_OK : pb_fail(PB_EINVAL, "%s: scale=%g, need a finite number", op, (double)scale);
}

/* A tensor of an op: its name, address, stride and width. A tensor without tokens has width 0. */
typedef struct tensor {
    const char *name;
    const void *p;
    size_t ld, width;
} tensor;

static pb_status tensors_check(const char *op, const tensor *t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!t[i].p) return pb_fail(PB_EINVAL, "%s: %s is NULL", op, t[i].name);
        if (t[i].ld < t[i].width)
            return pb_fail(PB_EINVAL, "%s: tokens of %s are %zu elements apart, need at least %zu", op, t[i].name,
                           t[i].ld, t[i].width);
    }
    return PB_OK;
}

static pb_status fwd_check(const void *args)
{
    const pb_dynmask_attention_fwd_args *a = args;
    const char op[] = "dynmask_attention_fwd";
    const size_t n = (size_t)a->H * a->D, m = (size_t)a->K * a->D;
    const tensor t[] = {{"q", a->q, a->ldq, n},    {"k", a->k, a->ldk, m},  {"v", a->v, a->ldv, m},
                        {"o", a->o, a->ldo, n},    {"bias", a->bias, 0, 0}, {"list", a->list, 0, 0},
                        {"until", a->until, 0, 0}, {"lse", a->lse, 0, 0}};
    PB_TRY(sizes_check(op, a->B, a->S, a->S_kv, a->H, a->K, a->D, a->L, a->keep, a->scale));
    return tensors_check(op, t, sizeof t / sizeof *t);
}

static pb_status bwd_check(const void *args)
{
    const pb_dynmask_attention_bwd_args *a = args;
    const char op[] = "dynmask_attention_bwd";
    const size_t n = (size_t)a->H * a->D, m = (size_t)a->K * a->D;
    const tensor t[] = {{"do", a->dO, a->lddo, n}, {"q", a->q, a->ldq, n},    {"k", a->k, a->ldk, m},
                        {"v", a->v, a->ldv, m},    {"o", a->o, a->ldo, n},    {"dq", a->dq, a->lddq, n},
                        {"dk", a->dk, a->lddk, m}, {"dv", a->dv, a->lddv, m}, {"bias", a->bias, 0, 0},
                        {"list", a->list, 0, 0},   {"until", a->until, 0, 0}, {"lse", a->lse, 0, 0},
                        {"dbias", a->dbias, 0, 0}};
    PB_TRY(sizes_check(op, a->B, a->S, a->S_kv, a->H, a->K, a->D, a->L, a->keep, a->scale));
    return tensors_check(op, t, sizeof t / sizeof *t);
}

/* Binds list and until. The sizes of *a are set. */
static void bind_lists(pb_binder *b, pb_dynmask_attention_fwd_args *a, enum pb_dynmask_lists kind)
{
    const size_t bytes = (size_t)a->B * a->K * a->L * sizeof(int32_t);
    int32_t *list = malloc(2 * bytes);
    if (!list) {
        b->status = pb_fail(PB_ENOMEM, "dynmask_attention: no host memory for lists of %d slots", a->L);
        return;
    }
    int32_t *until = list + bytes / sizeof *list;
    if (b->status == PB_OK) b->status = pb_dynmask_lists_fill(kind, a->B, a->S_kv, a->K, a->keep, list, until);
    if (b->status == PB_OK) {
        a->list = pb_in_raw(b, "list", list, bytes);
        a->until = pb_in_raw(b, "until", until, bytes);
    }
    free(list);
}

/* Binds the inputs of both passes. */
static pb_dynmask_attention_fwd_args bind_inputs(pb_binder *b, const int *dim)
{
    pb_dynmask_attention_fwd_args a = {.B = dim[0], .S = dim[1], .S_kv = dim[2], .H = dim[3], .K = dim[4], .D = dim[5]};
    const size_t n = (size_t)a.H * a.D, m = (size_t)a.K * a.D, pad = dim[7];
    const size_t queries = (size_t)a.B * a.S, keys = (size_t)a.B * a.S_kv;
    const enum pb_dynmask_lists kind = (enum pb_dynmask_lists)(dim[8] % WIDE);
    a.keep = dim[6], a.L = pb_dynmask_lists_size(kind, a.S_kv, a.keep);
    a.ldq = n + pad, a.ldk = m + 2 * pad, a.ldv = m + 3 * pad, a.ldo = n + 4 * pad;
    a.scale = 2 / sqrtf((float)a.D), a.dtype = b->dtype;
    a.q = pb_in_ld(b, "q", b->dtype, queries, n, a.ldq);
    a.k = pb_in_ld(b, "k", b->dtype, keys, m, a.ldk);
    a.v = pb_in_ld(b, "v", b->dtype, keys, m, a.ldv);
    a.bias = pb_in_range(b, "bias", PB_F32, keys * a.K, -2, 2);
    bind_lists(b, &a, kind);
    return a;
}

static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    pb_dynmask_attention_fwd_args a = bind_inputs(b, dim);
    const size_t queries = (size_t)a.B * a.S;
    a.o = pb_out_ld(b, "o", b->dtype, queries, (size_t)a.H * a.D, a.ldo);
    a.lse = pb_out_log(b, "lse", queries * a.H);
    *(pb_dynmask_attention_fwd_args *)args = a;
    return b->status;
}

/* Copies the fields that the arguments of both passes share. */
#define SHARED(f)                                                                                                      \
    .q = (f)->q, .k = (f)->k, .v = (f)->v, .bias = (f)->bias, .list = (f)->list, .until = (f)->until, .B = (f)->B,     \
    .S = (f)->S, .S_kv = (f)->S_kv, .H = (f)->H, .K = (f)->K, .D = (f)->D, .L = (f)->L, .keep = (f)->keep,             \
    .ldq = (f)->ldq, .ldk = (f)->ldk, .ldv = (f)->ldv, .ldo = (f)->ldo, .scale = (f)->scale, .dtype = (f)->dtype

static pb_status bwd_bind(pb_binder *b, const int *dim, void *args)
{
    const pb_dynmask_attention_fwd_args f = bind_inputs(b, dim);
    const size_t n = (size_t)f.H * f.D, m = (size_t)f.K * f.D, pad = dim[7];
    const size_t queries = (size_t)f.B * f.S, keys = (size_t)f.B * f.S_kv;
    pb_dynmask_attention_bwd_args a = {SHARED(&f), .wide = dim[8] >= WIDE};
    a.lddo = n + 5 * pad, a.lddq = n + 6 * pad, a.lddk = m + 7 * pad, a.lddv = m + 8 * pad;
    a.dO = pb_in_ld(b, "do", b->dtype, queries, n, a.lddo);
    a.o = pb_in_ld(b, "o", b->dtype, queries, n, a.ldo);
    a.lse = pb_in(b, "lse", PB_F32, queries * a.H);
    a.dq = pb_out_ld(b, "dq", b->dtype, queries, n, a.lddq);
    a.dk = pb_out_ld(b, "dk", a.wide ? PB_F32 : b->dtype, keys, m, a.lddk);
    a.dv = pb_out_ld(b, "dv", a.wide ? PB_F32 : b->dtype, keys, m, a.lddv);
    a.dbias = pb_out(b, "dbias", PB_F32, keys * a.K);
    *(pb_dynmask_attention_bwd_args *)args = a;
    return b->status;
}

static pb_status fwd_prepare(pb_ctx *cpu, const void *args)
{
    (void)cpu;
    return pb_dynmask_plant(args);
}

/* The backward pass needs the o and lse that belong to its inputs. */
static pb_status bwd_prepare(pb_ctx *cpu, const void *args)
{
    const pb_dynmask_attention_bwd_args *a = args;
    const pb_dynmask_attention_fwd_args f = {SHARED(a), .o = (void *)a->o, .lse = (float *)a->lse};
    PB_TRY(pb_dynmask_plant(&f));
    return pb_dynmask_attention_fwd(cpu, &f);
}

/* Returns the number of (query, key) pairs of all heads if every query attends to min(keys up to it, keep) keys, as in
 * exact mode. The lists are in device memory, and the host does not read them. */
static double pairs(const pb_dynmask_attention_fwd_args *a)
{
    double n = 0;
    for (int i = 0; i < a->S; i++) {
        const int keys = i + a->S_kv - a->S + 1;
        n += keys < 0 ? 0 : keys < a->keep ? keys : a->keep;
    }
    return n * a->B * a->H;
}

/* Returns the cost if each pair takes `flops` operations per element of a head, and every tensor of the size of q or k
 * is read or written `times` times. */
static pb_cost cost(const pb_dynmask_attention_fwd_args *a, double flops, double times)
{
    const double e = (double)pb_dtype_size(a->dtype), queries = (double)a->B * a->S, keys = (double)a->B * a->S_kv;
    return (pb_cost){.flops = flops * a->D * pairs(a),
                     .bytes = times * a->D * e * (queries * a->H + keys * a->K) + 4 * queries * a->H +
                              2 * times * keys * a->K + 8.0 * a->B * a->K * a->L};
}

static pb_cost fwd_cost(const void *args) { return cost(args, 4, 2); }
static pb_cost bwd_cost(const void *args)
{
    const pb_dynmask_attention_bwd_args *a = args;
    return cost(&(pb_dynmask_attention_fwd_args){SHARED(a)}, 10, 4);
}

const pb_op pb_op_dynmask_attention_fwd = {
    .name = "dynmask_attention_fwd",
    .axes = axes,
    .edge = (const pb_dims *)edge,
    .grid = (const pb_dims *)grid,
    .device_grid = (const pb_dims *)device_grid,
    .args_size = sizeof(pb_dynmask_attention_fwd_args),
    .numbers = (const pb_number[]){PB_NUMBER(pb_dynmask_attention_fwd_args, scale), {0}},
    .impls = PB_BOTH_BACKENDS(dynmask_attention, fwd),
    .check = fwd_check,
    .bind = fwd_bind,
    .prepare = fwd_prepare,
    .cost = fwd_cost,
    .tol = {[PB_F32] = 2e-6, [PB_BF16] = 4e-3},
};
const pb_op pb_op_dynmask_attention_bwd = {
    .name = "dynmask_attention_bwd",
    .axes = axes,
    .edge = (const pb_dims *)edge,
    .grid = (const pb_dims *)grid,
    .device_grid = (const pb_dims *)device_grid,
    .args_size = sizeof(pb_dynmask_attention_bwd_args),
    .numbers = (const pb_number[]){PB_NUMBER(pb_dynmask_attention_bwd_args, scale), {0}},
    .impls = PB_BOTH_BACKENDS(dynmask_attention, bwd),
    .check = bwd_check,
    .bind = bwd_bind,
    .prepare = bwd_prepare,
    .cost = bwd_cost,
    .tol = {[PB_F32] = 4e-6, [PB_BF16] = 4e-3},
    .grad_of = &pb_op_dynmask_attention_fwd,
};
