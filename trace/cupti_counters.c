/* cupti_counters.c - implements gpu_counters.h with CUPTI's range profiler and its host interface, loaded at run
 * time. */
#include "trace/gpu_counters.h"

#include <cupti_profiler_host.h> /* order: it declares what the next header uses */

#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_result.h>
#include <cupti_target.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "trace/cupti_library.h"

static const char what[] = "counters";

static struct {
#define COUNTING(name, type) CUptiResult(CUPTIAPI *name)(type *);
#include "trace/cupti_counters.def"
#undef COUNTING
    CUptiResult(CUPTIAPI *cuptiGetResultString)(CUptiResult, const char **);
} api;

struct pb_gpu_counters {
    pb_counter_group group;
    const char *names[PB_GROUP_EVENTS]; /* the counters of `group` */
    CUcontext context;
    CUpti_Profiler_Host_Object *host;
    CUpti_RangeProfiler_Object *ranges; /* NULL: the profiler is off */
    bool counting;                      /* between begin and end */
    uint8_t *available;                 /* which counters this GPU offers to this user; NULL: host interface only */
    uint8_t *config, *data;             /* [config_bytes], [data_bytes]: images, as CUPTI calls them */
    size_t config_bytes, data_bytes;
};

/* A struct of parameters as CUPTI wants it: zeros but for its size. */
#define PARAMETERS(type, name) type name = {.structSize = type##_STRUCT_SIZE}

static pb_status load(void)
{
    void *library;
    PB_TRY(pb_cupti_library(what, &library));
#define COUNTING(name, type) PB_TRY(pb_cupti_symbol(what, library, #name, (void **)&api.name));
#include "trace/cupti_counters.def"
#undef COUNTING
    return pb_cupti_symbol(what, library, "cuptiGetResultString", (void **)&api.cuptiGetResultString);
}

static pb_status failed(const char *call, CUptiResult r)
{
    const char *why = "unknown error";
    (void)api.cuptiGetResultString(r, &why);
    switch ((int)r) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
        return pb_fail(PB_EUNSUPPORTED,
                       "counters: the driver lets only administrators count (%s): run as root, or load the module "
                       "nvidia with NVreg_RestrictProfilingToAdminUsers=0; a container needs CAP_SYS_ADMIN",
                       why);
    case CUPTI_ERROR_HARDWARE_BUSY:
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
        return pb_fail(PB_EUNSUPPORTED, "counters: another tool, such as Nsight or DCGM, holds the counters (%s)", why);
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED:
    case CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED:
        return pb_fail(PB_EUNSUPPORTED, "counters: this GPU is virtual, divided or confidential, and offers none (%s)",
                       why);
    default: return pb_fail(PB_EDEVICE, "counters: CUPTI failed in %s: %s", call, why);
    }
}

