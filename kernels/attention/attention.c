/* attention.c - attention: the lists of CPU implementations, and the op descriptors. */
#include "kernels/attention/attention.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "kernels/attention/attention_ref.h"
#include "kernels/attention/plan.h"
#include "kernels/cpu/cpu.h"

/* ---- CPU implementations, best first, and the workspace that each needs -------------------------------- */

PB_FAST_DECLARE(pb_attention_fwd)
PB_FAST_DECLARE(pb_attention_bwd)

static size_t fwd_ref_workspace(const void *args) { return (size_t)pb_attention_keys(args) * sizeof(double); }
static size_t bwd_ref_workspace(const void *args)
{
    return 2 * (size_t)((const pb_attention_bwd_args *)args)->D * sizeof(double);
}

static size_t fwd_workspace(const void *args)
{
    const pb_attention_fwd_args *a = args;
    return (size_t)omp_get_max_threads() * pb_attn_fwd_tiles(a->D) * sizeof(float);
}

static size_t bwd_workspace(const void *args)
{
    const pb_attention_bwd_args *a = args;
    const size_t sums = pb_attn_bwd_sums(a->B, a->S, pb_attention_bwd_keys(a), a->H, a->K, a->D);
    return ((size_t)omp_get_max_threads() * pb_attn_bwd_tiles(a->D) + sums) * sizeof(float);
}

const pb_impl pb_attention_fwd_cpu[] = {PB_FAST_IMPLS(pb_attention_fwd, .workspace = fwd_workspace){
                                            "ref", pb_attention_fwd_ref, .workspace = fwd_ref_workspace},
                                        {0}};
const pb_impl pb_attention_bwd_cpu[] = {PB_FAST_IMPLS(pb_attention_bwd, .workspace = bwd_workspace){
                                            "ref", pb_attention_bwd_ref, .workspace = bwd_ref_workspace},
                                        {0}};

/* ---- op descriptors (pb_op): shapes, argument checks, inputs, costs ------------------------------------ */

static const char axes[] = "BSHKDcpn", fwd_rare[] = "b", bwd_rare[] = "bw";
/* One shape in the tables below: a pb_dims whose numbers have names, in the order of `axes`. */
typedef struct shape {
    int B, S, H, K, D;
    int causal;
    int pad;           /* unit of the gaps between tokens, in elements: each tensor has another multiple of it */
    int conversations; /* conversations packed into a row; 0: start is NULL */
    int before;        /* keys before the first query */
    int wide;          /* backward pass: gradients of keys and values in f32 */
} shape;
_Static_assert(sizeof(shape) == sizeof(pb_dims), "a shape is a pb_dims with names");
/* clang-format off */
/* Shapes of both passes; in the second table there are more keys than queries. */
#define EDGES \
    {.B = 1, .S = 9, .H = 3, .K = 1, .D = 7, .causal = 1}, \
    {.B = 1, .S = 33, .H = 2, .K = 2, .D = 80}, \
    {.B = 1, .S = 130, .H = 3, .K = 3, .D = 64, .causal = 1, .pad = 1}, \
    {.B = 2, .S = 70, .H = 6, .K = 2, .D = 16, .causal = 1, .pad = 5, .conversations = 3}, \
    {.B = 1, .S = 200, .H = 8, .K = 1, .D = 5, .causal = 1, .conversations = 2}, \
    {.B = 3, .S = 20, .H = 12, .K = 2, .D = 128, .causal = 1, .pad = 3}, \
    {.B = 1, .S = 130, .H = 2, .K = 1, .D = 24, .conversations = 4}, \
    {.B = 1, .S = 150, .H = 9, .K = 3, .D = 8, .pad = 2}, \
    {.B = 1, .S = 1, .H = 1, .K = 1, .D = 1, .causal = 1}, \
    {.B = 1, .S = 300, .H = 4, .K = 1, .D = 64, .causal = 1}, \
    {.B = 1, .S = 300, .H = 8, .K = 1, .D = 128, .causal = 1, .pad = 8}, \
    {.B = 2, .S = 150, .H = 4, .K = 2, .D = 128, .pad = 8, .conversations = 3}, \
    {.B = 2, .S = 129, .H = 7, .K = 1, .D = 64, .causal = 1, .pad = 8, .conversations = 5}, \
    {.B = 1, .S = 257, .H = 2, .K = 2, .D = 96}, \
    {.B = 1, .S = 200, .H = 3, .K = 1, .D = 32, .causal = 1, .pad = 8, .conversations = 7}, \
    {.B = 1, .S = 70, .H = 2, .K = 1, .D = 136, .causal = 1, .conversations = 3}, \
    {.B = 50, .S = 3, .H = 7, .K = 1, .D = 64, .causal = 1, .pad = 8}, \
    {.B = 30, .S = 3, .H = 5, .K = 1, .D = 128, .causal = 1, .pad = 8}, \
    {.B = 1, .S = 100, .H = 3, .K = 1, .D = 128, .causal = 1, .pad = 8, .conversations = 2}, \
    {.B = 2, .S = 90, .H = 2, .K = 1, .D = 64, .pad = 8}, \
    {.B = 1, .S = 140, .H = 2, .K = 2, .D = 64, .causal = 1, .pad = 8}, \
    {.B = 1, .S = 300, .H = 1, .K = 1, .D = 128, .causal = 1, .pad = 8, .conversations = 3}
