/* counters.h - emits the exact counters of a case (EXACT in metrics.def), such as kernel launches, host syncs and the
 * kernel digest. */
#ifndef PB_COUNTERS_H
#define PB_COUNTERS_H
#include "bench/measure/emit.h"

/* Bytes of the note of kernel_digest, with its final NUL. The note lists at most PB_TALLY_MOST kernels. */
enum { PB_KERNEL_LIST_TEXT = 8192 };

/* Emits kernel_launches, host_syncs, on a GPU algorithm_searches, allocations, held_peak (since pb_held_reset) and
 * kernel_digest; graph_nodes where the timing is of a graph; formula_flops where flops > 0; instructions where the
 * calls were counted. If two counts of instructions differ by more than EXACT(instructions) allows, the row has no
 * value and says so. `ctx` must not have run anything since the timing. A value outside its absolute bound in
 * metrics.def makes its row wrong. Without samples it emits nothing. */
pb_status pb_emit_counters(pb_emitter *e, const pb_case *c, const pb_ctx *ctx, const pb_timing *t, double flops);

/* The list of kernels and how often each is launched, sorted by name: "cast.avx512=2 linear_fwd.avx512=30". A
 * character of a name that a list cannot hold becomes '_'. */
void pb_kernel_list(const pb_tally *names, char out[PB_KERNEL_LIST_TEXT]);
/* FNV-1a hash of a text, in 32 bits. */
uint32_t pb_kernel_digest(const char *list);
#endif
