/* mla_mass.h - how much attention the slots of sparse_mla's lists received, summed over the heads: what an indexer is
 * trained to predict (DeepSeek-V3.2, section 2.1).
 *
 *     mass[b,i,j] = sum_h e^(scale q[b,i,h] . kv[b,r] - lse[b,i,h]),   r = idx[b,i,from+j], j < n
 *
 * computed again from what sparse_mla_fwd read and wrote. lse includes the sink and the slots outside from .. from+n-1,
 * so that the masses of a query sum to H at most; whoever needs a distribution divides. A slot whose index lies outside
 * [0,S_kv) is 0, and nothing is read there; so is every slot of a head whose lse is -inf (it saw nothing).
 *
 * q and kv are dtype; sums are f32 or wider, in a fixed order. With mla_index's lists from = min(S, window) and n = T
 * are the compressed part, whose slots are those of `pick`. EINVAL: B, S, S_kv, H, D below 1, from or n below 0,
 * from + n > W, scale not finite, a NULL tensor. */
#ifndef PB_MLA_MASS_H
#define PB_MLA_MASS_H
#include "kernels/core/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_mla_mass_fwd_args {
    const void *q;      /* [B,S,H,D] dtype */
    const void *kv;     /* [B,S_kv,D] dtype */
    const int32_t *idx; /* [B,S,W] */
    const float *lse;   /* [B,S,H] of sparse_mla_fwd */
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
