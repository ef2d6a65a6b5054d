/* where.h - where this process is in its work: the training step, the phase and the collective. The training step and
 * the communication layer update the record; the thread that reports to the monitor (launch/member.h) reads it.
 *
 * An update is a few stores to memory, and reads the clock without a system call. It takes no lock and never waits.
 * Contract: names are static strings. Steps and phases are set by one thread, the one that trains; collectives may be
 * set by another one, but by one at a time. */
#ifndef PB_WHERE_H
#define PB_WHERE_H
#include <stdbool.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { PB_WHERE_PHASES = 12 }; /* durations are kept for the first 12 different phases */

/* The training step begins. -1: no step. */
void pb_where_step(int64_t step);
/* A phase begins, which ends the previous one. NULL: no phase. */
void pb_where_phase(const char *phase);
/* Keeps a duration that was measured in another way, such as by events of a GPU, as that of a phase called `name`. */
void pb_where_took(const char *name, double seconds);
/* This process enters the collective with this sequence number, which counts the collectives of the job from 1, so that
 * all ranks give a collective the same number. A wait for the other ranks that is no collective has the number of the
 * last one. NULL: it has returned; the number is ignored. */
void pb_where_collective(const char *collective, uint64_t sequence);
/* A GPU carries out collectives after the calls that enqueue them have returned. While a thread waits for such a GPU
 * (true: begins; false: ends), this process counts as being in the collective that it entered last. */
void pb_where_device(bool waits);
uint64_t pb_where_sequence(void); /* of the collective entered last; 0: none yet */
/* Counts progress within a phase, for example a batch of an evaluation. */
void pb_where_progress(void);

/* The durations of one phase in its last three steps, in seconds, without the time in collectives: a rank that waits
 * for others is not slow. All 0: fewer than three are known. */
typedef struct pb_where_phase_time {
    const char *name; /* NULL: unused */
    double least, middle;
} pb_where_phase_time;

typedef struct pb_where {
    uint64_t progress;      /* grows with every call above */
    int64_t step;           /* -1: none */
    const char *phase;      /* NULL: none */
    const char *collective; /* NULL: in none */
    uint64_t sequence;      /* of the collective entered last; 0: none yet */
    pb_where_phase_time phases[PB_WHERE_PHASES];
} pb_where;

/* Reads the record, from any thread. Fields that change during the call may be of different moments. */
void pb_where_read(pb_where *out);
#ifdef __cplusplus
}
#endif
#endif
