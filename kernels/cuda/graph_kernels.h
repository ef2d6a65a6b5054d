/* graph_kernels.h - what the kernels of a CUDA graph take of the GPU. */
#ifndef PB_GRAPH_KERNELS_H
#define PB_GRAPH_KERNELS_H
#include <cuda_runtime.h>

#include "kernels/engine/ctx.h"

/* Reads the attributes of all kernels of the graph, those of libraries included, from the driver. EUNSUPPORTED: the
 * driver lacks a call, or does not know a kernel. EDEVICE, ENOMEM. */
pb_status pb_graph_kernels(cudaGraph_t graph, pb_kernel_resources *out);
#endif
