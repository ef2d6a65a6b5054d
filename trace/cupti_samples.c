/* cupti_samples.c - implements gpu_samples.h with CUPTI's PM sampling and its host interface, loaded at run time. */
#include "trace/cupti_host.h" /* order: it declares what CUPTI's header uses */

#include <cupti_pmsampling.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "trace/gpu_samples.h"

/* Samples of a data image, and the longest time between two decodings. A decoding takes about 8 ms of a CPU with
 * 12 events even if it finds no sample (on one H200), so it waits until a quarter of the image can be filled; a full
 * image may lose samples, so three quarters are left for a thread that runs late. DRAINS: most decodings after the end
 * of a window. BUFFER: bytes of the GPU's memory for samples that are not decoded yet. */
enum { IMAGE = 1024, LONGEST_US = 100000, DRAINS = 64, BUFFER = 64 << 20 };

static struct {
#define SAMPLING(name, type) CUptiResult(CUPTIAPI *name)(type *);
#include "trace/cupti_samples.def"
#undef SAMPLING
} api;

struct pb_gpu_sampler {
    pb_cupti_host host;
    CUpti_PmSampling_Object *object; /* NULL: sampling is off */
    int interval_us;
    uint8_t *data; /* [data_bytes]: an image, as CUPTI calls it, of at most IMAGE samples */
    size_t data_bytes;
    pthread_t thread;
    bool running;         /* the thread was created and is not joined yet */
    atomic_bool stopping; /* the window ends: the thread makes way for the call that stops sampling */
    pthread_mutex_t lock; /* of CUPTI's calls that use `object`, and of all below */
    pthread_cond_t wake;
    bool started, stopped; /* sampling was started, and stopped, for the current window */
    bool dead;             /* decoding has ended for this window: CUPTI failed, or the GPU's buffer overflowed */
    bool first;            /* the next sample is the first one, which is discarded */
    int64_t begun_ns, ended_ns, last_ns; /* when sampling was started and stopped; the end of the last sample */
    size_t most, n, lost, partial, overflows;
    pb_gpu_sample *sample; /* [most] */
    double *value;         /* [most][host.group.events] */
    double decode_s;
    pb_status status; /* of decoding, with its message */
    char why[256];
};

