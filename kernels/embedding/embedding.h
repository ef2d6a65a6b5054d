/* embedding.h - table lookup and its gradient.
 *
 *     y[t,:] = table[ids[t],:]        dtable[v,:] (+)= sum over t with ids[t] = v of dy[t,:]
 *
 * T = B*S tokens. An id outside [0,V) gives a row of NaN in y (so that it shows) and adds nothing to
 * dtable. The sum over t runs in ascending t for every implementation that is deterministic. */
#ifndef PB_EMBEDDING_H
#define PB_EMBEDDING_H
#include "kernels/core/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_embedding_fwd_args {
    const void *table;  /* [V,D] dtype */
    const int32_t *ids; /* [T] */
    void *y;            /* [T,D] dtype, out */
    int T, V, D;
    pb_dtype dtype;
} pb_embedding_fwd_args;

typedef struct pb_embedding_bwd_args {
    const void *dy;     /* [T,D] dtype */
    const int32_t *ids; /* [T] */
    float *dtable;      /* [V,D] f32, out; every row is written unless accumulate */
    int T, V, D;
    bool accumulate; /* dtable += instead of = (tied output head) */
    pb_dtype dtype;
} pb_embedding_bwd_args;

PB_DECLARE_OP(embedding, fwd)
PB_DECLARE_OP(embedding, bwd)

#ifdef __cplusplus
}
#endif
#endif
