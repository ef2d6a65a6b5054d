/* pair_process.h - runs the executable of one side of a paired comparison as a process with its own process group and
 * environment.
 *
 * The command is EXE run OPTIONS --processes 1 --no-compare --quiet --seed N --out DIR. The size of the environment
 * shifts the stack and the alignment of data on it, which alone can change a program's speed by some percent (Mytkowicz
 * et al., ASPLOS 2009). So each process gets an environment variable of random length (`padding`), which turns this
 * bias into noise that averages out over the pairs. */
#ifndef PB_PAIR_PROCESS_H
#define PB_PAIR_PROCESS_H
#include <jansson.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#include "os/status.h"

enum { PB_PAIR_PADDING = 4096, PB_PAIR_CANNOT_RUN = 127 };
#define PB_PAIR_PADDING_NAME "BENCH_RANDOM_PADDING"

typedef struct pb_pair_process {
    const char *exe, *out, *log; /* paths; `log` is appended to */
    const json_t *options;       /* array of words for `run` */
    uint64_t seed;               /* for --seed: shuffles the order of the cases */
    double slowdown;             /* injected delay, as a share of the time; 0: none */
    long padding;                /* bytes in the environment variable, at most PB_PAIR_PADDING */
} pb_pair_process;

typedef struct pb_pair_ended {
    int code;       /* exit code; 128 + signal number if killed; PB_PAIR_CANNOT_RUN if it cannot be executed */
    double seconds; /* from the common start to this process's end; includes the other's time slices */
} pb_pair_ended;

/* Runs n <= PB_PAIR_PROCESSES processes at the same time and waits for them to end. time_slice > 0: n is 2, and the
 * processes are interleaved in time slices of this many seconds (time_slice.h), l[0] first. deadline: in
 * pb_clock_seconds() time, when they get SIGTERM, and 15 seconds later SIGKILL; 0: none. The first signal of this
 * process is forwarded as SIGTERM, the second as SIGKILL (supervise.h); no process is abandoned. *cut: they were
 * stopped by the deadline or by a signal. EIO: a process cannot be started; EPATH: a log cannot be opened. */
enum { PB_PAIR_PROCESSES = 2 };
pb_status pb_pair_process_run(const pb_pair_process *l, int n, double time_slice, double deadline, pb_pair_ended *out,
                              bool *cut);
/* Writes the last non-empty line of a log to `out`, or "" if none exists. */
void pb_pair_log_tail(const char *log, char *out, size_t n);
#endif
