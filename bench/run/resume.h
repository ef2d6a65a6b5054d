/* resume.h - a run that was cut short, from its folder: the command line and the order that run.json holds. A launch
 * that was cut short is finished by another process, which reads what the first one has measured: every case of a
 * launch is measured by one process, but a resumed launch has been two. */
#ifndef PB_RESUME_H
#define PB_RESUME_H
#include <jansson.h>

#include "bench/run/plan.h"

typedef struct pb_resumed {
    json_t *about;                              /* run.json */
    pb_options options;                         /* those of the run, then those of now, which win */
    char **words;                               /* argv of `options`; its strings belong to `about` and to now's argv */
    const char *run_id, *machine_id, *time_utc; /* of `about` */
    uint64_t seed;
} pb_resumed;

/* Reads now->resume. EINVAL: no run of this program, or an option of now would measure something else. */
pb_status pb_resume_open(const pb_options *now, pb_resumed *out);
void pb_resume_close(pb_resumed *r);
/* EINVAL: another machine, or the plan is not in the order that run.json says. */
pb_status pb_resume_check(const pb_resumed *r, const pb_plan *plan, const char *machine_id);
#endif
