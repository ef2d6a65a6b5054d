/* throttle.h - launches under the eyes of launch_state.h: one that was throttled is marked, and measured again.
 *
 * Its rows of status ok become `throttled`, with the reason as note; their figures stay, and count only where every
 * launch of a row was throttled (series.h). Rows pass, fail, wrong and the like keep their status: heat does not make a
 * result wrong. It is measured again as a new launch behind the last one, at most --throttle-retries times; what was
 * throttled each time stays as it is, marked. */
#ifndef PB_THROTTLE_H
#define PB_THROTTLE_H
#include <jansson.h>

#include "bench/run/launch.h"
#include "bench/run/progress.h"

/* How many launches there are in all: those asked for, and one more for each that "launch_state" of run.json (about)
 * says was throttled and may be measured again. */
long pb_throttle_launches(const json_t *about, const pb_options *o);
/* pb_launch_run, watched; keeps about, and run.json in l->dir, up to date. */
pb_status pb_throttle_run(pb_launch *l, json_t *about, pb_exit *code, bool *stopped);
/* A run that was killed between noting that its last launch was throttled and marking the rows: they are marked. */
pb_status pb_throttle_settle(const char *dir, const json_t *about, const pb_options *o, pb_place next);
#endif
