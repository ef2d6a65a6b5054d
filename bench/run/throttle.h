/* throttle.h - measures processes while recording the machine's state (process_state.h); the rows of a throttled
 * process are marked, and it is measured again.
 *
 * Rows of status ok become `throttled`, with the reason as note. Their values are used only if all processes of the
 * row were throttled (series.h). Rows of status pass, fail, wrong and others keep their status, because throttling
 * does not affect correctness. The retry is a new process with the next free number. There are at most
 * --throttle-retries retries of a process; the rows of each throttled attempt stay in the file, marked. */
#ifndef PB_THROTTLE_H
#define PB_THROTTLE_H
#include <jansson.h>

#include "bench/run/process.h"
#include "bench/run/progress.h"

/* Returns the total number of processes: those requested, plus one for each process that "process_state" in run.json
 * (about) shows as throttled and that may be measured again. */
long pb_throttle_processes(const json_t *about, const pb_options *o);
/* Calls pb_process_run() and records the machine's state. Updates `about` and run.json in l->dir, marks the rows if the
 * process was throttled. */
pb_status pb_throttle_run(pb_process *l, json_t *about, pb_exit *code, bool *stopped);
/* Marks the rows of the last process if the run was killed after noting the throttling and before marking them. */
pb_status pb_throttle_settle(const char *dir, const json_t *about, const pb_options *o, pb_place next);
#endif
