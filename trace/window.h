/* window.h - writes what a profiling window recorded, when it has ended: the trace and, for tests, the records
 * (records.h). Private to trace. */
#ifndef PB_TRACE_WINDOW_H
#define PB_TRACE_WINDOW_H
#include "trace/chrome.h"

typedef struct pb_window_files {
    const char *trace;
    const char *records;     /* NULL: not wanted */
    bool gpu;                /* the window has records of a GPU, which pb_gpu_read() reads */
    pb_gpu_sampler *sampler; /* has the window's samples; NULL: none were taken */
} pb_window_files;

/* The counts of a window's records of a GPU. */
typedef struct pb_window_gpu {
    size_t dropped, replayed, unplaced, buffer_bytes; /* as in pb_gpu_window */
    int interval_us;                                  /* this and the others as in pb_gpu_samples */
    size_t lost, outside, overflows;
    double decode_s;
} pb_window_gpu;

/* True if either offset of about->clock exceeds its uncertainty. Otherwise the clocks may be one, as on one host, and a
 * shift would only add the error of the measurement. */
bool pb_window_must_shift(const pb_trace_about *about);
/* Writes the files of the window. If pb_window_must_shift(), the times of the trace are moved to rank 0's clock, by the
 * line through the two offsets; the file of records keeps this rank's clock. The trace is written even if the records
 * or the samples cannot be. Returns the errors of pb_gpu_read(), pb_gpu_sampler_read(), pb_trace_write() and
 * pb_records_write(). EDEVICE also: kernels ran while counters were sampled, and CUPTI recorded none of them. */
pb_status pb_window_write(const pb_disk *d, const pb_window_files *files, pb_trace_about *about, pb_ring_window *w,
                          pb_window_gpu *gpu, pb_trace_size *size);
#endif