#define MORE_KEYS \
    {.B = 1, .S = 1, .H = 6, .K = 2, .D = 64, .causal = 1, .before = 200}, \
    {.B = 1, .S = 1, .H = 3, .K = 3, .D = 20, .causal = 1, .pad = 1, .before = 127}, \
    {.B = 2, .S = 5, .H = 4, .K = 1, .D = 32, .causal = 1, .before = 130}, \
    {.B = 1, .S = 70, .H = 4, .K = 2, .D = 128, .causal = 1, .pad = 8, .before = 37}, \
    {.B = 1, .S = 33, .H = 2, .K = 1, .D = 16, .before = 9}, \
    {.B = 2, .S = 90, .H = 2, .K = 1, .D = 24, .causal = 1, .conversations = 3, .before = 65}, \
    {.B = 2, .S = 128, .H = 4, .K = 2, .D = 64, .causal = 1, .pad = 8, .conversations = 2, .before = 128}, \
    {.B = 1, .S = 257, .H = 2, .K = 1, .D = 128, .causal = 1, .before = 300}, \
    {.B = 2, .S = 65, .H = 3, .K = 1, .D = 64, .pad = 8, .before = 191}
/* clang-format on */
static const shape fwd_edge[] = {EDGES, MORE_KEYS, {0}};
static const shape bwd_edge[] = {
    EDGES,
    MORE_KEYS,
    {.B = 1, .S = 130, .H = 3, .K = 1, .D = 64, .causal = 1, .pad = 8, .wide = 1},
    {.B = 2, .S = 96, .H = 4, .K = 2, .D = 128, .causal = 1, .pad = 8, .conversations = 2, .before = 96, .wide = 1},
    {.B = 1, .S = 40, .H = 2, .K = 2, .D = 20, .causal = 1, .pad = 1, .before = 77, .wide = 1},
    {.B = 2, .S = 70, .H = 2, .K = 1, .D = 32, .before = 33, .wide = 1},
    /* for wgmma: enough blocks of keys that none is divided; few ones, which are; no causal mask */
    {.B = 67, .S = 5, .H = 1, .K = 1, .D = 64, .causal = 1, .pad = 8, .before = 500, .wide = 1},
    {.B = 34, .S = 7, .H = 2, .K = 2, .D = 128, .causal = 1, .pad = 8, .conversations = 2, .before = 510, .wide = 1},
    {.B = 1, .S = 300, .H = 6, .K = 2, .D = 64, .causal = 1, .pad = 8, .conversations = 3, .before = 450, .wide = 1},
    {.B = 1, .S = 200, .H = 2, .K = 1, .D = 128, .pad = 8, .before = 130, .wide = 1},
    {0},
};
/* The grids have no packed rows: their cost depends on the values of `start`, which are in device memory. */
static const shape grid[] = {
    {.B = 1, .S = 256, .H = 9, .K = 3, .D = 64, .causal = 1},
    {.B = 1, .S = 2048, .H = 9, .K = 3, .D = 64, .causal = 1},
    {.B = 4, .S = 512, .H = 14, .K = 2, .D = 64, .causal = 1},
    {.B = 1, .S = 2048, .H = 12, .K = 2, .D = 128, .causal = 1},
    {.B = 1, .S = 512, .H = 9, .K = 3, .D = 64},
    {.B = 4, .S = 512, .H = 12, .K = 2, .D = 128, .causal = 1},
    {.B = 1, .S = 512, .H = 14, .K = 2, .D = 64, .causal = 1},
    {.B = 1, .S = 128, .H = 12, .K = 2, .D = 128, .causal = 1},
    {.B = 1, .S = 64, .H = 2, .K = 1, .D = 64, .causal = 1},
    {0},
};
/* clang-format off */
#define DEVICE_GRID \
    {.B = 2, .S = 4096, .H = 64, .K = 8, .D = 128, .causal = 1}, \
    {.B = 4, .S = 2048, .H = 12, .K = 2, .D = 128, .causal = 1}, \
    {.B = 4, .S = 2048, .H = 14, .K = 2, .D = 64, .causal = 1}
