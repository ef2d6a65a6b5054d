/* dense_mla.h - the attention of sparse_mla without key lists: each query attends to one contiguous range of the rows
 * of kv. It exists to be compared with sparse_mla and has the same tensors, formulas, gradients, sink and edge cases
 * (kernels/sparse_mla/sparse_mla.h).
 *
 * Query i has the position of row S_kv - S + i of kv, so the last query has the position of the last row. It attends to
 * the rows
 *     j <= S_kv - S + i (causal), or all;      of these only the last `window` if window > 0.
 * With S > S_kv the first causal queries have no visible key. Errors: EINVAL as in sparse_mla, for window < 0, and if
 * idx is set. */
#ifndef PB_DENSE_MLA_H
#define PB_DENSE_MLA_H
#include "kernels/sparse_mla/mla_args.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef pb_mla_fwd_args pb_dense_mla_fwd_args;
typedef pb_mla_bwd_args pb_dense_mla_bwd_args;

PB_DECLARE_OP(dense_mla, fwd)
PB_DECLARE_OP(dense_mla, bwd)

#ifdef __cplusplus
}
#endif
#endif
