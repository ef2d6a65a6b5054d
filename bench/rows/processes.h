/* processes.h - processes.csv in a run's folder: what became of each process, as columns and rows (processes.def,
 * outcomes.def).
 *
 * A row is appended when a process ends, and no row of results.csv is changed for it: programs that read results.csv
 * apply processes.csv (pb_processes_apply). The process numbers begin at 0. A number is followed by the next one when
 * its process has ended; a process that was interrupted and continued by --resume has one row for each part, and the
 * last one counts. Text after the last newline is a partial row of a run that was killed, and is ignored. */
#ifndef PB_PROCESSES_H
#define PB_PROCESSES_H
#include "bench/rows/read.h"

typedef enum pb_outcome {
#define OUTCOME(name, ended, what) PB_OUTCOME_##name,
#include "bench/rows/outcomes.def"
#undef OUTCOME
    PB_OUTCOMES
} pb_outcome;

enum { PB_TIME_UTC_TEXT = 32, PB_REASON_TEXT = 768 };

/* One row. */
typedef struct pb_process_end {
    int process;
    char start_utc[PB_TIME_UTC_TEXT]; /* "2026-01-31T12:00:00Z" */
    double seconds;
    pb_outcome outcome;
    int retry_of; /* less than `process`; -1: none */
    char reason[PB_REASON_TEXT];
    long long size; /* bytes of the file up to the end of this row; set by pb_processes_read() */
} pb_process_end;

typedef struct pb_processes {
    pb_process_end *row; /* [n], owned: the last row of each process, so row[i].process is i */
    int n, room;
    int ended;              /* n, or n - 1 if the last process was interrupted, abandoned or failed */
    long long header, size; /* bytes of the file up to the end of the header, and of the last complete row */
} pb_processes;

/* True if the process number is done; false: --resume continues it. */
bool pb_outcome_ended(pb_outcome outcome);

/* Creates dir/processes.csv without rows. EPATH: the file exists or cannot be created; EIO. */
pb_status pb_processes_create(const char *dir);
/* Appends one row. EPATH, EIO, ENOMEM. */
pb_status pb_processes_append(const char *dir, const pb_process_end *end);
/* Reads dir/processes.csv. EPATH: no such file, or not a regular file; EINVAL: a malformed row, or a process number out
 * of order, with file and line; EIO, ENOMEM. Free *out with pb_processes_free(); on failure it needs no free. */
pb_status pb_processes_read(const char *dir, pb_processes *out);
void pb_processes_free(pb_processes *p);
/* Truncates dir/processes.csv, which is *p, for a run in which process `next` is to be measured or continued: removes
 * the rows of process `next` if they say that it has ended, the rows of later processes, and a partial row. EPATH, EIO,
 * ENOMEM. */
pb_status pb_processes_cut(const char *dir, pb_processes *p, int next);

/* Applies the processes.csv in the folder of `t`, a table read from FOLDER/results.csv: in each throttled process, rows
 * of status ok get status throttled, and their notes and those of status pass or fail begin with the reason. Does
 * nothing if the table is of a file with another name, or without a processes.csv next to it: a stored baseline, a
 * results.csv alone, a run whose rows already have status throttled. Errors of pb_processes_read(). */
pb_status pb_processes_apply(pb_table *t);
#endif