/* clang-format on */
static const shape fwd_device_grid[] = {DEVICE_GRID, {0}};
/* The last shape is the later half of a row that two ranks share. */
static const shape bwd_device_grid[] = {
    DEVICE_GRID,
    {.B = 1, .S = 4096, .H = 32, .K = 8, .D = 128, .causal = 1, .before = 4096, .wide = 1},
    {0},
};

/* Checks shared by both passes: positive sizes, H a multiple of K (grouped-query attention), finite scale. */
static pb_status sizes_check(const char *op, int B, int S, int H, int K, int D, float scale)
{
    if (B < 1 || S < 1 || D < 1) return pb_fail(PB_EINVAL, "%s: B=%d S=%d D=%d, need at least 1", op, B, S, D);
    if (K < 1 || H < 1 || H % K)
        return pb_fail(PB_EINVAL, "%s: H=%d K=%d, need K >= 1 and H a positive multiple of K", op, H, K);
    if (!isfinite(scale)) return pb_fail(PB_EINVAL, "%s: scale=%g, need a finite number", op, (double)scale);
    return PB_OK;
}

static pb_status tensor_check(const char *op, const char *name, const void *p, size_t ld, int heads, int D)
{
    if (!p) return pb_fail(PB_EINVAL, "%s: %s is NULL", op, name);
    if (ld < (size_t)heads * D)
        return pb_fail(PB_EINVAL, "%s: tokens of %s are %zu elements apart, need at least %zu", op, name, ld,
                       (size_t)heads * D);
    return PB_OK;
}

static pb_status keys_check(const char *op, int keys, int S)
{
    return !keys || keys >= S ? PB_OK : pb_fail(PB_EINVAL, "%s: keys=%d, need 0 or at least S=%d", op, keys, S);
}

static pb_status fwd_check(const void *args)
{
    const pb_attention_fwd_args *a = args;
    const char op[] = "attention_fwd";
    PB_TRY(sizes_check(op, a->B, a->S, a->H, a->K, a->D, a->scale));
    PB_TRY(tensor_check(op, "q", a->q, a->ldq, a->H, a->D));
    PB_TRY(tensor_check(op, "k", a->k, a->ldk, a->K, a->D));
    PB_TRY(tensor_check(op, "v", a->v, a->ldv, a->K, a->D));
    PB_TRY(tensor_check(op, "o", a->o, a->ldo, a->H, a->D));
    PB_TRY(keys_check(op, a->keys, a->S));
    return a->lse ? PB_OK : pb_fail(PB_EINVAL, "%s: lse is NULL", op);
}

static pb_status bwd_check(const void *args)
{
    const pb_attention_bwd_args *a = args;
    const char op[] = "attention_bwd";
    PB_TRY(sizes_check(op, a->B, a->S, a->H, a->K, a->D, a->scale));
    PB_TRY(tensor_check(op, "do", a->dO, a->lddo, a->H, a->D));
    PB_TRY(tensor_check(op, "q", a->q, a->ldq, a->H, a->D));
    PB_TRY(tensor_check(op, "k", a->k, a->ldk, a->K, a->D));
    PB_TRY(tensor_check(op, "v", a->v, a->ldv, a->K, a->D));
    PB_TRY(tensor_check(op, "o", a->o, a->ldo, a->H, a->D));
    PB_TRY(tensor_check(op, "dq", a->dq, a->lddq, a->H, a->D));
    PB_TRY(tensor_check(op, "dk", a->dk, a->lddk, a->K, a->D));
    PB_TRY(tensor_check(op, "dv", a->dv, a->lddv, a->K, a->D));
    PB_TRY(keys_check(op, a->keys, a->S));
    return a->lse ? PB_OK : pb_fail(PB_EINVAL, "%s: lse is NULL", op);
}

