/* mla.h - what sparse_mla and dense_mla share: one problem, and which keys a query sees. Internal to the two families;
 * their contracts are sparse_mla.h and dense_mla.h. */
#ifndef PB_MLA_H
#define PB_MLA_H
#include "kernels/core/op.h"
#ifdef __cplusplus
extern "C" {
#endif

#ifndef PB_MLA_FN /* device code says more */
#define PB_MLA_FN static inline
#endif

/* Either pass of either op. o and lse are the forward's outputs and the backward's inputs. */
typedef struct pb_mla {
    const void *q, *kv;
    const int32_t *idx; /* NULL: dense */
    const float *sink;
    void *o;
    float *lse;
    const void *dO;
    void *dq, *dkv;
    float *dsink;
    int B, S, S_kv, H, D, V;
    int W;         /* slots of a query: the lists' length, or the most keys that a dense query sees */
    int window;    /* dense: a query sees at most this many keys; 0: all */
    bool causal;   /* dense */
    bool backward; /* dO and what follows it are set */
    float scale;
    pb_dtype dtype;
} pb_mla;

/* The keys of query i of batch row b, slot by slot. Dense slots count from `first`. */
typedef struct pb_mla_keys {
    const int32_t *list;
    int first, n;
} pb_mla_keys;

PB_MLA_FN pb_mla_keys pb_mla_keys_of(const pb_mla *p, int b, int i)
{
    pb_mla_keys k = {NULL, 0, p->W};
    if (p->idx) {
        k.list = p->idx + ((size_t)b * p->S + i) * p->W;
        return k;
    }
    /* 64 bits: S_kv - S + i may leave the range of int before it is clipped */
    const int64_t end = p->causal ? (int64_t)p->S_kv - p->S + i + 1 : p->S_kv;
    const int64_t first = p->window > 0 && end > p->window ? end - p->window : 0;
    k.first = (int)first;
    k.n = end > first ? (int)(end - first) : 0;
    return k;
}

/* The row of kv in slot w < n, or -1 for a slot that is masked. */
PB_MLA_FN int pb_mla_row(const pb_mla *p, const pb_mla_keys *k, int w)
{
    if (!k->list) return k->first + w;
    const int row = k->list[w];
    return row >= 0 && row < p->S_kv ? row : -1;
}

/* The most slots that any query of a dense problem has. */
PB_MLA_FN int pb_mla_dense_slots(int S_kv, int window) { return window > 0 && window < S_kv ? window : S_kv; }

/* Relative L2 of o, dq, dkv and dsink. rel_diff = 1 - 2 sum xy / (sum x^2 + sum y^2), the measure of the public
 * kernels' tests, is half of its square at most: below 1e-5 where the L2 stays below 4e-3. In bf16 `ref` rounds its
 * outputs too, by up to 2^-9: mla_shapes_test holds o and dq below 4e-3 of an oracle in double. */
#define PB_MLA_TOL                                                                                                     \
    {                                                                                                                  \
        [PB_F32] = 1e-6, [PB_BF16] = 6e-3                                                                              \
    }

/* What the descriptors share (mla.c); `args` are mla_args.h's. */
pb_status pb_mla_check(const char *op, const pb_mla *p, bool lists); /* lists: the op reads idx */
pb_status pb_mla_fwd_ref(pb_ctx *ctx, const void *args);
pb_status pb_mla_bwd_ref(pb_ctx *ctx, const void *args);
size_t pb_mla_fwd_ref_workspace(const void *args);
size_t pb_mla_bwd_ref_workspace(const void *args);
size_t pb_mla_fwd_fast_workspace(const void *args);
size_t pb_mla_bwd_fast_workspace(const void *args);
pb_cost pb_mla_fwd_cost(const void *args);
pb_cost pb_mla_bwd_cost(const void *args);

/* Tensors of a problem whose first axes are B, S, S_kv, H, D and V; which keys its queries see is left to the caller.
 */
pb_mla pb_mla_fwd_bind(pb_binder *b, const int *dim);
pb_mla pb_mla_bwd_bind(pb_binder *b, const int *dim);
/* Rows of kv that no query sees become NaN and infinite, so that a read shows; where slots are masked or a window is
 * set, the sinks of heads 1, 2, 3 (and every fourth on) become 200, -200 and -inf. Before a backward pass also o and
 * lse, by the forward pass. */
pb_status pb_mla_fwd_prepare(pb_ctx *cpu, const void *args);
pb_status pb_mla_bwd_prepare(pb_ctx *cpu, const void *args);
#ifdef __cplusplus
}
#endif
#endif
