/* compressor.h - one key/value row for every `ratio` tokens: softmax-gated pooling, channel by channel (DeepSeek-V4).
 *
 * a = x wkv^T and z = x wgate^T are ordinary linears before this op; they have C = D columns, or 2D with `overlap`.
 * Their type in_dtype is apart from that of c, so that products in f32 (linears on f32 copies of x, wkv and wgate, as
 * the model was trained) keep their precision up to the pooling. Group g < G = S/ratio holds the tokens g ratio ..
 * g ratio + ratio - 1; the S % ratio tokens behind the last whole group, all of them where S < ratio, give no row.
 * Channel e < D of row (b,g) is pooled over its candidates, pairs (token t, column k):
 *
 *     without overlap: (g ratio + i, e)              for i < ratio
 *     with overlap:    ((g-1) ratio + i, e)          and (g ratio + i, D + e)      for i < ratio
 *     gate_tk = softmax over the candidates of z[b,t,k] + ape[t mod ratio,k]      c[b,g,e] = sum gate_tk a[b,t,k]
 *
 * With overlap the previous group's half is masked (value 0, gate -inf: it is not read) where g = 0, and where it does
 * not lie in the sample of the row's own first token: (g-1) ratio < start[b, g ratio]. Softmax and sums are f32 and c
 * is rounded once. DeepSeek-V4-Flash: ratio 4 with overlap, ratio 128 without; D 512, in the indexer 128.
 *
 * RMSNorm of c (pb_rmsnorm_fwd) and RoPE of its last 64 elements at position g ratio (pb_rope_fwd with step = ratio)
 * follow as ops of their own; rows of c are the rows S + g that mla_index lists.
 *
 * Backward, which computes the gates again:  da = gate dc        dz = gate (a - c) dc        dape = sum over (b,g) of
 * dz with c unrounded; a token that reaches no row gets zeros. Each (t,k) belongs to one row at most, so that nothing
 * is added up but dape. A channel whose gates are all -inf, or any NaN, is NaN. EINVAL: B, S < 0, D or ratio < 1, rows
 * closer than C, a NULL tensor where there are elements. */
#ifndef PB_COMPRESSOR_H
#define PB_COMPRESSOR_H
#include "kernels/core/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_compressor_fwd_args {
    const void *a, *z;    /* [B,S,C] in_dtype, tokens lda, ldz apart: parts of one product, if you like */
    const float *ape;     /* [ratio,C] */
    const int32_t *start; /* [B,S] the first token of the sample that a token belongs to; below 0 or NULL: 0 */
    void *c;              /* [B,G,D] dtype, out */
    int B, S, D, ratio;
    bool overlap;
    size_t lda, ldz; /* >= C */
    pb_dtype in_dtype, dtype;
} pb_compressor_fwd_args;

typedef struct pb_compressor_bwd_args {
    const void *dc;       /* [B,G,D] dtype */
    const void *a, *z;    /* [B,S,C] in_dtype, lda, ldz apart: the input of the forward pass */
    const float *ape;     /* [ratio,C] */
    const int32_t *start; /* as in the forward pass */
    void *da, *dz;        /* [B,S,C] in_dtype, ldda, lddz apart, out; may be a, z */
    float *dape;          /* [ratio,C], out; NULL: ape is frozen */
    int B, S, D, ratio;
    bool overlap;
    size_t lda, ldz, ldda, lddz; /* >= C */
    bool accumulate;             /* dape += instead of = */
    pb_dtype in_dtype, dtype;
} pb_compressor_bwd_args;

PB_DECLARE_OP(compressor, fwd)
PB_DECLARE_OP(compressor, bwd)

#ifdef __cplusplus
}
#endif
#endif
