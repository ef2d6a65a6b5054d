/* suites.h - the public header of bench/suites: which cases a suite has, and how it measures and checks each.
 *
 *   suite.h      a suite: its axes, its grids of cases, the function that measures a case; the table of all suites
 *   suite_env.h  what a measuring process gives its suites: the emitter and the options of measurements
 *   controls.h   cases that are measured again, which show the noise of a run
 *   grid.h       how axes and their values are written, and the cases that they stand for
 *   kernel_case.h  the cases of suite kernels, and the bytes and FLOPs of a call
 *   plan.h       the cases that a run measures: a suite's grid, changed by the axes and filters of a request
 *   own_input.h  the model and data that the user names, which training suites read
 *   train_case.h  the axes of training suites as a configuration, and the checks of their gradients */
#ifndef PB_BENCH_SUITES_H
#define PB_BENCH_SUITES_H
#include "bench/suites/controls.h"
#include "bench/suites/grid.h"
#include "bench/suites/kernel_case.h"
#include "bench/suites/own_input.h"
#include "bench/suites/plan.h"
#include "bench/suites/suite.h"
#include "bench/suites/suite_env.h"
#include "bench/suites/train_case.h"
#endif
