/* progress.h - progress.csv in a run's folder: how far the run is, for `bench run --resume`.
 *
 * Columns process,case,results,samples. `process` and `case` say what is to be measured next: the process number, and
 * the index of the case in that process's order (after the last case: the suite's conclusions, pb_suite.conclude).
 * `results` and `samples` are the sizes in bytes of results.csv and samples.csv at that point. A line is written when a
 * case is complete; bytes beyond the sizes of the last line belong to an incomplete case. */
#ifndef PB_PROGRESS_H
#define PB_PROGRESS_H
#include "bench/run/kept.h"

/* Beginning of the note of the row for the case in which a process crashed; the rest of the note tells how the process
 * ended. */
#define PB_DIED "the process was "

/* The next case to measure: the process number, and the index of a case in the order of that process (the number of
 * cases: the suite's conclusions). Both count from 0. */
typedef struct pb_place {
    int process, next;
} pb_place;

/* A line of progress.csv: what is to be measured next, the sizes of the other files, and where the line itself ends. */
typedef struct pb_progress_line {
    pb_place next;
    pb_kept kept;
    long long end; /* bytes of progress.csv up to the end of this line */
} pb_progress_line;

/* Creates progress.csv with one line: process 0, case 0 is next. EPATH: the file exists or cannot be created; EIO. */
pb_status pb_progress_create(const char *dir);
/* Appends a line: `next` is to be measured next, and the other files have their current sizes. EPATH, EIO. */
pb_status pb_progress_mark(const char *dir, pb_place next);
/* Finds the last line whose sizes results.csv and samples.csv have reached. Changes no file. EINVAL: no such line, a
 * malformed line, a process or case number above `most`, a failure of pb_kept_check(), or rows of results.csv that
 * disagree: an earlier process than the one of the line did not end within the kept rows, or has rows after them.
 * EPATH, EIO, ENOMEM. */
pb_status pb_progress_read(const char *dir, pb_place most, pb_progress_line *out);
/* Truncates all three files to that line. EPATH, EIO. */
pb_status pb_progress_cut(const char *dir, const pb_progress_line *to);
/* Reads the last complete line, for a run that is being measured: nothing is checked. EPATH, EIO, EINVAL. */
pb_status pb_progress_next(const char *dir, pb_place *out);
/* Finds the line that says: case 0 of process `process` is next. Changes no file. EINVAL: no such line, or a failure of
 * pb_kept_check(). EPATH, EIO, ENOMEM. */
pb_status pb_progress_start(const char *dir, int process, pb_progress_line *out);
/* Locks the run against being resumed by another command, until this process and its children have ended or closed *fd.
 * Waits up to ten seconds for another holder. EINVAL: the run is still being measured. */
pb_status pb_progress_lock(const char *dir, int *fd);
#endif
