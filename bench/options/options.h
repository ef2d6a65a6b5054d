/* options.h - the public header of bench/options: parses the command line of bench.
 *
 *   command_line.h   struct pb_options, which has a field for each line of options.def, and functions that fill it
 *   requests.h       what lower folders take from the options
 *   select_device.h  makes the GPU that --device cuda:N names the only visible one */
#ifndef PB_BENCH_OPTIONS_H
#define PB_BENCH_OPTIONS_H
#include "bench/options/command_line.h"
#include "bench/options/requests.h"
#include "bench/options/select_device.h"
#endif
