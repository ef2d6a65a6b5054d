/* doctor.h - what on this machine spoils figures: one finding a line of doctor.def, judged from plain readings. What is
 * not known is UNKNOWN, never GOOD. */
#ifndef PB_DOCTOR_H
#define PB_DOCTOR_H
#include <jansson.h>
#include <stdio.h>

#include "bench/machine/host_state.h"
#include "bench/machine/nvml.h"

/* X(enumerator, word) */
#define PB_HEALTH_MAP(X) X(GOOD, "good") X(NOTE, "note") X(BAD, "bad") X(UNKNOWN, "unknown")
typedef enum pb_health {
#define X(id, word) PB_HEALTH_##id,
    PB_HEALTH_MAP(X)
#undef X
        PB_NHEALTH
} pb_health;

/* The readings: the host's at two times, some seconds apart, and the GPU's, or why there are none. */
typedef struct pb_patient {
    pb_host_state before, host;
    double seconds; /* between the two */
    pb_timer_facts timer;
    bool want_gpu, has_gpu;
    pb_gpu_state gpu;
    char no_gpu[160];
} pb_patient;

typedef struct pb_finding {
    pb_health health;
    char text[200];
} pb_finding;

#define CHECK(name, ...) pb_finding pb_look_##name(const pb_patient *p);
#include "bench/machine/doctor.def"
#undef CHECK
/* A finding by a format of printf. */
pb_finding pb_finding_of(pb_health health, const char *format, ...) __attribute__((format(printf, 2, 3)));

typedef struct pb_check_info {
    const char *name, *what, *effect, *remedy;
    bool gpu;
    pb_finding (*look)(const pb_patient *p);
} pb_check_info;
extern const pb_check_info pb_checks[]; /* in the order of doctor.def; a NULL name ends it */
extern const char *const pb_health_names[PB_NHEALTH];

/* Prints what is wrong first, each with its effect and remedy; count[] by health. */
void pb_doctor_print(const pb_patient *p, FILE *out, int count[PB_NHEALTH]);
/* {"device", "checks": [{"name", "state", "what", "found", "effect", "remedy"}], "good", "note", "bad", "unknown"}; the
 * caller frees it. NULL: no memory. */
json_t *pb_doctor_json(const pb_patient *p, const char *device, int count[PB_NHEALTH]);
#endif
