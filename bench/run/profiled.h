/* profiled.h - `bench run --profile-out DIR`: a run whose process records traces for reading. Its figures include the
 * cost of recording, so they are no measurement: every row has the status `profiled` (status.def) in place of a figure
 * or a verdict, the run is neither compared nor kept as a session, and `bench baseline` refuses it.
 *
 * The run has one process. Each case is a window of its own (trace/profile.h), from its suite's range to the last of
 * its work: DIR/traces/caseN-N/rank0.json.gz, where N counts the cases of the process from 1 and the trace names the
 * case's key. */
#ifndef PB_PROFILED_H
#define PB_PROFILED_H
#include "bench/options/options.h"
#include "bench/rows/rows.h"
#include "kernels/engine/ctx.h"
#include "trace/profile.h"

/* Sets the options that --profile-out implies: one process, no comparison, no session, and no ceilings unless
 * --ceilings yes asks for them. Without --profile-out it changes nothing. EINVAL: an option or a suite that it
 * excludes; the message names it. */
pb_status pb_profiled_options(pb_options *o);

/* The trace of a measuring process; {0}: none. */
typedef struct pb_profiled {
    pb_profile *profile; /* NULL: nothing is recorded */
    char host[256];
    const char *hosts[1];
} pb_profiled;

/* Begins the profile, before the device is opened; *out must stay where it is. Without --profile-out, and in a process
 * that continues after a case that hung, nothing is recorded. The errors of pb_profile_open(). */
pb_status pb_profiled_open(const pb_options *o, pb_backend_id device, pb_profiled *out);
/* Around a case. */
void pb_profiled_begin_case(pb_profiled *p, int number, const char *key);
void pb_profiled_end_case(pb_profiled *p, pb_ctx *ctx);
/* Waits until the traces are written. The errors of pb_profile_close(). */
pb_status pb_profiled_close(pb_profiled *p);
#endif
