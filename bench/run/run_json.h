/* run_json.h - run.json: what was measured, where and in which order.
 *
 * {"bench_version", "run_id", "machine_id", "host", "suite", "time_utc", "commit", "argv", "seed", "processes",
 *  "truncated", "order": [[key, ...] per process], "fingerprint"}
 * "processes" is the number of measuring processes. "order" has the order of the first processes, at least one and at
 * most 10000 keys in total; the other orders follow from the seed (pb_plan_order). "truncated" is true until the
 * completed run rewrites the file. "resumed" is added by --resume: a list of times and command lines.
 * "process_state" is added while the run measures: one entry per process (process_state.h), so the file grows with the
 * number of processes, by about a kilobyte for each. What became of the processes is in processes.csv only
 * (bench/rows/processes.h). */
#ifndef PB_RUN_JSON_H
#define PB_RUN_JSON_H
#include <jansson.h>

#include "bench/options/options.h"
#include "bench/suites/suites.h"

/* Input of pb_run_json_make(); all pointers are borrowed. */
typedef struct pb_run_info {
    const char *run_id, *machine_id, *host, *time_utc;
    const pb_plan *plan;
    const pb_options *options;
    const json_t *fingerprint;
    uint64_t seed;
} pb_run_info;

/* The git commit that this program was built from. */
const char *pb_run_commit(void);
/* Returns the contents of run.json at the start of a run. The caller owns the object. NULL: out of memory. */
json_t *pb_run_json_make(const pb_run_info *r);
/* Returns the value of "order". The caller owns it. NULL: out of memory. */
json_t *pb_run_json_order(const pb_plan *plan, uint64_t seed, long processes);
/* Adds the time and command line of the resuming command to "resumed". ENOMEM. */
pb_status pb_run_json_resumed(json_t *about, const char *time_utc, const pb_options *now);
/* Creates dir/run.json. EPATH: the file exists or cannot be created; EIO, ENOMEM. */
pb_status pb_run_json_create(const char *dir, json_t *about);
/* Replaces dir/run.json atomically. EPATH, EIO, ENOMEM. */
pb_status pb_run_json_write(const char *dir, json_t *about, bool truncated);
#endif