#define SAMPLE_TRY(name, parameters)                                                                                   \
    do {                                                                                                               \
        const CUptiResult cupti_result_ = api.name(parameters);                                                        \
        if (cupti_result_ != CUPTI_SUCCESS) return pb_cupti_host_failed(#name, cupti_result_);                         \
    } while (0)

static int64_t now_ns(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- switching on and off --------------------------------------------------------------------------- */

static pb_status make(const pb_counter_group *g, pb_gpu_sampler **out)
{
    pthread_condattr_t attributes;
    pb_gpu_sampler *s = *out = calloc(1, sizeof *s);
    if (!s) return pb_fail(PB_ENOMEM, "counters: no memory");
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&s->wake, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    PB_TRY(pb_cupti_host_open(g, &s->host));
#define SAMPLING(name, type) PB_TRY(pb_cupti_host_symbol(#name, (void **)&api.name));
#include "trace/cupti_samples.def"
#undef SAMPLING
    return PB_OK;
}

pb_status pb_gpu_sampler_passes(const pb_counter_group *g, int *passes)
{
    pb_gpu_sampler *s;
    pb_status status = make(g, &s);
    if (status == PB_OK) status = pb_cupti_host_configure(&s->host, CUPTI_PROFILER_TYPE_PM_SAMPLING);
    *passes = status == PB_OK ? s->host.passes : 0;
    pb_gpu_sampler_close(s);
    return status;
}

static void disable(pb_gpu_sampler *s)
{
    PARAMETERS(CUpti_PmSampling_Disable_Params, off);
    off.pPmSamplingObject = s->object;
    if (s->object) (void)api.cuptiPmSamplingDisable(&off);
    s->object = NULL;
}

static pb_status find_available(pb_gpu_sampler *s)
{
    PARAMETERS(CUpti_PmSampling_GetCounterAvailability_Params, there);
    there.deviceIndex = (size_t)s->host.device;
    SAMPLE_TRY(cuptiPmSamplingGetCounterAvailability, &there);
    s->host.available = calloc(1, there.counterAvailabilityImageSize);
    if (!s->host.available) return pb_fail(PB_ENOMEM, "counters: no memory");
    there.pCounterAvailabilityImage = s->host.available;
    SAMPLE_TRY(cuptiPmSamplingGetCounterAvailability, &there);
    return PB_OK;
}

/* The size of an image depends on the group and IMAGE alone; CUPTI is asked once, because images of another size than
 * the last one it was asked for can be refused. */
static pb_status make_image(pb_gpu_sampler *s)
{
    PARAMETERS(CUpti_PmSampling_GetCounterDataSize_Params, size);
    size.pPmSamplingObject = s->object;
    size.pMetricNames = s->host.names;
    size.numMetrics = (size_t)s->host.group.events;
    size.maxSamples = IMAGE;
    SAMPLE_TRY(cuptiPmSamplingGetCounterDataSize, &size);
    free(s->data);
    s->data = calloc(1, s->data_bytes = size.counterDataSize);
    return s->data ? PB_OK : pb_fail(PB_ENOMEM, "counters: no memory for %zu bytes of samples", size.counterDataSize);
}

/* Needed before every decoding: the next one would not overwrite the samples of the one before. */
static pb_status empty_image(pb_gpu_sampler *s)
{
    PARAMETERS(CUpti_PmSampling_CounterDataImage_Initialize_Params, empty);
    empty.pPmSamplingObject = s->object;
    empty.counterDataSize = s->data_bytes;
    empty.pCounterData = s->data;
    SAMPLE_TRY(cuptiPmSamplingCounterDataImageInitialize, &empty);
    return PB_OK;
}

static pb_status enable(pb_gpu_sampler *s)
{
    if (s->object) return PB_OK;
    PARAMETERS(CUpti_PmSampling_Enable_Params, on);
    on.deviceIndex = (size_t)s->host.device;
    SAMPLE_TRY(cuptiPmSamplingEnable, &on);
    s->object = on.pPmSamplingObject;
    PARAMETERS(CUpti_PmSampling_SetConfig_Params, how);
    how.pPmSamplingObject = s->object;
    how.configSize = s->host.config_bytes;
    how.pConfig = s->host.config;
    how.hardwareBufferSize = BUFFER;
    how.samplingInterval = 1000ULL * (unsigned)s->interval_us;
    how.triggerMode = CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL;
    how.hwBufferAppendMode =
        CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST; /* the only mode that reports an overflow */
    SAMPLE_TRY(cuptiPmSamplingSetConfig, &how);
    return make_image(s);
}

static pb_status prepare(pb_gpu_sampler *s)
{
    PB_TRY(pb_cupti_host_gpu(&s->host, CUPTI_PROFILER_PM_SAMPLING));
    PB_TRY(find_available(s));
    PB_TRY(pb_cupti_host_configure(&s->host, CUPTI_PROFILER_TYPE_PM_SAMPLING));
    if (s->host.passes != 1)
        return pb_fail(PB_EUNSUPPORTED, "counters: group %s needs %d passes on this GPU, and a sample has one",
                       s->host.group.name, s->host.passes);
    s->sample = calloc(s->most, sizeof *s->sample);
    s->value = calloc(s->most * (size_t)s->host.group.events, sizeof *s->value);
    if (!s->sample || !s->value) return pb_fail(PB_ENOMEM, "counters: no memory for %zu samples", s->most);
    return enable(s);
}

pb_status pb_gpu_sampler_open(const pb_counter_group *g, int interval_us, size_t most, pb_gpu_sampler **out)
{
    *out = NULL;
    if (interval_us < PB_SAMPLE_US_LEAST || interval_us > PB_SAMPLE_US_MOST)
        return pb_fail(PB_EINVAL, "counters: a sample every %d us: need %d to %d", interval_us, PB_SAMPLE_US_LEAST,
                       PB_SAMPLE_US_MOST);
    pb_status status = make(g, out);
    if (status == PB_OK) {
        (*out)->interval_us = interval_us;
        (*out)->most = most ? most : PB_SAMPLES_MOST;
        status = prepare(*out);
    }
    if (status != PB_OK) pb_gpu_sampler_close(*out), *out = NULL;
    return status;
}

/* ---- decoding, in the sampler's thread and under its lock --------------------------------------------- */

/* Appends sample number i of the image. */
static pb_status take(pb_gpu_sampler *s, size_t i)
{
    PARAMETERS(CUpti_PmSampling_CounterData_GetSampleInfo_Params, info);
    info.pPmSamplingObject = s->object;
    info.pCounterDataImage = s->data;
    info.counterDataImageSize = s->data_bytes;
    info.sampleIndex = i;
    SAMPLE_TRY(cuptiPmSamplingCounterDataGetSampleInfo, &info);
    if (info.endTimestamp <= info.startTimestamp) return PB_OK; /* it covers no time, or has none */
    s->last_ns = (int64_t)info.endTimestamp;
    if (s->first) return s->first = false, PB_OK;
    if (s->n == s->most) return s->lost++, PB_OK;
    PB_TRY(pb_cupti_host_values(&s->host, s->data, s->data_bytes, i, &s->value[s->n * (size_t)s->host.group.events]));
    s->sample[s->n++] = (pb_gpu_sample){(int64_t)info.startTimestamp, (int64_t)info.endTimestamp};
    return PB_OK;
}

static pb_status take_all(pb_gpu_sampler *s)
{
    PARAMETERS(CUpti_PmSampling_GetCounterDataInfo_Params, info);
    info.pCounterDataImage = s->data;
    info.counterDataImageSize = s->data_bytes;
    SAMPLE_TRY(cuptiPmSamplingGetCounterDataInfo, &info);
    s->partial += info.numPopulatedSamples - info.numCompletedSamples;
    for (size_t i = 0; i < info.numCompletedSamples; i++) PB_TRY(take(s, i));
    return empty_image(s);
}

/* Decodes what the GPU's buffer holds. *more: the image was full. */
static pb_status decode(pb_gpu_sampler *s, bool *more)
{
    PARAMETERS(CUpti_PmSampling_DecodeData_Params, p);
    p.pPmSamplingObject = s->object;
    p.pCounterDataImage = s->data;
    p.counterDataImageSize = s->data_bytes;
    const CUptiResult r = api.cuptiPmSamplingDecodeData(&p);
    const bool full = r == CUPTI_ERROR_OUT_OF_MEMORY; /* the GPU's buffer: later calls would say so again */
    s->overflows += full || p.overflow;
    s->dead = full;
    *more = !full && p.decodeStopReason == CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL;
    if (full) return PB_OK;
    return r == CUPTI_SUCCESS ? take_all(s) : pb_cupti_host_failed("cuptiPmSamplingDecodeData", r);
}

/* Returns whether more can be decoded at once. */
static bool decode_once(pb_gpu_sampler *s)
{
    bool more = false;
    if (s->dead) return false;
    s->status = decode(s, &more);
    if (s->status == PB_OK) return more;
    s->dead = true;
    snprintf(s->why, sizeof s->why, "%s", pb_error());
    return false;
}

static void wait_a_while(pb_gpu_sampler *s)
{
    const int64_t quarter = (int64_t)s->interval_us * (IMAGE / 4),
                  until = now_ns(CLOCK_MONOTONIC) + 1000 * (quarter < LONGEST_US ? quarter : LONGEST_US);
    const struct timespec t = {until / 1000000000, until % 1000000000};
    (void)pthread_cond_timedwait(&s->wake, &s->lock, &t);
}

/* The number of decodings after the end is bounded: samples that are still not decoded then are counted as lost. */
static void *decode_window(void *self)
{
    pb_gpu_sampler *s = self;
    (void)pthread_mutex_lock(&s->lock);
    while (!atomic_load(&s->stopping))
        if (!decode_once(s)) wait_a_while(s);
    while (!s->stopped) (void)pthread_cond_wait(&s->wake, &s->lock);
    for (int i = 0; i < DRAINS && decode_once(s); i++) continue;
    s->decode_s = 1e-9 * (double)now_ns(CLOCK_THREAD_CPUTIME_ID);
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- windows ------------------------------------------------------------------------------------------ */

static void join(pb_gpu_sampler *s)
{
    if (s->running) (void)pthread_join(s->thread, NULL);
    s->running = false;
}

static pb_status stop(pb_gpu_sampler *s)
{
    PARAMETERS(CUpti_PmSampling_Stop_Params, p);
    p.pPmSamplingObject = s->object;
    const CUptiResult r = s->started ? api.cuptiPmSamplingStop(&p) : CUPTI_SUCCESS;
    s->started = false;
    return r == CUPTI_SUCCESS ? PB_OK : pb_cupti_host_failed("cuptiPmSamplingStop", r);
}

static pb_status start(pb_gpu_sampler *s)
{
    PB_TRY(enable(s));
    PB_TRY(empty_image(s));
    PARAMETERS(CUpti_PmSampling_Start_Params, p);
    p.pPmSamplingObject = s->object;
    SAMPLE_TRY(cuptiPmSamplingStart, &p);
    s->started = true;
    return PB_OK;
}

pb_status pb_gpu_sampler_begin(pb_gpu_sampler *s)
{
    join(s);
    if (s->dead) disable(s);
    const bool again = s->object != NULL;
    s->stopped = s->dead = false;
    s->first = true;
    s->n = s->lost = s->partial = s->overflows = 0;
    s->last_ns = 0;
    s->status = PB_OK;
    atomic_store(&s->stopping, false);
    pb_status status = start(s);
    if (status != PB_OK && again) { /* as if this window were the first one */
        disable(s);
        status = start(s);
    }
    s->begun_ns = s->ended_ns = now_ns(CLOCK_REALTIME);
    if (status == PB_OK && pthread_create(&s->thread, NULL, decode_window, s) != 0)
        status = pb_fail(PB_EDEVICE, "counters: the thread that decodes samples could not be started");
    s->running = status == PB_OK;
    if (status == PB_OK) return PB_OK;
    char why[256];
    snprintf(why, sizeof why, "%s", pb_error());
    (void)stop(s);
    disable(s);
    return pb_fail(status, "%s", why);
}

pb_status pb_gpu_sampler_end(pb_gpu_sampler *s)
{
    if (!s->running) return PB_OK;
    atomic_store(&s->stopping, true);
    (void)pthread_mutex_lock(&s->lock);
    s->ended_ns = now_ns(CLOCK_REALTIME);
    const pb_status status = stop(s);
    s->dead |= status != PB_OK;
    s->stopped = true;
    (void)pthread_cond_signal(&s->wake);
    (void)pthread_mutex_unlock(&s->lock);
    return status;
}

void pb_gpu_sampler_close(pb_gpu_sampler *s)
{
    if (!s) return;
    (void)pb_gpu_sampler_end(s);
    join(s);
    disable(s);
    pb_cupti_host_close(&s->host);
    (void)pthread_cond_destroy(&s->wake);
    (void)pthread_mutex_destroy(&s->lock);
    free(s->sample);
    free(s->value);
    free(s->data);
    free(s);
}

/* ---- reading ------------------------------------------------------------------------------------------ */

/* Evaluates the group's formulas for sample number i. */
static void evaluate(const pb_gpu_sampler *s, size_t i, double *out)
{
    const pb_counter_group *g = &s->host.group;
    double counts[PB_GROUP_EVENTS + 1];
    memcpy(counts, &s->value[i * (size_t)g->events], (size_t)g->events * sizeof *counts);
    counts[g->events] = 1e-9 * (double)(s->sample[i].end_ns - s->sample[i].begin_ns);
    for (int m = 0; m < g->metrics; m++) {
        const double v = pb_group_value(g, m, counts);
        out[m] = isfinite(v) ? v : (double)NAN;
    }
}

pb_status pb_gpu_sampler_read(pb_gpu_sampler *s, int64_t begin_ns, int64_t end_ns, pb_gpu_samples *out)
{
    const pb_counter_group *g = &s->host.group;
    join(s);
    const pb_sampled_span span = {begin_ns, end_ns, s->begun_ns, s->ended_ns, s->last_ns};
    *out = (pb_gpu_samples){.device = (uint32_t)s->host.device,
                            .interval_us = s->interval_us,
                            .metrics = g->metrics,
                            .n = s->n,
                            .lost = s->lost,
                            .partial = s->partial,
                            .overflows = s->overflows,
                            .decode_s = s->decode_s};
    for (int m = 0; m < g->metrics; m++) {
        snprintf(out->metric[m].name, sizeof out->metric[m].name, "%s", g->metric[m].name);
        snprintf(out->metric[m].unit, sizeof out->metric[m].unit, "%s", g->metric[m].unit);
    }
    out->sample = malloc((s->n + 1) * sizeof *out->sample);
    out->value = malloc((s->n + 1) * (size_t)g->metrics * sizeof *out->value);
    if (!out->sample || !out->value) {
        out->n = 0;
        return pb_fail(PB_ENOMEM, "counters: no memory for %zu samples", s->n);
    }
    memcpy(out->sample, s->sample, s->n * sizeof *out->sample);
    for (size_t i = 0; i < s->n; i++) evaluate(s, i, &out->value[i * (size_t)g->metrics]);
    const pb_status fits = pb_gpu_samples_fit(out, &span);
    return s->status == PB_OK ? fits : pb_fail(s->status, "%s", s->why);
}
