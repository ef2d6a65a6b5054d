/* gqa_check.h - checks the outputs of a case with grouped-query attention against the CPU's double-precision reference.
 *
 * Every element of every output must be finite and must have been written. A sample, the same on every machine, is
 * compared with implementation `ref` of the CPU op dynmask_attention; for dense attention, its lists name every key:
 *   o, lse, dq       of up to 8 queries, including the first and the last, in one head each
 *   dk, dv, dbias    of up to 4 keys that queries attend to, each summed over all of its queries and heads
 * For a backward case, o and lse are the device's own. */
#ifndef PB_GQA_CHECK_H
#define PB_GQA_CHECK_H
#include "bench/suites/attention_check.h"
#include "bench/suites/gqa_call.h"

/* Checks the outputs after a run of the pass that has completed. EDEVICE, ENOMEM. */
pb_status pb_gqa_check(pb_ctx *ctx, const pb_gqa_call *c, pb_attn_error *out);
#endif
