/* interrupt.h - handlers of SIGINT, SIGTERM and SIGHUP (the terminal was closed) that set a flag instead of ending the
 * process. The loops of bench and train poll the flag, and stop at the next sample or step. */
#ifndef PB_INTERRUPT_H
#define PB_INTERRUPT_H
#include <stdbool.h>

/* Installs the handlers. If SIGHUP is already ignored, as under nohup(1), it stays ignored. SIGPIPE and SIGXFSZ are
 * ignored too, so that write() fails with an errno instead of killing the process. */
void pb_interrupt_watch(void);
bool pb_interrupted(void); /* true after SIGINT, SIGTERM or SIGHUP has arrived */
/* The number of signals that have arrived, and the signal number of the last one. */
int pb_interrupt_count(void);
int pb_interrupt_signal(void);
#endif
