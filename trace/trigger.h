/* trigger.h - a file that opens profiling windows while a job runs (--profile-on-demand FILE).
 *
 * Every profiled rank looks at the file before each step that is in no window, with one stat(). If the file's time of
 * modification, size or inode has changed since the last request, it is a request. The content is words, separated by
 * white space:
 *     (nothing)    a window of as many steps, on as many ranks, as the command line says
 *     steps=4      of four steps
 *     ranks=0,3    on these of the profiled ranks; choose.h has the grammar, so rank 0 is always among them
 *     at=120       that begins with step 120 instead of the next one
 * A file that exists when the job begins is a request only once it is changed. A file that is missing is no request.
 *
 * Ranks do not communicate for it. They see a request at their own next step, so without at= a rank may begin one step
 * later than another. Most programs empty a file before they write it; therefore a change counts only when it is 0.1 s
 * old. To be sure that no rank reads half of it, write another file and rename it. */
#ifndef PB_TRACE_TRIGGER_H
#define PB_TRACE_TRIGGER_H
#include <sys/stat.h>

#include "os/disk.h"
#include "trace/choose.h"

typedef struct pb_trigger {
    const pb_disk *disk;
    const char *path;        /* borrowed */
    struct stat done, saw;   /* at the last request, or at the begin; at the last look. st_ino 0: no file */
    struct timespec changed; /* CLOCK_MONOTONIC when `saw` was seen first */
    long looks;              /* calls of stat() */
    double seconds;          /* that they took */
} pb_trigger;

typedef struct pb_trigger_request {
    int64_t first; /* step with which the window begins */
    long steps;
    pb_chosen ranks; /* free with pb_chosen_free() */
} pb_trigger_request;

void pb_trigger_open(const pb_disk *d, const char *path, pb_trigger *t);
/* True: the file has changed, and has settled. The change is then dealt with, whatever the file says. */
bool pb_trigger_fired(pb_trigger *t);
/* Reads the file. step: the next step; steps: how many if the file does not say; chosen: the profiled ranks. The answer
 * is the same on every rank for which `step` is. EINVAL: a word that is none of the above, no step, a step that is
 * over, or a rank that is not profiled; the message names the file. EPATH, EIO, ENOMEM. After a failure nothing is to
 * be freed. */
pb_status pb_trigger_read(const pb_trigger *t, const pb_topology *topology, const int *node, const pb_chosen *chosen,
                          int64_t step, long steps, pb_trigger_request *out);
#endif
