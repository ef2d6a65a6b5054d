/* start.c - forks a child in its own process group. */
#include "launch/start.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

pb_status pb_start(void (*become)(const void *self, int pipe_fd), const void *self, pid_t *pid, int *from_child)
{
    int ends[2];
    if (pipe(ends) != 0) return pb_fail(PB_EIO, "a process cannot be started: %s", strerror(errno));
    sigset_t stops, before;
    sigemptyset(&stops), sigaddset(&stops, SIGINT), sigaddset(&stops, SIGTERM), sigaddset(&stops, SIGHUP);
    fflush(NULL);
    /* Blocks signals until the child has default handlers: a signal caught by an inherited handler would be lost at
     * exec. */
    sigprocmask(SIG_BLOCK, &stops, &before);
    *pid = fork();
    if (*pid == 0) {
        signal(SIGINT, SIG_DFL), signal(SIGTERM, SIG_DFL);
        if (signal(SIGHUP, SIG_DFL) == SIG_IGN) signal(SIGHUP, SIG_IGN); /* an ignored SIGHUP (nohup) stays ignored */
        sigprocmask(SIG_SETMASK, &before, NULL);
        close(ends[0]);
        setpgid(0, 0); /* Ctrl-C reaches only the parent, which forwards it once */
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        become(self, ends[1]);
        _exit(127); /* reached only if become() returns */
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(ends[1]);
    *from_child = ends[0];
    if (*pid > 0) return PB_OK;
    close(ends[0]);
    return pb_fail(PB_EIO, "a process cannot be started: %s", strerror(errno));
}
