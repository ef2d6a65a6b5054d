/* process_state.c - reads the machine's state before and after a measuring process, and samples the GPU in a thread
 * while the process runs. */
#define _GNU_SOURCE
#include "bench/run/process_state.h"

#include <errno.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/machine/machine.h"
#include "bench/measure/measure.h"
#include "kernels/engine/clock.h"

enum { PERIOD_NS = 500000000 }; /* nanoseconds between two samples of the GPU's state */

typedef struct during {
    int samples;
    double clock_least, clock_most, power_most, temperature_most;
    unsigned throttle;
} during;

struct pb_state_recording {
    pb_nvml *nvml; /* NULL: no GPU is sampled */
    char unknown[160];
    pb_cpu_use start;
    long threads;    /* of the measuring process; 0: other work does not count */
    bool by_samples; /* the process itself judges its samples by the CPU time that other work took */
    pb_gpu_state gpu;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
    during seen;
};

/* ---- the sampling thread ---------------------------------------------------------------------------- */

static void note_sample(during *d, const pb_gpu_state *g)
{
    const unsigned bits = g->throttle_bits >= 0 ? (unsigned)g->throttle_bits : 0;
    d->samples++;
    d->throttle |= bits;
    d->power_most = fmax(d->power_most, g->power_w);
    d->temperature_most = fmax(d->temperature_most, g->temperature_c);
    if (bits & PB_THROTTLE_IDLE) return;
    d->clock_least = fmin(d->clock_least, g->sm_clock_hz);
    d->clock_most = fmax(d->clock_most, g->sm_clock_hz);
}

