/* time_slice.h - two launches that are alive together and work in turns: one of them does, and the other waits.
 *
 * Where a processor's speed changes from second to second (a neighbour on the same core, clock steps), launches one
 * behind the other see different machines; in turns of milliseconds both see the same. Everything a launch does belongs
 * to its turns, set-up too, and no case begins before the other launch has come as far. Two pipes carry the turn: a
 * word is an int, how many cases the sender has begun. When the other launch has ended, and with it all that hold its
 * pipe's end, this one goes on alone. */
#ifndef PB_TIME_SLICE_H
#define PB_TIME_SLICE_H
#include <stdbool.h>

#include "bench/measure/heartbeat.h"
#include "os/status.h"

typedef struct pb_turns {
    double length;   /* seconds of a turn; 0: nobody takes turns, and the functions below do nothing */
    int from, to;    /* pipes to read and to write; -1: the other launch has ended */
    double began;    /* when this turn did */
    int mine, other; /* cases begun */
    pb_pulse *pulse; /* told while this launch waits */
} pb_turns;

/* From the option's text LENGTH:FROM:TO:FIRST, FIRST 1 for the launch that begins, else 0; NULL: no turns. `next`: the
 * first case that this process measures; one that follows a process which hung has its turn. With threads > 0 the
 * process keeps to so many processors, the last ones it may use, as the other launch does: no two are equally fast.
 * Waits for the turn. EINVAL: not such a text. EIO: the processors cannot be chosen. */
pb_status pb_turns_open(const char *text, int next, long threads, pb_pulse *pulse, pb_turns *out);
/* Case `at` of the order begins: waits while the other launch is behind. */
void pb_turns_case(pb_turns *t, int at);
/* Whether the turn has lasted its time; without turns always. */
bool pb_turns_over(const pb_turns *t);
/* Where the turn is over, gives it away and waits for the next, which begins at once where there is no other launch.
 * false: it is not over, or no turns are taken. */
bool pb_turns_pass(pb_turns *t);
void pb_turns_close(pb_turns *t);
#endif
