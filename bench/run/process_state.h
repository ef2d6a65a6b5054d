/* process_state.h - the state of the machine before, during and after one measuring process: an entry of
 * "process_state" in run.json.
 *
 * {"process": process number, "start": {"host", "gpu"}, "end": {"host", "gpu"},
 *  "during": {"samples", "sm_clock_least_hz", "sm_clock_most_hz", "power_most_w", "temperature_most_c",
 *             "throttle": [reason, ...]} or null,
 *  "gpu_unknown": why the GPU's state is missing, or null, "steal_s"}
 * The clocks of "during" come only from samples in which the GPU was not idle. What follows from the state for the
 * process's measurements is in processes.csv only (throttle.h). */
#ifndef PB_PROCESS_STATE_H
#define PB_PROCESS_STATE_H
#include <jansson.h>

#include "bench/measure/measure.h"
#include "bench/options/options.h"
#include "kernels/engine/op.h"

typedef struct pb_state_recording pb_state_recording;
enum { PB_THROTTLED_TEXT = 200 };

/* Reads the machine's state. If o->device is a GPU, also starts a thread that samples it twice a second. EINVAL: no
 * such device. ENOMEM, EIO. */
pb_status pb_state_recording_begin(const pb_options *o, pb_state_recording **out);
/* Stops the thread, frees `w` and sets *state to the entry, which the caller owns. `why` gets the reasons that make the
 * measurements invalid, separated by commas; "": none. These are throttling (PB_THROTTLE_MAP, and cpu_thermal), seen at
 * the start, at the end or in any sample, and then other work, if it counts. `disturbed`: measurements that found too
 * little time without other work. They decide if samples were judged; else the CPU time that others used meanwhile does
 * (disturbance.h). ENOMEM. */
pb_status pb_state_recording_end(pb_state_recording *w, int process, int disturbed, json_t **state,
                                 char why[PB_THROTTLED_TEXT]);
/* True if the measuring process judges its samples (contention.h), for which *c is then ready. False with several
 * ranks, on a GPU, if nothing is timed, if the process has fewer CPUs, or a smaller CPU quota, than threads, if the
 * kernel does not tell how long threads wait, and if the environment variable PB_DISTURBANCE is `ignore`. So it is for
 * the processes of a pair: both sides see the same work, which the rule takes for noise, and an interleaved process
 * would see the other one. */
bool pb_samples_are_judged(const pb_options *o, pb_backend_id device, pb_contention *c);
#endif
