/* run.h - the public header of bench/run: measures a run as a series of fresh processes, and keeps its folder such
 * that it can be resumed.
 *
 *   plan.h        the cases to measure: the suite's grid, changed by the command line
 *   controls.h    cases that are measured twice more, which show the noise of the run
 *   grid.h        how axes and their values are written, and the cases that they stand for
 *   process.h     one measuring process, which measures every case once
 *   process_start.h  starts it, alone or as the ranks of a job
 *   rank.h        a measuring process as one of several ranks
 *   throttle.h    measures processes, and measures those again that ran on a throttled machine
 *   clock_lock.h  keeps the GPU's clocks locked while the run lasts
 *   run_name.h    the time, the id and the folder of a new run
 *   run_json.h    run.json: what was measured, where and in which order
 *   progress.h    progress.csv: how far the run is
 *   kept.h        how much of the result files a resumed run keeps
 *   resume.h      continues an interrupted run */
#ifndef PB_BENCH_RUN_H
#define PB_BENCH_RUN_H
#include "bench/run/clock_lock.h"
#include "bench/run/controls.h"
#include "bench/run/kept.h"
#include "bench/run/plan.h"
#include "bench/run/process.h"
#include "bench/run/progress.h"
#include "bench/run/resume.h"
#include "bench/run/run_json.h"
#include "bench/run/run_name.h"
#include "bench/run/throttle.h"
#endif
