/* process_state.h - the state of the machine before, during and after one measuring process: an entry of
 * "process_state" in run.json.
 *
 * {"process": process number, "retry_of": process number or null, "start": {"host", "gpu"}, "end": {"host", "gpu"},
 *  "during": {"samples", "sm_clock_least_hz", "sm_clock_most_hz", "power_most_w", "temperature_most_c",
 *             "throttle": [reason, ...]} or null,
 *  "gpu_unknown": why the GPU's state is missing, or null, "steal_s", "throttled": [reason, ...]}
 * The clocks of "during" come only from samples in which the GPU was not idle. "throttled" lists the reasons that make
 * the measurements invalid (PB_THROTTLE_MAP, and cpu_thermal), seen at the start, at the end or in any sample. */
#ifndef PB_PROCESS_STATE_H
#define PB_PROCESS_STATE_H
#include <jansson.h>

#include "kernels/engine/op.h"

typedef struct pb_process_watch pb_process_watch;

/* Reads the machine's state. If `device` is a GPU, also starts a thread that samples it twice a second. ENOMEM, EIO. */
pb_status pb_process_watch_begin(pb_backend_id device, pb_process_watch **out);
/* Stops the thread, frees `w` and sets *state to the entry, which the caller owns. ENOMEM. */
pb_status pb_process_watch_end(pb_process_watch *w, int process, int retry_of, json_t **state);
/* True if the entry says that the process was throttled; `why` gets the reasons, separated by commas. */
bool pb_process_throttled(const json_t *state, char *why, size_t n);
#endif
