/* clock.h - the host's clock for all host timings. */
#ifndef PB_CLOCK_H
#define PB_CLOCK_H

/* Seconds since an arbitrary start. Monotonic: changes of the system time do not affect it. */
double pb_clock_seconds(void);
#endif
