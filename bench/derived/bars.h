/* bars.h - checks how fast single ops and whole training steps are on a GPU. Each requirement of bars.def yields a row
 * that passes, fails or is unsupported. */
#ifndef PB_BARS_H
#define PB_BARS_H
#include "bench/measure/emit.h"

/* Emits one row for each requirement of the suite whose case this process measured. If several cases match, the best
 * value counts. */
pb_status pb_bars_conclude(pb_emitter *emitter, const char *suite);
/* The key of requirement i, with the axes that a case must have; NULL: i is past the last one. */
const char *pb_bar_case(size_t i);
#endif
