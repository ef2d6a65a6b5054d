/* ring.h - a profiling window's record of the ranges (ranges.h) of this process: each thread writes the ranges that end
 * into a ring of fixed size of its own. Writing takes no lock, allocates nothing and makes no system call.
 *
 * Times are read from the CPU's time-stamp counter if it runs at a constant rate and is the same on all CPUs
 * ("invariant TSC": CPUID leaf 80000007h, EDX bit 8; Intel SDM volume 3, 18.17.1), otherwise by
 * clock_gettime(CLOCK_MONOTONIC_RAW). pb_ring_stop() converts them to nanoseconds of CLOCK_REALTIME by the line through
 * the two moments at which the window began and ended, at which both clocks were read.
 *
 * If a ring is full, the oldest records are overwritten and counted as dropped. */
#ifndef PB_RING_H
#define PB_RING_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/status.h"
#include "profiles/ranges.h"

enum { PB_RING_DEPTH = 32 }; /* deeper ranges are counted as dropped */

typedef struct pb_ring_options {
    int threads;    /* rings: threads that begin a range after these have their ranges dropped; 0: 8 */
    size_t records; /* of each ring; rounded up to a power of two; 0: 65536 */
    bool no_tsc;    /* use clock_gettime even if the time-stamp counter is usable */
} pb_ring_options;

/* A range that has ended, or (complete = false) one that was still open when the window ended; its end is then the end
 * of the window. */
typedef struct pb_ring_record {
    const char *name;
    int64_t begin_ns, end_ns; /* CLOCK_REALTIME */
    int64_t value;            /* PB_RANGE_NO_VALUE: none */
    int64_t flops, bytes;     /* of an op, as for pb_range_work(); 0: not known */
    pb_range_kind kind;
    int depth; /* 0: outermost in the window */
    bool complete;
    pb_range_collective of; /* of a collective, as for pb_range_note_collective() */
} pb_ring_record;

typedef struct pb_ring_thread {
    int tid;                 /* gettid() */
    pb_ring_record *records; /* [n], by end time; a range comes after the ranges that it contains */
    size_t n, dropped;
} pb_ring_thread;

typedef struct pb_ring_window {
    int64_t begin_ns, end_ns; /* CLOCK_REALTIME */
    pb_ring_thread *threads;  /* [n] */
    int n;
    size_t dropped; /* of all threads, and of threads that got no ring */
    bool tsc;       /* times were read from the time-stamp counter */
    double
        stepped_ns; /* by how much CLOCK_REALTIME was set during the window: its advance minus that of MONOTONIC_RAW */
} pb_ring_window;

/* Allocates the rings, touches their memory, and begins to record the ranges that begin from now on. One window at a
 * time. EINVAL: a window is open, or the options are not positive. ENOMEM. */
pb_status pb_ring_start(const pb_ring_options *o);
/* Ends the window. Other threads may be inside ranges; a range that ends later is not recorded. *out is valid until
 * pb_ring_free(). EINVAL: no window is open. ENOMEM: the records are lost. */
pb_status pb_ring_stop(pb_ring_window *out);
void pb_ring_free(pb_ring_window *w); /* {0} is allowed */

/* One reading of the clock that ranges are timed by; tsc as in pb_ring_window. */
int64_t pb_ring_read_clock(bool tsc);
/* The ranges that the ring of a thread holds. */
size_t pb_ring_records(const pb_ring_options *o);
/* The bytes that pb_ring_start() allocates. */
size_t pb_ring_bytes(const pb_ring_options *o);
#endif
