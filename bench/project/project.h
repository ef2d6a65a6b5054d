/* project.h - the public header of bench/project: projects collectives and training steps to numbers of ranks that were
 * not measured, with models that are fitted to measured ones.
 *
 *   project_command.h  `bench project`: reads runs, fits, checks the fits on points that were kept out, projects */
#ifndef PB_BENCH_PROJECT_H
#define PB_BENCH_PROJECT_H
#include "bench/project/project_command.h"
#endif
