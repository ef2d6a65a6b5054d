/* mla.h - shared by sparse_mla and dense_mla: one struct for the arguments of the forward and backward pass of both,
 * and which keys a query attends to. Internal to the two families; their interfaces are sparse_mla.h and
 * dense_mla.h. */
#ifndef PB_MLA_H
#define PB_MLA_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

#ifndef PB_MLA_FN /* .cu files define it before they include this header, to add __host__ __device__ */
#define PB_MLA_FN static inline
#endif

/* The arguments of either pass of either op. o and lse are outputs of the forward pass and inputs of the backward
 * pass. */
typedef struct pb_mla {
    const void *q, *kv;
    const int32_t *idx; /* key lists [B,S,W]; NULL: dense */
    const float *sink;
    void *o;
    float *lse;
    const void *dO;
    void *dq, *dkv;
    float *dsink;
    int B, S, S_kv, H, D, V;
    int W;         /* slots per query: length of a list; dense: the most keys of any query */
    int window;    /* dense: a query attends to at most this many keys; 0: no limit */
    bool causal;   /* dense: causal mask */
    bool backward; /* backward pass: dO, dq, dkv and dsink are set */
    bool wide;     /* backward pass: dkv is f32 */
    float scale;
    pb_dtype dtype;
} pb_mla;

PB_MLA_FN pb_dtype pb_mla_dkv_dtype(const pb_mla *p) { return p->wide ? PB_F32 : p->dtype; }

/* The n slots of a query: slot w is row list[w] of kv, or row first + w if list is NULL (dense). */
typedef struct pb_mla_keys {
    const int32_t *list;
    int first, n;
} pb_mla_keys;

/* Returns the slots of query i of batch row b. */
PB_MLA_FN pb_mla_keys pb_mla_keys_of(const pb_mla *p, int b, int i)
{
    pb_mla_keys k = {NULL, 0, p->W};
    if (p->idx) {
        k.list = p->idx + ((size_t)b * p->S + i) * p->W;
        return k;
    }
    /* 64 bits, because S_kv - S + i can exceed the range of int before it is clipped */
    const int64_t end = p->causal ? (int64_t)p->S_kv - p->S + i + 1 : p->S_kv;
    const int64_t first = p->window > 0 && end > p->window ? end - p->window : 0;
    k.first = (int)first;
    k.n = end > first ? (int)(end - first) : 0;
    return k;
}

/* Returns the row of kv in slot w < n, or -1 if the slot is masked. */
PB_MLA_FN int pb_mla_row(const pb_mla *p, const pb_mla_keys *k, int w)
{
    if (!k->list) return k->first + w;
    const int row = k->list[w];
    return row >= 0 && row < p->S_kv ? row : -1;
}

/* Returns the largest number of slots that a query of a dense problem has. */
PB_MLA_FN int pb_mla_dense_slots(int S_kv, int window) { return window > 0 && window < S_kv ? window : S_kv; }

/* The tolerances, limits on the relative L2 error of o, dq, dkv and dsink. rel_diff = 1 - 2 sum xy / (sum x^2 + sum
 * y^2), the measure in the tests of DeepSeek's public kernels, is at most half the square of the relative L2: below
 * 1e-5 where L2 is below 4e-3. In bf16, `ref` rounds its outputs too, by up to 2^-9; mla_shapes_test therefore compares
 * o and dq with a double-precision oracle and requires 4e-3. */
#define PB_MLA_TOL                                                                                                     \
    {                                                                                                                  \
        [PB_F32] = 1e-6, [PB_BF16] = 6e-3                                                                              \
    }

/* Functions for the op descriptors of both families (mla.c). args: pb_mla_fwd_args or pb_mla_bwd_args of mla_args.h. */
pb_status pb_mla_check(const char *op, const pb_mla *p, bool lists); /* lists: the op needs idx */
pb_status pb_mla_fwd_ref(pb_ctx *ctx, const void *args);
pb_status pb_mla_bwd_ref(pb_ctx *ctx, const void *args);
size_t pb_mla_fwd_ref_workspace(const void *args);
size_t pb_mla_bwd_ref_workspace(const void *args);
size_t pb_mla_fwd_fast_workspace(const void *args);
size_t pb_mla_bwd_fast_workspace(const void *args);
pb_cost pb_mla_fwd_cost(const void *args);
pb_cost pb_mla_bwd_cost(const void *args);

/* Make the tensors of a problem; dim begins with B, S, S_kv, H, D, V. wide: of the backward pass. The keys of a query
 * are not set: the caller adds idx (sparse_mla), or causal and window (dense_mla). */
pb_mla pb_mla_fwd_bind(pb_binder *b, const int *dim, bool wide);
pb_mla pb_mla_bwd_bind(pb_binder *b, const int *dim, bool wide);
/* Overwrite inputs with values that make errors visible. Rows of kv that no query attends to become NaN and infinity,
 * so that a kernel that reads them gives a wrong result. If any slot is masked or a window is set, the sinks of heads h
 * with h % 4 = 1, 2, 3 become 200, -200 and -inf. bwd also computes o and lse with the forward pass. */
pb_status pb_mla_fwd_prepare(pb_ctx *cpu, const void *args);
pb_status pb_mla_bwd_prepare(pb_ctx *cpu, const void *args);
#ifdef __cplusplus
}
#endif
#endif
