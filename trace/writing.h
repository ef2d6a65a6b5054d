/* writing.h - writes a window that has ended, in a thread of its own, so that training continues. Private to trace. */
#ifndef PB_TRACE_WRITING_H
#define PB_TRACE_WRITING_H
#include <jansson.h>
#include <limits.h>
#include <pthread.h>

#include "trace/choose.h"
#include "trace/window.h"

/* A window that has ended, and the thread that writes it. The caller fills in the fields up to `closing`, and
 * reuses the struct only after pb_writing_finish(). */
typedef struct pb_writing {
    const pb_disk *disk;
    pb_ring_window window;   /* owned */
    bool gpu;                /* as in pb_window_files */
    pb_gpu_sampler *sampler; /* borrowed; as in pb_window_files */
    pb_trace_about about;
    pb_chosen ranks; /* of a window on demand; owned */
    pb_clocks *clocks;
    const char *out, *unit;  /* the folder; as in pb_profile_options, but not NULL */
    int64_t last;            /* the last step that the name of the window has; about.last_step may be an earlier one */
    bool keeps_records;      /* as in pb_profile_options: records */
    double opening, closing; /* seconds that the training thread took to open and close the window */

    char path[PATH_MAX], records[PATH_MAX]; /* records "": not wanted */
    pthread_t thread;
    bool running;
    pb_window_gpu of_gpu;
    pb_trace_size size;
    double seconds; /* CPU seconds of the thread */
    pb_status status;
    char why[512];
} pb_writing;

/* Makes the window's folder in OUT/traces and starts the thread. EPATH, EIO: the window is lost. */
pb_status pb_writing_begin(pb_writing *w);
/* Waits for the thread, frees what w owns, and appends an object that says what the window has and what it cost to
 * `windows`, of the rank's file. Does nothing if no thread runs. The status of pb_window_write(), with its message. */
pb_status pb_writing_finish(pb_writing *w, json_t *windows);
#endif