#define COUNT_TRY(name, parameters)                                                                                    \
    do {                                                                                                               \
        const CUptiResult cupti_result_ = api.name(parameters);                                                        \
        if (cupti_result_ != CUPTI_SUCCESS) return failed(#name, cupti_result_);                                       \
    } while (0)

/* ---- which passes read the events; needs no GPU ------------------------------------------------------- */

static CUptiResult add(pb_gpu_counters *c, int first, int n)
{
    PARAMETERS(CUpti_Profiler_Host_ConfigAddMetrics_Params, events);
    events.pHostObject = c->host;
    events.ppMetricNames = &c->names[first];
    events.numMetrics = (size_t)n;
    return api.cuptiProfilerHostConfigAddMetrics(&events);
}

/* Adds all events by one call: those of a call share passes. If it fails, adding them one by one finds the event that
 * the chip lacks. */
static pb_status add_events(pb_gpu_counters *c)
{
    const CUptiResult r = add(c, 0, c->group.events);
    for (int i = 0; r != CUPTI_SUCCESS && i < c->group.events; i++)
        if (add(c, i, 1) != CUPTI_SUCCESS)
            return pb_fail(PB_EINVAL, "counters: group %s: chip %s has no counter %s", c->group.name, c->group.chip,
                           c->names[i]);
    return r == CUPTI_SUCCESS ? PB_OK : failed("cuptiProfilerHostConfigAddMetrics", r);
}

static pb_status make_config(pb_gpu_counters *c, int *passes)
{
    PARAMETERS(CUpti_Profiler_Host_Initialize_Params, host);
    host.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    host.pChipName = c->group.chip;
    host.pCounterAvailabilityImage = c->available;
    if (api.cuptiProfilerHostInitialize(&host) != CUPTI_SUCCESS)
        return pb_fail(PB_EUNSUPPORTED,
                       "counters: group %s: libcupti does not know the chip %s, or libnvperf_host is "
                       "not beside it",
                       c->group.name, c->group.chip);
    c->host = host.pHostObject;
    PB_TRY(add_events(c));
    PARAMETERS(CUpti_Profiler_Host_GetConfigImageSize_Params, size);
    size.pHostObject = c->host;
    COUNT_TRY(cuptiProfilerHostGetConfigImageSize, &size);
    c->config = calloc(1, c->config_bytes = size.configImageSize);
    if (!c->config) return pb_fail(PB_ENOMEM, "counters: no memory");
    PARAMETERS(CUpti_Profiler_Host_GetConfigImage_Params, image);
    image.pHostObject = c->host;
    image.configImageSize = c->config_bytes;
    image.pConfigImage = c->config;
    COUNT_TRY(cuptiProfilerHostGetConfigImage, &image);
    PARAMETERS(CUpti_Profiler_Host_GetNumOfPasses_Params, number);
    number.configImageSize = c->config_bytes;
    number.pConfigImage = c->config;
    COUNT_TRY(cuptiProfilerHostGetNumOfPasses, &number);
    *passes = (int)number.numOfPasses;
    return PB_OK;
}

static pb_status make(const pb_counter_group *g, pb_gpu_counters **out)
{
    pb_gpu_counters *c = *out = calloc(1, sizeof *c);
    if (!c) return pb_fail(PB_ENOMEM, "counters: no memory");
    c->group = *g;
    for (int i = 0; i < g->events; i++) c->names[i] = c->group.event[i].counter;
    return load();
}

pb_status pb_gpu_counters_passes(const pb_counter_group *g, int *passes)
{
    pb_gpu_counters *c;
    *passes = 0;
    pb_status s = make(g, &c);
    if (s == PB_OK) s = make_config(c, passes);
    pb_gpu_counters_close(c);
    return s;
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
    if (c->counting) (void)pb_gpu_counters_end(c, NULL);
    disable(c);
    PARAMETERS(CUpti_Profiler_Host_Deinitialize_Params, host);
    host.pHostObject = c->host;
    if (c->host) (void)api.cuptiProfilerHostDeinitialize(&host);
    free(c->available);
    free(c->config);
    free(c->data);
    free(c);
}

/* ---- the GPU ------------------------------------------------------------------------------------------ */

/* The context and the device of the calling thread. The driver's library is loaded already where a context exists. */
static pb_status find_context(CUcontext *context, CUdevice *device)
{
    int (*context_of)(CUcontext *) = NULL, (*device_of)(CUdevice *) = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver) {
        *(void **)&context_of = dlsym(driver, "cuCtxGetCurrent");
        *(void **)&device_of = dlsym(driver, "cuCtxGetDevice");
    }
    *context = NULL;
    if (context_of && device_of && context_of(context) == 0 && *context && device_of(device) == 0) return PB_OK;
    return pb_fail(PB_EUNSUPPORTED, "counters: this thread uses no GPU");
}

/* Refuses a GPU of another chip than the group's, and one that offers no counters to this user. */
static pb_status check_device(pb_gpu_counters *c, CUdevice device)
{
    PARAMETERS(CUpti_Profiler_DeviceSupported_Params, can);
    can.cuDevice = device;
    can.api = CUPTI_PROFILER_RANGE_PROFILING;
    COUNT_TRY(cuptiProfilerDeviceSupported, &can);
    if (can.isSupported != CUPTI_PROFILER_CONFIGURATION_SUPPORTED)
        return pb_fail(PB_EUNSUPPORTED, "counters: this GPU offers none: %s",
                       can.vGpu != CUPTI_PROFILER_CONFIGURATION_SUPPORTED ? "it is virtual"
                       : can.confidentialCompute != CUPTI_PROFILER_CONFIGURATION_SUPPORTED
                           ? "it is in confidential mode"
                           : "its architecture or the system is not supported by CUPTI");
    PARAMETERS(CUpti_Device_GetChipName_Params, chip);
    chip.deviceIndex = (size_t)device;
    COUNT_TRY(cuptiDeviceGetChipName, &chip);
    if (strcmp(chip.pChipName, c->group.chip) != 0)
        return pb_fail(PB_EUNSUPPORTED, "counters: group %s is for the chip %s, and this GPU is a %.16s", c->group.name,
                       c->group.chip, chip.pChipName);
    return PB_OK;
}

static pb_status find_available(pb_gpu_counters *c)
{
    PARAMETERS(CUpti_Profiler_GetCounterAvailability_Params, there);
    there.ctx = c->context;
    COUNT_TRY(cuptiProfilerGetCounterAvailability, &there);
    c->available = calloc(1, there.counterAvailabilityImageSize);
    if (!c->available) return pb_fail(PB_ENOMEM, "counters: no memory");
    there.pCounterAvailabilityImage = c->available;
    COUNT_TRY(cuptiProfilerGetCounterAvailability, &there);
    return PB_OK;
}

static pb_status prepare(pb_gpu_counters *c)
{
    CUdevice device;
    int passes;
    PARAMETERS(CUpti_Profiler_Initialize_Params, on);
    PB_TRY(find_context(&c->context, &device));
    COUNT_TRY(cuptiProfilerInitialize, &on);
    PB_TRY(check_device(c, device));
    PB_TRY(find_available(c));
    PB_TRY(make_config(c, &passes));
    if (passes > PB_COUNTED_PASSES)
        return pb_fail(PB_EUNSUPPORTED, "counters: group %s needs %d passes on this GPU, and %d are allowed",
                       c->group.name, passes, PB_COUNTED_PASSES);
    /* Permission may be refused only when counting starts: find out now, before anything is measured. */
    PB_TRY(pb_gpu_counters_begin(c));
    return pb_gpu_counters_end(c, NULL);
}

