/* compressor.h - pools every `ratio` tokens into one key/value row, with a softmax gate per channel (DeepSeek-V4).
 *
 * The inputs a = x wkv^T and z = x wgate^T are computed by ordinary linear ops. They have C = D columns, or C = 2D with
 * `overlap`. Their type in_dtype may differ from the type of c: with f32 products (linear ops on f32 copies of x, wkv
 * and wgate, as the model was trained) a and z keep their precision up to the pooling.
 *
 * Group g < G = S/ratio holds the tokens g ratio .. g ratio + ratio - 1. The last S % ratio tokens belong
 * to no group and give no row. Channel e < D of row (b,g) is pooled over its candidates, which are pairs
 * of a token t and a column k:
 *
 *     without overlap: (g ratio + i, e)              for i < ratio
 *     with overlap:    ((g-1) ratio + i, e)          and (g ratio + i, D + e)      for i < ratio
 *     gate_tk = softmax over the candidates of z[b,t,k] + ape[t mod ratio,k]      c[b,g,e] = sum gate_tk a[b,t,k]
 *
 * With overlap, the candidates of the previous group are masked (value 0, gate -inf; they are not read) if g = 0, or if
 * that group starts before the conversation of the row's own first token: (g-1) ratio < start[b, g ratio]. Softmax and
 * sums are computed in f32, and c is rounded once. DeepSeek-V4-Flash uses ratio 4 with overlap and ratio 128 without; D
 * is 512, and 128 in the indexer.
 *
 * Two other ops follow: RMSNorm of c (pb_rmsnorm_fwd), and RoPE of its last 64 elements at position g ratio
 * (pb_rope_fwd with step = ratio). In the lists of mla_index, rows of c have the indices S + g.
 *
 * The backward pass recomputes the gates:
 *     da = gate dc        dz = gate (a - c) dc        dape = sum over (b,g) of dz
 * It uses the unrounded c. Tokens that belong to no row get zeros. Each (t,k) belongs to at most one row, so dape is
 * the only sum over rows. A channel whose gates are all -inf, or that has a NaN, becomes NaN. EINVAL: B or S < 0, D or
 * ratio < 1, tokens less than C elements apart, or a tensor that has elements is NULL. */
#ifndef PB_COMPRESSOR_H
#define PB_COMPRESSOR_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_compressor_fwd_args {
    /* [B,S,C] in_dtype; tokens are lda, ldz elements apart, so a and z may be columns of one wider tensor */
    const void *a, *z;
    const float *ape;     /* [ratio,C] */
    const int32_t *start; /* [B,S] first token of the conversation that each token belongs to; negative or NULL: 0 */
    void *c;              /* [B,G,D] dtype, out */
    int B, S, D, ratio;
    bool overlap;
    size_t lda, ldz; /* elements between tokens, >= C */
    pb_dtype in_dtype, dtype;
} pb_compressor_fwd_args;

typedef struct pb_compressor_bwd_args {
    const void *dc;       /* [B,G,D] dtype */
    const void *a, *z;    /* the inputs of the forward pass, as described there */
    const float *ape;     /* [ratio,C] */
    const int32_t *start; /* as in the forward pass */
    void *da, *dz;        /* [B,S,C] in_dtype, out; tokens ldda, lddz apart; may be a, z */
    float *dape;          /* [ratio,C], out; NULL: ape is frozen */
    int B, S, D, ratio;
    bool overlap;
    size_t lda, ldz, ldda, lddz; /* elements between tokens, >= C */
    bool accumulate;             /* true: dape +=; false: dape = */
    pb_dtype in_dtype, dtype;
} pb_compressor_bwd_args;

PB_DECLARE_OP(compressor, fwd)
PB_DECLARE_OP(compressor, bwd)

#ifdef __cplusplus
}
#endif
#endif
