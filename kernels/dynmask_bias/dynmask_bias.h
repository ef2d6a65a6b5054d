/* dynmask_bias.h - dynamic-mask attention: one bias for each key and kv head, computed from the values.
 *
 *     u[b,k,j]    = sum_e v[b,j,e] w[k,e] + dt[k]        e runs over the K*D elements of all kv heads of a token
 *     z           = softplus(u) = log(1 + exp(u)), and u itself where u > 20, as in PyTorch
 *     bias[b,k,j] = a[k] z                                exponential = false
 *                 = exp(a[k] z)                           exponential = true
 *
 * The bias depends on the key alone, not on the query. dynmask_keys selects keys by it, and dynmask_attention adds it
 * to the scores. Sources: exponential = false is the form of the package flash-sparse-attention of November 2025
 * (examples/modeling/modeling_doge.py), exponential = true that of transformers 5.23 (models/doge/modeling_doge.py).
 *
 * Backward, from dbias, the gradient of the bias (the selection has none):
 *     du[b,k,j] = dbias a[k] s                            s = 1 where u > 20, else 1 / (1 + exp(-u)); times bias if
 *                                                         exponential
 *     da[k] (+)= sum over b, j of dbias z                 times bias if exponential
 *     ddt[k] (+)= sum over b, j of du[b,k,j]
 *     dw[k,e] (+)= sum over b, j of du[b,k,j] v[b,j,e]
 *     dv[b,j,e] += sum over k of du[b,k,j] w[k,e]         adds to the gradient that attention gives to v
 *
 * Token (b,j) of v begins at element (b*S + j)*ldv. v, w and dv have type `dtype`; everything else is f32. Sums are
 * accumulated in f32 or better, in an order that does not depend on the number of threads. A bias that exceeds the
 * range of f32 is +inf, which dynmask_keys refuses. EINVAL: a size below 1, a stride below K*D, a NULL tensor other
 * than dt, dw, da and ddt; dw without da, or da or ddt without dw. */
#ifndef PB_DYNMASK_BIAS_H
#define PB_DYNMASK_BIAS_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_dynmask_bias_fwd_args {
    const void *v;   /* [B,S,K,D], tokens ldv apart */
    const void *w;   /* [K,K*D] weight of the dt projection */
    const float *dt; /* [K] bias of the dt projection; NULL: none */
    const float *a;  /* [K] the parameter A */
    float *u;        /* [B,K,S] out, kept for the backward pass */
    float *bias;     /* [B,K,S] out */
    int B, S, K, D;
    size_t ldv;
    bool exponential;
    pb_dtype dtype;
} pb_dynmask_bias_fwd_args;

typedef struct pb_dynmask_bias_bwd_args {
    const float *dbias; /* [B,K,S] */
    const void *v;      /* as in the forward pass */
    const void *w;
    const float *a;
    const float *u; /* [B,K,S] from the forward pass */
    void *dv;       /* [B,S,K,D], tokens lddv apart, in and out: adds */
    float *dw;      /* [K,K*D] out; NULL: w, dt and a are frozen, and da and ddt are NULL too */
    float *ddt;     /* [K] out; NULL: the projection has no bias */
    float *da;      /* [K] out */
    int B, S, K, D;
    size_t ldv, lddv;
    bool exponential;
    bool accumulate; /* true: dw, ddt, da +=; false: = */
    pb_dtype dtype;
} pb_dynmask_bias_bwd_args;

PB_DECLARE_OP(dynmask_bias, fwd)
PB_DECLARE_OP(dynmask_bias, bwd)

#ifdef __cplusplus
}
#endif
#endif
