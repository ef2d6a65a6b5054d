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

#include "bench/bench.h"

enum { PB_PAIR_PADDING = 4096, PB_PAIR_CANNOT_RUN = 127 };
#define PB_PAIR_PADDING_NAME "BENCH_RANDOM_PADDING"

typedef struct pb_pair_launch {
    const char *exe, *out, *log; /* log: a file, appended to */
    const json_t *options;       /* words */
    uint64_t seed;
    double slowdown;
    long padding;
    double deadline; /* as pb_clock_seconds counts; 0: none */
} pb_pair_launch;

/* Runs it to its end. *code: its exit code, 128 and the signal that killed it, PB_PAIR_CANNOT_RUN for what is no
 * program. *cut: it was stopped, by the deadline or by a signal to this process. EIO: no process can be started. */
pb_status pb_pair_launch_run(const pb_pair_launch *l, int *code, double *seconds, bool *cut);
/* The last line of a log, "" without one. */
void pb_pair_log_tail(const char *log, char *out, size_t n);
#endif
