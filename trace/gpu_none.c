/* gpu_none.c - used when the build has no CUPTI: GPUs cannot be profiled. */
#include "trace/gpu.h"

static pb_status none(void)
{
    return pb_fail(PB_EUNSUPPORTED,
                   "profile: this build has no CUPTI, so what a GPU does cannot be recorded; it comes with CUDA");
}

pb_status pb_gpu_open(size_t limit, pb_gpu_graphs graphs) { return (void)limit, (void)graphs, none(); }
void pb_gpu_node(void *handle, const pb_range_stack *place) { (void)handle, (void)place; }
pb_status pb_gpu_begin(void) { return none(); }
pb_status pb_gpu_end(void) { return none(); }
pb_status pb_gpu_read(pb_gpu_window *out) { return *out = (pb_gpu_window){0}, PB_OK; }
