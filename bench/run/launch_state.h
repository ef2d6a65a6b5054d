/* launch_state.h - the machine's state around one launch and, on a GPU, while it lasts: an entry of "launch_state" in
 * run.json.
 *
 * {"launch", "retry_of": launch or null, "start": {"host", "gpu"}, "end": the same, "during": {"samples",
 *  "sm_clock_least_hz", "sm_clock_most_hz", "power_most_w", "temperature_most_c", "throttle": [reason, ...]} or null,
 *  "gpu_unknown": why there is no "gpu", or null, "steal_s", "throttled": [reason, ...]}
 * Clocks of "during" are those of the samples in which the GPU worked. "throttled" holds the reasons that spoil the
 * launch (PB_THROTTLE_MAP, and cpu_thermal) at its start, its end or in any sample. */
#ifndef PB_LAUNCH_STATE_H
#define PB_LAUNCH_STATE_H
#include <jansson.h>

#include "kernels/core/op.h"

typedef struct pb_launch_watch pb_launch_watch;

/* Reads the machine, and starts a thread that samples the GPU twice a second where `device` is one. ENOMEM, EIO. */
pb_status pb_launch_watch_begin(pb_backend_id device, pb_launch_watch **out);
/* Ends it; *state is the entry, which the caller owns. ENOMEM. */
pb_status pb_launch_watch_end(pb_launch_watch *w, int launch, int retry_of, json_t **state);
/* Why the launch of this entry is spoilt, a comma between; false: it is not. */
bool pb_launch_throttled(const json_t *state, char *why, size_t n);
#endif
