/* step_ratios.h - requirements on the ratio of two whole training steps that differ in one axis, from the rows of one
 * process. */
#ifndef PB_STEP_RATIOS_H
#define PB_STEP_RATIOS_H
#include "bench/measure/measure.h"

/* Emits these requirements for each pair of steps that suite throughput measured in this process, all other axes being
 * equal. The note has the milliseconds and FLOP/s of both. Without a pair the requirement's row has status unsupported.
 *     V4-STEP     v4-flash-layer: time with dense attention / time with sparse attention
 *     NAN-GUARD   NorMuon: time with the NaN guard / time without it */
pb_status pb_step_ratios_conclude(pb_emitter *emitter);
#endif
