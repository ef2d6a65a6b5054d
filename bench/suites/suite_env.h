/* suite_env.h - the environment in which a suite measures: the emitter of its rows, the measurement options of the
 * command line, and the processes that it shares time with or reports to. */
#ifndef PB_SUITE_ENV_H
#define PB_SUITE_ENV_H
#include "bench/measure/measure.h"

/* Options of the command line that replace those of the suites. */
typedef struct pb_measure_asked {
    int warmup;      /* warm-up calls; 0: not given */
    int samples;     /* number of samples; 0: not given */
    double min_time; /* seconds; -1: not given */
} pb_measure_asked;

/* The measuring process (bench/run/worker.c) owns everything that this struct points to. */
typedef struct pb_suite_env {
    pb_emitter *emitter;
    pb_measure_asked asked;
    pb_heartbeat *heartbeat;         /* writes heartbeats to the parent process; NULL: none are sent */
    pb_time_slices *time_slice;      /* shared with another process; NULL: none */
    pb_lockstep *lockstep;           /* the ranks that measure together; NULL: one rank */
    pb_instruction_counter *counter; /* instructions are counted and nothing is timed; NULL: time is measured */
    pb_group_counter *group; /* events of a metric group are counted and nothing is timed; NULL: time is measured */
    struct pb_profiled *profiled; /* the trace that the process records (bench/run/profiled.h); suites ignore it */
    pb_contention *contention;    /* has disturbed samples taken again; NULL: all are kept */
    pb_slowdown *slowdown;        /* delay to inject into every timed call; NULL: none */
} pb_suite_env;

/* Returns a suite's measurement options, with warm-up, samples and time replaced by those of the command line where
 * given, or by those of counting if the process counts instructions; and with this process's heartbeat, time slices and
 * injected delay as hooks. Each call invalidates the calibration of the delay that the previous one used, so
 * measurements must not be nested. */
pb_measure_opts pb_env_measure_opts(const pb_suite_env *env, pb_measure_opts suite);
/* A ceiling that this process measured earlier, such as copy_rate or matmul_rate. 0: not measured. */
double pb_env_ceiling(const pb_suite_env *env, const char *metric);
#endif
