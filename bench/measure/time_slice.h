/* time_slice.h - interleaving: two processes run at the same time, and work in time slices of a few milliseconds. While
 * one works, the other waits.
 *
 * A processor's speed may change from second to second (another program on the same core, clock changes). Two processes
 * that run one after the other would then meet different speeds; interleaved, both meet the same speeds. Set-up happens
 * in time slices too, and neither process begins a case before the other has reached it.
 *
 * Two pipes pass the time slice. Each message is one int: how many cases the sender has begun. When the other process
 * has ended (every process that holds its end of the pipe), this one continues without waiting. */
#ifndef PB_TIME_SLICE_H
#define PB_TIME_SLICE_H
#include <stdbool.h>

#include "launch/heartbeat.h"
#include "bench/measure/hooks.h"
#include "os/status.h"

typedef struct pb_time_slices {
    pb_round_hook hook;      /* set by pb_time_slice_hook() */
    double round_began;      /* when the round of a measurement began, by pb_clock_seconds() */
    double length;           /* seconds of a time slice; 0: no interleaving, and the functions below do nothing */
    int from, to;            /* pipes to read from and to write to; -1: the other process has ended */
    double began;            /* when this time slice began, by pb_clock_seconds() */
    int mine, other;         /* cases that this process and the other process have begun */
    pb_heartbeat *heartbeat; /* gets heartbeats while this process waits */
} pb_time_slices;

/* Reads the option's text LENGTH:FROM:TO:FIRST; NULL: no interleaving. LENGTH: seconds; FROM, TO: descriptors of the two
 * pipes. FIRST is 1 for the process that works first. The other one (0) waits here for its first time slice, except if
 * `next`, the index of the first case that it measures, is above 0: it then replaces a process that hung, and takes over
 * the time slice of that process. With threads > 0 the process restricts itself to the last `threads` processors that it
 * may use. The other process does so too, and both use the same ones: processors differ in speed. EINVAL: the text is
 * invalid. EIO: the processors cannot be set. */
pb_status pb_time_slice_open(const char *text, int next, long threads, pb_heartbeat *heartbeat, pb_time_slices *out);
/* Must be called when case number `at` (from 0) begins. Waits until the other process has begun it as well, or has
 * ended. */
void pb_time_slice_case(pb_time_slices *t, int at);
/* True if the time slice has lasted `length` seconds; always true without interleaving. */
bool pb_time_slice_over(const pb_time_slices *t);
/* If the time slice is over, passes it to the other process, waits for the next one and returns true. If the other
 * process has ended, the next slice begins at once. False: the slice is not over, or processes are not interleaved. */
bool pb_time_slice_pass(pb_time_slices *t);
/* The time slices as a round hook of pb_measure(): a round is a time slice of this process. min_time is divided into
 * min_time / length slices, and each takes an equal share of max_samples. Calls that are not timed fill the rest of a
 * slice, so that the samples of short calls are spread over all of min_time. A slice ends after the call in which its
 * time is over, so calls longer than a slice alternate one by one. A slice begins with a call that is not timed,
 * because the caches hold the other process's data, except for calls of 0.1 s and more (time_slice.c). *t must outlive
 * the measurement. NULL: no interleaving (t is NULL or has length 0). */
pb_round_hook *pb_time_slice_hook(pb_time_slices *t);
void pb_time_slice_close(pb_time_slices *t);
#endif
