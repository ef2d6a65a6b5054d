/* gpu_counters.h - counts hardware events of a GPU by CUPTI's range profiler.
 *
 * Either of each kernel of a call, by kernel replay: while it counts, CUPTI runs each kernel as often as the events
 * need passes, one kernel at a time, and restores its memory in between.
 *
 *     PB_TRY(pb_gpu_counters_open(&group, &c));
 *     PB_TRY(pb_gpu_counters_begin(c));
 *     s = launch kernels, and wait for them
 *     PB_TRY(pb_gpu_counters_end(c, values));
 *     pb_gpu_counters_close(c);
 *
 * Kernels that wait for other kernels or ranks would hang, so the process must be alone. Copies and fills that are not
 * kernels are not counted. A recorded graph is not replayed kernel by kernel: only eager calls can be counted.
 *
 * Or of ranges of work that runs once, such as a step of training, for groups of one pass: nothing is replayed, so
 * other ranks may take part, kernels may overlap, and a range may hold launches of recorded graphs.
 *
 *     PB_TRY(pb_gpu_counters_open_ranges(&group, most, &c));
 *     PB_TRY(pb_gpu_counters_begin(c));
 *     PB_TRY(pb_gpu_counters_push(c)); launch work; PB_TRY(pb_gpu_counters_pop(c));      at most `most` times
 *     PB_TRY(pb_gpu_counters_end_ranges(c, values, n));
 *     pb_gpu_counters_release(c);                      if nothing is counted for a while
 *     pb_gpu_counters_close(c); */
#ifndef PB_GPU_COUNTERS_H
#define PB_GPU_COUNTERS_H
#include "os/status.h"
#include "profiles/groups.h"

/* Kernels that one counted call may launch, and passes that a group may need. */
enum { PB_COUNTED_KERNELS = 1024, PB_COUNTED_PASSES = 16 };

typedef struct pb_gpu_counters pb_gpu_counters;

/* The number of passes in which the chip `g->chip` reads the group's events. Needs no GPU, only libcupti. EUNSUPPORTED:
 * there is no libcupti, or it does not know the chip. EINVAL: the chip lacks an event; the message names it. */
pb_status pb_gpu_counters_passes(const pb_counter_group *g, int *passes);

/* Prepares counting on the GPU of the calling thread's CUDA context, which must exist. *g is copied. Returns NULL in
 * *out after an error. EUNSUPPORTED, with one line that says why: no libcupti, another chip than the group's, no
 * permission, another tool holds the counters, a virtual GPU or partition without counters, or more passes than
 * PB_COUNTED_PASSES. EINVAL: the chip lacks an event. EDEVICE: CUPTI failed. */
pb_status pb_gpu_counters_open(const pb_counter_group *g, pb_gpu_counters **out);
void pb_gpu_counters_close(pb_gpu_counters *c); /* NULL: does nothing */

/* The same for ranges: at most `most` of them between begin and end. EUNSUPPORTED also: the group needs more than one
 * pass; the message has the number. */
pb_status pb_gpu_counters_open_ranges(const pb_counter_group *g, int most, pb_gpu_counters **out);

/* Around one call. The GPU must be idle at both. end: values[g->events] are the sums over the kernels of the call;
 * values NULL: the call failed, and counting only ends. EUNSUPPORTED: see open. EDEVICE: CUPTI failed, the call
 * launched no kernel or more than PB_COUNTED_KERNELS, or the passes were not completed. After an error nothing is being
 * counted, and begin may be called again. Between calls the profiler stays on: it counts nothing, but keeps other tools
 * from the counters until close. */
pb_status pb_gpu_counters_begin(pb_gpu_counters *c);
pb_status pb_gpu_counters_end(pb_gpu_counters *c, double *values);

/* Begins and ends a range; ranges do not nest. Both wait until the GPU is idle, so that the range has the work that was
 * enqueued in it, and no other. EDEVICE: the GPU's work failed, CUPTI failed, or the range is one too many. */
pb_status pb_gpu_counters_push(pb_gpu_counters *c);
pb_status pb_gpu_counters_pop(pb_gpu_counters *c);
/* Ends what begin began. values[i * g->events + k] is
 * event k of the range that was pushed as number i < n; values NULL: counting only ends. EDEVICE: CUPTI failed, or it
 * did not count every range. */
pb_status pb_gpu_counters_end_ranges(pb_gpu_counters *c, double *values, int n);
/* Switches the profiler off until the next begin, so that other tools may count in between. */
void pb_gpu_counters_release(pb_gpu_counters *c);
#endif
