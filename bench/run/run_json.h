/* run_json.h - run.json: what was run, where and in which order.
 *
 * {"bench_version", "run_id", "machine_id", "suite", "time_utc", "commit", "argv", "seed", "launches",
 *  "truncated", "order": [[key, ...] per launch], "fingerprint"}. "order" has the first launches, as many as have 10000
 * keys together and at least one: those of the others follow from the seed (plan.h). "truncated" is true from the start
 * until a whole run rewrites the file at its end. "resumed": when and with which argv a run that was cut short went on.
 */
#ifndef PB_RUN_JSON_H
#define PB_RUN_JSON_H
#include <jansson.h>

#include "bench/run/plan.h"

typedef struct pb_run_info {
    const char *run_id, *machine_id, *time_utc;
    const pb_plan *plan;
    const pb_options *options;
    const json_t *fingerprint;
    uint64_t seed;
} pb_run_info;

/* The commit that this program was built from. */
const char *pb_run_commit(void);
/* What run.json holds at a run's start; NULL: no memory. The caller frees it. */
json_t *pb_run_json_make(const pb_run_info *r);
/* Its "order"; NULL: no memory. */
json_t *pb_run_json_order(const pb_plan *plan, uint64_t seed, long launches);
/* Notes that the run went on. ENOMEM. */
pb_status pb_run_json_resumed(json_t *about, const char *time_utc, const pb_options *now);
/* Makes dir/run.json of a run that begins. EPATH: it exists, or cannot be made; EIO, ENOMEM. */
pb_status pb_run_json_create(const char *dir, json_t *about);
/* Writes dir/run.json whole or not at all. EPATH, EIO, ENOMEM. */
pb_status pb_run_json_write(const char *dir, json_t *about, bool truncated);
#endif
