/* contracts.h - the rows of contracts.def, measured or derived at the end of a launch. */
#ifndef PB_CONTRACTS_H
#define PB_CONTRACTS_H
#include "bench/emit.h"
#include "kernels/core/op.h"

enum {
    PB_CONTRACT_STEPS = 100 /* training steps of F-GRAPH-BWD-001 */
};

/* Emits one row per contract: suite "contract", case the id, metric `contract`, status pass, fail or
 * unsupported. Reads the launch's own rows for the contracts that are ratios of measured cases. */
pb_status pb_contracts_conclude(pb_ctx *ctx, pb_sink *sink);

/* One row: the figure of contract `id` for a case with these axes; where the contract does not apply (`applies` false)
 * the row is unsupported. `how`: what a reader should know of the figure. */
pb_status pb_contract_emit(pb_sink *sink, const char *id, const pb_axis *axes, int n, double figure, bool applies,
                           const char *how);
#endif
