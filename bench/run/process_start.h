/* process_start.h - starts a measuring process: this program again, alone or as the ranks of a job under mpirun. */
#ifndef PB_PROCESS_START_H
#define PB_PROCESS_START_H
#include "bench/run/process.h"
#include "launch/supervise.h"

enum { PB_LOSS_TEXT = 440 }; /* bytes of the text that names a lost rank, with NUL */

typedef struct pb_process_start pb_process_start;
/* Starts the process; sets child->pid and child->pipe. With --ranks it starts mpirun, and sets the members of *rules
 * by which the supervisor ends a job of ranks. EIO, ENOMEM; for ranks also the errors of pb_launch_open. */
pb_status pb_process_begin(const pb_process *l, pb_child *child, pb_supervision *rules, pb_process_start **out);
/* After pb_supervise: waits until every rank has ended, replaces child->status by that of the job, and frees `start`.
 * loss: why the job was lost, or after a hang, for which rank the others waited; "": neither is known. EUNSUPPORTED:
 * mpirun is not installed. EIO: it cannot start the ranks. */
pb_status pb_process_finish(pb_process_start *start, pb_child *child, char loss[PB_LOSS_TEXT]);
#endif
