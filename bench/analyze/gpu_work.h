/* gpu_work.h - what a GPU did in the whole of a trace, from the begin of its first kernel or copy to the end of the
 * last: by kinds of work that run at once, and by the names of kernels and copies. breakdown.h divides the steps
 * instead.
 *
 * These are the definitions of HolisticTraceAnalysis 0.5.0, so that its figures and these can be compared
 * (scripts/hta-check): idle, and compute next to anything else, are its temporal breakdown; compute and communication
 * at once, over communication, its overlap; the sums by name its kernel breakdown. */
#ifndef PB_GPU_WORK_H
#define PB_GPU_WORK_H
#include "bench/analyze/trace_read.h"

enum { PB_WORK_SETS = 1 << PB_WORK_KINDS };

/* Kernels of one name, or copies of one kind. */
typedef struct pb_gpu_named {
    const char *name; /* borrowed from the trace */
    pb_gpu_work what;
    long calls;
    double seconds, shortest, longest; /* of the calls: sum, least, most */
    bool copy;                         /* as in pb_gpu_span */
    double moved;                      /* bytes that copies moved or set; 0 for kernels */
} pb_gpu_named;

typedef struct pb_gpu_total {
    double window;            /* seconds from the first begin to the last end */
    double set[PB_WORK_SETS]; /* set[s]: seconds in which exactly the kinds k with the bit 1 << k in s run; [0]: idle */
    pb_gpu_named *named;      /* [n], by seconds, the most first; then by name */
    size_t n;
} pb_gpu_total;

/* A trace without work of a GPU gives zeros. ENOMEM. Free with pb_gpu_total_free(). */
pb_status pb_gpu_total_make(const pb_trace *t, pb_gpu_total *out);
void pb_gpu_total_free(pb_gpu_total *g);
#endif
