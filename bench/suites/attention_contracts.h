/* attention_contracts.h - the contracts of contracts.def on a case of the suite attention. */
#ifndef PB_ATTENTION_CONTRACTS_H
#define PB_ATTENTION_CONTRACTS_H
#include "bench/measure/emit.h"
#include "bench/suites/attention_check.h"

/* MLA-FINITE, MLA-REL-DIFF-Q and, of a backward case, MLA-REL-DIFF-KV; no row where the case is not of the shape that
 * they are about: bf16, sparse, 1280 queries and rows, 64 heads of 512, lists of 640. */
pb_status pb_attn_contracts(pb_sink *sink, const pb_case *c, const pb_attn *a, const pb_attn_error *e);
#endif
