/* clock.h - the host's clock, for everything that is timed on it. */
#ifndef PB_CLOCK_H
#define PB_CLOCK_H

/* Seconds from a moment that stays the same while the machine runs: monotonic, never set back. */
double pb_clock_seconds(void);
#endif
