/* dense_mla.h - sparse_mla without lists: every query sees one range of the rows of kv. The comparator of sparse_mla,
 * on the same tensors and with the same formulas, gradients, sink and edge cases (kernels/sparse_mla/sparse_mla.h).
 *
 * Query i stands at row S_kv - S + i of kv: the last query at the last row. It sees the rows j with
 *     j <= S_kv - S + i (causal), or all;      of these only the last `window` where window > 0.
 * With S > S_kv the first causal queries see nothing. EINVAL: as sparse_mla, window < 0, lists. */
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
