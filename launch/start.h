/* start.h - starts a child process in its own process group, connected to this process by a pipe. */
#ifndef PB_START_H
#define PB_START_H
#include <sys/types.h>

#include "os/status.h"

/* Forks. The child calls `become`, which replaces the program and does not return; it may write to `pipe_fd`. The child
 * receives SIGTERM when this process dies; Ctrl-C of the terminal does not reach it. The parent gets the read end in
 * *from_child and closes it. That end reports end-of-file when all processes that hold the write end have ended.
 * Signals that arrive during the call are delivered to the parent afterwards. EIO. */
pb_status pb_start(void (*become)(const void *self, int pipe_fd), const void *self, pid_t *pid, int *from_child);
#endif