/* Binds `start` for rows of S tokens that hold n conversations of about equal length. Returns NULL when n is 0. */
static const int32_t *bind_start(pb_binder *b, const int *dim)
{
    const int B = dim[0], S = dim[1], n = dim[7];
    int32_t *start = n ? malloc((size_t)B * S * sizeof *start) : NULL;
    if (n && !start) b->status = pb_fail(PB_ENOMEM, "attention: no host memory for %d start positions", B * S);
    if (!start) return NULL;
    for (int s = 0; s < B * S; s++) { /* conversation m holds tokens mS/n .. (m+1)S/n - 1 */
        const int m = (int)(((long)(s % S + 1) * n - 1) / S);
        start[s] = (int32_t)((long)m * S / n);
    }
    const int32_t *bound = pb_in_raw(b, "start", start, (size_t)B * S * sizeof *start);
    free(start);
    return bound;
}

static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    const int B = dim[0], S = dim[1], H = dim[2], K = dim[3], D = dim[4];
    const int keys = S + dim[8];
    const size_t T = (size_t)B * S, N = (size_t)B * keys, q = (size_t)H * D, kv = (size_t)K * D, p = dim[6];
    *(pb_attention_fwd_args *)args = (pb_attention_fwd_args){
        .q = pb_in_ld(b, "q", b->dtype, T, q, q + p),
        .k = pb_in_ld(b, "k", b->dtype, N, kv, kv + 2 * p),
        .v = pb_in_ld(b, "v", b->dtype, N, kv, kv + 3 * p),
        .start = bind_start(b, dim),
        .o = pb_out_ld(b, "o", b->dtype, T, q, q + 4 * p),
        .lse = pb_out(b, "lse", PB_F32, T * H),
        .B = B,
        .S = S,
        .H = H,
        .K = K,
        .D = D,
        .keys = dim[8] ? keys : 0,
        .ldq = q + p,
        .ldk = kv + 2 * p,
        .ldv = kv + 3 * p,
        .ldo = q + 4 * p,
        .scale = 2 / sqrtf((float)D),
        .causal = dim[5],
        .dtype = b->dtype,
    };
    return b->status;
}

static pb_status bwd_bind(pb_binder *b, const int *dim, void *args)
{
    const int B = dim[0], S = dim[1], H = dim[2], K = dim[3], D = dim[4], keys = S + dim[8];
    const size_t T = (size_t)B * S, N = (size_t)B * keys, q = (size_t)H * D, kv = (size_t)K * D, p = dim[6];
    const pb_dtype grads = dim[9] ? PB_F32 : b->dtype;
    *(pb_attention_bwd_args *)args = (pb_attention_bwd_args){
        .dO = pb_in_ld(b, "do", b->dtype, T, q, q + 5 * p),
        .q = pb_in_ld(b, "q", b->dtype, T, q, q + p),
        .k = pb_in_ld(b, "k", b->dtype, N, kv, kv + 2 * p),
        .v = pb_in_ld(b, "v", b->dtype, N, kv, kv + 3 * p),
        .o = pb_in_ld(b, "o", b->dtype, T, q, q + 4 * p),
        .lse = pb_in(b, "lse", PB_F32, T * H),
        .start = bind_start(b, dim),
        .dq = pb_out_ld(b, "dq", b->dtype, T, q, q + 6 * p),
        .dk = pb_out_ld(b, "dk", grads, N, kv, kv + 7 * p),
        .dv = pb_out_ld(b, "dv", grads, N, kv, kv + 8 * p),
        .B = B,
        .S = S,
        .H = H,
        .K = K,
        .D = D,
        .keys = dim[8] ? keys : 0,
        .lddo = q + 5 * p,
        .ldq = q + p,
        .ldk = kv + 2 * p,
        .ldv = kv + 3 * p,
        .ldo = q + 4 * p,
        .lddq = q + 6 * p,
        .lddk = kv + 7 * p,
        .lddv = kv + 8 * p,
        .scale = 2 / sqrtf((float)D),
        .causal = dim[5],
        .wide = dim[9],
        .dtype = b->dtype,
    };
    return b->status;
}

