/* suite_env.c - combines a suite's measurement options with those of the command line, and looks up ceilings that this
 * process measured. */
#include "bench/suites/suite_env.h"

pb_measure_opts pb_env_measure_opts(const pb_suite_env *env, pb_measure_opts suite)
{
    const pb_measure_asked *asked = &env->asked;
    suite.heartbeat = env->heartbeat;
    suite.lockstep = env->lockstep;
    suite.round_hook = pb_time_slice_hook(env->time_slice);
    suite.contention = env->contention;
    suite.call_hook = pb_slowdown_hook(env->slowdown);
    if (asked->warmup > 0) suite.warmup = asked->warmup;
    if (asked->min_time >= 0) suite.min_time = asked->min_time;
    if (asked->samples > 0) suite.min_samples = suite.max_samples = asked->samples;
    suite.counter = env->counter;
    suite.group = env->group;
    if (env->counter) suite.min_samples = suite.max_samples = PB_COUNTED_CALLS, suite.min_time = 0;
    return suite;
}

double pb_env_ceiling(const pb_suite_env *env, const char *metric)
{
    double rate;
    return pb_emitted_by_suite(env->emitter, "ceiling", metric, &rate) ? rate : 0;
}