pb_status pb_gpu_counters_open(const pb_counter_group *g, pb_gpu_counters **out)
{
    pb_status s = make(g, out);
    if (s == PB_OK) s = prepare(*out);
    if (s != PB_OK) pb_gpu_counters_close(*out), *out = NULL;
    return s;
}

/* ---- counting ----------------------------------------------------------------------------------------- */

/* Switching the profiler on, with the first start, takes about 1.1 s, and off 0.2 s; a further start 0.05 s (on one
 * H100). So it stays on from pb_gpu_counters_open to pb_gpu_counters_close, unless a call fails. */
static pb_status enable(pb_gpu_counters *c)
{
    if (c->ranges) return PB_OK;
    PARAMETERS(CUpti_RangeProfiler_Enable_Params, on);
    on.ctx = c->context;
    COUNT_TRY(cuptiRangeProfilerEnable, &on);
    c->ranges = on.pRangeProfilerObject;
    return PB_OK;
}

static pb_status make_data(pb_gpu_counters *c)
{
    PARAMETERS(CUpti_RangeProfiler_GetCounterDataSize_Params, size);
    size.pRangeProfilerObject = c->ranges;
    size.pMetricNames = c->names;
    size.numMetrics = (size_t)c->group.events;
    size.maxNumOfRanges = PB_COUNTED_KERNELS;
    size.maxNumRangeTreeNodes = PB_COUNTED_KERNELS;
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

/* Each kernel is a range (auto range), run again for each pass (kernel replay). */
static pb_status start(pb_gpu_counters *c)
{
    PB_TRY(enable(c));
    PB_TRY(make_data(c));
    PARAMETERS(CUpti_RangeProfiler_SetConfig_Params, how);
    how.pRangeProfilerObject = c->ranges;
    how.configSize = c->config_bytes;
    how.pConfig = c->config;
    how.counterDataImageSize = c->data_bytes;
    how.pCounterDataImage = c->data;
    how.range = CUPTI_AutoRange;
    how.replayMode = CUPTI_KernelReplay;
    how.maxRangesPerPass = PB_COUNTED_KERNELS;
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
    if (s != PB_OK) disable(c);
    return s;
}

/* Adds the counts of all ranges: values[events]. */
static pb_status add_ranges(pb_gpu_counters *c, double *values)
{
    PARAMETERS(CUpti_RangeProfiler_GetCounterDataInfo_Params, info);
    info.pCounterDataImage = c->data;
    info.counterDataImageSize = c->data_bytes;
    COUNT_TRY(cuptiRangeProfilerGetCounterDataInfo, &info);
    if (!info.numTotalRanges) return pb_fail(PB_EDEVICE, "counters: the call launched no kernel that can be counted");
    for (int k = 0; k < c->group.events; k++) values[k] = 0;
    for (size_t i = 0; i < info.numTotalRanges; i++) {
        double of[PB_GROUP_EVENTS] = {0};
        PARAMETERS(CUpti_Profiler_Host_EvaluateToGpuValues_Params, get);
        get.pHostObject = c->host;
        get.pCounterDataImage = c->data;
        get.counterDataImageSize = c->data_bytes;
        get.rangeIndex = i;
        get.ppMetricNames = c->names;
        get.numMetrics = (size_t)c->group.events;
        get.pMetricValues = of;
        COUNT_TRY(cuptiProfilerHostEvaluateToGpuValues, &get);
        for (int k = 0; k < c->group.events; k++) values[k] += of[k];
    }
    return PB_OK;
}

static pb_status collect(pb_gpu_counters *c, double *values)
{
    PARAMETERS(CUpti_RangeProfiler_Stop_Params, stop);
    stop.pRangeProfilerObject = c->ranges;
    const CUptiResult r = api.cuptiRangeProfilerStop(&stop);
    if (!values) return PB_OK;
    if (r != CUPTI_SUCCESS) return failed("cuptiRangeProfilerStop", r);
    if (!stop.isAllPassSubmitted)
        return pb_fail(PB_EDEVICE, "counters: kernel replay ended before all passes were run");
    PARAMETERS(CUpti_RangeProfiler_DecodeData_Params, decode);
    decode.pRangeProfilerObject = c->ranges;
    COUNT_TRY(cuptiRangeProfilerDecodeData, &decode);
    if (decode.numOfRangeDropped)
        return pb_fail(PB_EDEVICE, "counters: the call launched more than %d kernels: %zu were not counted",
                       PB_COUNTED_KERNELS, decode.numOfRangeDropped);
    return add_ranges(c, values);
}

pb_status pb_gpu_counters_end(pb_gpu_counters *c, double *values)
{
    const pb_status s = collect(c, values);
    c->counting = false;
    if (s != PB_OK) disable(c);
    return s;
}
