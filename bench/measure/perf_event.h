/* perf_event.h - opens counters of the processor and of the system for the calling thread, by perf_event_open(2). */
#ifndef PB_PERF_EVENT_H
#define PB_PERF_EVENT_H
#include "os/status.h"

struct perf_event_attr;

/* Opens a counter in the group that `leader` leads; leader -1: it leads one itself. option, counter and instead are for
 * the message: "--counters CPU", "counter `cycles`", and what does without it, or "". EUNSUPPORTED: the system or the
 * machine refuses; the message says why. */
pb_status pb_perf_open(struct perf_event_attr *attr, int leader, const char *option, const char *counter,
                       const char *instead, int *fd);

/* Records why perf_event_open() refused, from its errno and the value of kernel.perf_event_paranoid (NULL: unknown).
 * Returns EUNSUPPORTED. */
pb_status pb_perf_refused(const char *option, const char *counter, const char *instead, int error,
                          const char *paranoid);
#endif
