/* run_json.h - run.json: what was run, where and in which order.
 *
 * {"bench_version", "run_id", "machine_id", "suite", "time_utc", "commit", "argv", "seed", "launches",
 *  "truncated", "order": [[key, ...] per launch], "fingerprint"}. "truncated" is true from the start until
 * a whole run rewrites the file at its end. */
#ifndef PB_RUN_JSON_H
#define PB_RUN_JSON_H
#include <jansson.h>

#include "bench/plan.h"

typedef struct pb_run_info {
    const char *run_id, *machine_id, *time_utc;
    const pb_plan *plan;
    const pb_options *options;
    const json_t *fingerprint;
    uint64_t seed;
    bool truncated;
} pb_run_info;

/* Writes dir/run.json whole or not at all (EIO). */
pb_status pb_run_json_write(const char *dir, const pb_run_info *r);
/* The same for any object, whose reference it takes; NULL: ENOMEM. */
pb_status pb_run_json_put(const char *dir, json_t *o);
#endif
