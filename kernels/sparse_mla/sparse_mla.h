/* sparse_mla.h - attention in which each query attends to the rows of a shared kv that its key list names, the core op
 * of DeepSeek-V4.
 *
 * One kv head serves all H heads. Row j of kv is a key (all D columns) and a value (its first V columns).
 *
 *     s_w = scale q[b,i,h] . kv[b,idx_w]      Z = e^sink_h + sum_w e^s_w
 *     o[b,i,h] = sum_w e^s_w / Z kv[b,idx_w][:V]      lse[b,i,h] = ln Z      w: unmasked slots of idx[b,i]
 *
 * A slot is masked when its index is outside [0,S_kv); masked slots may be anywhere in the list, and no row is read for
 * them. An index that occurs twice counts twice. The sink is an extra logit, in the units of s, whose value vector is
 * 0; lse includes it. A query with only masked slots gives o = 0, lse = sink_h and no gradient. A sink of -inf means no
 * sink; then the lse of such a query is -inf.
 *
 * Backward, with delta = sum_d do_d o_d, p_w = e^(s_w - lse) and ds_w = scale p_w (do . kv_w[:V] - delta):
 *     dq = sum_w ds_w kv[idx_w]      dkv[idx_w] += ds_w q + (p_w do, on the first V columns), over heads, queries
 *     dsink_h = -sum_{b,i} delta e^(sink_h - lse)
 * Rows of dkv that no list names are 0. Sums are f32 or wider and are rounded to `dtype` once; dkv to f32 with `wide`.
 *
 * DeepSeek-AI 2025, DeepSeek-V3.2 (sparse attention over the latent of MLA); the sink: Xiao et al. 2023,
 * arXiv:2309.17453, in the form of a logit as in gpt-oss and DeepSeek-V4. Errors: EINVAL for a size below 1 (W may be
 * 0), V > D, a scale that is not finite or a NULL tensor, and if window or causal is set. */
#ifndef PB_SPARSE_MLA_H
#define PB_SPARSE_MLA_H
#include "kernels/sparse_mla/mla_args.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef pb_mla_fwd_args pb_sparse_mla_fwd_args;
typedef pb_mla_bwd_args pb_sparse_mla_bwd_args;

PB_DECLARE_OP(sparse_mla, fwd)
PB_DECLARE_OP(sparse_mla, bwd)

#ifdef __cplusplus
}
#endif
#endif
