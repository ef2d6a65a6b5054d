/* cupti_counters.c - implements gpu_counters.h with CUPTI's range profiler and its host interface, loaded at run
 * time. */
#include "trace/cupti_host.h" /* order: it declares what CUPTI's header uses */

#include <cupti_range_profiler.h>
#include <stdio.h>
#include <stdlib.h>

#include "trace/gpu_counters.h"

static struct {
#define COUNTING(name, type) CUptiResult(CUPTIAPI *name)(type *);
#include "trace/cupti_counters.def"
#undef COUNTING
} api;

struct pb_gpu_counters {
    pb_cupti_host host;
    CUpti_RangeProfiler_Object *ranges; /* NULL: the profiler is off */
    bool user;                          /* ranges are pushed and popped; false: each kernel is a range */
    bool counting, inside;              /* between begin and end; between push and pop */
    int most, pushed;                   /* ranges: what a session may have, and has had */
    uint8_t *data;                      /* [data_bytes]: an image, as CUPTI calls it */
    size_t data_bytes;
};

#define COUNT_TRY(name, parameters)                                                                                    \
    do {                                                                                                               \
        const CUptiResult cupti_result_ = api.name(parameters);                                                        \
        if (cupti_result_ != CUPTI_SUCCESS) return pb_cupti_host_failed(#name, cupti_result_);                         \
    } while (0)

static pb_status make(const pb_counter_group *g, pb_gpu_counters **out)
{
    pb_gpu_counters *c = *out = calloc(1, sizeof *c);
    if (!c) return pb_fail(PB_ENOMEM, "counters: no memory");
    PB_TRY(pb_cupti_host_open(g, &c->host));
#define COUNTING(name, type) PB_TRY(pb_cupti_host_symbol(#name, (void **)&api.name));
#include "trace/cupti_counters.def"
#undef COUNTING
    return PB_OK;
}

pb_status pb_gpu_counters_passes(const pb_counter_group *g, int *passes)
{
    pb_gpu_counters *c;
    pb_status s = make(g, &c);
    if (s == PB_OK) s = pb_cupti_host_configure(&c->host, CUPTI_PROFILER_TYPE_RANGE_PROFILER);
    *passes = s == PB_OK ? c->host.passes : 0;
    pb_gpu_counters_close(c);
    return s;
}

/* Stops counting without reading the counts. */
static void stop_only(pb_gpu_counters *c)
{
    PARAMETERS(CUpti_RangeProfiler_Stop_Params, stop);
    stop.pRangeProfilerObject = c->ranges;
    (void)api.cuptiRangeProfilerStop(&stop);
}

static void disable(pb_gpu_counters *c)
{
    PARAMETERS(CUpti_RangeProfiler_Disable_Params, off);
    off.pRangeProfilerObject = c->ranges;
    if (c->ranges) (void)api.cuptiRangeProfilerDisable(&off);
    c->ranges = NULL;
}

void pb_gpu_counters_close(pb_gpu_counters *c)
{
    if (!c) return;
    if (c->counting) stop_only(c);
    disable(c);
    pb_cupti_host_close(&c->host);
    free(c->data);
    free(c);
}

/* ---- the GPU ------------------------------------------------------------------------------------------ */

static pb_status find_available(pb_gpu_counters *c)
{
    PARAMETERS(CUpti_Profiler_GetCounterAvailability_Params, there);
    there.ctx = c->host.context;
    COUNT_TRY(cuptiProfilerGetCounterAvailability, &there);
    c->host.available = calloc(1, there.counterAvailabilityImageSize);
    if (!c->host.available) return pb_fail(PB_ENOMEM, "counters: no memory");
    there.pCounterAvailabilityImage = c->host.available;
    COUNT_TRY(cuptiProfilerGetCounterAvailability, &there);
    return PB_OK;
}

/* Refuses a group that needs more passes than its ranges can have. */
static pb_status check_passes(const pb_gpu_counters *c)
{
    if (c->user && c->host.passes > 1)
        return pb_fail(
            PB_EUNSUPPORTED,
            "counters: group %s needs %d passes on this GPU, and work that runs once has one: choose a group "
            "of one pass, such as STEP",
            c->host.group.name, c->host.passes);
    if (c->host.passes > PB_COUNTED_PASSES)
        return pb_fail(PB_EUNSUPPORTED, "counters: group %s needs %d passes on this GPU, and %d are allowed",
                       c->host.group.name, c->host.passes, PB_COUNTED_PASSES);
    return PB_OK;
}

/* Permission may be refused only when counting starts: find out now, before anything is measured. */
static pb_status prepare(pb_gpu_counters *c)
{
    PB_TRY(pb_cupti_host_gpu(&c->host, CUPTI_PROFILER_RANGE_PROFILING));
    PB_TRY(find_available(c));
    PB_TRY(pb_cupti_host_configure(&c->host, CUPTI_PROFILER_TYPE_RANGE_PROFILER));
    PB_TRY(check_passes(c));
    PB_TRY(pb_gpu_counters_begin(c));
    stop_only(c);
    c->counting = false;
    return PB_OK;
}

static pb_status open_counters(const pb_counter_group *g, bool user, int most, pb_gpu_counters **out)
{
    pb_status s = make(g, out);
    if (s == PB_OK) {
        (*out)->user = user;
        (*out)->most = most;
        s = prepare(*out);
    }
    if (s != PB_OK) pb_gpu_counters_close(*out), *out = NULL;
    return s;
}

pb_status pb_gpu_counters_open(const pb_counter_group *g, pb_gpu_counters **out)
{
    return open_counters(g, false, PB_COUNTED_KERNELS, out);
}

pb_status pb_gpu_counters_open_ranges(const pb_counter_group *g, int most, pb_gpu_counters **out)
{
    return open_counters(g, true, most, out);
}

/* ---- counting ----------------------------------------------------------------------------------------- */

/* Switching the profiler on, with the first start, takes about 1.1 s, and off 0.2 s; a further start 0.05 s (on one
 * H100). So it stays on from pb_gpu_counters_open to pb_gpu_counters_close, unless a call fails, or
 * pb_gpu_counters_release() is called. */
static pb_status enable(pb_gpu_counters *c)
{
    if (c->ranges) return PB_OK;
    PARAMETERS(CUpti_RangeProfiler_Enable_Params, on);
    on.ctx = c->host.context;
    COUNT_TRY(cuptiRangeProfilerEnable, &on);
    c->ranges = on.pRangeProfilerObject;
    return PB_OK;
}

static pb_status make_data(pb_gpu_counters *c)
{
    PARAMETERS(CUpti_RangeProfiler_GetCounterDataSize_Params, size);
    size.pRangeProfilerObject = c->ranges;
    size.pMetricNames = c->host.names;
    size.numMetrics = (size_t)c->host.group.events;
    size.maxNumOfRanges = (size_t)c->most;
    size.maxNumRangeTreeNodes = (uint32_t)c->most;
    COUNT_TRY(cuptiRangeProfilerGetCounterDataSize, &size);
    if (!c->data) c->data = calloc(1, c->data_bytes = size.counterDataSize);
    if (!c->data) return pb_fail(PB_ENOMEM, "counters: no memory for %zu bytes of counts", size.counterDataSize);
    PARAMETERS(CUpti_RangeProfiler_CounterDataImage_Initialize_Params, empty);
    empty.pRangeProfilerObject = c->ranges;
    empty.counterDataSize = c->data_bytes;
    empty.pCounterData = c->data;
    COUNT_TRY(cuptiRangeProfilerCounterDataImageInitialize, &empty);
    return PB_OK;
}

/* Each kernel is a range (auto range), run again for each pass (kernel replay); or the caller says what a range is, and
 * runs it again if there are more passes (user range and replay): here there is one. */
static pb_status start(pb_gpu_counters *c)
{
    PB_TRY(enable(c));
    PB_TRY(make_data(c));
    PARAMETERS(CUpti_RangeProfiler_SetConfig_Params, how);
    how.pRangeProfilerObject = c->ranges;
    how.configSize = c->host.config_bytes;
    how.pConfig = c->host.config;
    how.counterDataImageSize = c->data_bytes;
    how.pCounterDataImage = c->data;
    how.range = c->user ? CUPTI_UserRange : CUPTI_AutoRange;
    how.replayMode = c->user ? CUPTI_UserReplay : CUPTI_KernelReplay;
    how.maxRangesPerPass = (size_t)c->most;
    how.numNestingLevels = 1;
    how.minNestingLevel = 1;
    how.targetNestingLevel = 1;
    COUNT_TRY(cuptiRangeProfilerSetConfig, &how);
    PARAMETERS(CUpti_RangeProfiler_Start_Params, go);
    go.pRangeProfilerObject = c->ranges;
    COUNT_TRY(cuptiRangeProfilerStart, &go);
    return PB_OK;
}

pb_status pb_gpu_counters_begin(pb_gpu_counters *c)
{
    const pb_status s = start(c);
    c->counting = s == PB_OK;
    c->pushed = 0;
    if (s != PB_OK) disable(c);
    return s;
}

/* The number of ranges that were counted. */
static pb_status count_ranges(const pb_gpu_counters *c, size_t *n)
{
    PARAMETERS(CUpti_RangeProfiler_GetCounterDataInfo_Params, info);
    info.pCounterDataImage = c->data;
    info.counterDataImageSize = c->data_bytes;
    COUNT_TRY(cuptiRangeProfilerGetCounterDataInfo, &info);
    *n = info.numTotalRanges;
    return PB_OK;
}

/* Adds the counts of all kernels: values[events]. */
static pb_status add_kernels(const pb_gpu_counters *c, double *values)
{
    size_t n = 0;
    PB_TRY(count_ranges(c, &n));
    if (!n) return pb_fail(PB_EDEVICE, "counters: the call launched no kernel that can be counted");
    for (int k = 0; k < c->host.group.events; k++) values[k] = 0;
    for (size_t i = 0; i < n; i++) {
        double of[PB_GROUP_EVENTS] = {0};
        PB_TRY(pb_cupti_host_values(&c->host, c->data, c->data_bytes, i, of));
        for (int k = 0; k < c->host.group.events; k++) values[k] += of[k];
    }
    return PB_OK;
}

/* Stops counting. After a success the data image has the counts; `dropped` ranges were not counted. */
static pb_status stop(pb_gpu_counters *c, size_t *dropped)
{
    PARAMETERS(CUpti_RangeProfiler_Stop_Params, stop);
    stop.pRangeProfilerObject = c->ranges;
    COUNT_TRY(cuptiRangeProfilerStop, &stop);
    if (!stop.isAllPassSubmitted) return pb_fail(PB_EDEVICE, "counters: counting ended before all passes were run");
    PARAMETERS(CUpti_RangeProfiler_DecodeData_Params, decode);
    decode.pRangeProfilerObject = c->ranges;
    COUNT_TRY(cuptiRangeProfilerDecodeData, &decode);
    *dropped = decode.numOfRangeDropped;
    return PB_OK;
}

static pb_status collect(pb_gpu_counters *c, double *values)
{
    size_t dropped = 0;
    PB_TRY(stop(c, &dropped));
    if (dropped)
        return pb_fail(PB_EDEVICE, "counters: the call launched more than %d kernels: %zu were not counted",
                       PB_COUNTED_KERNELS, dropped);
    return add_kernels(c, values);
}

pb_status pb_gpu_counters_end(pb_gpu_counters *c, double *values)
{
    pb_status s = PB_OK;
    if (values) s = collect(c, values);
    else stop_only(c);
    c->counting = false;
    if (s != PB_OK) disable(c);
    return s;
}

/* ---- ranges ------------------------------------------------------------------------------------------- */

pb_status pb_gpu_counters_push(pb_gpu_counters *c)
{
    char name[16]; /* its number, by which end_ranges finds it again */
    if (c->pushed == c->most) return pb_fail(PB_EDEVICE, "counters: more than %d ranges", c->most);
    snprintf(name, sizeof name, "%d", c->pushed);
    PB_TRY(pb_cupti_host_wait(&c->host));
    PARAMETERS(CUpti_RangeProfiler_PushRange_Params, push);
    push.pRangeProfilerObject = c->ranges;
    push.pRangeName = name;
    COUNT_TRY(cuptiRangeProfilerPushRange, &push);
    c->pushed++;
    c->inside = true;
    return PB_OK;
}

pb_status pb_gpu_counters_pop(pb_gpu_counters *c)
{
    c->inside = false;
    const pb_status s = pb_cupti_host_wait(&c->host);
    PARAMETERS(CUpti_RangeProfiler_PopRange_Params, pop);
    pop.pRangeProfilerObject = c->ranges;
    COUNT_TRY(cuptiRangeProfilerPopRange, &pop);
    return s;
}

/* The number of the range, as it was pushed, of range `index` of the data image. */
static pb_status number_of(const pb_gpu_counters *c, size_t index, long *number)
{
    char *end = NULL;
    PARAMETERS(CUpti_RangeProfiler_CounterData_GetRangeInfo_Params, info);
    info.pCounterDataImage = c->data;
    info.counterDataImageSize = c->data_bytes;
    info.rangeIndex = index;
    info.rangeDelimiter = "/";
    COUNT_TRY(cuptiRangeProfilerCounterDataGetRangeInfo, &info);
    *number = info.rangeName ? strtol(info.rangeName, &end, 10) : -1;
    if (*number >= 0 && *number < c->pushed && end != info.rangeName && !*end) return PB_OK;
    return pb_fail(PB_EDEVICE, "counters: CUPTI counted a range that was not pushed: %.40s",
                   info.rangeName ? info.rangeName : "");
}

static pb_status collect_ranges(pb_gpu_counters *c, double *values, int n)
{
    size_t dropped = 0, counted = 0;
    PB_TRY(stop(c, &dropped));
    PB_TRY(count_ranges(c, &counted));
    if (dropped || counted != (size_t)c->pushed)
        return pb_fail(PB_EDEVICE, "counters: %zu of %d ranges were counted", counted, c->pushed);
    for (size_t i = 0; i < counted; i++) {
        double of[PB_GROUP_EVENTS] = {0};
        long number = -1;
        PB_TRY(number_of(c, i, &number));
        PB_TRY(pb_cupti_host_values(&c->host, c->data, c->data_bytes, i, of));
        for (int k = 0; k < c->host.group.events && number < n; k++) values[number * c->host.group.events + k] = of[k];
    }
    return PB_OK;
}

pb_status pb_gpu_counters_end_ranges(pb_gpu_counters *c, double *values, int n)
{
    pb_status s = c->inside ? pb_gpu_counters_pop(c) : PB_OK;
    if (s == PB_OK && values) s = collect_ranges(c, values, n);
    else stop_only(c);
    c->counting = false;
    if (s != PB_OK) disable(c);
    return s;
}

void pb_gpu_counters_release(pb_gpu_counters *c) { disable(c); }
