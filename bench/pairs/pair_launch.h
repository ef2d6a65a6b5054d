/* pair_launch.h - one launch of a paired comparison: an executable, by its public command line, in a process group and
 * an environment of its own.
 *
 * The command is EXE run OPTIONS --launches 1 --no-compare --quiet --seed N --out DIR. Where the environment begins
 * moves the stack and with it the alignment of what lies there, which alone can make a program some percent faster
 * or slower (Mytkowicz et al., ASPLOS 2009): a variable of `padding` bytes draws another such place for every launch.
 */
#ifndef PB_PAIR_LAUNCH_H
#define PB_PAIR_LAUNCH_H
#include <jansson.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#include "os/status.h"

enum { PB_PAIR_PADDING = 4096, PB_PAIR_CANNOT_RUN = 127 };
#define PB_PAIR_PADDING_NAME "BENCH_RANDOM_PADDING"

typedef struct pb_pair_launch {
    const char *exe, *out, *log; /* log: a file, appended to */
    const json_t *options;       /* words */
    uint64_t seed;
    double slowdown;
    long padding;
} pb_pair_launch;

typedef struct pb_pair_ended {
    int code;       /* the exit code, 128 and the signal that killed it, PB_PAIR_CANNOT_RUN for what is no program */
    double seconds; /* since all of them were started, so with the other's turns */
} pb_pair_ended;

/* Runs n <= PB_PAIR_LAUNCHES of them at once, to their end. turns > 0: two, which take turns of so many seconds
 * (turns.h), the first of them first. deadline: as pb_clock_seconds counts; 0: none. *cut: they were stopped, by the
 * deadline or by a signal to this process. EIO: no process can be started; EPATH: a log cannot be opened. */
enum { PB_PAIR_LAUNCHES = 2 };
pb_status pb_pair_launch_run(const pb_pair_launch *l, int n, double turns, double deadline, pb_pair_ended *out,
                             bool *cut);
/* The last line of a log, "" without one. */
void pb_pair_log_tail(const char *log, char *out, size_t n);
#endif
