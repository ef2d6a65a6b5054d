/* embedding.h - table lookup and its gradient.
 *
 *     y[t,:] = table[ids[t],:]        dtable[v,:] (+)= sum over t with ids[t] = v of dy[t,:]
 *
 * T = B*S tokens. An id outside [0,V) gives a row of NaN in y, so that the error shows, and adds nothing to dtable.
 * Deterministic implementations add in ascending t. The sum of a row is f32. Where dtable is bf16, the reference and
 * the CPU implementations round it once; the GPU rounds it once for each window of at most 4096 consecutive tokens in
 * which the row occurs. */
#ifndef PB_EMBEDDING_H
#define PB_EMBEDDING_H
#include "kernels/engine/op.h"
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
    void *dtable;       /* [V,D] table_dtype, out; without accumulate every row is written */
    int T, V, D;
    bool accumulate; /* dtable += instead of dtable = (for a tied output head) */
    pb_dtype dtype;
    pb_dtype table_dtype; /* PB_F32, which is 0, or PB_BF16 */
} pb_embedding_bwd_args;

PB_DECLARE_OP(embedding, fwd)
PB_DECLARE_OP(embedding, bwd)

#ifdef __cplusplus
}
#endif
#endif
