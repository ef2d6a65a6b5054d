/* contracts.h - the rows of contracts.def, measured or derived at the end of a launch. */
#ifndef PB_CONTRACTS_H
#define PB_CONTRACTS_H
#include "bench/bench.h"

enum {
    PB_CONTRACT_STEPS = 100 /* training steps of F-GRAPH-BWD-001 */
};

/* Emits one row per contract: suite "contract", case the id, metric `contract`, status pass, fail or
 * unsupported. Reads the launch's own rows for the contracts that are ratios of measured cases. */
pb_status pb_contracts_conclude(pb_ctx *ctx, pb_sink *sink);
#endif
