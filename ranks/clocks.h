/* clocks.h - how far the clock of this rank's host (CLOCK_REALTIME) is from that of rank 0's host, measured by a helper
 * thread over a TCP connection of its own, so that the thread that trains neither waits nor communicates.
 *
 * Method (Cristian 1989; NTP, RFC 5905 section 8): this rank sends at T1, rank 0 receives at T2 and answers at T3, this
 * rank receives at T4. offset = ((T2 - T1) + (T3 - T4)) / 2 differs from the true offset by at most half of the round
 * trip, delta / 2 = ((T4 - T1) - (T3 - T2)) / 2, whatever the path. Of several exchanges the one with the shortest
 * round trip is kept. */
#ifndef PB_RANKS_CLOCKS_H
#define PB_RANKS_CLOCKS_H
#include <stdint.h>

#include "ranks/world.h"

typedef struct pb_clocks pb_clocks;

typedef struct pb_clock_offset {
    bool known;
    int64_t at_ns;          /* this rank's clock at the measurement */
    int64_t offset_ns;      /* rank 0's clock minus this one */
    int64_t uncertainty_ns; /* the true offset differs by at most this */
    char why[80];           /* not known: the reason */
} pb_clock_offset;

/* A measurement of another rank, as it told rank 0. */
typedef struct pb_clock_report {
    int rank, slot;
    int64_t tag;
    pb_clock_offset offset;
} pb_clock_report;

/* Rank 0 begins to listen, and the others learn where. All ranks of the world call it. *out is NULL for one rank. EIO,
 * ENOMEM. */
pb_status pb_clocks_open(pb_world *w, pb_clocks **out);
/* The same without a world, with a clock of the caller's, for tests. Rank 0: *port receives where it listens. Others:
 * host and *port say where rank 0 does. */
typedef struct pb_clocks_at {
    int rank, ranks;
    const char *host;
    unsigned char token[16]; /* keeps other programs out */
    int64_t (*now)(void *self);
    void *self;
} pb_clocks_at;
pb_status pb_clocks_open_at(const pb_clocks_at *at, int *port, pb_clocks **out);

/* Asks for a measurement and returns at once. slot: 0 or 1; a later one of the same slot replaces it. `tag` is reported
 * to rank 0 with the result. c may be NULL. */
void pb_clocks_ask(pb_clocks *c, int slot, int64_t tag);
/* The last measurement that was asked for in this slot; waits for it at most this long. On rank 0 the offset is 0 and
 * exact. */
pb_clock_offset pb_clocks_wait(pb_clocks *c, int slot, double seconds);
/* Rank 0: waits at most this long until the ranks that are connected have closed; then lists their reports, which
 * belong to c. Other ranks: none. */
size_t pb_clocks_reports(pb_clocks *c, double seconds, const pb_clock_report **out);
void pb_clocks_close(pb_clocks *c); /* NULL is allowed */
#endif
