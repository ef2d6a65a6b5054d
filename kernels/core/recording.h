/* recording.h - a graph on the CPU: the list of op calls, with their arguments by value. */
#ifndef PB_RECORDING_H
#define PB_RECORDING_H
#include "kernels/core/op.h"

/* Appends a call to ctx->recorder instead of running it. Called by pb_op_run on the CPU backend. */
pb_status pb_recording_add(pb_ctx *ctx, const pb_op *op, const pb_impl *impl, const void *args);
#endif
