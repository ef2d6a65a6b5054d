/* doctor.h - `bench doctor`: checks the machine for conditions that disturb measurements. Each line of doctor.def is a
 * check of values in pb_patient. A check whose values are not known gives UNKNOWN. */
#ifndef PB_DOCTOR_H
#define PB_DOCTOR_H
#include <jansson.h>
#include <stdio.h>

#include "bench/machine/host_state.h"
#include "bench/machine/nvml.h"

/* X(result, name in the output) of a check. */
#define PB_HEALTH_MAP(X) X(GOOD, "good") X(NOTE, "note") X(BAD, "bad") X(UNKNOWN, "unknown")
typedef enum pb_health {
#define X(id, word) PB_HEALTH_##id,
    PB_HEALTH_MAP(X)
#undef X
        PB_NHEALTH
} pb_health;

/* The values that the checks judge. The host is read twice, to see what changes. */
typedef struct pb_patient {
    pb_host_state before, host; /* first and second reading of the host */
    double seconds;             /* seconds between the two readings */
    pb_timer_facts timer;
    bool want_gpu, has_gpu; /* GPU checks are requested; `gpu` holds values */
    pb_gpu_state gpu;
    char no_gpu[160]; /* the reason why has_gpu is false */
} pb_patient;

typedef struct pb_finding {
    pb_health health;
    char text[200];
} pb_finding;

#define CHECK(name, ...) pb_finding pb_look_##name(const pb_patient *p);
#include "bench/machine/doctor.def"
#undef CHECK
/* Makes a finding; the text is formatted as by printf(). */
pb_finding pb_finding_of(pb_health health, const char *format, ...) __attribute__((format(printf, 2, 3)));

typedef struct pb_check_info {
    const char *name, *what, *effect, *remedy;
    bool gpu;
    pb_finding (*look)(const pb_patient *p);
} pb_check_info;
extern const pb_check_info pb_checks[]; /* in the order of doctor.def; ends with a NULL name */
extern const char *const pb_health_names[PB_NHEALTH];

/* Prints the findings, most severe first, and the effect and remedy of those that are bad or a note. Writes the number
 * of findings with each result to count[]. */
void pb_doctor_print(const pb_patient *p, FILE *out, int count[PB_NHEALTH]);
/* The findings as {"device", "checks": [{"name", "state", "what", "found", "effect", "remedy"}], "good", "note", "bad",
 * "unknown"}, which the caller decrefs. Writes count[] like pb_doctor_print(). NULL: out of memory. */
json_t *pb_doctor_json(const pb_patient *p, const char *device, int count[PB_NHEALTH]);
#endif
