/* chrome_gpu.h - the GPU's part of a trace (chrome.h): kernels, copies, host calls, and what joins them. Private to
 * trace.
 *
 * Events, with the names and arguments that Kineto's traces have: kernel, gpu_memcpy and gpu_memset (pid: the device;
 * tid: the stream), cuda_runtime and cuda_driver (pid and tid of the host thread; one event per correlation),
 * cuda_sync, overhead, cuda_graph (a replayed graph as a whole, if its kernels are not recorded), and arrows (ac2g)
 * from a host call to its kernel. Work on one stream that overlaps, as with programmatic dependent launch, goes to
 * further lanes (tid = stream + 1000000 lane), because viewers drop events that overlap on one tid. A wait for a stream
 * (cuda_sync) is on the lane after these; its args.stream is -1, because HolisticTraceAnalysis counts events with a
 * stream as work of the GPU, and args["of stream"] is the stream.
 *
 * args.op, args.layer and args.phase of work on the GPU are those of the range in which it was enqueued: that of the
 * host call, or, for a replayed graph, that of the capture (gpu.h). args.op_flops and args.op_bytes of a replayed
 * graph's kernel are the least work of its op; only the first kernel of an op call has them, so that sums are right. In
 * eager mode the op's range has them. */
#ifndef PB_TRACE_CHROME_GPU_H
#define PB_TRACE_CHROME_GPU_H
#include "profiles/ring.h"
#include "trace/chrome.h"
#include "trace/gpu.h"
#include "trace/gzip.h"

/* Appends the events, as long as the text stays within `room` bytes; size->unjoined counts work on the GPU without an
 * op. ENOMEM: nothing was appended. */
pb_status pb_chrome_gpu(pb_gzip *g, const pb_gpu_window *w, const pb_ring_window *ranges, int64_t base, size_t room,
                        pb_trace_size *size);
#endif
