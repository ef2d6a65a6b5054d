/* contention.h - tells whether other work took CPU time from this process while it took samples, so that pb_measure()
 * takes these samples again.
 *
 * The kernel knows for how long each thread was ready to run while another task had its CPU, in nanoseconds: the second
 * number of /proc/self/task/TID/schedstat. /proc/stat has the time for which the hypervisor ran other machines, in
 * units of 10 ms. A sample is thus judged by what happened to the threads and not by how long it took: a slow sample of
 * an undisturbed process stays.
 *
 * Samples are judged in stretches: one sample, or as many as take PB_STRETCH seconds. A stretch is disturbed if
 *     waited + stolen * T / C > PB_DISTURBED * (duration of the stretch)
 * waited: summed over the threads of the process; stolen: summed over the CPUs of the machine; T: threads that measure;
 * C: CPUs of the machine. A process that may use fewer CPUs than T is not judged, because its threads wait for each
 * other. On an idle virtual machine with 2 CPUs the left side was 0.3 to 0.6 % of the duration.
 *
 * Other work may never end. So each measurement has a budget, PB_PATIENCE seconds, for disturbed stretches. When it is
 * used up, the measurement gives up: it keeps what it measures from then on, and its process counts as disturbed
 * (bench/run/throttle.h). After a measurement that gave up, the next one has a quarter of its budget; after one that
 * did not, it is PB_PATIENCE again. Other work that never ends thus costs a process at most 4/3 PB_PATIENCE. Work on
 * another hardware thread of the same core, in caches and in memory is not seen. */
#ifndef PB_CONTENTION_H
#define PB_CONTENTION_H
#include <stdbool.h>

#define PB_STRETCH   0.01
#define PB_DISTURBED 0.05
#define PB_PATIENCE  25.0

typedef struct pb_contention {
    /* Sets *seconds to waited + stolen * T / C since the process began. False: unknown, and then no stretch is
     * disturbed. */
    bool (*lost)(const struct pb_contention *c, double *seconds);
    long threads;       /* T */
    double patience;    /* budget of the next measurement for disturbed stretches, seconds */
    double left;        /* what is left of the present measurement's budget, seconds */
    bool gave_up;       /* the present measurement gave up */
    double began;       /* when the present stretch began, by pb_clock_seconds() */
    double lost_before; /* lost() at that time */
    bool known;         /* lost() succeeded then */
} pb_contention;

/* Begins to judge a process of which `threads` threads measure. False: it cannot be judged, because the kernel does not
 * tell how long threads wait, or because the process has fewer CPUs than threads, which then wait for each other. */
bool pb_contention_open(pb_contention *c, long threads);
/* A measurement begins. */
void pb_contention_begin(pb_contention *c);
/* A stretch begins. */
void pb_contention_begin_stretch(pb_contention *c);
/* True if the stretch has lasted PB_STRETCH seconds. */
bool pb_contention_stretch_over(const pb_contention *c);
/* A stretch ends. True: it was disturbed, and its samples are to be taken again. False: they are kept. */
bool pb_contention_end_stretch(pb_contention *c);
/* A measurement ends. True: it gave up. */
bool pb_contention_end(pb_contention *c);
#endif
