/* v4_step.h - how much sparse attention speeds up a whole training step of DeepSeek-V4's layers, from the rows of one
 * process. */
#ifndef PB_V4_STEP_H
#define PB_V4_STEP_H
#include "bench/measure/measure.h"

/* Emits requirement V4-STEP for each pair of steps of v4-flash-layer that suite throughput measured in this process
 * with dense and with sparse attention, all other axes being equal. The value is dense time / sparse time; the note has
 * the milliseconds and FLOP/s of both. Without a pair the row has status unsupported. */
pb_status pb_v4_step_conclude(pb_emitter *emitter);
#endif
