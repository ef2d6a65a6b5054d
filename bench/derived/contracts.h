/* contracts.h - rows that say whether a contract of contracts.def holds: suite "contract", case the id, metric `contract`,
 * status pass, fail or unsupported. */
#ifndef PB_CONTRACTS_H
#define PB_CONTRACTS_H
#include "bench/measure/emit.h"
#include "kernels/core/op.h"

/* One row for each contract that is a ratio of two cases measured earlier in this run (F-GRAPH-BWD-003a and b). */
pb_status pb_contract_ratios(pb_ctx *ctx, pb_sink *sink);

/* One row: the figure of contract `id` for a case with these axes; where the contract does not apply (`applies` false)
 * the row is unsupported. `how`: what a reader should know of the figure. */
pb_status pb_contract_emit(pb_sink *sink, const char *id, const pb_axis *axes, int n, double figure, bool applies,
                           const char *how);
#endif
