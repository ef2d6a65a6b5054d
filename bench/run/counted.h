/* counted.h - a run with --counters GROUP: which options it may have, and whether this machine can count. */
#ifndef PB_COUNTED_H
#define PB_COUNTED_H
#include "bench/options/options.h"

/* Sets the options that counting implies: no ceilings, and on a CPU one thread. Without --counters it changes nothing.
 * EINVAL, EPATH: no such group, a group of another device, a suite that is not counted, or an option that counting
 * excludes; the message names it. */
pb_status pb_counted_options(pb_options *o);
/* Makes sure, in a process of its own, that the counters can be opened here, so that a run that cannot count ends
 * before it makes files. The errors of pb_group_counter_open() and pb_ctx_open(). */
pb_status pb_counted_begin(const pb_options *o);
/* Writes what is counted, for run.json: "L2 of GH100". It is part of the exact keys: a run of another group lacks no
 * counter. */
enum { PB_COUNTED_NAME = 64 };
pb_status pb_counted_name(const pb_options *o, char out[PB_COUNTED_NAME]);
#endif
