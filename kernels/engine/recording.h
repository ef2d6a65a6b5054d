/* recording.h - records op calls into a graph of the CPU backend, which is a list of calls with copies of their
 * arguments. */
#ifndef PB_RECORDING_H
#define PB_RECORDING_H
#include "kernels/engine/op.h"

/* Appends a call to the graph in ctx->recorder instead of running it. pb_op_run calls it while
 * the CPU backend records. */
pb_status pb_recording_add(pb_ctx *ctx, const pb_op *op, const pb_impl *impl, const void *args);
#endif
