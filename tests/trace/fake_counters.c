/* fake_counters.c - the range profiler of the fake libcupti (fake_cupti.c). Each call of two kernels is two ranges;
 * event k has the counts 100 + k and 200 + k in them. Ranges that are pushed are reported in reverse, so that only
 * their names say which is which: event k of the one with the name N has the count 1000 * N + k. A call in a wrong
 * order fails. PB_FAKE_CUPTI refuses:
 *     held      another tool holds the counters
 *     denied    only administrators may count; said when counting starts, as some drivers do
 *     virtual   a virtual GPU
 *     chip      another chip, AD102
 *     passes    every group needs 99 passes
 *     one       every group needs one pass, not two
 *     stray     a range is reported that was not pushed
 *     links     a GPU without NVLink
 *     lost      three kernels too many
 *     partial   kernel replay does not run all passes
 *     empty     no kernel was launched
 *     decode    decoding fails */
#include <cupti_profiler_host.h>

#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/trace/fake_samples.h"

enum { KERNELS = 2, LOST = 3, MANY = 99, PER_RANGE = 1000 };

/* How far a session is; each call needs the state before it. BROKEN: only switching off helps. */
static enum { OFF, ENABLED, EMPTY, CONFIGURED, STARTED, STOPPED, DECODED, BROKEN } state;
static bool user, inside; /* ranges are pushed; one is open */
static size_t pushed, most;
static bool sampled, of_gpu; /* the host object samples; it has the image of what the GPU offers */

static bool is(const char *kind)
{
    const char *wanted = getenv("PB_FAKE_CUPTI");
    return wanted && strcmp(wanted, kind) == 0;
}

static CUptiResult go(int from, int to)
{
    if ((int)state != from) return CUPTI_ERROR_INVALID_OPERATION;
    state = to;
    return CUPTI_SUCCESS;
}

#pragma GCC diagnostic ignored "-Wunused-parameter"
CUptiResult cuptiProfilerInitialize(CUpti_Profiler_Initialize_Params *p) { return CUPTI_SUCCESS; }

