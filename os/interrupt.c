/* interrupt.c - SIGINT, SIGTERM and SIGHUP as a flag that the harness reads between samples. */
#include "os/interrupt.h"

#include <signal.h>

/* The one thing a signal handler may write. */
static volatile sig_atomic_t count, last;

static void note(int sig)
{
    last = sig;
    count++;
}

void pb_interrupt_watch(void)
{
    struct sigaction a = {.sa_handler = note}, ignore = {.sa_handler = SIG_IGN}; /* no SA_RESTART: waits return */
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    struct sigaction hup;
    if (sigaction(SIGHUP, NULL, &hup) == 0 && hup.sa_handler != SIG_IGN) sigaction(SIGHUP, &a, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);
}

bool pb_interrupted(void) { return count > 0; }
int pb_interrupt_count(void) { return count; }
int pb_interrupt_signal(void) { return last; }
