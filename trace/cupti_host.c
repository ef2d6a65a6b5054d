/* cupti_host.c - implements cupti_host.h. */
#include "trace/cupti_host.h"

#include <cupti_target.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "trace/cupti_library.h"

static const char what[] = "counters";

static struct {
#define COUNTING(name, type) CUptiResult(CUPTIAPI *name)(type *);
#include "trace/cupti_host.def"
#undef COUNTING
    CUptiResult(CUPTIAPI *cuptiGetResultString)(CUptiResult, const char **);
    int (*cuCtxGetCurrent)(CUcontext *), (*cuCtxGetDevice)(CUdevice *), (*cuCtxSynchronize)(void); /* of the driver */
} api;

pb_status pb_cupti_host_failed(const char *call, CUptiResult r)
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

#define HOST_TRY(name, parameters)                                                                                     \
    do {                                                                                                               \
        const CUptiResult cupti_result_ = api.name(parameters);                                                        \
        if (cupti_result_ != CUPTI_SUCCESS) return pb_cupti_host_failed(#name, cupti_result_);                         \
    } while (0)

pb_status pb_cupti_host_symbol(const char *name, void **out)
{
    void *library;
    PB_TRY(pb_cupti_library(what, &library));
    return pb_cupti_symbol(what, library, name, out);
}

pb_status pb_cupti_host_open(const pb_counter_group *g, pb_cupti_host *h)
{
    *h = (pb_cupti_host){.group = *g};
    for (int i = 0; i < g->events; i++) h->names[i] = h->group.event[i].counter;
#define COUNTING(name, type) PB_TRY(pb_cupti_host_symbol(#name, (void **)&api.name));
#include "trace/cupti_host.def"
#undef COUNTING
    return pb_cupti_host_symbol("cuptiGetResultString", (void **)&api.cuptiGetResultString);
}

/* ---- which passes read the events; needs no GPU ------------------------------------------------------- */

static CUptiResult make_object(const pb_cupti_host *h, CUpti_ProfilerType type, CUpti_Profiler_Host_Object **out)
{
    PARAMETERS(CUpti_Profiler_Host_Initialize_Params, host);
    host.profilerType = type;
    host.pChipName = h->group.chip;
    host.pCounterAvailabilityImage = h->available;
    const CUptiResult r = api.cuptiProfilerHostInitialize(&host);
    *out = r == CUPTI_SUCCESS ? host.pHostObject : NULL;
    return r;
}

static void free_object(CUpti_Profiler_Host_Object *object)
{
    PARAMETERS(CUpti_Profiler_Host_Deinitialize_Params, host);
    host.pHostObject = object;
    if (object) (void)api.cuptiProfilerHostDeinitialize(&host);
}

void pb_cupti_host_close(pb_cupti_host *h)
{
    free_object(h->object);
    free(h->available);
    free(h->config);
    h->object = NULL;
    h->available = h->config = NULL;
}

static CUptiResult add(const pb_cupti_host *h, CUpti_Profiler_Host_Object *object, int first, int n)
{
    PARAMETERS(CUpti_Profiler_Host_ConfigAddMetrics_Params, events);
    events.pHostObject = object;
    events.ppMetricNames = (const char **)&h->names[first];
    events.numMetrics = (size_t)n;
    return api.cuptiProfilerHostConfigAddMetrics(&events);
}

/* True if the chip has the event; with h->available, if this GPU offers it to this user. An object that has refused an
 * event refuses all later ones, so each event gets a new one. */
static bool has(const pb_cupti_host *h, CUpti_ProfilerType type, int event)
{
    CUpti_Profiler_Host_Object *object;
    const bool it = make_object(h, type, &object) == CUPTI_SUCCESS && add(h, object, event, 1) == CUPTI_SUCCESS;
    free_object(object);
    return it;
}

/* Adds all events by one call: those of a call share passes. */
static pb_status add_events(const pb_cupti_host *h, CUpti_ProfilerType type)
{
    const CUptiResult r = add(h, h->object, 0, h->group.events);
    pb_cupti_host chip = *h;
    chip.available = NULL;
    for (int i = 0; r != CUPTI_SUCCESS && i < h->group.events; i++) {
        if (has(h, type, i)) continue;
        if (!has(&chip, type, i))
            return pb_fail(PB_EINVAL, "counters: group %s: chip %s has no counter %s", h->group.name, h->group.chip,
                           h->names[i]);
        return pb_fail(PB_EUNSUPPORTED, "counters: group %s: this GPU does not offer counter %s, which its chip has",
                       h->group.name, h->names[i]);
    }
    return r == CUPTI_SUCCESS ? PB_OK : pb_cupti_host_failed("cuptiProfilerHostConfigAddMetrics", r);
}

/* A group is either counted in ranges of work or sampled over time. */
static pb_status check_reading(const pb_counter_group *g, CUpti_ProfilerType type)
{
    if (g->sampled == (type == CUPTI_PROFILER_TYPE_PM_SAMPLING)) return PB_OK;
    return g->sampled ? pb_fail(PB_EINVAL,
                                "counters: group %s is sampled over time (train --profile-sampling %s), not counted",
                                g->name, g->name)
                      : pb_fail(PB_EINVAL, "counters: group %s is counted in ranges of work, not sampled", g->name);
}

pb_status pb_cupti_host_configure(pb_cupti_host *h, CUpti_ProfilerType type)
{
    PB_TRY(check_reading(&h->group, type));
    if (make_object(h, type, &h->object) != CUPTI_SUCCESS)
        return pb_fail(PB_EUNSUPPORTED,
                       "counters: group %s: libcupti does not know the chip %s, or libnvperf_host is "
                       "not beside it",
                       h->group.name, h->group.chip);
    PB_TRY(add_events(h, type));
    PARAMETERS(CUpti_Profiler_Host_GetConfigImageSize_Params, size);
    size.pHostObject = h->object;
    HOST_TRY(cuptiProfilerHostGetConfigImageSize, &size);
    h->config = calloc(1, h->config_bytes = size.configImageSize);
    if (!h->config) return pb_fail(PB_ENOMEM, "counters: no memory");
    PARAMETERS(CUpti_Profiler_Host_GetConfigImage_Params, image);
    image.pHostObject = h->object;
    image.configImageSize = h->config_bytes;
    image.pConfigImage = h->config;
    HOST_TRY(cuptiProfilerHostGetConfigImage, &image);
    PARAMETERS(CUpti_Profiler_Host_GetNumOfPasses_Params, number);
    number.configImageSize = h->config_bytes;
    number.pConfigImage = h->config;
    HOST_TRY(cuptiProfilerHostGetNumOfPasses, &number);
    h->passes = (int)number.numOfPasses;
    return PB_OK;
}

/* ---- the GPU ------------------------------------------------------------------------------------------ */

/* The driver's library is loaded already where a context exists. */
static pb_status find_context(pb_cupti_host *h)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver) {
        *(void **)&api.cuCtxGetCurrent = dlsym(driver, "cuCtxGetCurrent");
        *(void **)&api.cuCtxGetDevice = dlsym(driver, "cuCtxGetDevice");
        *(void **)&api.cuCtxSynchronize = dlsym(driver, "cuCtxSynchronize");
    }
    h->context = NULL;
    if (api.cuCtxGetCurrent && api.cuCtxGetDevice && api.cuCtxSynchronize && api.cuCtxGetCurrent(&h->context) == 0 &&
        h->context && api.cuCtxGetDevice(&h->device) == 0)
        return PB_OK;
    return pb_fail(PB_EUNSUPPORTED, "counters: this thread uses no GPU");
}

