/* throttle.h - measures processes while recording the machine's state (process_state.h), notes in processes.csv what
 * became of each (bench/rows/processes.h), and has throttled processes measured again.
 *
 * results.csv only grows: rows of a throttled process get their status where they are read. Then rows of status ok are
 * `throttled`, with the reason as note. Their values are used only if all processes of the row were throttled
 * (series.h). Rows of status pass, fail, wrong and others keep their status, because throttling does not affect
 * correctness. The retry is a new process with the next free number. There are at most --throttle-retries retries of a
 * process (2); the rows of each throttled attempt stay in the file.
 *
 * A process that other work disturbed (process_state.h) is throttled too. Other work may last longer than a
 * run, so without --throttle-retries a run has at most one retry for it, and only if no process was repeated before. If
 * --budget leaves no time for this retry, it is skipped, and the run is still complete. */
#ifndef PB_THROTTLE_H
#define PB_THROTTLE_H
#include <jansson.h>

#include "bench/rows/rows.h"
#include "bench/run/process.h"
#include "bench/run/progress.h"

/* Which processes of a run have ended, and which of them are measured again. */
typedef struct pb_attempts {
    const pb_options *options; /* borrowed; only processes, throttle_retries and device are read */
    /* [ended], owned. earlier[i]: number of earlier attempts at the measurement that process i repeats; 0: it repeats
     * none */
    int *earlier;
    int ended, room;
    int *again; /* [retries], owned: the processes that are measured again, in the order of their retries */
    int retries;
} pb_attempts;

/* Reads dir/processes.csv. Errors of pb_processes_read(). Free *out with pb_attempts_free(), also on failure. A run
 * that has no process yet begins with only `options` set. */
pb_status pb_attempts_read(const char *dir, const pb_options *o, pb_attempts *out);
void pb_attempts_free(pb_attempts *a);
/* Adds the next process. Does nothing if `end` says that it has not ended. ENOMEM. */
pb_status pb_attempts_add(pb_attempts *a, const pb_process_end *end);
/* The total number of processes: those requested, plus one for each that was throttled and may be measured again. */
long pb_attempts_processes(const pb_attempts *a);

/* Resumes a run. *last is the last line of progress.csv that fits the files (pb_progress_read). If the run was killed
 * after the last process had ended and before processes.csv said so, it is not known whether that process was
 * throttled: *last becomes the line at which it begins, so that it is measured again as a whole. Otherwise cuts off the
 * rows of processes.csv that are later than *last. EINVAL, before any file is changed: processes.csv lacks more than
 * one process. EPATH, EIO, ENOMEM. */
pb_status pb_attempts_resume(pb_attempts *a, const char *dir, pb_progress_line *last);

/* Calls pb_process_run() and records the machine's state. Appends the process's row to processes.csv, and its state to
 * `about` and run.json in l->dir. EIO, EPATH, ENOMEM: a file cannot be written, or what pb_process_run() returns.
 * processes.csv then has a row of the process if only run.json could not be written. */
pb_status pb_throttle_run(pb_attempts *a, pb_process *l, json_t *about, pb_exit *code, bool *stopped);
#endif
