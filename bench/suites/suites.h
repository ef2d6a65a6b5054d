/* suites.h - the public header of bench/suites: which cases a suite has, and how it measures and checks each.
 *
 *   suite.h       a suite: its axes, its grids of cases, the function that measures a case; the table of all suites
 *   suite_env.h   what a measuring process gives its suites: the emitter and the options of measurements
 *   train_case.h  the axes of training suites as a configuration, and the checks of their gradients */
#ifndef PB_BENCH_SUITES_H
#define PB_BENCH_SUITES_H
#include "bench/suites/suite.h"
#include "bench/suites/suite_env.h"
#include "bench/suites/train_case.h"
#endif
