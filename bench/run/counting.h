/* counting.h - a run with --instructions: which options it may have, and how its processes are started.
 *
 * With callgrind, `bench` first executes itself again under Valgrind. It then sees the processor that Valgrind
 * emulates, so the plan, the names of the implementations and the machine id are those of the instruction set that is
 * counted. The measuring processes run under Valgrind's tool callgrind. Both need the program `valgrind` in PATH. */
#ifndef PB_COUNTING_H
#define PB_COUNTING_H
#include "bench/options/options.h"

enum { PB_COUNTING_NAME = 64 };

/* Sets the options that counting implies: one thread, no ceilings, and a longer --case-timeout. Without --instructions
 * it changes nothing. EINVAL: an option that counting excludes; the message names it. */
pb_status pb_counting_options(pb_options *o);
/* Makes sure that this machine can count: opens the processor's counter once, or executes the program again under
 * Valgrind, and then does not return. EUNSUPPORTED: the machine or this build cannot count; the message says why. */
pb_status pb_counting_begin(const pb_options *o);
/* Writes what counts, for run.json: "callgrind-3.19.0", or "perf" and the processor's model. EUNSUPPORTED: Valgrind
 * does not say its version. */
pb_status pb_counting_name(const pb_options *o, const char *processor, char out[PB_COUNTING_NAME]);
/* Replaces this process by the program with these arguments, under callgrind if the options ask for that. callgrind
 * writes its files into dir. Returns after a failure, with errno set. */
void pb_counting_exec(const pb_options *o, const char *dir, const char *const *argv);
#endif