CUptiResult cuptiProfilerDeviceSupported(CUpti_Profiler_DeviceSupported_Params *p)
{
    p->confidentialCompute = CUPTI_PROFILER_CONFIGURATION_SUPPORTED;
    p->vGpu = p->isSupported =
        is("virtual") ? CUPTI_PROFILER_CONFIGURATION_DISABLED : CUPTI_PROFILER_CONFIGURATION_SUPPORTED;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiDeviceGetChipName(CUpti_Device_GetChipName_Params *p)
{
    p->pChipName = is("chip") ? "AD102" : "GH100";
    return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerGetCounterAvailability(CUpti_Profiler_GetCounterAvailability_Params *p)
{
    p->counterAvailabilityImageSize = 8;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerHostInitialize(CUpti_Profiler_Host_Initialize_Params *p)
{
    sampled = p->profilerType == CUPTI_PROFILER_TYPE_PM_SAMPLING;
    of_gpu = p->pCounterAvailabilityImage != NULL;
    p->pHostObject = (CUpti_Profiler_Host_Object *)&state;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostDeinitialize(CUpti_Profiler_Host_Deinitialize_Params *p) { return CUPTI_SUCCESS; }

CUptiResult cuptiProfilerHostConfigAddMetrics(CUpti_Profiler_Host_ConfigAddMetrics_Params *p)
{
    for (size_t i = 0; i < p->numMetrics; i++)
        if (strncmp(p->ppMetricNames[i], "no_such", 7) == 0 ||
            (of_gpu && is("links") && strncmp(p->ppMetricNames[i], "NVL", 3) == 0))
            return CUPTI_ERROR_INVALID_PARAMETER;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerHostGetConfigImageSize(CUpti_Profiler_Host_GetConfigImageSize_Params *p)
{
    p->configImageSize = 16;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostGetConfigImage(CUpti_Profiler_Host_GetConfigImage_Params *p) { return CUPTI_SUCCESS; }

CUptiResult cuptiProfilerHostGetNumOfPasses(CUpti_Profiler_Host_GetNumOfPasses_Params *p)
{
    p->numOfPasses = is("passes") ? MANY : sampled || is("one") || is("stray") || is("fault") ? 1 : 2;
    return CUPTI_SUCCESS;
}

static CUptiResult evaluate(CUpti_Profiler_Host_EvaluateToGpuValues_Params *p)
{
    const double base = user ? PER_RANGE * (double)(pushed - 1 - p->rangeIndex) : 100.0 * (double)(p->rangeIndex + 1);
    for (size_t k = 0; k < p->numMetrics; k++) p->pMetricValues[k] = base + (double)k;
    return state == DECODED ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_OPERATION;
}

CUptiResult cuptiProfilerHostEvaluateToGpuValues(CUpti_Profiler_Host_EvaluateToGpuValues_Params *p)
{
    for (size_t k = 0; k < p->numMetrics; k++)
        if (!pb_fake_sample(p->rangeIndex, k, &p->pMetricValues[k])) return evaluate(p);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerEnable(CUpti_RangeProfiler_Enable_Params *p)
{
    p->pRangeProfilerObject = (CUpti_RangeProfiler_Object *)&state;
    return is("held") ? CUPTI_ERROR_HARDWARE_BUSY : p->ctx ? go(OFF, ENABLED) : CUPTI_ERROR_INVALID_CONTEXT;
}

CUptiResult cuptiRangeProfilerDisable(CUpti_RangeProfiler_Disable_Params *p)
{
    state = OFF;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerGetCounterDataSize(CUpti_RangeProfiler_GetCounterDataSize_Params *p)
{
    p->counterDataSize = 32;
    return p->maxNumRangeTreeNodes >= p->maxNumOfRanges ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult cuptiRangeProfilerCounterDataImageInitialize(CUpti_RangeProfiler_CounterDataImage_Initialize_Params *p)
{
    return state == STOPPED || state == DECODED ? go((int)state, EMPTY) : go(ENABLED, EMPTY);
}

CUptiResult cuptiRangeProfilerSetConfig(CUpti_RangeProfiler_SetConfig_Params *p)
{
    user = p->range == CUPTI_UserRange;
    pushed = 0;
    most = p->maxRangesPerPass;
    const bool right = p->replayMode == (user ? CUPTI_UserReplay : CUPTI_KernelReplay) && p->pConfig &&
                       p->pCounterDataImage && p->numNestingLevels == 1;
    return right ? go(EMPTY, CONFIGURED) : CUPTI_ERROR_INVALID_OPERATION;
}

CUptiResult cuptiRangeProfilerStart(CUpti_RangeProfiler_Start_Params *p)
{
    return is("denied") ? CUPTI_ERROR_INSUFFICIENT_PRIVILEGES : go(CONFIGURED, STARTED);
}

CUptiResult cuptiRangeProfilerStop(CUpti_RangeProfiler_Stop_Params *p)
{
    p->isAllPassSubmitted = !is("partial");
    return inside ? CUPTI_ERROR_INVALID_OPERATION : go(STARTED, STOPPED);
}

CUptiResult cuptiRangeProfilerDecodeData(CUpti_RangeProfiler_DecodeData_Params *p)
{
    p->numOfRangeDropped = is("lost") ? LOST : 0;
    return is("decode") ? (state = BROKEN, CUPTI_ERROR_UNKNOWN) : go(STOPPED, DECODED);
}

CUptiResult cuptiRangeProfilerGetCounterDataInfo(CUpti_RangeProfiler_GetCounterDataInfo_Params *p)
{
    p->numTotalRanges = is("empty") ? 0 : user ? pushed : KERNELS;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerPushRange(CUpti_RangeProfiler_PushRange_Params *p)
{
    if (state != STARTED || !user || inside || strtoul(p->pRangeName, NULL, 10) != pushed || pushed == most)
        return CUPTI_ERROR_INVALID_OPERATION;
    pushed++;
    inside = true;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerPopRange(CUpti_RangeProfiler_PopRange_Params *p)
{
    if (state != STARTED || !inside) return CUPTI_ERROR_INVALID_OPERATION;
    inside = false;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerCounterDataGetRangeInfo(CUpti_RangeProfiler_CounterData_GetRangeInfo_Params *p)
{
    static char name[24];
    snprintf(name, sizeof name, "%zu", pushed - 1 - p->rangeIndex + (is("stray") ? pushed : 0));
    p->rangeName = name;
    return state == DECODED ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_OPERATION;
}
