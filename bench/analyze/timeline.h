/* timeline.h - a picture of a profiled job: one HTML file that a browser shows without a network, with a row for each
 * thread and each stream of each rank. Private to bench/analyze. */
#ifndef PB_TIMELINE_H
#define PB_TIMELINE_H
#include "bench/analyze/trace_read.h"

/* More events than this are too slow in a browser: the shortest are left out, and the page says how many. */
enum { PB_TIMELINE_MOST = 200000 };

/* Writes the page; the file appears when it is complete. Times begin with the earliest window. EINVAL: the job has no
 * trace. EPATH, EIO, ENOMEM. */
pb_status pb_timeline_write(const pb_profile_run *r, const char *path);
#endif
