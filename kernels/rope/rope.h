/* rope.h - rotary position embedding of q and k in one call.
 *
 * Of a head, x is the last R elements (R = 0: all D). For pair i < R/2 with elements (a,b), at position p:
 *     a' = a cos[p,i] - b sin[p,i]        b' = b cos[p,i] + a sin[p,i]
 * Su et al. 2021, arXiv:2104.09864, eq. 34. The pairing is part of the model:
 *   PB_ROPE_HALF      (a,b) = (x[i], x[i+R/2])    GPT-NeoX, Llama, Qwen: "rotate_half"
 *   PB_ROPE_ADJACENT  (a,b) = (x[2i], x[2i+1])    GPT-J, DeepSeek
 * The D - R elements before them are copied bit for bit. Row (b,s) of H (K) heads starts at b*seq + s*ld, where seq is
 * S*ld unless it is given; its position is pos[b*ldpos + s*step], or first + s*step without `pos`. So row g of the
 * compressed keys of DeepSeek-V4, one for every r tokens, takes step = r: the position of its first token.
 *
 * Backward is the inverse rotation (sin negated). It is also what DeepSeek-V4 applies to the output of attention, at
 * the query's position, because a value carries the rotation of its key: pb_rope_bwd on o, whose own gradient is
 * pb_rope_fwd.
 * A position outside [0,P), which only `pos` can hold, makes what would be rotated of its row NaN.
 * EINVAL: first + (S-1)*step >= P without `pos`: the table must reach the longest global position. */
#ifndef PB_ROPE_H
#define PB_ROPE_H
#include "kernels/core/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef enum pb_rope_pairing { PB_ROPE_HALF, PB_ROPE_ADJACENT } pb_rope_pairing;

typedef struct pb_rope_fwd_args {
    const void *q, *k;      /* [B,S,H,D], [B,S,K,D] dtype, tokens ldq, ldk apart; k and kr NULL when K = 0 */
    const float *cos, *sin; /* [P,R/2] */
    const int32_t *pos;     /* [B,ldpos] in [0,P), every step-th is read; or NULL: first + s*step */
    void *qr, *kr;          /* like q, k, out; ldqr, ldkr apart; may be q, k */
    int B, S, H, K, D, P;   /* H >= 1, K >= 0 */
    size_t ldq, ldk, ldqr, ldkr;
    size_t seqq, seqk, seqqr, seqkr; /* elements between sequences; 0: S*ld */
    size_t ldpos;                    /* 0: S*step */
    int R;                           /* even, <= D; 0: D, which is even then */
    int first, step;                 /* first >= 0; step 0: 1 */
    pb_rope_pairing pairing;
    pb_dtype dtype;
} pb_rope_fwd_args;

typedef struct pb_rope_bwd_args {
    const void *dqr, *dkr;  /* gradients of qr, kr; lddqr, lddkr apart */
    const float *cos, *sin; /* [P,R/2] */
    const int32_t *pos;     /* as in the forward pass */
    void *dq, *dk;          /* out; lddq, lddk apart; may be dqr, dkr */
    int B, S, H, K, D, P;
    size_t lddqr, lddkr, lddq, lddk;
    size_t seqdqr, seqdkr, seqdq, seqdk;
    size_t ldpos;
    int R, first, step;
    pb_rope_pairing pairing;
    pb_dtype dtype;
} pb_rope_bwd_args;

PB_DECLARE_OP(rope, fwd)
PB_DECLARE_OP(rope, bwd)

/* Fills cos and sin [P,D/2] on the host: angle p * theta^(-2i/D), computed in double. */
void pb_rope_table(float *cos, float *sin, int P, int D, double theta);

/* Frequencies of models trained on short texts and stretched to long ones. With f_i = theta^(-2i/D) and L the length
 * of the training texts (original_len), the frequency of pair i is
 *   NONE    f_i
 *   LINEAR  f_i / factor                                     Chen et al. 2023, arXiv:2306.15595
 *   LLAMA3  f_i where r = L f_i / 2 pi, the turns over L, is above high_freq; f_i / factor where it is below low_freq;
 *           between them (1 - s) f_i / factor + s f_i with s = (r - low_freq) / (high_freq - low_freq)
 *           Dubey et al. 2024, arXiv:2407.21783; scaling of apply_scaling in meta-llama/llama-models
 *   YARN    g f_i / factor + (1 - g) f_i with g = clamp((i - low) / (high - low), 0, 1) and, for b the turns over L,
 *           low = max(floor(c(beta_fast)), 0), high = min(ceil(c(beta_slow)), D - 1),
 *           c(b) = D ln(L / (2 pi b)) / (2 ln theta); without floor and ceil unless `truncate`; high - low = 0.001
 *           when they are equal. cos and sin are multiplied by `attention`.
 *           Peng et al. 2023, arXiv:2309.00071, section 3.2, as transformers' modeling_rope_utils.py computes it */
typedef enum pb_rope_kind { PB_ROPE_NONE, PB_ROPE_LINEAR, PB_ROPE_LLAMA3, PB_ROPE_YARN } pb_rope_kind;
typedef struct pb_rope_scaling {
    pb_rope_kind kind;
    double factor;               /* all but NONE; > 0 */
    double original_len;         /* LLAMA3, YARN; > 0 */
    double low_freq, high_freq;  /* LLAMA3; low_freq < high_freq */
    double beta_fast, beta_slow; /* YARN; > 0 */
    double attention;            /* YARN; > 0 */
    bool truncate;               /* YARN */
} pb_rope_scaling;
/* pb_rope_table with scaled frequencies; NULL: NONE. */
void pb_rope_table_scaled(float *cos, float *sin, int P, int D, double theta, const pb_rope_scaling *scaling);

#ifdef __cplusplus
}
#endif
#endif
