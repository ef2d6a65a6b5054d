/* bars.h - how fast single ops and whole steps have to be on a GPU: contract rows from a launch's own rows. */
#ifndef PB_BARS_H
#define PB_BARS_H
#include "bench/measure/emit.h"

/* A row BAR-... for every bar of the suite whose case this launch has measured, by the best such case. */
pb_status pb_bars_conclude(pb_sink *sink, const char *suite);
/* The case of bar i, with the axes that it names; NULL: there are no more. */
const char *pb_bar_case(size_t i);
#endif
