/* start.c - forks a child whose signals are its own. */
#define _GNU_SOURCE
#include "bench/run/start.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

pb_status pb_start(void (*become)(const void *self, int pipe_fd), const void *self, pid_t *pid, int *from_child)
{
    int ends[2];
    if (pipe(ends) != 0) return pb_fail(PB_EIO, "a launch cannot be started: %s", strerror(errno));
    sigset_t stops, before;
    sigemptyset(&stops), sigaddset(&stops, SIGINT), sigaddset(&stops, SIGTERM), sigaddset(&stops, SIGHUP);
    fflush(NULL);
    sigprocmask(SIG_BLOCK, &stops, &before); /* so that none is noted in the child and lost by exec */
    *pid = fork();
    if (*pid == 0) {
        signal(SIGINT, SIG_DFL), signal(SIGTERM, SIG_DFL);
        if (signal(SIGHUP, SIG_DFL) == SIG_IGN) signal(SIGHUP, SIG_IGN); /* nohup(1) holds for the child too */
        sigprocmask(SIG_SETMASK, &before, NULL);
        close(ends[0]);
        setpgid(0, 0); /* the terminal's Ctrl-C reaches the parent alone, which passes it on once */
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        become(self, ends[1]);
        _exit(127); /* it does not return */
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(ends[1]);
    *from_child = ends[0];
    if (*pid > 0) return PB_OK;
    close(ends[0]);
    return pb_fail(PB_EIO, "a launch cannot be started: %s", strerror(errno));
}
