/* kernel_bars.h - how fast single ops have to be on a GPU: contract rows from the rows of suite kernels. */
#ifndef PB_KERNEL_BARS_H
#define PB_KERNEL_BARS_H
#include "bench/bench.h"

/* A row BAR-... for every bar whose case this launch has measured, by the implementation that did best. */
pb_status pb_kernel_bars_conclude(pb_sink *sink);
/* The op and the shape of bar i; false: there are no more. */
bool pb_kernel_bar(size_t i, const char **op, const char **shape);
#endif
