/* time_slice.c - two processes pass the time slice to each other through two pipes. */
#define _GNU_SOURCE
#include "bench/measure/time_slice.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench/measure/timing.h"
#include "kernels/engine/clock.h"
#include "os/interrupt.h"

static void leave(pb_time_slices *t)
{
    if (t->from >= 0) close(t->from);
    if (t->to >= 0) close(t->to);
    t->from = t->to = -1;
}

/* Waits until the other process passes the time slice or ends, or until a signal asks this process to end. Sends
 * heartbeats meanwhile. */
static void wait_for_slice(pb_time_slices *t)
{
    enum { MILLISECONDS = 100 };
    struct pollfd p = {.fd = t->from, .events = POLLIN};
    int word, n = 0;
    while (t->from >= 0 && !n && !pb_interrupted()) {
        n = poll(&p, 1, MILLISECONDS);
        if (n < 0 && errno == EINTR) n = 0;
        pb_heartbeat_send_if_due(t->heartbeat);
    }
    if (n > 0 && read(t->from, &word, sizeof word) == sizeof word) t->other = word;
    else if (n) leave(t);
    t->began = pb_clock_seconds();
}

static void give(pb_time_slices *t)
{
    if (t->to >= 0 && write(t->to, &t->mine, sizeof t->mine) != sizeof t->mine) leave(t);
}

/* Restricts this process to the last `threads` processors that it may use. */
static pb_status keep_to_last(long threads)
{
    cpu_set_t all, last;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return pb_fail(PB_EIO, "sched_getaffinity: %s", strerror(errno));
    CPU_ZERO(&last);
    for (int i = CPU_SETSIZE - 1; i >= 0 && CPU_COUNT(&last) < threads; i--)
        if (CPU_ISSET(i, &all)) CPU_SET(i, &last);
    if (sched_setaffinity(0, sizeof last, &last) == 0) return PB_OK;
    return pb_fail(PB_EIO, "sched_setaffinity: %s", strerror(errno));
}

pb_status pb_time_slice_open(const char *text, int next, long threads, pb_heartbeat *heartbeat, pb_time_slices *out)
{
    pb_time_slices t = {.from = -1, .to = -1, .other = -1, .heartbeat = heartbeat};
    int first = 0, end = 0;
    if (text) {
        if (sscanf(text, "%lf:%d:%d:%d%n", &t.length, &t.from, &t.to, &first, &end) != 4 || text[end] ||
            !(t.length > 0) || !isfinite(t.length) || t.from < 0 || t.to < 0)
            return pb_fail(PB_EINVAL, "--child-time-slice: '%s' is not LENGTH:FROM:TO:FIRST", text);
        fcntl(t.from, F_SETFD, FD_CLOEXEC), fcntl(t.to, F_SETFD, FD_CLOEXEC);
        if (threads > 0) PB_TRY(keep_to_last(threads));
        t.began = pb_clock_seconds();
        if (!first && next == 0) wait_for_slice(&t);
    }
    *out = t;
    return PB_OK;
}

void pb_time_slice_case(pb_time_slices *t, int at)
{
    if (!t || !(t->length > 0)) return;
    t->mine = at + 1;
    while (t->from >= 0 && t->other < t->mine && !pb_interrupted()) {
        give(t);
        wait_for_slice(t);
    }
}

bool pb_time_slice_over(const pb_time_slices *t)
{
    return !t || !(t->length > 0) || pb_clock_seconds() - t->began >= t->length;
}

bool pb_time_slice_pass(pb_time_slices *t)
{
    if (!t || !(t->length > 0) || !pb_time_slice_over(t)) return false;
    give(t);
    wait_for_slice(t); /* if the other process has ended, this only begins a new slice */
    return true;
}

/* ---- the time slices as a round hook of a measurement --------------------------------------------------- */

/* The other process used the caches meanwhile, so a call that is not timed warms them. Refilling them takes
 * milliseconds (32 MB at 10 GB/s: 3 ms), which matters little to a call of a tenth of a second; longer calls go
 * without, because a second call would double the time of a comparison of whole steps. */
static const double warmed_below = 0.1;

/* Returns true if the round must begin with an untimed call (see warmed_below). */
static bool begin_round(pb_round_hook *h, const pb_measure_opts *o, const pb_timing *t, int *most)
{
    pb_time_slices *s = (pb_time_slices *)h;
    const double slices = o->min_time / s->length;
    s->round_began = pb_clock_seconds();
    *most = t->n + (slices < o->max_samples ? (int)(o->max_samples / fmax(slices, 1)) : 1);
    return !t->n || t->seconds[t->n - 1] < fmax(s->length, warmed_below);
}

static bool round_over(const pb_round_hook *h) { return pb_time_slice_over((const pb_time_slices *)h); }

static double end_round(pb_round_hook *h)
{
    pb_time_slices *s = (pb_time_slices *)h;
    const double spent = pb_clock_seconds() - s->round_began;
    pb_time_slice_pass(s);
    return spent;
}

pb_round_hook *pb_time_slice_hook(pb_time_slices *t)
{
    if (!t || !(t->length > 0)) return NULL;
    t->hook = (pb_round_hook){begin_round, round_over, end_round};
    return &t->hook;
}

void pb_time_slice_close(pb_time_slices *t) { leave(t); }
