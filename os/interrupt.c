/* interrupt.c - installs signal handlers that count signals, and reads their counters. */
#include "os/interrupt.h"

#include <signal.h>

/* A signal handler may portably write only volatile sig_atomic_t. */
static volatile sig_atomic_t count, last;

static void note(int sig)
{
    last = sig;
    count++;
}

void pb_interrupt_watch(void)
{
    /* No SA_RESTART: a signal interrupts blocking system calls, so that the caller can check pb_interrupted(). */
    struct sigaction a = {.sa_handler = note}, ignore = {.sa_handler = SIG_IGN};
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
