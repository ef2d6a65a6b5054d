/* analyze_command.h - `bench analyze`: prints where the time of a profiled job went. */
#ifndef PB_ANALYZE_COMMAND_H
#define PB_ANALYZE_COMMAND_H
#include <stdio.h>

#include "bench/rows/rows.h"

typedef enum pb_analyze_format { PB_ANALYZE_TEXT, PB_ANALYZE_MARKDOWN, PB_ANALYZE_CSV } pb_analyze_format;

/* Prints, for the folder that `train --profile-out` wrote:
 *     what is there: ranks, steps, and traces that are missing, truncated or lost ranges
 *     per rank: the step's mean time, divided into compute, exposed communication and other; hidden communication
 *     per GPU: the step's mean time, divided into compute, exposed communication, memory and idle
 *     per phase: the ranks' times without communication, and the rank that takes longest
 *     per phase, if hardware counters were sampled: their means while the GPU worked for the phase (samples.h)
 *     per op: calls and host time, kernels and GPU time per step, mean over the ranks; FLOP/s and B/s of the least work of
 *     its calls over the time of its kernels (on a CPU: of its calls), and their share of the ceilings
 *     per kernel and kind of copy of the first trace: calls, time, bandwidth; gpu_work.h
 * breakdown.h defines the figures. against: another such folder; then the parts of the step, phases, exposed
 * collectives and ops follow once more, with the change from `against` to `folder`, largest first. NULL: none.
 * ceilings: a run with the machine's ceilings; NULL: none, and the share is empty. timeline: the page of timeline.h is
 * written there; NULL: none.
 * PB_EXIT_USAGE: not such a folder, or a trace is cut off or of another format. PB_EXIT_INCOMPARABLE: everything that
 * is there is printed, but a trace of a chosen rank is missing or truncated. */
pb_exit pb_analyze(const char *folder, const char *against, const char *ceilings, const char *timeline,
                   pb_analyze_format format, FILE *out);
#endif
