/* clock.h - the clock that all host timings use. */
#ifndef PB_CLOCK_H
#define PB_CLOCK_H

/* Returns the seconds since an arbitrary start. The clock is monotonic: changes of the system time do not affect it. */
double pb_clock_seconds(void);
#endif
