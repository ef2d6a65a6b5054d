/* mla_mass.h - how much attention each slot of the lists of sparse_mla received, summed over the heads: the target that
 * an indexer is trained to predict (DeepSeek-V3.2, section 2.1).
 *
 *     mass[b,i,j] = sum_h e^(scale q[b,i,h] . kv[b,r] - lse[b,i,h]),   r = idx[b,i,from+j], j < n
 *
 * computed again from the inputs and the lse of sparse_mla_fwd. lse includes the sink and the slots outside from ..
 * from+n-1, so the masses of a query sum to at most H; a caller that needs a distribution must normalise them. A slot
 * whose index is outside [0,S_kv) has mass 0 and no row is read for it. A head whose lse is -inf (no visible key) adds
 * 0.
 *
 * q and kv are dtype; sums are f32 or wider and deterministic. With the lists of mla_index, from = min(S, window) and n
 * = T select the compressed rows, whose slots correspond to `pick`. Errors: EINVAL for B, S, S_kv, H or D below 1, from
 * or n below 0, from + n > W, a scale that is not finite, a NULL tensor. */
#ifndef PB_MLA_MASS_H
#define PB_MLA_MASS_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_mla_mass_fwd_args {
    const void *q;      /* [B,S,H,D] dtype */
    const void *kv;     /* [B,S_kv,D] dtype */
    const int32_t *idx; /* [B,S,W] */
    const float *lse;   /* [B,S,H] output of sparse_mla_fwd */
    float *mass;        /* [B,S,n], out */
    int B, S, S_kv, H, D, W;
    int from, n;
    float scale; /* as in sparse_mla */
    pb_dtype dtype;
} pb_mla_mass_fwd_args;

PB_DECLARE_OP(mla_mass, fwd)

#ifdef __cplusplus
}
#endif
#endif
