/* ratios.h - emits the metrics of ratios.def, such as graph_over_eager, from the rows of one process. */
#ifndef PB_RATIOS_H
#define PB_RATIOS_H
#include "bench/measure/measure.h"

/* Emits a row for every ratio of the suite whose two values were emitted by this process. EIO, ENOMEM: pb_emit(). */
pb_status pb_ratios_conclude(pb_emitter *e, const char *suite);
/* Returns true if `metric` is the ratio of two cases. A run that measures only one of them has no row of it. */
bool pb_is_ratio(const char *metric);
#endif
