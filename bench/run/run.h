/* run.h - the public header of bench/run: measures a run as a series of fresh processes, and keeps its folder such
 * that it can be resumed.
 *
 *   process.h     one measuring process, which measures every case once
 *   counted.h     a run with --counters: its options, and whether the machine can count
 *   counting.h    a run with --instructions: its options, and its processes under Valgrind
 *   profiled.h    a run with --profile-out: its options, and the trace of its process
 *   process_start.h  starts it, alone or as the ranks of a job
 *   rank.h        a measuring process as one of several ranks
 *   throttle.h    measures processes, and measures those again that ran on a throttled machine
 *   run_name.h    the time, the id and the folder of a new run
 *   run_json.h    run.json: what was measured, where and in which order
 *   progress.h    progress.csv: how far the run is
 *   kept.h        how much of the result files a resumed run keeps
 *   resume.h      continues an interrupted run */
#ifndef PB_BENCH_RUN_H
#define PB_BENCH_RUN_H
#include "bench/run/counted.h"
#include "bench/run/counting.h"
#include "bench/run/kept.h"
#include "bench/run/process.h"
#include "bench/run/profiled.h"
#include "bench/run/progress.h"
#include "bench/run/resume.h"
#include "bench/run/run_json.h"
#include "bench/run/run_name.h"
#include "bench/run/throttle.h"
#endif
