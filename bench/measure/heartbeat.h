/* heartbeat.h - how a launch tells the process that started it how far it is: one byte each into a pipe. */
#ifndef PB_HEARTBEAT_H
#define PB_HEARTBEAT_H

#define PB_SAYS_BEGIN       'c' /* a case begins; after the last one: the conclusions */
#define PB_SAYS_ALIVE       'a' /* samples are still being taken */
#define PB_SAYS_NO_MEMORY   'm' /* the case lacked memory; the exit code of a launch that is killed later is lost */
#define PB_SAYS_OUT_OF_TIME 't' /* the deadline leaves no time for the next case */

typedef struct pb_pulse {
    int fd;       /* -1: nobody listens */
    double every; /* seconds between two signs of life; so few that measuring does not notice */
    double last;  /* when something was said */
} pb_pulse;

/* Says it at once. A listener that is gone does not matter. */
void pb_pulse_say(pb_pulse *p, char what);
/* After every sample, outside its time: says PB_SAYS_ALIVE when `every` seconds have passed. NULL: does nothing. */
void pb_pulse_beat(pb_pulse *p);
#endif
