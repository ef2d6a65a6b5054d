/* start.h - a child process in a group of its own, tied to this one by a pipe. */
#ifndef PB_START_H
#define PB_START_H
#include <sys/types.h>

#include "os/status.h"

/* Forks. In the child, which SIGTERM reaches when this process dies and the terminal's Ctrl-C does not, `become`
 * replaces the program; it does not return, and `pipe_fd` is the end that it may write to. Here *from_child is the
 * other end, which reads as closed when the child and all that hold its end have ended; the caller closes it. Signals
 * that come meanwhile are neither lost nor taken by the child. EIO. */
pb_status pb_start(void (*become)(const void *self, int pipe_fd), const void *self, pid_t *pid, int *from_child);
#endif
