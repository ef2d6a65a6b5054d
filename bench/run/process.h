/* process.h - one measuring process of a run: a fresh process of this program that measures every case once. When a
 * case hangs, another process takes over the remaining cases under the same process number. So it does after every case
 * of a suite whose cases are measured alone (suite.h). */
#ifndef PB_PROCESS_H
#define PB_PROCESS_H
#include <stdint.h>

#include "bench/rows/rows.h"
#include "bench/options/options.h"
#include "bench/suites/suites.h"

typedef struct pb_process {
    const char *dir, *run_id, *machine_id, *host;
    const pb_plan *plan;
    const pb_options *options;
    uint64_t seed;
    int number;     /* process number, from 0; column `process` of results.csv */
    long processes; /* processes of the whole run, including the retries of throttled processes known so far */
    int first;      /* index, in the shuffled order, of the first case still to be measured */
    /* Start of this command on pb_clock_seconds(), for the progress line; the time lost to hung cases is added. */
    double started;
    double before;   /* expected seconds of the cases that earlier commands of a resumed run completed */
    double deadline; /* see pb_budget_deadline; 0: none */
    double end;      /* end of the budget of this command on pb_clock_seconds(); 0: none */
    bool refused;    /* output: the last process exited by itself before its first case */
    int disturbed;   /* output: measurements for which other work on the CPUs left too little time (contention.h) */
    /* output: ok, crashed, hung or abandoned, and the reason if it is not ok (processes.h) */
    pb_outcome outcome;
    char reason[PB_REASON_TEXT];
} pb_process;

/* Seconds of silence after which a process counts as hung: --case-timeout, 120 by default, at least 1. Long cases are
 * allowed more. */
static inline double pb_least_silence(const pb_options *o)
{
    const double usual = 120, asked = o->case_timeout >= 0 ? o->case_timeout : usual;
    return asked > 1 ? asked : 1;
}

/* The least --budget of a run, in seconds. A smaller one would not suffice to begin a case. */
#define PB_LEAST_BUDGET 1.0

/* The time at which the last case must have ended, for a budget that ends `budget` seconds after `started`. It is
 * earlier than the budget's end, because ending a case that is still running takes up to PB_GRACE seconds: 5 % of the
 * budget, from PB_GRACE + 1 to 10 seconds, but at most a quarter of the budget. With a budget below 24 seconds, a case
 * that does not end by itself therefore gets SIGKILL after less than PB_GRACE seconds. */
double pb_budget_deadline(double started, double budget);

/* Measures process number `number` and waits for it. When a case hangs, it gets a row of status timeout, and another
 * process measures the cases after it. When a process crashes, its earlier rows are kept and its current case gets a
 * row of status failed. *stopped: measuring ended early because of the deadline. EIO: a process cannot be started, or a
 * row cannot be written. */
pb_status pb_process_run(pb_process *l, pb_exit *code, bool *stopped);
/* The main function of a measuring process (`bench run --child-dir`). Returns its exit code. */
pb_exit pb_process_child(const pb_options *o);
#endif
