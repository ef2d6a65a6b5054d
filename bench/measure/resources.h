/* resources.h - what the kernels of a call take of a GPU, as compiled: exact counters that need no permission. */
#ifndef PB_RESOURCES_H
#define PB_RESOURCES_H
#include "bench/measure/emit.h"

/* Emits registers and local_bytes (metrics.def) of the call fn(ctx, self), which is recorded into a graph once, and not
 * executed. Does nothing on a CPU, and for a call without kernels. A call that cannot be recorded gives rows without a
 * value that say why. EDEVICE, ENOMEM: the recording failed. */
pb_status pb_emit_resources(pb_emitter *e, const pb_case *c, pb_ctx *ctx, pb_fn fn, void *self);
#endif