static void *sample(void *self)
{
    pb_state_recording *w = self;
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        next.tv_nsec += PERIOD_NS;
        if (next.tv_nsec >= 1000000000) next.tv_nsec -= 1000000000, next.tv_sec++;
        while (!w->stop && pthread_cond_timedwait(&w->wake, &w->lock, &next) != ETIMEDOUT) continue;
        if (w->stop) break;
        const pb_gpu_state g = pb_nvml_sample(w->nvml);
        note_sample(&w->seen, &g);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* The thread blocks all signals. They must reach the main thread, where they interrupt blocking calls. */
static pb_status start_thread(pb_state_recording *w)
{
    pthread_condattr_t monotonic;
    sigset_t all, before;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&w->lock, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&w->thread, NULL, sample, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? pb_fail(PB_EIO, "a thread to sample the GPU cannot be started: %s", strerror(failed)) : PB_OK;
}

static void stop_thread(pb_state_recording *w)
{
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
}

static pb_cpu_use cpu_use(void) { return (pb_cpu_use){pb_clock_seconds(), pb_cpu_own_seconds(), pb_host_read("")}; }

/* The number of threads of the measuring process, from which other work may take CPU time. 0: other work does not
 * count: the device is a GPU, nothing is timed, or PB_DISTURBANCE is `ignore`. */
static long threads_of(const pb_options *o, pb_backend_id device)
{
    const char *set = getenv("PB_DISTURBANCE");
    const pb_suite *suite = o->suite ? pb_suite_find(o->suite) : NULL;
    if (device != PB_CPU || o->instructions || o->counters || (set && strcmp(set, "ignore") == 0)) return 0;
    if (suite && suite->untimed) return 0;
    const long each = o->threads > 0 ? o->threads : omp_get_max_threads();
    return o->ranks > 1 ? o->ranks * each : each;
}

static bool judges_samples(const pb_options *o, long threads, double quota_cpus, pb_contention *c)
{
    return threads && o->ranks <= 1 && !(quota_cpus < (double)threads) && pb_contention_open(c, threads);
}

bool pb_samples_are_judged(const pb_options *o, pb_backend_id device, pb_contention *c)
{
    return judges_samples(o, threads_of(o, device), pb_host_read("").quota_cpus, c);
}

pb_status pb_state_recording_begin(const pb_options *o, pb_state_recording **out)
{
    pb_backend_id device;
    PB_TRY(pb_options_backend(o, &device));
    pb_state_recording *w = calloc(1, sizeof *w);
    const double none = (double)NAN;
    pb_contention unused;
    if (!w) return pb_fail(PB_ENOMEM, "out of memory for the state of a process");
    w->seen = (during){0, none, none, none, none, 0};
    if (pb_nvml_concerns(device) && pb_nvml_open(device, &w->nvml) != PB_OK)
        snprintf(w->unknown, sizeof w->unknown, "%s", pb_error());
    w->threads = threads_of(o, device);
    w->start = cpu_use();
    w->by_samples = judges_samples(o, w->threads, w->start.host.quota_cpus, &unused);
    if (w->nvml) w->gpu = pb_nvml_read(w->nvml);
    const pb_status s = w->nvml ? start_thread(w) : PB_OK;
    if (s == PB_OK) *out = w;
    else pb_nvml_close(w->nvml), free(w);
    return s;
}

/* ---- making the JSON entry -------------------------------------------------------------------------- */

static json_t *real(double v) { return isfinite(v) ? json_real(v) : json_null(); }

static json_t *snapshot(const pb_host_state *h, const pb_gpu_state *g)
{
    return json_pack("{s:o,s:o}", "host", pb_host_state_json(h), "gpu", g ? pb_gpu_state_json(g) : json_null());
}

static json_t *during_json(const during *d)
{
    return json_pack("{s:i,s:o,s:o,s:o,s:o,s:o}", "samples", d->samples, "sm_clock_least_hz", real(d->clock_least),
                     "sm_clock_most_hz", real(d->clock_most), "power_most_w", real(d->power_most), "temperature_most_c",
                     real(d->temperature_most), "throttle", pb_throttle_names(d->throttle));
}

/* Writes the reasons that make the measurements invalid, separated by commas; "": none. */
static void spoilt_by(const pb_state_recording *w, const pb_cpu_use *end, const pb_gpu_state *gpu, int disturbed,
                      char *why, size_t n)
{
    char other_work[PB_THROTTLED_TEXT] = "";
    const unsigned bits = w->nvml ? pb_throttle_spoils(w->gpu.throttle_bits) | pb_throttle_spoils(w->seen.throttle) |
                                        pb_throttle_spoils(gpu->throttle_bits)
                                  : 0;
    pb_throttle_text(bits, why, n);
    size_t used = strlen(why);
    if (end->host.throttle_total > w->start.host.throttle_total)
        snprintf(why + used, n - used, "%scpu_thermal", used ? ", " : "");
    used = strlen(why);
    if (w->by_samples) pb_disturbance_of_samples(disturbed, other_work, sizeof other_work);
    else if (w->threads) pb_disturbance(&w->start, end, w->threads, other_work, sizeof other_work);
    if (*other_work) snprintf(why + used, n - used, "%s%s", used ? ", " : "", other_work);
}

pb_status pb_state_recording_end(pb_state_recording *w, int process, int disturbed, json_t **state,
                                 char why[PB_THROTTLED_TEXT])
{
    pb_gpu_state gpu = {0};
    if (w->nvml) stop_thread(w);
    if (w->nvml) gpu = pb_nvml_read(w->nvml);
    const pb_cpu_use end = cpu_use();
    *state = json_pack(
        "{s:i,s:o,s:o,s:o,s:o,s:o}", "process", process, "start", snapshot(&w->start.host, w->nvml ? &w->gpu : NULL),
        "end", snapshot(&end.host, w->nvml ? &gpu : NULL), "during", w->nvml ? during_json(&w->seen) : json_null(),
        "gpu_unknown", *w->unknown ? json_string(w->unknown) : json_null(), "steal_s",
        real(end.host.steal_total_s - w->start.host.steal_total_s));
    spoilt_by(w, &end, &gpu, disturbed, why, PB_THROTTLED_TEXT);
    pb_nvml_close(w->nvml);
    free(w);
    return *state ? PB_OK : pb_fail(PB_ENOMEM, "out of memory for a process's state");
}