pb_status pb_cupti_host_gpu(pb_cupti_host *h, CUpti_Profiler_API kind)
{
    PARAMETERS(CUpti_Profiler_Initialize_Params, on);
    PB_TRY(find_context(h));
    HOST_TRY(cuptiProfilerInitialize, &on);
    PARAMETERS(CUpti_Profiler_DeviceSupported_Params, can);
    can.cuDevice = h->device;
    can.api = kind;
    HOST_TRY(cuptiProfilerDeviceSupported, &can);
    if (can.isSupported != CUPTI_PROFILER_CONFIGURATION_SUPPORTED)
        return pb_fail(PB_EUNSUPPORTED, "counters: this GPU offers none: %s",
                       can.vGpu != CUPTI_PROFILER_CONFIGURATION_SUPPORTED ? "it is virtual"
                       : can.confidentialCompute != CUPTI_PROFILER_CONFIGURATION_SUPPORTED
                           ? "it is in confidential mode"
                           : "its architecture or the system is not supported by CUPTI");
    PARAMETERS(CUpti_Device_GetChipName_Params, chip);
    chip.deviceIndex = (size_t)h->device;
    HOST_TRY(cuptiDeviceGetChipName, &chip);
    if (strcmp(chip.pChipName, h->group.chip) != 0)
        return pb_fail(PB_EUNSUPPORTED, "counters: group %s is for the chip %s, and this GPU is a %.16s", h->group.name,
                       h->group.chip, chip.pChipName);
    return PB_OK;
}

pb_status pb_cupti_host_wait(const pb_cupti_host *h)
{
    (void)h;
    const int error = api.cuCtxSynchronize();
    return error == 0 ? PB_OK : pb_fail(PB_EDEVICE, "counters: the GPU's work failed (CUDA driver error %d)", error);
}

pb_status pb_cupti_host_values(const pb_cupti_host *h, const uint8_t *data, size_t bytes, size_t index, double *values)
{
    PARAMETERS(CUpti_Profiler_Host_EvaluateToGpuValues_Params, get);
    get.pHostObject = h->object;
    get.pCounterDataImage = data;
    get.counterDataImageSize = bytes;
    get.rangeIndex = index;
    get.ppMetricNames = (const char **)h->names;
    get.numMetrics = (size_t)h->group.events;
    get.pMetricValues = values;
    HOST_TRY(cuptiProfilerHostEvaluateToGpuValues, &get);
    return PB_OK;
}
