/* window.h - writes what a profiling window recorded, when it has ended: the trace and, for tests, the records
 * (records.h). Private to trace. */
#ifndef PB_TRACE_WINDOW_H
#define PB_TRACE_WINDOW_H
#include "trace/chrome.h"

typedef struct pb_window_files {
    const char *trace;
    const char *records; /* NULL: not wanted */
    bool gpu;            /* the window has records of a GPU, which pb_gpu_read() reads */
} pb_window_files;

/* The counts of a window's records of a GPU. */
typedef struct pb_window_gpu {
    size_t dropped, replayed, unplaced, buffer_bytes; /* as in pb_gpu_window */
} pb_window_gpu;

/* The status of pb_gpu_read(), pb_trace_write() or pb_records_write(). The trace is written even if the records cannot be. */
pb_status pb_window_write(const pb_disk *d, const pb_window_files *files, const pb_trace_about *about,
                          const pb_ring_window *w, pb_window_gpu *gpu, pb_trace_size *size);
#endif
