/* where.c - the record of where this process is, in atomic variables. */
#include "os/where.h"

#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

enum { KEPT = 3 };

typedef struct phase_record {
    _Atomic(const char *) name;
    _Atomic double last[KEPT];
    atomic_uint n; /* durations written */
} phase_record;

static atomic_uint_least64_t progress, sequence;
static _Atomic int64_t step = -1;
static _Atomic(const char *) phase, collective, newest; /* newest: the collective entered last; NULL: none yet */
static _Atomic double waited, entered; /* waited: seconds in collectives, all together; entered: when the last began */
static phase_record phases[PB_WHERE_PHASES];
static double began, waited_before; /* of the current phase; only the thread that trains uses them */

#define SET(variable, value) atomic_store_explicit(&(variable), value, memory_order_relaxed)
#define GET(variable)        atomic_load_explicit(&(variable), memory_order_relaxed)

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void pb_where_progress(void) { atomic_fetch_add_explicit(&progress, 1, memory_order_relaxed); }

void pb_where_step(int64_t at)
{
    SET(step, at);
    pb_where_progress();
}

void pb_where_took(const char *name, double seconds)
{
    for (int i = 0; i < PB_WHERE_PHASES; i++) {
        phase_record *r = &phases[i];
        if (GET(r->name) && GET(r->name) != name) continue;
        const unsigned n = GET(r->n);
        SET(r->last[n % KEPT], seconds);
        SET(r->n, n + 1);
        SET(r->name, name);
        return;
    }
}

void pb_where_phase(const char *name)
{
    const double t = now(), w = GET(waited);
    const char *before = GET(phase);
    if (before) pb_where_took(before, t - began - (w - waited_before));
    began = t;
    waited_before = w;
    SET(phase, name);
    pb_where_progress();
}

void pb_where_collective(const char *name, uint64_t number)
{
    if (name) {
        SET(entered, now());
        SET(sequence, number);
        SET(newest, name);
    } else if (GET(collective)) SET(waited, GET(waited) + now() - GET(entered));
    SET(collective, name);
    pb_where_progress();
}

void pb_where_device(bool waits)
{
    if (GET(newest)) pb_where_collective(waits ? GET(newest) : NULL, GET(sequence));
}

uint64_t pb_where_sequence(void) { return GET(sequence); }

static pb_where_phase_time read_phase(const phase_record *r)
{
    pb_where_phase_time out = {.name = GET(r->name)};
    if (!out.name || GET(r->n) < KEPT) return out;
    const double a = GET(r->last[0]), b = GET(r->last[1]), c = GET(r->last[2]);
    const double low = a < b ? a : b, high = a < b ? b : a;
    out.least = c < low ? c : low;
    out.middle = c < low ? low : c > high ? high : c;
    return out;
}

void pb_where_read(pb_where *out)
{
    *out = (pb_where){.progress = GET(progress),
                      .step = GET(step),
                      .phase = GET(phase),
                      .collective = GET(collective),
                      .sequence = GET(sequence)};
    for (int i = 0; i < PB_WHERE_PHASES; i++) out->phases[i] = read_phase(&phases[i]);
}
