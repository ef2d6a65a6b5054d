/* heartbeat.h - a measuring process reports its progress to its parent: one byte per message, through a pipe. */
#ifndef PB_HEARTBEAT_H
#define PB_HEARTBEAT_H

#define PB_SAYS_BEGIN       'c' /* a case begins; after the last case: the suite's conclusion begins */
#define PB_SAYS_ALIVE       'a' /* heartbeat: samples are still being taken */
#define PB_SAYS_NO_MEMORY   'm' /* a case lacked memory; said at once, because a killed process has no exit code */
#define PB_SAYS_DISTURBED   'd' /* a measurement found too little time without other work on the CPUs */
#define PB_SAYS_OUT_OF_TIME 't' /* the process ends early: the deadline leaves no time for the next case */

typedef struct pb_heartbeat {
    int fd;       /* pipe to the parent; -1: no parent listens, and nothing is written */
    double every; /* least seconds between two heartbeats, so long that they do not disturb the measurement */
    double last;  /* time of the last message, by pb_clock_seconds() */
} pb_heartbeat;

/* Writes the message at once. If the parent has closed the pipe, sets fd to -1 and returns. */
void pb_heartbeat_send(pb_heartbeat *p, char what);
/* Writes a heartbeat if the last message is `every` seconds old. Call it after every sample, outside the timed
 * interval. NULL: does nothing. */
void pb_heartbeat_send_if_due(pb_heartbeat *p);
#endif