/* The backward pass needs the o and lse that belong to its inputs: replaces the seeded ones by those that the forward
 * pass computes. */
static pb_status bwd_prepare(pb_ctx *cpu, const void *args)
{
    const pb_attention_bwd_args *a = args;
    return pb_attention_fwd(cpu, &(pb_attention_fwd_args){.q = a->q,
                                                          .k = a->k,
                                                          .v = a->v,
                                                          .start = a->start,
                                                          .o = (void *)a->o,
                                                          .lse = (float *)a->lse,
                                                          .B = a->B,
                                                          .S = a->S,
                                                          .H = a->H,
                                                          .K = a->K,
                                                          .D = a->D,
                                                          .keys = a->keys,
                                                          .ldq = a->ldq,
                                                          .ldk = a->ldk,
                                                          .ldv = a->ldv,
                                                          .ldo = a->ldo,
                                                          .scale = a->scale,
                                                          .causal = a->causal,
                                                          .dtype = a->dtype});
}

/* Returns the number of (query, visible key) pairs of all heads, for rows that are not packed. */
static double pairs(int B, int S, int H, bool causal) { return (double)B * H * S * (causal ? (S + 1) / 2.0 : S); }

static pb_cost fwd_cost(const void *args)
{
    const pb_attention_fwd_args *a = args;
    const double T = (double)a->B * a->S, e = (double)pb_dtype_size(a->dtype), B = a->B;
    const double more = B * a->H * a->S * pb_attention_before(a); /* pairs with the keys before the first query */
    return (pb_cost){.flops = 4.0 * a->D * (pairs(a->B, a->S, a->H, a->causal) + more),
                     .bytes = (T * a->H + B * pb_attention_keys(a) * a->K) * a->D * e * 2 + 4 * T * a->H};
}

static pb_cost bwd_cost(const void *args)
{
    const pb_attention_bwd_args *a = args;
    const double T = (double)a->B * a->S, e = (double)pb_dtype_size(a->dtype), B = a->B;
    const int N = pb_attention_bwd_keys(a);
    const double more = B * a->H * a->S * (N - a->S), grads = (double)pb_dtype_size(pb_attention_dkv_dtype(a));
    return (pb_cost){.flops = 10.0 * a->D * (pairs(a->B, a->S, a->H, a->causal) + more),
                     .bytes = a->D * (T * e * 4 * a->H + B * N * a->K * 2 * (e + grads)) + 4 * T * a->H};
}

const pb_op pb_op_attention_fwd = {
    .name = "attention_fwd",
    .axes = axes,
    .rare = fwd_rare,
    .edge = (const pb_dims *)fwd_edge,
    .grid = (const pb_dims *)grid,
    .device_grid = (const pb_dims *)fwd_device_grid,
    .args_size = sizeof(pb_attention_fwd_args),
    .numbers = (const pb_number[]){PB_NUMBER(pb_attention_fwd_args, scale), {0}},
    .impls = PB_BOTH_BACKENDS(attention, fwd),
    .check = fwd_check,
    .bind = fwd_bind,
    .cost = fwd_cost,
    .tol = {[PB_F32] = 2e-6, [PB_BF16] = 4e-3},
};
const pb_op pb_op_attention_bwd = {
    .name = "attention_bwd",
    .axes = axes,
    .rare = bwd_rare,
    .edge = (const pb_dims *)bwd_edge,
    .grid = (const pb_dims *)grid,
    .device_grid = (const pb_dims *)bwd_device_grid,
    .args_size = sizeof(pb_attention_bwd_args),
    .numbers = (const pb_number[]){PB_NUMBER(pb_attention_bwd_args, scale), {0}},
    .impls = PB_BOTH_BACKENDS(attention, bwd),
    .check = bwd_check,
    .bind = bwd_bind,
    .prepare = bwd_prepare,
    .cost = bwd_cost,
    .tol = {[PB_F32] = 4e-6, [PB_BF16] = 4e-3},
    .grad_of = &pb_op_attention_fwd,
};
