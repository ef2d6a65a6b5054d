/* interrupt.h - being asked to stop: SIGINT, SIGTERM and SIGHUP (the terminal is gone) set a flag, and work ends at the
 * next sample. */
#ifndef PB_INTERRUPT_H
#define PB_INTERRUPT_H
#include <stdbool.h>

/* Starts watching. A SIGHUP that is ignored, as nohup(1) does, stays ignored. Also ignores SIGPIPE and SIGXFSZ, so that
 * a write says why it failed instead. */
void pb_interrupt_watch(void);
bool pb_interrupted(void); /* one of the three has arrived */
/* How many have arrived, and the number of the last. */
int pb_interrupt_count(void);
int pb_interrupt_signal(void);
#endif
