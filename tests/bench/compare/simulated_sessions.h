/* simulated_sessions.h - the values of a comparison with stored sessions on a simulated machine: sessions, a run, and
 * its second measurement.
 *
 * The logarithm of a value is a sum of three random terms: one per session, which all its rows share; one per process
 * and row; and one per host of a pool. One process in seven is in a slower mode, so the noise has a heavy right tail. A
 * second measurement, a minute later, has 0.7 of its session's term in common with the run. */
#ifndef PB_TEST_SIMULATED_SESSIONS_H
#define PB_TEST_SIMULATED_SESSIONS_H
#include <stdint.h>

#include "bench/rows/rows.h"

enum { SCENE_ROWS = 10, SCENE_SESSIONS = 20 };

/* A source of random numbers: equal seeds give equal numbers. */
typedef struct source {
    uint64_t seed, at;
} source;

/* A simulated machine. session, process, host: standard deviations of the three terms of its noise (above). */
typedef struct machine {
    const char *name;
    const char *host_name; /* name that the user gave the machine; "": none, the hardware identifies the host */
    double session, process, host;
    int sessions, hosts; /* hosts 1: no pool */
} machine;

/* The values of one comparison. It points into itself, so a copy must be given pointers of its own. */
typedef struct scene {
    char key[SCENE_ROWS][64], host[SCENE_SESSIONS + 1][16];
    pb_session of_base[SCENE_ROWS][SCENE_SESSIONS], of_cand[SCENE_ROWS], of_again[SCENE_ROWS];
    pb_series base[SCENE_ROWS], cand[SCENE_ROWS], again[SCENE_ROWS];
    double level; /* sum of the terms of the candidate's session and host, in logarithms */
} scene;

/* Draws the sessions and an unchanged candidate with its second measurement. In a pool its host is a new one. */
void scene_draw(source *r, const machine *m, scene *z);
/* Makes one row slower by `by`, or all rows (row < 0), both in the candidate's run and in its second measurement. */
void scene_slow_down(scene *z, int row, double by);
#endif
