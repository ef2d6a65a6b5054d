/* requests.h - what lower folders of bench take from the command line. They do not know its options. */
#ifndef PB_REQUESTS_H
#define PB_REQUESTS_H
#include "bench/options/command_line.h"
#include "bench/suites/suites.h"

/* The request for a plan. Its strings are those of *o, which must outlive it. */
pb_plan_request pb_options_plan(const pb_options *o);
/* Checks the environment variables that switch parts of a run off. EINVAL: the value of one is not a word it takes. */
pb_status pb_options_environment(void);
#endif
