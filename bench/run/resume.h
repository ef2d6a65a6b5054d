/* resume.h - resumes an interrupted run from its folder, with the command line and the order that run.json stores. An
 * interrupted measuring process is completed by a second one, which reads the rows of the first. Such a process number
 * is then not one process but two, although its rows count as one repetition. */
#ifndef PB_RESUME_H
#define PB_RESUME_H
#include <jansson.h>

#include "bench/options/options.h"
#include "bench/suites/suites.h"

typedef struct pb_resumed {
    json_t *about;      /* contents of run.json; owned */
    pb_options options; /* the options of the run, overridden by those of the current command */
    /* argv of `options`; owned. Its strings belong to `about` and to the current command line. */
    char **words;
    const char *run_id, *machine_id, *host, *time_utc; /* strings owned by `about` */
    uint64_t seed;
} pb_resumed;

/* Reads the folder now->resume. EINVAL: not a run of this version of the program, or an option of `now` would change
 * what is measured. pb_resume_close() frees *out. */
pb_status pb_resume_open(const pb_options *now, pb_resumed *out);
void pb_resume_close(pb_resumed *r);
/* Checks that the run can be resumed here. EINVAL: this is another machine or host, or the plan differs from the order
 * in run.json. */
pb_status pb_resume_check(const pb_resumed *r, const pb_plan *plan, const char *machine_id, const char *host);
#endif
