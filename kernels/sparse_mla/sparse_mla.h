/* sparse_mla.h - attention of every query to the rows of a shared kv that its own list names (DeepSeek-V4's core op).
 *
 * One kv head serves all H heads: row j is a key (all D columns) and a value (its first V columns).
 *
 *     s_w = scale q[b,i,h] . kv[b,idx_w]      Z = e^sink_h + sum_w e^s_w
 *     o[b,i,h] = sum_w e^s_w / Z kv[b,idx_w][:V]      lse[b,i,h] = ln Z      w over the slots of idx[b,i] not masked
 *
 * A slot is masked when its index lies outside [0,S_kv), wherever in the list it stands; no such row is read. An index
 * that stands twice counts twice. The sink is a logit in the units of s (scaled, natural logarithm) with value 0:
 * lse includes it. A query that sees nothing gives o = 0, lse = sink_h and no gradient. A sink of -inf is no sink; then
 * such a query's lse is -inf.
 *
 * Backward, with delta = sum_d do_d o_d, p_w = e^(s_w - lse) and ds_w = scale p_w (do . kv_w[:V] - delta):
 *     dq = sum_w ds_w kv[idx_w]      dkv[idx_w] += ds_w q + (p_w do, on the first V columns), over all heads, queries
 *     dsink_h = -sum_{b,i} delta e^(sink_h - lse)
 * Rows of dkv that no list names are 0. Sums are f32 or wider and rounded to `dtype` once.
 *
 * DeepSeek-AI 2025, DeepSeek-V3.2 (sparse attention over MLA's latent); the sink: Xiao et al. 2023, arXiv:2309.17453,
 * as a logit in gpt-oss and DeepSeek-V4. EINVAL: a size below 1 (W may be 0), V > D, scale not finite, a NULL tensor, a
 * window.
 */
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
