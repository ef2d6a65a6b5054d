/* rope.h - rotary position embedding (RoPE) of q and k in one call.
 *
 * Su et al. 2021, arXiv:2104.09864, eq. 34. The last R elements x of each head are rotated (R = 0: all D); the first
 * D-R elements are copied bit for bit. For pair i < R/2 with elements (a,b), at position p:
 *     a' = a cos[p,i] - b sin[p,i]        b' = b cos[p,i] + a sin[p,i]
 * Which elements form a pair depends on the model:
 *     PB_ROPE_HALF      (a,b) = (x[i], x[i+R/2])    GPT-NeoX, Llama, Qwen: "rotate_half"
 *     PB_ROPE_ADJACENT  (a,b) = (x[2i], x[2i+1])    GPT-J, DeepSeek
 *
 * Layout: token s of sequence b has H heads of q (K heads of k), contiguous, starting at element b*seq + s*ld. Its
 * position is pos[b*ldpos + s*step], or first + s*step if pos is NULL. Example for step: DeepSeek-V4 has one compressed
 * key for every r tokens; with step = r it gets the position of the first of these tokens.
 *
 * The backward pass is the inverse rotation (sin negated). DeepSeek-V4 also applies the inverse rotation to the output
 * of attention, at the query's position, because its values are rotated keys. For this, call pb_rope_bwd on o; the
 * gradient of that is pb_rope_fwd.
 *
 * A position outside [0,P) can only come from `pos`. It makes the rotated elements of that token NaN. EINVAL: pos is
 * NULL and first + (S-1)*step >= P, that is, cos and sin have too few rows. */
#ifndef PB_ROPE_H
#define PB_ROPE_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef enum pb_rope_pairing { PB_ROPE_HALF, PB_ROPE_ADJACENT } pb_rope_pairing;

typedef struct pb_rope_fwd_args {
    /* [B,S,H,D], [B,S,K,D] dtype; tokens are ldq, ldk elements apart; k and kr are NULL if K = 0 */
    const void *q, *k;
    const float *cos, *sin; /* [P,R/2] */
    const int32_t *pos;     /* [B,ldpos] in [0,P), of which every step-th is read; NULL: positions first + s*step */
    void *qr, *kr;          /* shaped like q, k; out; tokens are ldqr, ldkr elements apart; may be q, k (in place) */
    int B, S, H, K, D, P;   /* H >= 1, K >= 0 */
    size_t ldq, ldk, ldqr, ldkr;
    size_t seqq, seqk, seqqr, seqkr; /* elements between the starts of sequences; 0: S*ld */
    size_t ldpos;                    /* positions between the starts of sequences; 0: S*step */
    int R;                           /* rotated elements per head: even, <= D; 0: D, which must be even */
    int first, step;                 /* first >= 0; step 0 means 1 */
    pb_rope_pairing pairing;
    pb_dtype dtype;
} pb_rope_fwd_args;

typedef struct pb_rope_bwd_args {
    const void *dqr, *dkr;  /* gradients of qr, kr; tokens are lddqr, lddkr elements apart */
    const float *cos, *sin; /* [P,R/2] */
    const int32_t *pos;     /* as in the forward pass */
    void *dq, *dk;          /* out; tokens are lddq, lddk elements apart; may be dqr, dkr (in place) */
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

/* Fills cos and sin [P,D/2] on the host for angles p * theta^(-2i/D), computed in double. */
void pb_rope_table(float *cos, float *sin, int P, int D, double theta);

/* Scaled frequencies, for models trained on short texts and extended to long ones. With f_i = theta^(-2i/D) and
 * L = original_len, the length of the training texts, the frequency of pair i is
 *     NONE    f_i
 *     LINEAR  f_i / factor                                     Chen et al. 2023, arXiv:2306.15595
 *     LLAMA3  With r = L f_i / 2 pi, the rotations over L: f_i if r > high_freq; f_i / factor if r < low_freq;
 *             between them (1 - s) f_i / factor + s f_i with s = (r - low_freq) / (high_freq - low_freq).
 *             Dubey et al. 2024, arXiv:2407.21783; apply_scaling in meta-llama/llama-models
 *     YARN    g f_i / factor + (1 - g) f_i with g = clamp((i - low) / (high - low), 0, 1),
 *             low = max(floor(c(beta_fast)), 0), high = min(ceil(c(beta_slow)), D - 1), where
 *             c(b) = D ln(L / (2 pi b)) / (2 ln theta) is the pair that makes b rotations over L. floor and ceil are
 *             omitted unless `truncate`. If high == low, high - low is 0.001. `attention` multiplies cos and sin.
 *             Peng et al. 2023, arXiv:2309.00071, section 3.2, as in transformers' modeling_rope_utils.py */
typedef enum pb_rope_kind { PB_ROPE_NONE, PB_ROPE_LINEAR, PB_ROPE_LLAMA3, PB_ROPE_YARN } pb_rope_kind;
typedef struct pb_rope_scaling {
    pb_rope_kind kind;
    double factor;               /* LINEAR, LLAMA3, YARN; > 0 */
    double original_len;         /* LLAMA3, YARN; tokens, > 0 */
    double low_freq, high_freq;  /* LLAMA3; rotations, low_freq < high_freq */
    double beta_fast, beta_slow; /* YARN; rotations, > 0 */
    double attention;            /* YARN; > 0, factor of cos and sin */
    bool truncate;               /* YARN: the formula above has floor and ceil */
} pb_rope_scaling;
/* Like pb_rope_table, with scaled frequencies. scaling NULL: no scaling. */
void pb_rope_table_scaled(float *cos, float *sin, int P, int D, double theta, const pb_rope_scaling *scaling);

#ifdef __cplusplus
}
#endif
#endif
