/* v4_step.h - what sparse attention makes of a whole step of DeepSeek-V4's layers, from a launch's own rows. */
#ifndef PB_V4_STEP_H
#define PB_V4_STEP_H
#include "bench/measure/emit.h"

/* Emits contract V4-STEP for every step of v4-flash-layer that a launch of the suite throughput measured with dense and
 * with sparse attention, all else alike: seconds over seconds, with the milliseconds and the FLOP/s of both;
 * unsupported where there is no such pair. */
pb_status pb_v4_step_conclude(pb_sink *sink);
#endif
